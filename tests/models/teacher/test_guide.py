"""What a guide gives for an image, and what a teacher says when it is asked again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from datasets.table import Table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel
from models.teacher.basis import Photographs
from models.teacher.guidance import make_guidance
from models.teacher.guide import Condition, Guide
from models.teacher.teachers import build_teacher
from tests.models.teacher.guiding import SETTINGS, save_guidance
from tests.network import quadratic as q
from utils.errors import UserError

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_guidance(tmp_path / "guidance", "quadratic", 11, 3, 8)


def test_an_image_has_its_own_rows(folder: Path) -> None:
    guide = Guide(folder, q.QuadraticData(), q.CLIENTS, shuffle=None)
    guide.contrast("texts", np.zeros(11))
    vectors, right = (np.load(folder / f"{name}.npy") for name in ("features", "positive"))
    at = torch.tensor([4, 0, 7])
    assert np.array_equal(guide.own(at), vectors[at, 3]) and np.array_equal(guide.choices(at), vectors[at, :3])
    assert np.array_equal(guide.right(at), right[at]) and np.array_equal(guide.sources(at.numpy()), at)


def test_shuffled_rows_stay_among_the_clients_and_together(folder: Path) -> None:
    guide = Guide(folder, q.QuadraticData(), q.CLIENTS, shuffle=3)
    guide.contrast("texts", np.zeros(11))
    images = np.arange(8)
    sources = guide.sources(images)
    assert sorted(sources) == list(images) and (sources != images).sum() >= 4
    other = Guide(folder, q.QuadraticData(), q.CLIENTS, shuffle=4).sources(images)
    assert sorted(other) == list(images) and not np.array_equal(other, sources)  # each run's seed has its own order
    assert np.array_equal(guide.sources(np.arange(8, 11)), np.arange(8, 11))  # held-out images are as they were
    vectors, right = (np.load(folder / f"{name}.npy") for name in ("features", "positive"))
    at = torch.from_numpy(images)
    assert np.array_equal(guide.own(at), vectors[sources, 3]) and np.array_equal(guide.right(at), right[sources])


def test_means_are_over_the_clients_images_of_a_group(folder: Path) -> None:
    groups = np.array([0, 2, 2, -1, 0, 0, 2, 2, 0, 1, 2])  # the last three are held out
    guide = Guide(folder, q.QuadraticData(), q.CLIENTS, shuffle=None)
    guide.contrast("groups", groups)
    own = np.load(folder / "features.npy")[:, 3].astype(float)
    expected = np.stack([own[[0, 4, 5]].mean(0), np.zeros(8), own[[1, 2, 6, 7]].mean(0)])
    np.testing.assert_allclose(guide.choices(torch.tensor([0])), expected, rtol=1e-6)
    assert guide.right(torch.arange(11)).tolist() == groups.tolist()
    guide.contrast("classes", groups)  # the quadratic images all have the class 0
    np.testing.assert_allclose(guide.choices(torch.tensor([0])), own[:8].mean(0)[None], rtol=1e-6)


def test_without_anything_to_choose_among_a_line_says_so(tmp_path: Path) -> None:
    folder = save_guidance(tmp_path, "quadratic", 11, 0, 8, positive=np.full(11, -1))
    guide = Guide(folder, q.QuadraticData(), q.CLIENTS, shuffle=None)
    for kind in ("texts", "groups"):
        with pytest.raises(UserError, match=f"no {kind} to choose among; give another --contrast, or --tdcl_weight 0"):
            guide.contrast(kind, np.full(11, -1))


def test_features_and_vectors_are_cut_to_the_same_length(folder: Path) -> None:
    guide = Guide(folder, q.QuadraticData(), q.CLIENTS, shuffle=None)
    vectors = guide.own(torch.arange(2))
    short, cut = guide.compared(torch.randn(2, 4), vectors)
    torch.testing.assert_close(cut, torch.nn.functional.normalize(vectors[:, :4].float()))
    features = torch.randn(2, 16)
    averaged, whole = guide.compared(features, vectors)
    torch.testing.assert_close(averaged, torch.nn.functional.normalize(features.unflatten(1, (8, 2)).mean(2)))
    for each in (short, cut, averaged, whole):
        torch.testing.assert_close(each.norm(dim=1), torch.ones(2))


# Asked again, with the real teacher on rendered rooms


@pytest.fixture(scope="module")
def asked(tiny_diffusion: Path, table: Table, tmp_path_factory: pytest.TempPathFactory) -> tuple[Condition, Guide]:
    settings = replace(SETTINGS, diffusion_model=str(tiny_diffusion), n_negatives=2)
    folder, photographs = tmp_path_factory.mktemp("asked"), Photographs(table, 32, CPU)
    make_guidance(folder, build_teacher(settings, table, CPU, 32), settings, photographs, Accelerator(cpu=True))
    data = TaskData(table, table.bind(get_task("class_scene")), 16, CPU)
    guide = Guide(folder, data, [data.train], shuffle=None)
    guide.contrast("texts", np.zeros(len(table)))
    return Condition(guide), guide


def test_a_condition_of_length_0_changes_nothing_and_others_follow_the_model(
    asked: tuple[Condition, Guide], monkeypatch: pytest.MonkeyPatch
) -> None:
    condition, guide = asked
    torch.manual_seed(0)
    model = TaskModel(ModelConfig("class_scene", image_size=16, classes=guide.data.task.classes))
    images = guide.data.train[[7, 3, 3, 12]]
    start = model.state_dict()
    monkeypatch.setattr(condition, "scale", 0.0)
    said = condition.request(model, start, images)
    assert said["images"].tolist() == sorted(set(images.tolist())) and model.training
    at = torch.from_numpy(images)
    torch.testing.assert_close(condition.answers(at, said), guide.choices(at), atol=2e-2, rtol=2e-2)
    monkeypatch.setattr(condition, "scale", 1.0)
    first = condition.request(model, start, images)
    again = condition.request(model, start, images)
    assert torch.equal(first["vectors"], again["vectors"]) and not torch.equal(first["vectors"], said["vectors"])
    start = {name: 1.5 * t if t.dtype.is_floating_point else t for name, t in start.items()}
    assert not torch.equal(condition.request(model, start, images)["vectors"], first["vectors"])


def test_the_lift_keeps_angles_and_has_the_length_of_a_token(asked: tuple[Condition, Guide]) -> None:
    condition, _ = asked
    features = torch.randn(5, 12)
    lifted = condition._lifted(features)
    assert lifted.shape == (5, condition._teacher.width)
    torch.testing.assert_close(lifted.norm(dim=1), torch.full((5,), condition._teacher.token_norm))
    cosines = [torch.nn.functional.cosine_similarity(each[:1], each[1:]) for each in (features, lifted)]
    torch.testing.assert_close(*cosines, atol=1e-5, rtol=1e-4)
