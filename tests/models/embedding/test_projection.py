"""Principal components in blocks against scikit-learn's exact PCA."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

from models.embedding import projection as module
from models.embedding.projection import PCA_COMPONENTS, reduce_dimension


def decaying(n: int, dimension: int, decay: float = 0.5) -> np.ndarray:
    """Points whose principal components have slowly decreasing variances, far from the origin."""
    rng = np.random.default_rng(0)
    rank = min(n, dimension)
    scales = np.arange(1, rank + 1) ** -decay
    return (rng.normal(size=(n, rank)) * scales @ rng.normal(size=(rank, dimension)) + 30).astype(np.float32)


@pytest.fixture(params=["Gram matrix", "iterations"])
def _each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRAM", 2048 if request.param == "Gram matrix" else 0)


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize(("n", "dimension"), [(900, 120), (1200, 500), (300, 700), (500, 1500)])
def test_projection_is_that_of_exact_pca(n: int, dimension: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 30_000)  # numbers at a time: many blocks
    points = decaying(n, dimension)
    train = np.sort(np.random.default_rng(1).permutation(n)[: n * 4 // 5])
    reduced, projection, kept = reduce_dimension(points, train)
    exact = PCA(PCA_COMPONENTS, svd_solver="full").fit(points[train].astype(np.float64))
    assert (reduced.shape, reduced.dtype) == ((n, PCA_COMPONENTS), np.float32)
    assert kept == pytest.approx(exact.explained_variance_ratio_.sum(), abs=3e-5)
    # The share of the projection itself, counted on what it leaves of the training images.
    left = np.square(points[train] - projection.inverse_transform(reduced[train])).sum(dtype=np.float64)
    total = np.square(points[train] - points[train].mean(axis=0, dtype=np.float64)).sum()
    assert kept == pytest.approx(1 - left / total, abs=1e-6)
    # All images, held out or not, lie where exact PCA puts them in the leading directions, up to the sign.
    scores = exact.transform(points)[:, :5]
    signs = np.sign((scores * reduced[:, :5]).sum(axis=0))
    assert np.square(scores * signs - reduced[:, :5]).sum() < 1e-3 * np.square(scores).sum()
    variances = reduced[train].var(axis=0)
    assert (variances[1:] <= variances[:-1] * (1 + 1e-3)).all()
    np.testing.assert_allclose(projection.components @ projection.components.T, np.eye(PCA_COMPONENTS), atol=1e-5)
    assert (reduce_dimension(points, train)[0] == reduced).all()


def test_components_point_where_their_largest_number_is_positive() -> None:
    points = decaying(200, 100)
    for each in (points, -points):
        components = reduce_dimension(each, np.arange(200))[1].components
        assert (components[np.arange(PCA_COMPONENTS), np.abs(components).argmax(axis=1)] > 0).all()


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize(("n", "dimension"), [(3000, 500), (1600, 3000)])  # NumPy 2.5 orthonormalises in more memory
def test_projection_of_a_memory_map_takes_a_block_at_a_time(
    n: int, dimension: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, fit_on = decaying(n, dimension), np.arange(0, n, 2)
    np.save(tmp_path / "points.npy", points)
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    expected, _, kept = reduce_dimension(points, fit_on)
    assert (reduce_dimension(mapped, fit_on)[0] == expected).all()
    monkeypatch.setattr(module, "_BLOCK", 50_000)
    tracemalloc.start()
    reduced, _, in_blocks = reduce_dimension(mapped, fit_on)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < points.nbytes / 2
    assert in_blocks == pytest.approx(kept, abs=1e-5)
    np.testing.assert_allclose(reduced[:, :5], expected[:, :5], rtol=0.01, atol=0.01 * expected[:, :5].std())


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("shape", [(400, 100), (100, 400), (400, 900), (900, 400)])
def test_points_that_do_not_vary_stay_in_one_place(shape: tuple[int, int]) -> None:
    points = np.full(shape, 3.0, np.float32)
    reduced, projection, kept = reduce_dimension(points, np.arange(shape[0]))
    np.testing.assert_allclose(reduced, 0, atol=1e-4)
    np.testing.assert_allclose(projection.inverse_transform(reduced), points, rtol=1e-5)
    assert kept == 1.0


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize(("n", "dimension"), [(300, 200), (900, 500), (500, 900)])
def test_projection_loses_nothing_of_few_dimensions(n: int, dimension: int) -> None:
    rng = np.random.default_rng(0)
    points = (rng.normal(size=(n, 5)) @ rng.normal(size=(5, dimension))).astype(np.float32)
    reduced, pca, kept = reduce_dimension(points, np.arange(n - 100))
    assert kept == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(pca.inverse_transform(reduced), points, atol=1e-3)


def test_projection_of_fewer_images_than_components() -> None:
    points = np.random.default_rng(0).normal(size=(30, 90)).astype(np.float32)
    reduced, pca, kept = reduce_dimension(points, np.arange(10))
    assert reduced.shape == (30, 10)
    assert kept == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(pca.inverse_transform(reduced[:10]), points[:10], atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_small_dimension_only_loses_its_mean(dtype: type) -> None:
    points = (100 * np.random.default_rng(0).normal(size=(100, 64)) + 500).astype(dtype)
    reduced, projection, kept = reduce_dimension(points, np.arange(80))
    assert (reduced.dtype, kept) == (np.float32, 1.0)
    exact = points - points[:80].mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(reduced, exact, rtol=1e-6)
    np.testing.assert_allclose(projection.inverse_transform(reduced), points, rtol=1e-4)


@pytest.mark.parametrize("dimension", [2, 100])
def test_rows_far_from_the_origin_are_projected_as_near_it(dimension: int) -> None:
    near = np.random.default_rng(0).normal(size=(300, dimension)) * np.linspace(1, 4, dimension)
    expected, _, share = reduce_dimension(near, np.arange(250))
    found, projection, kept = reduce_dimension(near + 5.4e6, np.arange(250))
    np.testing.assert_allclose(found, expected, atol=1e-5)  # places in metres, to a hundredth of a millimetre
    assert kept == pytest.approx(share, abs=1e-6)
    assert np.abs(projection.inverse_transform(found[:250]).mean() - 5.4e6) < 1
