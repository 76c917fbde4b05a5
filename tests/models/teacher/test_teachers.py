"""Which texts an image is looked at with, what is drawn for it, and what a teacher makes of both."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models.networks import precision
from models.teacher.teachers import (
    ANY_OBJECT,
    SIMILAR,
    DiffusionTeacher,
    TeacherSettings,
    build_teacher,
    prompt,
    prompts_of,
    teacher_name,
)
from tests.datasets.tables import SCENES, table_of
from utils.errors import UserError

CPU = torch.device("cpu")
SETTINGS = TeacherSettings(
    features="diffusion",
    diffusion_model="",
    diffusion_size=32,
    timestep=150,
    layers=(2, 3, 4),
    prompts="class",
    n_negatives=None,
    blank_images=False,
    precision="fp32",
    rand_seed=0,
)
LABELS = np.array([3, -1, 0, 15])


def table(labels: np.ndarray = LABELS):
    return replace(table_of(Path("nowhere"), len(labels)), labels=labels)


def test_every_class_is_a_column_and_the_own_text_is_that_of_the_true_class() -> None:
    texts, of, positive = prompts_of(SETTINGS, table())
    assert texts == (*(f"a photo of a scene {i}" for i in range(16)), ANY_OBJECT)
    assert of.shape == (4, 17) and (of[:, :16] == np.arange(16)).all()
    assert of[:, 16].tolist() == [3, 16, 0, 15]  # without a class, an object
    assert positive.tolist() == [3, -1, 0, 15]


def test_some_negatives_are_other_classes_of_each_image() -> None:
    settings = replace(SETTINGS, n_negatives=4)
    _, of, positive = prompts_of(settings, table())
    assert of.shape == (4, 6) and positive.tolist() == [0, -1, 0, 0]
    for row, label in zip(of, LABELS, strict=True):
        assert len(set(row[:5])) == 5
        assert label < 0 or row[0] == row[5] == label
    assert not np.array_equal(of[2, 1:5], of[3, 1:5])
    # Drawn by the image's name: the same in whatever table it stands.
    assert np.array_equal(prompts_of(settings, table(LABELS[:2]))[1], of[:2])


def test_neutral_texts_know_no_class() -> None:
    settings = replace(SETTINGS, prompts="neutral", n_negatives=5)
    texts, of, positive = prompts_of(settings, table())
    assert (texts[0], texts[-1], len(texts)) == (SIMILAR, ANY_OBJECT, 7)
    assert all(text.startswith("a photo of a ") for text in texts) and len(set(texts)) == 7
    assert (of == np.arange(7)).all() and (positive == 0).all()
    assert prompts_of(replace(settings, rand_seed=1), table())[0][1:-1] != texts[1:-1]
    unlabelled = replace(table(), info=replace(table().info, classes={}), labels=np.full(4, -1))
    assert np.array_equal(prompts_of(settings, unlabelled)[1], of)
    with pytest.raises(UserError, match="have no classes; give --prompts neutral"):
        prompts_of(SETTINGS, unlabelled)


def test_neutral_texts_are_no_more_than_there_are_names() -> None:
    settings = replace(SETTINGS, prompts="neutral", n_negatives=1000)
    assert len(set(prompts_of(settings, table())[0])) == 1002
    with pytest.raises(UserError, match="--n_negatives 1001: neutral prompts are of 1000 names; give no more"):
        prompts_of(replace(settings, n_negatives=1001), table())


def test_names_of_places_are_made_readable() -> None:
    assert prompt("bow_window/indoor") == "a photo of a bow window indoor"
    assert SCENES.names[0] == "scene 0"


def test_kinds_of_teachers() -> None:
    kinds = ["diffusion", "image", "timm:resnet18", "random:resnet18"]
    assert [teacher_name(text) for text in kinds] == kinds
    for text in ("model", "target", "stable"):
        with pytest.raises(ArgumentTypeError):
            teacher_name(text)


def test_the_image_is_looked_at_clean_and_its_own_vector_comes_of_noise(tiny_diffusion: Path) -> None:
    """Every pass, one image and one text at a time, straight from the model."""
    teacher = build_teacher(replace(SETTINGS, diffusion_model=str(tiny_diffusion)), table(), CPU, at_once=5)
    assert isinstance(teacher, DiffusionTeacher) and teacher.columns == 17
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    rows, columns = np.array([3, 0]), np.array([[16, 2, 7], [0, 16, 3]])
    batches = list(teacher.maps(images, rows, columns))
    assert [len(batch[0]) for batch in batches] == [5, 1]
    found = [torch.cat(layer) for layer in zip(*batches, strict=True)]
    model = teacher._model
    for i, (image, row) in enumerate(zip(images, rows, strict=True)):
        clean = model.latents(image[None])
        noise = torch.from_numpy(teacher._noise(int(row), clean.shape[1:]))[None]
        for j, column in enumerate(columns[i]):
            own = column == 16
            text = f"a photo of a scene {LABELS[row] if own else column}"
            latents = model.noisy(clean, noise, 150) if own else clean
            expected = model.maps(latents, torch.tensor([150 if own else 0]), model.texts([text]))
            for mine, by_hand in zip(found, expected, strict=True):
                torch.testing.assert_close(mine[3 * i + j], by_hand[0], atol=1e-5, rtol=1e-4)


def test_noise_is_the_images_and_not_the_batchs(tiny_diffusion: Path) -> None:
    settings = replace(SETTINGS, diffusion_model=str(tiny_diffusion))
    teacher, other = (DiffusionTeacher(s, table(), CPU, 8) for s in (settings, replace(settings, rand_seed=1)))
    shape = (4, 4, 4)
    draws = [teacher._noise(row, shape) for row in range(4)]
    assert not np.allclose(draws[0], draws[1]) and np.array_equal(draws[2], teacher._noise(2, shape))
    assert not np.allclose(draws[0], other._noise(0, shape)) and teacher.inputs != other.inputs
    elsewhere = replace(settings, diffusion_model=f"{tiny_diffusion}/../{tiny_diffusion.name}")
    assert DiffusionTeacher(elsewhere, table(), CPU, 8).inputs == teacher.inputs


def test_a_condition_is_added_to_all_tokens_but_not_for_the_own_vector(tiny_diffusion: Path) -> None:
    teacher = DiffusionTeacher(replace(SETTINGS, diffusion_model=str(tiny_diffusion)), table(), CPU, 8)
    images, rows, columns = torch.rand(2, 3, 32, 32), np.array([0, 2]), np.array([[1, 16], [5, 16]])

    def maps(condition: torch.Tensor | None) -> torch.Tensor:
        return torch.cat([batch[2] for batch in teacher.maps(images, rows, columns, condition)])

    plain, still, moved = maps(None), maps(torch.zeros(2, teacher.width)), maps(torch.ones(2, teacher.width))
    assert torch.equal(plain, still) and torch.equal(plain[1::2], moved[1::2])
    clean = teacher._model.latents(images[1:])
    text = teacher._model.texts(["a photo of a scene 5"]) + 1
    expected = teacher._model.maps(clean, torch.tensor([0]), text)[2][0]
    torch.testing.assert_close(moved[2], expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(moved[2], plain[2])


def test_other_networks_have_one_vector_an_image() -> None:
    teacher = build_teacher(replace(SETTINGS, features="image"), table(), CPU, 8)
    images = torch.rand(2, 3, 32, 32)
    [[found]] = teacher.maps(images, np.array([0, 1]), np.zeros((2, 1), np.int64))
    torch.testing.assert_close(found, torch.nn.functional.avg_pool2d(images, 4).flatten(1))
    assert teacher.columns == 1 and (teacher.positive == -1).all() and teacher.texts == ()
    random, again = (build_teacher(replace(SETTINGS, features="random:resnet10t"), table(), CPU, 8) for _ in range(2))
    one, two = (next(each.maps(images, np.array([0, 1]), np.zeros((2, 1), np.int64)))[0] for each in (random, again))
    assert one.shape == (2, 512) and torch.equal(one, two)  # random, and always the same


def test_a_network_computes_in_bf16_when_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_cpu_has", lambda feature: True)  # emulated where it is not there
    images, rows = torch.rand(2, 3, 32, 32), np.array([0, 1])
    settings = replace(SETTINGS, features="random:resnet10t")
    [[full]], [[half]] = (
        build_teacher(replace(settings, precision=each), table(), CPU, 8).maps(images, rows, rows[:, None])
        for each in ("fp32", "bf16")
    )
    assert half.dtype == torch.float32 and not torch.equal(half, full)
    torch.testing.assert_close(half, full, rtol=0.05, atol=0.05 * float(full.abs().max()))
    monkeypatch.setattr(precision, "_cpu_has", lambda feature: False)
    with pytest.raises(UserError, match="use --precision fp32"):
        build_teacher(replace(settings, precision="bf16"), table(), CPU, 8)
