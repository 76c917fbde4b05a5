"""Figures of non-participating clients draw what they are given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from reports.figures import gaps
from reports.statistics import Change


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures, which are kept instead of saved."""
    kept: list[Figure] = []
    monkeypatch.setattr(gaps, "save", lambda figure, path: kept.append(figure) or path)
    return kept


def test_curve_over_steps_has_every_part_that_counts(drawn: list[Figure], tmp_path: Path) -> None:
    def row(steps: int, loss: float) -> dict[str, float]:
        values = {"unseen_test": loss, "unseen_adapted_on": loss / 2, "unseen_rest": np.nan}
        return {"steps": steps} | {
            f"{part}_loss_{what}": v for part, loss in values.items() for what, v in (("mean", loss), ("std", 0.1))
        }

    rows = [row(0, 3.0), row(5, 2.0), row(80, 1.0)]
    gaps.adaptation(
        rows, {"local_test_loss_mean": 1.5}, {"unseen_test": {"loss": 4.0}}, "title", "loss", tmp_path / "a.png"
    )
    [axes] = drawn[0].axes
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert lines["non-participating clients, client test"] == [3.0, 2.0, 1.0]
    assert lines["non-participating clients, the images that they adapt on"] == [1.5, 1.0, 0.5]
    assert "mean ± standard deviation over clients" in drawn[0].get_suptitle()
    lowest = [band.get_paths()[0].vertices[:, 1].min() for band in axes.collections]
    assert min(lowest) >= 0  # as no loss is below
    assert len(lines) == 4  # nothing of images that there are none of
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "5", "80"]


def test_both_gaps_and_the_curve_have_means_over_seeds(drawn: list[Figure], tmp_path: Path) -> None:
    def row(split: str, *gaps: float) -> dict[str, object]:
        about = {"task": "normal", "method": "fedavg", "type": split, "alpha": "", "more": ""}
        known, new, after = (Change.of(np.full(3, gap)) for gap in gaps)
        return about | {"out-of-sample": known, "participation": new, "after": {5: after}}

    table = pd.DataFrame([row("iid", 7.0, 0.0, -1.0), row("embedding", 7.0, 20.0, 4.0)])
    gaps.gaps(table, tmp_path / "g.png")
    both, curve = drawn[0].axes
    means = {line.get_label(): line.get_ydata() for line in both.lines if not line.get_label().startswith("_")}
    assert np.allclose(means["iid"], [7.0, 0.0]) and np.allclose(means["embedding"], [7.0, 20.0])
    left = {line.get_label(): line.get_ydata() for line in curve.lines if not line.get_label().startswith("_")}
    assert np.allclose(left["embedding"], [20.0, 4.0])
    gaps.gaps(table.assign(after=[{}, {}]), tmp_path / "g.png")
    assert len(drawn[1].axes) == 1
