"""The benchmark of clusters, made small."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import clusters


def test_table_has_a_row_a_size(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(clusters, "SIZES", ((200, 300), (300, 200)))
    monkeypatch.setattr("sys.argv", ["clusters", "--repeats", "2"])
    clusters.main()
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert rows == ["embeddings", "200 x 300", "300 x 200"]


def test_other_clusters_are_found() -> None:
    ids = np.arange(40) % 4
    clusters.check(ids, (ids + 1) % 4)  # names do not matter
    with pytest.raises(AssertionError, match="the clusters differ"):
        clusters.check(ids, np.where(np.arange(40) < 4, 0, ids))
