"""The published rejection sampling, as the benchmark has it, keeps its own conditions; the table says how both end."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import published_partition
from benchmarks.published_partition import Setting, published


def test_accepted_draws_meet_the_published_conditions() -> None:
    setting = Setting(n_images=600, n_groups=5, n_clients=12, alpha=1.0, min_size=4)
    for seed in range(20):
        counts, draws = published(setting, np.random.default_rng(seed))
        assert counts is not None and 1 <= draws <= published_partition.MOST_DRAWS
        assert counts.shape == (12, 5)
        assert (counts.sum(axis=0) <= 120).all()  # 600 images in 5 even groups
        # Sizes of at least 4 are cut down to whole images per group, which loses less than one in each of 5.
        assert (counts.sum(axis=1) > 4 - 5).all() and (counts >= 0).all()


def test_table_has_a_row_a_setting(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(published_partition, "SEEDS", 25)
    monkeypatch.setattr(published_partition, "MOST_DRAWS", 50)
    settings = [Setting(600, 5, 12, 1.0, 4), Setting(100, 16, 10, 10.0, 5)]
    monkeypatch.setattr(published_partition, "SETTINGS", settings)
    published_partition.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows[1:]] == ["600 / 5 / 12", "100 / 16 / 10"]
