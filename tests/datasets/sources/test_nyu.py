"""NYUv2's labelled file: made up here, in its layout, with walls whose geometry is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datasets.packed import load_packed
from datasets.sources.nyu import CENTRE, FOCAL, normals_of, taskonomy_ids
from datasets.task_data import TaskData
from datasets.tasks import RGB, get_task
from tests.datasets.sources.finding import select
from utils.errors import UserError

h5py = pytest.importorskip("h5py")
HEIGHT, WIDTH = 480, 640
NAMES = ["wall", "chair", "sofa", "table"]
# Of the wall that photograph i shows: its normal in the camera's frame (right, up, towards the viewer), and distance.
WALLS = [((0.0, 0.0, 1.0), 2.0), ((0.6, 0.0, 0.8), 3.0), ((0.0, -0.28, 0.96), 1.5), ((-0.36, 0.48, 0.8), 4.0)]


def rays() -> np.ndarray:
    """(H, W, 3) rays of depth 1 through the pixels, to the right, up and towards the viewer."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    x, y = (columns - CENTRE[0]) / FOCAL[0], (rows - CENTRE[1]) / FOCAL[1]
    return np.stack([x, -y, -np.ones_like(x)], axis=-1)


def wall(normal: tuple[float, float, float], distance: float) -> np.ndarray:
    """Depth (H, W) along the camera's axis of the points p with normal · p = -distance."""
    return -distance / (rays() @ np.array(normal))


@pytest.fixture(scope="module")
def mat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with four photographs of two recordings."""
    path = tmp_path_factory.mktemp("nyu")
    rng = np.random.default_rng(0)
    depth = np.stack([wall(*each) for each in WALLS])
    measured = depth.copy()
    measured[:, 100:140, 200:260] = 0
    labels = np.zeros((4, HEIGHT, WIDTH), np.uint16)
    labels[:, 240:], labels[:, :, 320:], labels[1, 300:] = 1, 2, 3
    images = rng.integers(0, 256, (4, HEIGHT, WIDTH, 3)).astype(np.uint8)
    with h5py.File(path / "nyu_depth_v2_labeled.mat", "w") as file:
        file["images"] = images.transpose(0, 3, 2, 1)
        for name, values in (("depths", depth), ("rawDepths", measured), ("labels", labels)):
            file[name] = values.transpose(0, 2, 1).astype(labels.dtype if name == "labels" else np.float32)
        texts = {
            "names": NAMES,
            "sceneTypes": ["kitchen", "office", "kitchen", "kitchen"],
            "scenes": ["kitchen_0001", "office_0002", "kitchen_0001", "kitchen_0003"],
        }
        for name, values in texts.items():
            file[name] = np.array(
                [[_reference(file, f"{name}{i}", text) for i, text in enumerate(values)]], h5py.ref_dtype
            )
    np.save(path / "images.npy", images)
    return path


def _reference(file: object, key: str, text: str) -> object:
    file[f"#refs#/{key}"] = np.array([[ord(letter)] for letter in text], np.uint16)
    return file[f"#refs#/{key}"].ref


def test_every_domain_of_a_known_wall(mat: Path) -> None:
    table = select("nyu", mat)
    assert table.class_names == ("kitchen", "office") and table.labels.tolist() == [0, 1, 0, 0]
    assert table.groups["scene"].tolist() == ["kitchen_0001", "office_0002", "kitchen_0001", "kitchen_0003"]
    directions = rays()[44:471, 40:601]
    for number, (normal, distance) in enumerate(WALLS):
        read = {domain: np.asarray(Image.open(mat / cells[number])) for domain, cells in table.files.items()}
        gap = read["depth_euclidean"] == 65535
        assert gap[56:96, 160:220].all() and gap.sum() == 40 * 60
        along_ray = wall(normal, distance)[44:471, 40:601] * np.linalg.norm(directions, axis=-1)
        np.testing.assert_allclose(read["depth_euclidean"][~gap] / 512, along_ray[~gap], atol=1 / 1024 + 1e-6)
        found = read["normal"][~gap] / 127.5 - 1
        assert np.abs(found - normal).max() < 1.5 / 127.5
        assert (read["normal"][gap] == 128).all()
        shade = distance / along_ray / (1 + (along_ray / 6) ** 2)  # cosine to the ray, fading
        np.testing.assert_allclose(read["reshading"][~gap][:, 0] / 255, shade[~gap], atol=0.01)
        inner = ~gap & (np.minimum(*np.indices(gap.shape)) > 20)
        assert np.abs(read["principal_curvature"][..., :2][inner].astype(int) - 127).mean() < 1  # planes are flat
        assert read["rgb"].shape == (427, 561, 3)
        assert (read["rgb"] == np.load(mat / "images.npy")[number, 44:471, 40:601]).all()
    segments = np.asarray(Image.open(mat / table.files["segment_semantic"][1]))
    assert set(np.unique(segments)) == {0, 1, 3, 4}  # unlabelled, wall, chair and sofa, which Taskonomy calls couch


def test_extracted_files_are_taken_as_they_are_and_train_every_task(mat: Path) -> None:
    table = select("nyu", mat, test_fraction=0.5)
    moved = mat / table.files["normal"][0]
    before = moved.stat().st_mtime_ns
    table = select("nyu", mat, test_fraction=0.5)
    assert moved.stat().st_mtime_ns == before
    units = table.groups["scene"]
    assert not set(units[table.train]) & set(units[table.test])
    for name in ("depth_euclidean", "normal", "reshading", "edge_texture", "segment_semantic", "class_scene"):
        data = TaskData(table, table.bind(get_task(name)), 32, torch.device("cpu"))
        assert data.readable.all() and data.batch(torch.arange(4)).valid.any()
    assert load_packed(table, RGB, 32)[0].shape == (4, 3, 32, 32)


def test_normals_of_a_plane_are_exact_however_it_lies() -> None:
    directions = rays()[:60, :80]
    for normal, distance in WALLS:
        z = -distance / (directions @ np.array(normal))
        found = normals_of(z, directions[..., 0], -directions[..., 1])
        np.testing.assert_allclose(found[8:-8, 8:-8], np.broadcast_to(normal, (44, 64, 3)), atol=1e-6)


def test_labels_become_taskonomys_classes() -> None:
    names = ["unlabeled", "wall", "sofa", "chair", "television", "thing of no class"]
    assert taskonomy_ids(names).tolist() == [0, 1, 4, 3, 9, 1]


def test_file_that_is_no_nyu_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="see --mat_file"):
        select("nyu", tmp_path)
    (tmp_path / "nyu_depth_v2_labeled.mat").write_bytes(b"MATLAB 5.0 MAT-file")
    with pytest.raises(UserError, match="not the labelled NYUv2 file"):
        select("nyu", tmp_path)
    with h5py.File(tmp_path / "nyu_depth_v2_labeled.mat", "w") as file:
        file["images"] = np.zeros(3)
    with pytest.raises(UserError, match="not the labelled NYUv2 file"):
        select("nyu", tmp_path)
    (tmp_path / "nyu.json").write_text('{"version": 99}')
    with pytest.raises(UserError, match="of another version"):
        select("nyu", tmp_path)
