"""Tables of clients of one group each, from made-up runs with known values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from reports.by_group import group_tables
from reports.finished import Results
from tests.reports.finish import finish

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a finished run with these groups and values of its clients: `write("fedavg", 0, {...})`."""

    def run(method: str, seed: int, clients: list[tuple[str, float]], **more: object) -> None:
        said = {"share": 1.0, "metric": "accuracy", "whose": "", "type": "domain_based"} | more
        rest = {name: value for name, value in said.items() if name not in ("share", "metric", "whose")}
        args = {"task": "classification", "method": method, "rand_seed": seed, "alpha": 1.0, **rest}
        path = finish(tmp_path, args, {"last": {"round": 1}})
        groups, values = zip(*clients, strict=True)
        # The global model is worse wherever clients have models of their own.
        columns = {"local_test_loss": -1.0, "local_test_accuracy": -1.0} if said["whose"] else {}
        columns |= {f"{said['whose']}local_test_{said['metric']}": values}
        table = pd.DataFrame({"client": range(len(groups)), "group": groups, "share": said["share"], **columns})
        table.to_csv(path / "clients.csv", index=False)

    return run


def test_means_over_clients_of_a_group_then_over_groups_with_intervals_over_seeds(tmp_path: Path, write: Write) -> None:
    # The photographs' two clients count as one domain, and a client without held-out images does not count.
    write("fedavg", 0, [("NA", 0.2), ("photo", 0.5), ("photo", 0.7), ("photo", np.nan)])
    write("fedavg", 1, [("NA", 0.4), ("photo", 0.7), ("photo", 0.9)])
    [(name, table)] = group_tables(Results(tmp_path), "accuracy").items()
    assert name == "by_domain"
    error = stats.t.ppf(0.975, 1) * 0.1  # of values 0.2 apart, whose standard error is 0.1
    expected = {"task": "classification", "method": "fedavg", "metric": "accuracy", "seeds": 2}
    for column, mean in {"NA": 0.3, "photo": 0.7, "mean": 0.5}.items():
        # Of the logit by the delta method: the plain interval would reach from -0.971 to 1.971.
        odds, times = mean / (1 - mean), np.exp(error / (mean * (1 - mean)))
        low, high = (of / (1 + of) for of in (odds / times, odds * times))
        expected[column] = f"{mean:.3f} [{low:.3f}, {high:.3f}]"
    assert table.to_dict("records") == [expected]


def test_settings_have_rows_of_their_own_and_own_models_count_where_there_are_some(
    tmp_path: Path, write: Write
) -> None:
    write("fedavg", 0, [("a", 0.25), ("b", 0.75)], batch_norm="averaged")
    write("fedavg", 0, [("a", 0.5), ("b", 1.0)], batch_norm="local", whose="personal_")
    table = group_tables(Results(tmp_path), "accuracy")["by_domain"]
    assert table[["batch_norm", "a", "b", "mean"]].to_numpy().tolist() == [
        ["averaged", "0.250", "0.750", "0.500"],
        ["local", "0.500", "1.000", "0.750"],
    ]


def test_rates_that_tell_methods_apart_are_columns(tmp_path: Path, write: Write) -> None:
    write("fedavg", 0, [("a", 0.25), ("b", 0.75)], init_lr=0.1)
    write("fedprox", 0, [("a", 0.25), ("b", 0.75)], init_lr=0.01, mu=1)
    table = group_tables(Results(tmp_path), "accuracy")["by_domain"]
    assert table[["method", "init_lr"]].to_numpy().tolist() == [["fedavg", "0.1"], ["fedprox", "0.01"]]
    assert "mu" not in table


def test_what_has_no_such_metric_is_told_by_its_loss(tmp_path: Path, write: Write) -> None:
    write("fedavg", 0, [("a", 2.0), ("b", 4.0)], metric="loss")
    table = group_tables(Results(tmp_path), "accuracy")["by_domain"]
    assert table[["metric", "mean"]].to_numpy().tolist() == [["loss", "3.000"]]


def test_clients_of_several_groups_one_group_or_too_many_have_no_table(tmp_path: Path, write: Write) -> None:
    write("fedavg", 0, [("a", 0.5), ("b", 0.5)], share=0.9, type="class_based")
    write("fedavg", 0, [("a", 0.5), ("a", 0.5)], type="iid")
    write("fedavg", 0, [(str(user), 0.5) for user in range(21)], type="user_based")
    assert group_tables(Results(tmp_path), "accuracy") == {}
