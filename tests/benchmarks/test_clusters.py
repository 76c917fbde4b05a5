"""The benchmark of clusters, made small."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

from benchmarks import clusters


def test_tables_have_a_row_a_size(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(clusters, "SIZES", ((200, 300), (300, 200)))
    monkeypatch.setattr("sys.argv", ["clusters", "--repeats", "2"])
    clusters.main()
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert rows == 2 * ["embeddings", "200 x 300", "300 x 200"]


def test_shares_are_those_of_exact_pca() -> None:
    points = clusters.slowly_decaying(300, 200)
    exact = PCA(clusters.PCA_COMPONENTS).fit(points)
    assert clusters.most_explained(points) == pytest.approx(exact.explained_variance_ratio_.sum(), abs=1e-5)
    assert clusters.explained_share(points, exact.transform(points)) == pytest.approx(
        clusters.most_explained(points), abs=1e-5
    )


def test_other_clusters_are_found() -> None:
    ids = np.arange(40) % 4
    clusters.check(ids, (ids + 1) % 4)  # names do not matter
    with pytest.raises(AssertionError, match="the clusters differ"):
        clusters.check(ids, np.where(np.arange(40) < 4, 0, ids))
