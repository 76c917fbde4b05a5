"""Accuracy for a budget, from made-up runs whose accuracies and steps are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reports.budgets import at_budgets, budget_tables, read_progress, relative, rounds_to
from reports.figures import budgets as drawn
from tests.reports.figures.pictures import check_picture
from utils.errors import UserError

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a finished run of these accuracies, nan where a round was not evaluated, and local steps per round."""

    def write_run(accuracies: list[float], steps: int, emd: float = 1.0, **args: object) -> None:
        given = {"task": "classification", "method": "fedavg", "type": "class_based", "alpha": 0.1, "rand_seed": 0}
        given |= {"partition": "dirichlet_hsu"} | args
        path = tmp_path / "test_federated" / "-".join(map(str, given.values()))
        path.mkdir(parents=True)
        rounds = np.arange(len(accuracies))
        table = {"round": rounds, "local_steps": steps * (rounds > 0), "test_accuracy": accuracies}
        pd.DataFrame(table).to_csv(path / "metrics.csv", index=False)
        (path / "args.json").write_text(json.dumps(given))
        last = {"test_accuracy": accuracies[-1]}
        (path / "summary.json").write_text(json.dumps({"last": last, "heterogeneity": {"emd": emd}}))

    return write_run


NAN = float("nan")


@pytest.fixture
def runs(write: Write, tmp_path: Path) -> Path:
    """Two seeds without and with virtual clients, and the central run of one of them."""
    write([0.1, NAN, 0.2, NAN, 0.4], 10, virtual_client_size=None)
    write([0.1, NAN, 0.4, NAN, 0.6], 10, virtual_client_size=None, rand_seed=1)
    write([0.1, 0.3, 0.5], 4, virtual_client_size=64)
    write([0.1, 0.3, 0.7], 4, virtual_client_size=64, rand_seed=1)
    write([0.1, 0.8], 40, method="centralized", virtual_client_size=None, alpha=7.0)
    return tmp_path


def by_setting(table: pd.DataFrame) -> dict[str, dict[str, str]]:
    return {row.pop("setting"): row for row in table.to_dict("records")}


PLAIN, VIRTUAL = "fedavg", "fedavg, virtual_client_size 64"


def test_budgets_count_what_is_evaluated_within_them(runs: Path) -> None:
    progress = read_progress(runs)
    by_round = by_setting(at_budgets(progress, "round", [1, 2, 4]))
    # Of 0.2 and 0.4 the mean is 0.3, with a standard deviation of 0.1 * sqrt(2); rounds 1 and 3 were not evaluated.
    assert [by_round[PLAIN][name] for name in ("@1", "@2", "@4")] == ["10.0 ± 0.0", "30.0 ± 14.1", "50.0 ± 14.1"]
    assert [by_round[VIRTUAL][name] for name in ("@1", "@2", "@4")] == ["30.0 ± 0.0", "60.0 ± 14.1", "–"]
    by_batch = by_setting(at_budgets(progress, "batches", [8, 19, 20, 40]))
    assert [by_batch[PLAIN][f"@{n}"] for n in (8, 19, 20, 40)] == ["10.0 ± 0.0"] * 2 + ["30.0 ± 14.1", "50.0 ± 14.1"]
    assert [by_batch[VIRTUAL][f"@{n}"] for n in (8, 19)] == ["60.0 ± 14.1", "–"]
    assert by_batch[PLAIN] | {"α": "0.1", "seeds": 2, "EMD": "1.00", "central": "80.0 ± 0.0"} == by_batch[PLAIN]
    assert [name for name in at_budgets(progress, "round") if "@" in name] == ["@1", "@2", "@4"]


def test_rounds_to_shares_of_the_central_accuracy(runs: Path) -> None:
    table = by_setting(rounds_to(read_progress(runs), [0.5, 0.74, 0.9]))
    # Half of 0.8 is reached after 4 and 2 rounds, three quarters in one seed, nine tenths in none.
    assert table[PLAIN] | {"50%": "3 ± 1", "74%": "4 (1 of 2 seeds)", "90%": "> 4"} == table[PLAIN]
    assert table[VIRTUAL] | {"50%": "2 ± 0", "74%": "2 (1 of 2 seeds)"} == table[VIRTUAL]


def test_a_share_that_is_not_reached_is_beyond_the_runs_own_last_round(runs: Path, write: Write) -> None:
    write([0.1] * 9, 10, virtual_client_size=8)
    write([0.1] * 4, 10, virtual_client_size=8, rand_seed=1)
    table = by_setting(rounds_to(read_progress(runs), [0.99]))
    assert [table[name]["99%"] for name in (PLAIN, VIRTUAL)] == ["> 4", "> 2"]
    assert table["fedavg, virtual_client_size 8"]["99%"] == "> 3 to 8"


def test_relative_accuracy_is_over_the_central_run_of_the_task(runs: Path, write: Write) -> None:
    write([0.1, 0.2], 1, task="other", emd=0.5)
    last = relative(read_progress(runs))
    of = last.set_index(["task", "setting", "rand_seed"])["relative"]["classification"]
    assert of[(PLAIN, 0)] == pytest.approx(0.5) and of[(VIRTUAL, 1)] == pytest.approx(0.875)
    assert np.isnan(last.loc[last["task"] == "other", "relative"]).all()
    assert set(rounds_to(read_progress(runs))["task"]) == {"classification"}


def test_a_split_in_which_alpha_has_no_part_has_none(write: Write, tmp_path: Path) -> None:
    write([0.1, 0.2], 1, type="user_id_based", partition="natural")
    write([0.1, 0.3], 1, type="iid")
    progress = read_progress(tmp_path)
    assert progress["alpha"].isna().all() and set(at_budgets(progress, "round")["α"]) == {""}
    assert set(progress["setting"]) == {
        "fedavg, type user_id_based, partition natural",
        "fedavg, type iid, partition dirichlet_hsu",
    }
    assert "rounds_to" not in budget_tables(tmp_path, "accuracy", [], [])  # without a central run


def test_without_the_metric_there_is_nothing(tmp_path: Path, runs: Path) -> None:
    with pytest.raises(UserError, match="has test_miou of a global model"):
        read_progress(runs, "miou")
    assert budget_tables(runs, "miou", [], []) == {}


def test_figures(runs: Path, write: Write) -> None:
    write([0.1, NAN, 0.7], 10, emd=0.2, alpha=10.0, virtual_client_size=None)
    progress = read_progress(runs)
    check_picture(drawn.learning_curves(progress, "accuracy", runs / "figures" / "progress.png"))
    check_picture(drawn.against_emd(relative(progress), "accuracy", runs / "figures" / "emd.png"))
