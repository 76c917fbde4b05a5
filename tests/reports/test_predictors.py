"""Which measure tells what a partition costs: against SciPy's rank correlation, and measures that are made to."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from reports.figures.predictors import costs_by_measure
from reports.predictors import measured_on, permuted, predictors, rank_correlation, split_costs, together
from reports.tables import CANDIDATES
from tests.reports.figures.pictures import check_figure
from utils.errors import UserError


def run(kind: str, loss: float, share: float, seed: int = 0, **more: object) -> dict[str, object]:
    """A row as `reports.tables.read_runs` makes them."""
    row = {"task": "normal", "method": "fedavg", "type": kind, "alpha": 0.1, "rand_seed": seed, "train_loss": loss}
    return row | {"target_variance_share": share, "emd": 1.0, "gradient_dispersion": np.nan} | more


def test_costs_are_over_the_iid_run_of_the_same_seed() -> None:
    runs = pd.DataFrame(
        [run("iid", 2.0, 0.0), run("iid", 4.0, 0.0, seed=1), run("class_based", 3.0, 0.1),
         run("class_based", 5.0, 0.2, seed=1), run("embedding_based", 9.0, 0.3, seed=2)]
    )  # fmt: skip
    found = split_costs(runs)
    # 3 over 2 and 5 over 4; seed 2 has no IID run.
    assert found["increase"].tolist() == pytest.approx([50.0, 25.0])
    assert found["target_variance_share"].tolist() == [0.1, 0.2]


def test_the_cost_is_any_loss_of_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = pd.DataFrame(
        [run("iid", 2.0, 0.0, unseen_test_loss=4.0), run("class_based", 3.0, 0.1, hellinger=0.4, unseen_test_loss=5.0)]
    )
    monkeypatch.setattr("reports.predictors.read_runs", lambda folder: runs)
    found = together([tmp_path], "unseen_test_loss")
    assert found["increase"].tolist() == pytest.approx([25.0]) and found["hellinger"].tolist() == [0.4]
    known = "has the loss 'test_loss'; give --cost one of train_loss, unseen_test_loss"
    with pytest.raises(UserError, match=known):
        together([tmp_path], "test_loss")
    assert (measured_on("train_loss"), measured_on("adapted_20_loss")) == ("client train", "adapted 20")


def test_rank_correlation_is_scipys() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 5, 30), rng.normal(size=30)
    assert rank_correlation(first, second) == pytest.approx(spearmanr(first, second).statistic)
    assert rank_correlation(np.ones(30), second) == 0.0


def test_a_measure_that_tells_stands_before_one_that_does_not() -> None:
    rng = np.random.default_rng(1)
    increase = rng.normal(size=24)
    table = pd.DataFrame(
        {"task": ["depth", "normal", "edges"] * 8, "cell": range(24), "target_variance_share": np.exp(increase),
         "emd": rng.normal(size=24), "gradient_dispersion": np.nan,
         "residual_variance_share": np.nan, "frechet": np.nan, "over_iid": np.nan, "increase": increase}
    )  # fmt: skip
    first, second = predictors(table).to_dict("records")
    assert (first["measure"], first["rank correlation"], first["without one task"]) == (
        "target share",
        "1.00",
        "1.00 to 1.00",
    )
    assert (first["runs"], first["tasks"], first["within tasks"]) == (24, 3, "1.00")
    assert first["cells"] == 24
    assert float(first["p"]) <= 2 / 10000 and second["measure"] == "EMD" and float(second["p"]) > 0.05


def test_cells_are_what_deals_the_data() -> None:
    kinds = product(("class_based", "embedding_based"), (0.1, 10.0), ("fedavg", "fedprox"), (0, 1))
    runs = [run(kind, 2.0, 0.1, seed, alpha=alpha, method=method) for kind, alpha, method, seed in kinds]
    iid = [run("iid", 1.0, 0.0, seed, method=method) for method, seed in product(("fedavg", "fedprox"), (0, 1))]
    found = split_costs(pd.DataFrame(runs + iid))
    # Both methods' runs of a partition are of the same partitions.
    assert len(found) == 16 and found["cell"].value_counts().tolist() == [4, 4, 4, 4]


def test_p_is_that_of_permuted_cells() -> None:
    # Four cells of three runs: of the 24 pairings of mean ranks 1 to 4 in order, one has correlation 1 and one -1.
    cells, order = np.repeat(list("abcd"), 3), np.arange(12.0)
    assert permuted(order, order**2, cells) == pytest.approx(2 / 24)
    assert permuted(order, order, np.repeat("a", 12)) == 1.0
    mixed = np.array([6.0, 1, 2, 0, 5, 7, 9, 3, 4, 8, 10, 11])  # whose cells have rising means, but not first runs
    assert permuted(mixed, order, cells) < permuted(mixed[::3], order[::3], cells[::3])


def test_unrelated_measures_of_runs_that_are_copies_have_no_small_p() -> None:
    rng, n = np.random.default_rng(0), 300
    cells = np.repeat(np.arange(6), 5)
    small = {"cells": 0, "runs": 0}
    for _ in range(n):
        # Intraclass correlations of 0.92 and 0.76, those of the target share and of what it costs.
        first, second = (
            np.sqrt(icc) * rng.normal(size=6)[cells] + np.sqrt(1 - icc) * rng.normal(size=30) for icc in (0.92, 0.76)
        )
        small["cells"] += permuted(first, second, cells) <= 0.05
        small["runs"] += spearmanr(first, second).pvalue <= 0.05
    assert small["runs"] / n > 0.25 and small["cells"] / n < 0.05 + 3 * np.sqrt(0.05 * 0.95 / n)


def test_dispersion_over_that_of_the_iid_split() -> None:
    kinds = ("iid", 0, 0.5), ("iid", 1, 2.0), ("class_based", 0, 4.0), ("class_based", 1, 4.0)
    runs = pd.DataFrame([run(kind, 2.0, 0.0, seed, gradient_dispersion=v) for kind, seed, v in kinds])
    assert split_costs(runs)["over_iid"].tolist() == [8.0, 2.0]


def test_several_folders_have_tasks_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = pd.DataFrame([run("iid", 2.0, 0.0), run("class_based", 3.0, 0.1)])
    monkeypatch.setattr("reports.predictors.read_runs", lambda folder: runs)
    assert together([tmp_path / "rooms"])["task"].tolist() == ["normal"]
    both = together([tmp_path / "rooms", tmp_path / "nyu"])
    assert both["task"].tolist() == ["rooms: normal", "nyu: normal"] and both["cell"].nunique() == 2


def test_folders_of_one_name_are_told_apart_by_their_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = pd.DataFrame([run("iid", 2.0, 0.0), run("class_based", 3.0, 0.1)])
    monkeypatch.setattr("reports.predictors.read_runs", lambda folder: runs)
    found = together([tmp_path / "a" / "rooms", tmp_path / "b" / "rooms", tmp_path / "nyu"])
    assert found["task"].tolist() == ["a/rooms: normal", "b/rooms: normal", "nyu: normal"]
    with pytest.raises(UserError, match="is given twice"):
        together([tmp_path / "a", tmp_path / "b" / ".." / "a"])


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"no finished run of test_fed.py in {tmp_path}"):
        together([tmp_path])


def test_figure_of_costs(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    costs = pd.DataFrame({name: rng.uniform(0, 9, 12) for name in CANDIDATES})
    tasks, kinds = ["normal", "rooms: depth_euclidean"] * 6, ["class_based", "embedding_based"]
    costs = costs.assign(task=tasks, type=np.repeat(kinds, 6), increase=rng.normal(0, 30, 12), frechet=np.nan)
    path = tmp_path / "figures" / "predictors.png"
    check_figure(path, costs_by_measure(costs, path))


def test_few_runs_tell_nothing_and_one_task_of_itself_alone() -> None:
    table = pd.DataFrame({"task": ["a", "b"] * 3, "cell": range(6),
                          "target_variance_share": range(6), "emd": 0, "gradient_dispersion": 0,
                          "residual_variance_share": 0, "frechet": 0, "over_iid": 0, "increase": range(6)})  # fmt: skip
    assert predictors(table).empty
    first = predictors(pd.concat([table] * 3).assign(task="a")).to_dict("records")[0]
    assert [first[name] for name in ("measure", "runs", "cells", "tasks", "rank correlation", "without one task")] == [
        "target share",
        18,
        6,
        1,
        "1.00",
        "",
    ]
    assert first["within tasks"] == "1.00" and first["p"] == f"{2 / 720:.4f}"  # of all pairings, the two ends
