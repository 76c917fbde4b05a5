"""The kept vectors: components against scikit-learn; the same files whatever the batch, the kill or the processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from sklearn.decomposition import PCA

from datasets.table import Table
from models.teacher import basis as g
from models.teacher.basis import Basis, Notes, Photographs, fit, shares
from models.teacher.guidance import Guidance, make_guidance, read_guidance, vectors_of
from models.teacher.measures import commonest_class, cosines, neighbours
from models.teacher.teachers import DiffusionTeacher, NetworkTeacher, Teacher, TeacherSettings, build_teacher
from reports.stages.teacher import report_guidance
from tests.conftest import ROOT, start_spread
from utils.errors import UserError

CPU = torch.device("cpu")
FEW = 16
NETWORK = TeacherSettings(
    features="random:resnet10t",
    diffusion_model="",
    diffusion_size=32,
    timestep=150,
    layers=(2, 3, 4),
    prompts="class",
    n_negatives=2,
    blank_images=False,
    precision="fp32",
    rand_seed=0,
)


@pytest.fixture(scope="module")
def settings(tiny_diffusion: Path) -> TeacherSettings:
    return replace(NETWORK, features="diffusion", diffusion_model=str(tiny_diffusion))


@pytest.fixture(scope="module")
def teacher(settings: TeacherSettings, table: Table) -> Teacher:
    return build_teacher(settings, table, CPU, 32)


@pytest.fixture(scope="module")
def photographs(table: Table) -> Photographs:
    return Photographs(table, 32, CPU, few=FEW)


@pytest.fixture(scope="module")
def made(
    settings: TeacherSettings, teacher: Teacher, photographs: Photographs, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make_guidance(folder, teacher, settings, photographs, Accelerator(cpu=True))
    return folder


# Components


def test_components_are_those_of_a_full_decomposition(
    teacher: Teacher, photographs: Photographs, tmp_path: Path
) -> None:
    basis = fit(teacher, photographs, Notes(tmp_path, ""))
    assert basis.sizes == [32, 16, 8] == shares([32, 16, 8])
    rows, last = photographs.train, teacher.columns - 1
    # The fixture has three texts per image, fewer than the sample takes: it sees all of them.
    columns = np.tile(np.arange(teacher.columns), (len(rows), 1))
    maps = list(zip(*teacher.maps(photographs.batch(rows), rows, columns), strict=True))
    pooled = []
    for layer, (parts, k) in enumerate(zip(maps, (32, 16, 8), strict=True)):
        of_layer = torch.cat(parts)
        pixels = of_layer.movedim(1, -1).flatten(0, 2).double().numpy()
        exact = PCA(k, svd_solver="full").fit(pixels)
        np.testing.assert_allclose(basis.means[layer], exact.mean_, atol=1e-4)
        strong = exact.explained_variance_ > 1e-4 * exact.explained_variance_[0]
        mine = basis.components[layer].numpy()[strong]
        # Eigenvectors of nearly equal variance may be mixed; the space that the strong ones span may not.
        projector = exact.components_[strong].T @ exact.components_[strong]
        np.testing.assert_allclose(mine.T @ mine, projector, atol=2e-2)
        coordinates = exact.transform(pixels).reshape(len(of_layer), -1, k)
        pooled.append(np.sqrt(np.square(coordinates).mean(1)))
    expected = np.concatenate(pooled, axis=1)
    own = np.tile(np.arange(teacher.columns) == last, len(rows))
    for which, part in enumerate((~own, own)):
        weight = np.abs(expected[part].mean(0)) > 1e-2 * np.abs(expected).max()
        np.testing.assert_allclose(basis.centre[which, weight], expected[part].mean(0)[weight], rtol=0.02)
    found = vectors_of(teacher, basis, photographs.batch(rows), rows, columns).flatten(0, 1).numpy()
    for part in (~own, own):
        np.testing.assert_allclose(found[part].mean(0), 0, atol=1e-3)
        np.testing.assert_allclose(found[part].std(0, ddof=1), 1, atol=1e-3)


def test_components_of_rows_by_hand() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 6)) * [3, 2, 1, 0.5, 0.2, 0.1])
    mean, components = g._components(rows.sum(0), rows.T @ rows, 50, 3)
    exact = PCA(3, svd_solver="full").fit(rows.numpy())
    np.testing.assert_allclose(np.abs(components.numpy() @ exact.components_.T), np.eye(3), atol=1e-5)
    assert (np.take_along_axis(components.numpy(), np.abs(components.numpy()).argmax(1)[:, None], 1) > 0).all()
    np.testing.assert_allclose(mean, exact.mean_, atol=1e-6)


def test_components_of_few_points_and_those_of_noise_are_left_out() -> None:
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(200, 100)))
    assert len(g._components(rows.sum(0), rows.T @ rows, 200, 100)[1]) == 200 // 4
    flat = rows * torch.tensor([1.0] * 10 + [1e-4] * 90)
    assert len(g._components(flat.sum(0), flat.T @ flat, 200, 100)[1]) == 10
    many, others = (torch.from_numpy(rng.normal(size=(n, 100)) / np.arange(1, 101)) for n in (400, 400))
    mean, components = g._components(many.sum(0), many.T @ many, 400, 512)
    inside, outside = (((each - mean) @ components.double().T).std(0) for each in (many, others))
    assert len(components) == 100 and (outside / inside).min() > 0.75


def test_a_basis_of_single_vectors_is_of_all_images(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(g, "_SAMPLE", 8)
    of_images = build_teacher(replace(NETWORK, features="image"), table, CPU, 32)
    photographs = Photographs(table, 32, CPU)
    basis = fit(of_images, photographs, Notes(tmp_path, ""))
    [[pixels]] = of_images.maps(photographs.batch(photographs.train), photographs.train, np.zeros((54, 1), np.int64))
    exact = PCA(len(basis.components[0]), svd_solver="full").fit(pixels.double().numpy())
    np.testing.assert_allclose(np.abs(np.diag(basis.components[0] @ exact.components_.T)), 1, atol=1e-3)
    np.testing.assert_allclose(basis.scale[1], np.sqrt(exact.explained_variance_), rtol=1e-3)


@pytest.mark.parametrize(
    "channels, expected",
    [((1280, 640, 320), [256, 128, 128]), ((320,), [320]), ((1280,), [512]), ((1280, 320), [256, 256])],
)
def test_layers_share_the_numbers_as_published(channels: tuple[int, ...], expected: list[int]) -> None:
    assert shares(channels) == expected


def test_vectors_are_roots_of_mean_squares_of_the_components() -> None:
    basis = Basis((torch.tensor([1.0, 0.0]),), (torch.tensor([[0.0, 1.0]]),), torch.zeros(2, 1), torch.ones(2, 1))
    maps = torch.tensor([[[[1.0, 2.0]], [[3.0, -4.0]]]])  # a pixel (1, 3) and a pixel (2, -4)
    own = torch.zeros(1, dtype=torch.int64)
    torch.testing.assert_close(basis.vectors([maps], own), torch.tensor([[(25 / 2) ** 0.5]]))
    torch.testing.assert_close(basis.vectors([maps[:, :, 0, 1]], own), torch.tensor([[-4.0]]))  # no maps: as it is


# What is kept


def test_what_is_kept_is_what_one_image_alone_gives(made: Path, teacher: Teacher, photographs: Photographs) -> None:
    kept = read_guidance(made, photographs.table, shortened=True)
    assert kept.features.dtype == np.float16 and kept.features.shape == (72, 4, 56) and kept.n_texts == 3
    basis = Basis.load(made / "basis.safetensors", kept.record["inputs"], CPU)
    for row in photographs.rows[[0, 7, 15]]:
        at = np.array([row])
        alone = vectors_of(teacher, basis, photographs.batch(at), at, np.array([[3, 1, 0, 2]]))[0]
        np.testing.assert_allclose(kept.features[row][[3, 1, 0, 2]], alone, atol=2e-2, rtol=2e-2)
    others = np.setdiff1d(np.arange(72), photographs.rows)
    assert not kept.features[others].any() and kept.features[photographs.rows].any(axis=(1, 2)).all()


def test_it_is_the_same_in_other_batches(
    made: Path, settings: TeacherSettings, photographs: Photographs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(g, "_IMAGES", 3)
    teacher = DiffusionTeacher(settings, photographs.table, CPU, at_once=5)
    found, _ = make_guidance(tmp_path, teacher, settings, photographs, Accelerator(cpu=True))
    np.testing.assert_allclose(found, np.load(made / "features.npy"), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("at", [1, 2, 4, 6], ids=["at once", "in the basis", "in the scale", "in the features"])
def test_it_goes_on_where_it_was_stopped(
    made: Path, settings: TeacherSettings, photographs: Photographs, tmp_path: Path, at: int
) -> None:
    class Stopped(DiffusionTeacher):
        calls = 0

        def maps(self, *given: object):
            self.calls += 1
            if self.calls == at:
                raise KeyboardInterrupt
            yield from super().maps(*given)

    teacher = Stopped(settings, photographs.table, CPU, 32)
    with pytest.raises(KeyboardInterrupt):
        make_guidance(tmp_path, teacher, settings, photographs, Accelerator(cpu=True))
    assert not (tmp_path / "guidance.json").exists()
    make_guidance(tmp_path, teacher, settings, photographs, Accelerator(cpu=True))
    # Two passes over 12 training images in blocks of eight, then the 16 images; what was done is not done again.
    assert teacher.calls == 1 + 6
    for name in ("features.npy", "positive.npy", "guidance.json"):
        assert (tmp_path / name).read_bytes() == (made / name).read_bytes()


@pytest.mark.parametrize("at", [1, 5, 9], ids=["at once", "in the images", "at the last"])
def test_a_network_looks_at_each_image_once_however_often_it_is_stopped(table: Table, tmp_path: Path, at: int) -> None:
    class Stopped(NetworkTeacher):
        calls = 0

        def maps(self, *given: object):
            self.calls += 1
            if self.calls == at:
                raise KeyboardInterrupt
            yield from super().maps(*given)

    small = replace(NETWORK, features="random:test_resnet")
    teacher, photographs = Stopped(small, table, CPU), Photographs(table, 32, CPU)
    with pytest.raises(KeyboardInterrupt):
        make_guidance(tmp_path, teacher, small, photographs, Accelerator(cpu=True))
    found, basis = make_guidance(tmp_path, teacher, small, photographs, Accelerator(cpu=True))
    assert teacher.calls == 1 + 72 // 8
    # Looking at all images again for the basis, its scale and the vectors gives the same.
    again = fit(teacher, photographs, Notes(tmp_path / "again", "", writes=False))
    torch.testing.assert_close(basis.components[0], again.components[0])
    torch.testing.assert_close(basis.scale, again.scale)
    rows = np.arange(72)
    expected = vectors_of(teacher, again, photographs.batch(rows), rows, np.zeros((72, 1), np.int64))
    np.testing.assert_allclose(found, expected, atol=2e-2, rtol=2e-2)
    calls = teacher.calls
    make_guidance(tmp_path, teacher, small, photographs, Accelerator(cpu=True))
    assert teacher.calls == calls and not list(tmp_path.glob("seen*"))


def test_a_folder_that_another_process_fills_is_left_alone(
    settings: TeacherSettings, teacher: Teacher, photographs: Photographs, tmp_path: Path
) -> None:
    hold = (
        "import sys; from pathlib import Path; from utils.files import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(tmp_path / ".lock")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match="another process is filling this folder; wait for it, or give another --g"):
            make_guidance(tmp_path, teacher, settings, photographs, Accelerator(cpu=True))
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        other.stdin.close()


def test_vectors_that_have_changed_since_are_not_read(made: Path, table: Table, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "changed"))
    vectors = np.load(folder / "features.npy")
    vectors[vectors.any(axis=(1, 2)).nonzero()[0][3:]] = 0
    np.save(folder / "features.npy", vectors)
    with pytest.raises(UserError, match=r"features.npy is not as it was written\); run extract_diffusion_features"):
        read_guidance(folder, table, shortened=True)


def test_two_processes_write_what_one_writes(own_copy: Path, tmp_path: Path) -> None:
    command = f"extract_diffusion_features.py --features image --data_path {own_copy} --use_accelerator False"
    folders = [tmp_path / str(n) for n in (1, 2)]
    for n, folder in enumerate(folders, start=1):
        folder.mkdir()
        for process in start_spread(folder, f"{command} --diffusion_size 16", n):
            process.join(120)
            assert process.exitcode == 0, (folder / "output.txt").read_text()
    one, two = (np.load(folder / "guidance/features.npy") for folder in folders)
    assert np.array_equal(one, two) and one.shape == (72, 1, 54 // 4) and one.any()
    for folder in folders:
        assert sorted(path.name for path in (folder / "guidance").iterdir() if path.name[0] != ".") == [
            "basis.safetensors",
            "features.filled.json",
            "features.npy",
            "guidance.json",
            "positive.npy",
        ]


def test_another_teacher_in_its_place_is_refused(
    made: Path, settings: TeacherSettings, photographs: Photographs
) -> None:
    for change, said in (({"timestep": 100}, "--timestep 150"), ({"prompts": "neutral"}, "--prompts class")):
        other = replace(settings, **change)
        teacher = build_teacher(other, photographs.table, CPU, 32)
        with pytest.raises(UserError, match=f"made with {said}; give another --guidance_path"):
            make_guidance(made, teacher, other, photographs, Accelerator(cpu=True))


def test_what_does_not_fit_is_refused(made: Path, table: Table, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="made for other images"):
        read_guidance(made, replace(table, fingerprint="another"), shortened=True)
    with pytest.raises(UserError, match="--test_mode True from a few images"):
        read_guidance(made, table, shortened=False)
    with pytest.raises(UserError, match=r"guidance\.json is missing; run extract_diffusion_features\.py"):
        read_guidance(tmp_path, table, shortened=True)
    for name, content in (("features.npy", b"no array"), ("guidance.json", b'{"sizes": [1]}'), ("positive.npy", b"")):
        folder = Path(shutil.copytree(made, tmp_path / name))
        (folder / name).write_bytes(content)
        with pytest.raises(UserError, match="not readable guidance"):
            read_guidance(folder, table, shortened=True)


def test_the_leading_numbers_of_each_layer_are_compared() -> None:
    features = np.zeros((1, 1, 16))
    kept = Guidance(Path(), {"sizes": [8, 4, 4]}, features, np.zeros(1, np.int64))
    assert kept.leading(8).tolist() == [0, 1, 2, 3, 8, 9, 12, 13]
    assert kept.leading(16).tolist() == kept.leading(99).tolist() == list(range(16))
    for size in range(1, 16):
        assert len(kept.leading(size)) == len(set(kept.leading(size))) == size


def test_black_images_are_all_the_same_to_the_teacher(table: Table) -> None:
    assert not Photographs(table, 32, CPU, blank=True).batch(np.array([0, 5])).any()
    assert Photographs(table, 32, CPU).batch(np.array([0, 5])).any()


# What is shown


def test_cosines_by_hand() -> None:
    features = np.array([[[2, 0], [0, 3], [1, 1], [1, 0]], [[0, 1], [1, 0], [0, -2], [0, 5]]], np.float16)
    right, wrong = cosines(features, np.array([0, 2]), np.arange(2))
    np.testing.assert_allclose(right, [1, -1], atol=1e-3)
    np.testing.assert_allclose(wrong, [0, 0.5**0.5, 1, 0], atol=1e-3)
    assert len(cosines(features, np.array([-1, 2]), np.arange(2))[0]) == 1


def test_neighbours_know_the_class_where_vectors_do(teacher: Teacher, table: Table) -> None:
    photographs = Photographs(table, 32, CPU)
    basis = Basis((), (torch.zeros(2, 2), torch.zeros(2, 2)), torch.zeros(2, 4), torch.ones(2, 4))
    features = np.random.default_rng(0).normal(size=(72, 4, 4)).astype(np.float16)
    angle = 2 * np.pi * table.labels / 16
    features[:, 3, 2:] = 3 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    two = type("Two", (), {"columns": 4, "layers": ("low", "high"), "same_texts": False})
    seen = np.isin(table.labels[photographs.test], table.labels[photographs.train]).mean()
    found = neighbours(features, basis, two, photographs)
    train, test = (table.labels[part].tolist() for part in (photographs.train, photographs.test))
    assert commonest_class(photographs) == test.count(max(sorted(set(train)), key=train.count)) / len(test)
    assert list(found) == ["own"] and found["own"]["high"] >= 0.7 * seen > found["own"]["low"]


def test_the_report_draws_and_says(made: Path, teacher: Teacher, photographs: Photographs, tmp_path: Path) -> None:
    kept = read_guidance(made, photographs.table, shortened=True)
    basis = Basis.load(made / "basis.safetensors", kept.record["inputs"], CPU)
    values = report_guidance(kept.features, basis, teacher, photographs, tmp_path)
    assert {"layers", "cosines", "neighbours"} == {path.stem for path in tmp_path.iterdir()}
    assert -1 <= values["cosine of own and right text"] <= 1 and 0 <= values["knn own, all"] <= 1
    json.dumps(values)
