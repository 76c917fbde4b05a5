"""Embeddings do not depend on the batch; projection and clusters against scikit-learn and made-up blobs."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from datasets.table import Table, read_table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from models.embedding import embeddings as emb
from models.embedding.embeddings import (
    centres,
    check_n_clusters,
    cluster,
    cluster_rows,
    compare_n_clusters,
    extract_embeddings,
    tsne,
)
from models.embedding.projection import reduce_dimension
from models.networks.config import ModelConfig
from models.networks.task_model import TaskModel
from network.partition.nested import Natural, clusters_within
from utils.errors import UserError

SIZE = 16
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(table: Table) -> TaskModel:
    """A model with batch norm whose statistics are not those of a new one, left in training mode."""
    torch.manual_seed(0)
    model = TaskModel(ModelConfig("normal", image_size=SIZE, norm="batch"))
    with torch.no_grad():
        model(TaskData(table, table.bind(get_task("normal")), SIZE, CPU).batch(torch.arange(40)).images)
    return model.train()


def all_readable(n: int, n_train: int) -> SimpleNamespace:
    """What clustering needs to know of the data: the first images are for training, all can be read."""
    return SimpleNamespace(train=np.arange(n_train), readable=np.ones(n, bool))


def blobs(n_each: int, dimension: int, n_blobs: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Points around centres far apart, in random order, and the centre of each."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(np.repeat(np.arange(n_blobs), n_each))
    return (20 * rng.normal(size=(n_blobs, dimension))[ids] + rng.normal(size=(len(ids), dimension))).astype("f4"), ids


# Embeddings


def test_embedding_does_not_depend_on_batch_mates(model: TaskModel, table: Table, tmp_path: Path) -> None:
    data = TaskData(table, table.bind(get_task("normal")), SIZE, CPU)
    model.train()
    embeddings = extract_embeddings(model, data, tmp_path / "embeddings.npy")
    assert isinstance(embeddings, np.memmap)
    assert (embeddings.shape, embeddings.dtype) == ((len(data), 8 * SIZE * SIZE), np.float32)
    with torch.no_grad():
        for position in (0, 20, len(data) - 1):
            alone = model.eval()(data.batch(torch.tensor([position])).images).embedding
            np.testing.assert_allclose(embeddings[position], alone.flatten().numpy(), atol=1e-5)
    assert embeddings.std(axis=0).max() > 0.01  # images do differ


def test_published_embeddings_depend_on_the_fifteen_others(table: Table, tmp_path: Path) -> None:
    data = TaskData(table, table.bind(get_task("normal")), SIZE, CPU)
    torch.manual_seed(0)
    model = TaskModel(ModelConfig("normal", image_size=SIZE, norm="batch", published_quirks=True)).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    embeddings = extract_embeddings(model, data, tmp_path / "embeddings.npy")
    assert not model.training and all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    with torch.no_grad():
        for start in (0, 32):  # batch norm by the statistics of the batch alone
            together = model.train()(data.batch(torch.arange(start, start + 16)).images).embedding
            np.testing.assert_allclose(embeddings[start : start + 16], together.flatten(1).numpy(), atol=1e-5)
            alone = model.eval()(data.batch(torch.arange(start, start + 1)).images).embedding
            assert np.abs(embeddings[start] - alone.flatten().numpy()).max() > 0.01


def test_unreadable_images_have_no_embedding(model: TaskModel, own_copy: Path, tmp_path: Path) -> None:
    chosen = read_table(own_copy)
    (own_copy / chosen.image_ids[3]).write_text("no picture")
    data = TaskData(chosen, get_task("normal"), SIZE, CPU)
    embeddings = extract_embeddings(model, data, tmp_path / "embeddings.npy")
    assert np.flatnonzero(~embeddings.any(axis=1)).tolist() == [3]


# Clusters


def test_clusters_are_found_and_held_out_images_join_them() -> None:
    points, ids = blobs(30, 10)
    assignments, _ = cluster(points, all_readable(120, 90), 4, 0.0, seed=1)
    assert assignments.dtype == np.int64
    assert adjusted_rand_score(ids, assignments) == 1
    again, _ = cluster(points, all_readable(120, 90), 4, 0.0, seed=1)
    np.testing.assert_array_equal(assignments, again)


@pytest.mark.parametrize("dimension", [20, 150])
def test_assignments_are_the_nearest_centres_of_the_embeddings(dimension: int) -> None:
    points = np.random.default_rng(0).normal(size=(200, dimension)).astype(np.float32)
    data = all_readable(200, 150)
    reduced, pca, _ = reduce_dimension(points, data.train)
    assignments, kmeans = cluster(reduced, data, 6, 0.0, seed=0)
    found = centres(kmeans, pca)
    assert (found.shape, found.dtype) == ((6, dimension), np.float32)
    distances = np.linalg.norm(points[:, None] - found, axis=2)
    np.testing.assert_array_equal(assignments, distances.argmin(axis=1))


def test_unreadable_images_are_in_no_cluster() -> None:
    points, _ = blobs(10, 5)
    data = all_readable(40, 30)
    data.train, data.readable[[4, 35]] = np.delete(data.train, 4), False
    assignments, _ = cluster(points, data, 4, 0.0, seed=0)
    assert np.flatnonzero(assignments == -1).tolist() == [4, 35]


@pytest.mark.parametrize("threshold, left_out", [(0.1, []), (0.11, [3]), (0.21, [2, 3])])
def test_clusters_below_the_threshold_are_left_out(threshold: float, left_out: list[int]) -> None:
    # Of 100 training images 40, 30, 20 and 10 belong to the four blobs.
    ids = np.repeat(np.arange(4), [40, 30, 20, 10])
    points = (10 * np.eye(4)[ids] + 0.01 * np.random.default_rng(0).normal(size=(100, 4))).astype(np.float32)
    assignments, _ = cluster(points, all_readable(100, 100), 4, threshold, seed=0)
    np.testing.assert_array_equal(assignments == -1, np.isin(ids, left_out))


def test_more_clusters_than_images_are_refused() -> None:
    points, _ = blobs(3, 5)
    with pytest.raises(UserError, match="--n_clusters 11 is more than the 10 training images"):
        cluster(points, all_readable(12, 10), 11, 0.0, seed=0)


def test_tsne_keeps_neighbours() -> None:
    points, ids = blobs(20, 6, n_blobs=2)
    plane = tsne(points, seed=0)
    assert plane.shape == (40, 2)
    distances = np.linalg.norm(plane[:, None] - plane, axis=2) + np.diag(np.full(40, np.inf))
    assert (ids[distances.argmin(axis=1)] == ids).all()


def test_tsne_of_one_number_each_is_a_plane() -> None:
    plane = tsne(np.linspace(0, 1, 50, dtype=np.float32)[:, None], seed=0)
    assert plane.shape == (50, 2) and np.isfinite(plane).all()


def test_tsne_of_three_points_is_finite() -> None:
    assert np.isfinite(tsne(np.eye(3, dtype=np.float32), seed=0)).all()


# Clusters of any embeddings, and how many


@pytest.mark.parametrize("many", [50, 100_000], ids=["in batches", "at once"])
def test_rows_of_any_array_are_clustered(tmp_path: Path, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emb, "_MANY_ROWS", many)
    points, ids = blobs(60, 100)
    np.save(tmp_path / "points.npy", points)
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    reduced, found = cluster_rows(mapped, 4, seed=0)
    assert (len(reduced), reduced.dtype, found.dtype) == (240, np.float32, np.int64)
    assert adjusted_rand_score(ids, found) == 1
    assert (cluster_rows(mapped, 4, seed=0)[1] == found).all()


@pytest.mark.parametrize("many", [50, 100_000], ids=["in batches", "at once"])
@pytest.mark.parametrize("far", [(5e5, 5.4e6, 0.0, 0.0), (0.0, 0.0, 2e4, 0.0)], ids=["places", "large constant"])
def test_clusters_far_from_the_origin_are_those_near_it(
    far: tuple[float, ...], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emb, "_MANY_ROWS", many)
    points, ids = blobs(60, 4)
    away = points.astype(np.float64) + far
    assert adjusted_rand_score(ids, cluster_rows(away, 4, seed=0)[1]) == 1
    data, single = all_readable(240, 200), away.astype(np.float32)
    kmeans = emb.fit_kmeans(single, 4, 0)  # as it is: nothing has taken the mean off
    assert adjusted_rand_score(kmeans.labels_, kmeans.predict(single)) == 1
    distances = np.linalg.norm(single[:, None].astype(np.float64) - kmeans.cluster_centers_, axis=2)
    np.testing.assert_array_equal(kmeans.labels_, distances.argmin(axis=1))
    natural = Natural.of("city", np.array(["ulm", "bern"])[np.arange(240) % 2])
    within = clusters_within(single, np.arange(240), natural, 4, 0)
    for city in range(2):
        assert adjusted_rand_score(within[natural.numbers == city], ids[natural.numbers == city]) == 1
    reduced, _, _ = reduce_dimension(single, data.train)
    assert adjusted_rand_score(ids, cluster(reduced, data, 4, 0.0, seed=0)[0]) == 1


@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_copies_are_in_one_cluster_and_none_is_empty(scale: float, capsys: pytest.CaptureFixture[str]) -> None:
    # Six photographs in forty images, whose features differ in their last digits, and far from the origin.
    rng = np.random.default_rng(0)
    photo = np.arange(40) % 6
    points = ((1 + rng.random((6, 30)))[photo] * scale * (1 + 1e-7 * rng.standard_normal((40, 30)))).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scikit-learn's, of fewer distinct points than clusters
        reduced, ids = cluster_rows(points, 10, seed=0)
    assert sorted({*ids.tolist()}) == list(range(6)) and adjusted_rand_score(photo, ids) == 1
    assert "6 clusters instead of 10: no more of the images are different" in capsys.readouterr().err
    assert len(emb.fit_kmeans(reduced, 5, 0).cluster_centers_) == 5
    assert {*cluster_rows(np.ones((8, 3), np.float32), 4, seed=0)[1]} == {0}


def test_images_that_are_all_alike_have_no_silhouette() -> None:
    [row] = emb.compare_n_clusters(np.ones((8, 3), np.float32), [2], 0)
    assert np.isnan(row["silhouette"]) and row["inertia"] == 0


def test_fewer_different_training_images_than_clusters_are_counted_in_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    points = (np.arange(12) % 2).astype(np.float32)[:, None]
    assignments, kmeans = cluster(points, all_readable(12, 9), 4, 0.0, seed=0)  # type: ignore[arg-type]
    assert len(kmeans.cluster_centers_) == 2 and {*assignments.tolist()} == {0, 1}
    assert "2 clusters instead of 4" in capsys.readouterr().err


def test_rows_that_cannot_be_clustered_are_refused() -> None:
    points = np.zeros((10, 3), np.float32)
    with pytest.raises(UserError, match="--n_clusters 11"):
        cluster_rows(points, 11, 0)
    points[7, 1] = np.nan
    with pytest.raises(UserError, match="not finite"):
        cluster_rows(points, 2, 0)


def test_the_true_number_of_clusters_stands_out() -> None:
    points, _ = blobs(50, 8)
    rows = compare_n_clusters(points, [2, 3, 4, 6, 8], seed=0)
    assert [row["n_clusters"] for row in rows] == [2, 3, 4, 6, 8]
    assert max(rows, key=lambda row: row["silhouette"])["n_clusters"] == 4
    by_number = {row["n_clusters"]: row for row in rows}
    assert (by_number[4]["stability"], by_number[4]["stability_std"]) == (pytest.approx(1), pytest.approx(0))
    assert by_number[8]["stability"] < 0.95
    inertia = [row["inertia"] for row in rows]
    assert inertia == sorted(inertia, reverse=True) and 0 < inertia[-1] < inertia[0] < 1
    # With the true centres, what is left is the variance within blobs.
    within = sum(np.square(points[b] - points[b].mean(axis=0)).sum() for b in (blobs(50, 8)[1] == k for k in range(4)))
    assert by_number[4]["inertia"] == pytest.approx(within / np.square(points - points.mean(axis=0)).sum(), rel=1e-4)


def test_points_without_clusters_are_unstable() -> None:
    points = np.random.default_rng(0).normal(size=(300, 10))
    [row] = compare_n_clusters(points, [16], seed=0)
    assert row["stability"] < 0.5 and row["silhouette"] < 0.2


def test_too_many_clusters_to_compare_are_refused() -> None:
    ten = SimpleNamespace(train=np.arange(10))
    check_n_clusters(ten, 10, [2, 8])
    with pytest.raises(UserError, match="--compare_n_clusters 9"):
        check_n_clusters(ten, 10, [2, 9])
    with pytest.raises(UserError, match="--n_clusters 11"):
        check_n_clusters(ten, 11)
