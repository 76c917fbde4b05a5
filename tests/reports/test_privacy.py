"""What noise costs: tables and the figure, from made-up runs with known losses."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

from reports.curves import read_private
from reports.figures import sweeps
from reports.finished import Results
from reports.privacy import noise_costs
from reports.splits import splits_over_iid, splits_table
from reports.tables import read_runs
from tests.reports.figures.pictures import check_figure, words
from tests.reports.finish import finish
from utils.errors import UserError

EPSILON = {0.0: math.inf, 0.1: 500.0, 1.0: 20.0}
IID = {0.0: 1.0, 0.1: 1.2, 1.0: 2.0}  # losses by noise


def write(folder: Path, kind: str, noise: float | None, loss: float, seed: int = 0, **more: object) -> None:
    """A finished run; without differential privacy where the noise is None."""
    args = {"task": "normal", "method": "fedavg", "type": kind, "alpha": 0.1, "rand_seed": seed} | more
    last = dict.fromkeys(("train_loss_mean", "local_test_loss_mean", "test_loss"), loss)
    if noise is not None:
        args |= {"clip_norm": 1.0, "noise_multiplier": noise}
        last |= {"epsilon": EPSILON[noise], "delta": 1e-3}
    trivial = {split: {"loss": 3.0} for split in ("train", "local_test", "test")}
    summary = {"last": last, "heterogeneity": {}, "trivial": trivial}
    finish(folder, args, summary, metrics=[{"round": 0} | last, {"round": 2} | last])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two seeds of three noises; losses by embedding are a quarter, and with noise a half, above IID."""
    for seed, times in enumerate((1.0, 1.1)):
        for noise, loss in IID.items():
            write(tmp_path, "iid", noise, times * loss, seed)
            write(tmp_path, "embedding_based", noise, times * loss * (1.5 if noise else 1.25), seed)
    return tmp_path


def test_noise_costs_are_over_the_same_seeds_without_noise_and_over_iid_with_it(runs: Path) -> None:
    table = noise_costs(read_runs(Results(runs)))
    own = table[table["data"] == "client train"].set_index(["type", "noise"])
    assert list(own.loc["embedding"].index) == ["0", "0.1", "1"] and set(own["seeds"]) == {2}
    assert own.loc[("embedding", "1"), ["ε", "δ", "α"]].tolist() == ["20", "0.001", "0.1"]
    assert own.loc[("IID", "0"), ["ε", "α"]].tolist() == ["inf", ""]
    # 2 * 1.5 / 1.25 - 1, for either seed; no seed differs, so that the interval is the mean.
    assert own.loc[("embedding", "1"), "over no noise, %"] == "+140.0 [+140.0, +140.0]"
    assert own.loc[("embedding", "0.1"), "over no noise, %"] == "+44.0 [+44.0, +44.0]"
    assert own.loc[("IID", "1"), "over no noise, %"] == "+100.0 [+100.0, +100.0]"
    for noise in ("0.1", "1"):  # over the IID partition with the same noise, and with no other
        assert own.loc[("embedding", noise), "over IID, %"] == "+50.0 [+50.0, +50.0]"
    assert own.loc[("embedding", "0"), "over IID, %"] == "+25.0 [+25.0, +25.0]"
    assert own.loc[("embedding", "0"), "loss"] == "1.3125 ± 0.0884"  # of 1.25 and 1.375


def test_runs_without_privacy_have_no_such_table_and_are_not_mixed_in(tmp_path: Path, runs: Path) -> None:
    write(tmp_path / "plain", "iid", None, 1.0)
    assert noise_costs(read_runs(Results(tmp_path / "plain"))).empty and noise_costs(pd.DataFrame()).empty
    before = noise_costs(read_runs(Results(runs)))
    write(runs, "iid", None, 9.0)
    assert noise_costs(read_runs(Results(runs))).equals(before)


def test_other_arguments_are_columns(runs: Path) -> None:
    for noise in (0.0, 1.0):
        write(runs, "iid", noise, 5.0 + noise, seed=0, clip_quantile=0.5)
    table = noise_costs(read_runs(Results(runs)))
    adapted = table[(table["clip_quantile"] == "0.5") & (table["data"] == "global test")]
    assert adapted["over no noise, %"].tolist() == ["+0.0", "+20.0"]


def test_tables_of_splits_tell_noises_apart(runs: Path) -> None:
    table = splits_table(splits_over_iid(read_runs(Results(runs))))
    assert set(table["noise_multiplier"]) == {"0", "0.1", "1"} and "epsilon" not in table


def test_the_figure_has_losses_by_epsilon_and_those_without_noise_at_infinity(
    runs: Path, drawn: list[Figure], tmp_path: Path
) -> None:
    sweeps.privacy(read_private(Results(runs), "train"), "train", tmp_path / "figure.png")
    [axis] = drawn[0].axes
    lines = {each.get_label(): each for each in axis.containers}
    x, y = lines["embedding-based partition"][0].get_data()
    assert np.allclose(y, [1.05 * 3.0, 1.05 * 1.8, 1.05 * 1.25])
    assert x[0] == pytest.approx(20, rel=0.05) and x[1] == pytest.approx(500, rel=0.05) and x[2] > x[1]
    assert axis.get_xscale() == "log" and words(axis.get_xticklabels())[-1] == "∞"
    low, high = stats.t.interval(0.95, 1, 1.05 * 2.0, 0.1)  # of 2 and 2.2
    assert lines["IID"][2][0].get_segments()[0][:, 1].tolist() == pytest.approx([low, high])
    assert "δ = 0.001" in drawn[0].get_suptitle()


def test_the_figure_is_drawn(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "figures" / "figure.png"
    check_figure(path, sweeps.privacy(read_private(Results(runs), "test"), "test", path))


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    write(tmp_path, "iid", None, 1.0)
    with pytest.raises(UserError, match=r"no finished run in .* has --clip_norm"):
        read_private(Results(tmp_path), "train")
    write(tmp_path, "iid", 0.0, 1.0)
    with pytest.raises(UserError, match="give --noise_multiplier to some"):
        sweeps.privacy(read_private(Results(tmp_path), "train"), "train", tmp_path / "figure.png")
