"""The table of all metrics, from made-up run directories with known values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reports.finished import Results
from reports.metric_tables import metric_table, read_metrics
from tests.reports.finish import finish

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a finished run, each newer than the one before: `write(stage, args, summary)`."""

    def write_run(stage: str, args: dict, summary: dict) -> None:
        finish(tmp_path, {"task": "normal", "rand_seed": 0} | args, summary, stage=stage)

    return write_run


def federated(
    write: Write,
    kind: str,
    own: float,
    *,
    seed: int = 0,
    method: str = "fedavg",
    personal: float | None = None,
    trivial: float = 8.0,
    **others: object,
) -> None:
    """A run with a loss on the clients' own data and half of it as `mae`; one more of each held out.

    The `trivial` loss is that of the clients; on the common held-out images it is 8.
    """
    last = {"round": 3, "train_loss_mean": own, "train_mae_mean": own / 2, "train_loss_std": 9}
    last |= {"test_loss": own + 1, "test_mae": own / 2 + 1}
    if personal is not None:
        last |= {"personal_local_test_loss_mean": personal, "personal_local_test_mae_mean": personal / 2}
    of_trivial = {split: {"loss": trivial, "mae": trivial / 2} for split in ("train", "local_test")}
    of_trivial["test"] = {"loss": 8.0, "mae": 4.0}
    args = {"method": method, "type": kind, "alpha": 0.1, "rand_seed": seed, **others}
    write("test_federated", args, {"last": last, "trivial": of_trivial})


def rows_of(tmp_path: Path, *columns: str) -> list[list]:
    return metric_table(read_metrics(Results(tmp_path)), "normal")[list(columns)].values.tolist()


def test_rows_stand_in_order_with_means_over_seeds(tmp_path: Path, write: Write) -> None:
    for seed in (0, 1):
        for kind, own in (("embedding_based", 3.0), ("iid", 1.0), ("class_based", 2.0)):
            federated(write, kind, own + seed, seed=seed)
        central = {"test": {"loss": 0.5 + seed, "mae": 0.25}, "trivial": {"loss": 8.0, "mae": 4.0}}
        write("train_centralized", {"rand_seed": seed}, central)
    rows = rows_of(tmp_path, "data", "model", "type", "alpha", "seeds", "loss", "mae")
    of_two = [2, "8.0000 ± 0.0000", "4.0000 ± 0.0000"]
    # Of values that differ by one the deviation is 0.7071, of halves 0.3536.
    assert rows == [
        ["client train", "constant baseline", "IID", "", *of_two],
        ["client train", "constant baseline", "class", "0.1", *of_two],
        ["client train", "constant baseline", "embedding", "0.1", *of_two],
        ["client train", "fedavg", "IID", "", 2, "1.5000 ± 0.7071", "0.7500 ± 0.3536"],
        ["client train", "fedavg", "class", "0.1", 2, "2.5000 ± 0.7071", "1.2500 ± 0.3536"],
        ["client train", "fedavg", "embedding", "0.1", 2, "3.5000 ± 0.7071", "1.7500 ± 0.3536"],
        ["client test", "constant baseline", "IID", "", *of_two],
        ["client test", "constant baseline", "class", "0.1", *of_two],
        ["client test", "constant baseline", "embedding", "0.1", *of_two],
        ["global test", "constant baseline", "", "", *of_two],
        ["global test", "central", "", "", 2, "1.0000 ± 0.7071", "0.2500 ± 0.0000"],
        ["global test", "fedavg", "IID", "", 2, "2.5000 ± 0.7071", "1.7500 ± 0.3536"],
        ["global test", "fedavg", "class", "0.1", 2, "3.5000 ± 0.7071", "2.2500 ± 0.3536"],
        ["global test", "fedavg", "embedding", "0.1", 2, "4.5000 ± 0.7071", "2.7500 ± 0.3536"],
    ]


def test_trivial_predictor_of_clients_is_that_of_their_split(tmp_path: Path, write: Write) -> None:
    # What a client's images are is the partition's doing: the newest run's value is not everyone's.
    for seed in (0, 1):
        federated(write, "class_based", 1.0, seed=seed, trivial=2.0 + seed)
        for steps in (20, 40):
            federated(write, "embedding_based", 1.0, seed=seed, trivial=6.0 + seed, sgd_per_epoch=steps)
    rows = rows_of(tmp_path, "data", "model", "type", "sgd_per_epoch", "seeds", "loss")
    assert [row[:1] + row[2:] for row in rows if row[1] == "constant baseline"] == [
        ["client train", "class", "", 2, "2.5000 ± 0.7071"],
        ["client train", "embedding", "", 2, "6.5000 ± 0.7071"],
        ["client test", "class", "", 2, "2.5000 ± 0.7071"],
        ["client test", "embedding", "", 2, "6.5000 ± 0.7071"],
        ["global test", "", "", 2, "8.0000 ± 0.0000"],
    ]


def test_trivial_predictor_of_participants_is_not_that_of_all(tmp_path: Path, write: Write) -> None:
    for whose, loss in (
        ({"train_clients": "all"}, 8.0),
        ({"train_clients": "participants", "partition_file": "p"}, 6.0),
    ):
        summary = {"test": {"loss": loss / 2, "mae": 0.25}, "trivial": {"loss": loss, "mae": 4.0}}
        write("train_centralized", whose, summary)
    federated(write, "class_based", 1.0)
    rows = rows_of(tmp_path, "data", "model", "train_clients", "loss")
    assert sorted(row[2:] for row in rows if row[:2] == ["global test", "constant baseline"]) == [
        ["", "8.0000"],
        ["participants", "6.0000"],
    ]


def test_trivial_predictor_has_a_row_for_each_size_of_images(tmp_path: Path, write: Write) -> None:
    for size, own in ((64, 1.0), (128, 2.0)):
        federated(write, "class_based", own, image_size=size, trivial=2 * own)
        central = {"test": {"loss": own, "mae": 0.25}, "trivial": {"loss": 8.0 * own, "mae": 4.0}}
        write("train_centralized", {"image_size": size}, central)
    rows = rows_of(tmp_path, "data", "model", "image_size", "loss")
    assert [row[2:] for row in rows if row[:2] == ["client train", "constant baseline"]] == [
        ["64", "2.0000"],
        ["128", "4.0000"],
    ]
    assert [row[2] for row in rows if row[:2] == ["global test", "constant baseline"]] == ["64", "128"]


def test_non_participating_clients_make_the_trivial_predictor_that_of_a_split(tmp_path: Path, write: Write) -> None:
    for kind in ("class_based", "embedding_based"):
        federated(write, kind, 1.0, non_participating_clients=5)
    write("train_centralized", {}, {"test": {"loss": 1.0, "mae": 0.5}, "trivial": {"loss": 8.0, "mae": 4.0}})
    rows = rows_of(tmp_path, "data", "model", "type")
    assert [row[2] for row in rows if row[:2] == ["global test", "constant baseline"]] == ["", "class", "embedding"]


def test_arguments_that_all_runs_share_are_no_columns(tmp_path: Path, write: Write) -> None:
    for non_participating in (5, None):
        for kind in ("class_based", "embedding_based"):
            federated(
                write,
                kind,
                1.0,
                non_participating_clients=non_participating,
                n_clients=10,
                partition="equal_size",
                n_rounds=3,
            )
        write("train_centralized", {"n_epochs": 3}, {"test": {"loss": 1.0}, "trivial": {"loss": 8.0}})
        columns = [*metric_table(read_metrics(Results(tmp_path)), "normal")]
        measured = ["seeds", "loss", "mae"]
        more = [] if non_participating else ["non_participating_clients"]
        assert columns == ["data", "model", "type", "alpha", *more, *measured]


def test_rates_that_tell_methods_apart_are_columns(tmp_path: Path, write: Write) -> None:
    for method, rate in (("fedavg", 0.1), ("fedprox", 0.01)):
        federated(write, "class_based", 1.0, method=method, init_lr=rate, batch_size=8, mu=rate)
    rows = metric_table(read_metrics(Results(tmp_path)), "normal").query('data == "global test"')
    assert rows[["model", "init_lr"]].values.tolist() == [
        ["constant baseline", ""],
        ["fedavg", "0.1"],
        ["fedprox", "0.01"],
    ]
    assert "batch_size" not in rows


def test_natural_groups_stand_behind_the_other_splits(tmp_path: Path, write: Write) -> None:
    for kind in ("user_id_based", "domain_based", "embedding_based", "iid"):
        federated(write, kind, 1.0)
    rows = rows_of(tmp_path, "data", "model", "type")
    splits = [row[2] for row in rows if row[:2] == ["global test", "fedavg"]]
    assert splits == ["IID", "embedding", "domain", "user_id"]


def test_clients_own_models_have_rows_of_their_own(tmp_path: Path, write: Write) -> None:
    federated(write, "class_based", 2.0, method="ditto", personal=1.0)
    rows = rows_of(tmp_path, "data", "model", "loss", "mae")
    assert ["client test", "ditto, own models", "1.0000", "0.5000"] in rows
    assert ["global test", "ditto", "3.0000", "2.0000"] in rows


def test_newest_run_counts_and_settings_stand_apart(tmp_path: Path, write: Write) -> None:
    for own, steps in ((9.0, 20), (1.0, 20), (5.0, 40)):
        federated(write, "iid", own, sgd_per_epoch=steps, result_path=f"folder{own}")
    rows = rows_of(tmp_path, "data", "model", "sgd_per_epoch", "loss")
    assert [row[2:] for row in rows if row[:2] == ["global test", "fedavg"]] == [["20", "2.0000"], ["40", "6.0000"]]


def test_alphas_are_in_order(tmp_path: Path, write: Write) -> None:
    for alpha in (10, 0.01, 2, 1):
        federated(write, "class_based", 1.0, alpha=alpha)
    rows = rows_of(tmp_path, "data", "model", "alpha")
    assert [row[2] for row in rows if row[:2] == ["global test", "fedavg"]] == ["0.01", "1", "2", "10"]


@pytest.mark.parametrize(
    ("kind", "rule", "alpha"),
    [("object_based", "commonest_object", ""), ("user_id_based", "natural", ""), ("class_based", "equal_size", "0.1")],
)
def test_alpha_stands_where_the_rule_uses_it(tmp_path: Path, write: Write, kind: str, rule: str, alpha: str) -> None:
    federated(write, kind, 1.0, partition=rule)
    rows = rows_of(tmp_path, "data", "model", "alpha")
    assert [row[2] for row in rows if row[:2] == ["global test", "fedavg"]] == [alpha]


def test_metrics_of_other_tasks_and_missing_runs_leave_no_trace(tmp_path: Path, write: Write) -> None:
    assert read_metrics(Results(tmp_path)).empty
    federated(write, "iid", 1.0)
    other = {"test": {"loss": 1.0, "miou": 0.5}, "trivial": {"loss": 2.0, "miou": 0.1}}
    write("train_centralized", {"task": "segment_semantic"}, other)
    metrics = read_metrics(Results(tmp_path))
    assert "miou" not in metric_table(metrics, "normal")
    assert metric_table(metrics, "segment_semantic")[["model", "miou"]].values.tolist() == [
        ["constant baseline", "0.1000"],
        ["central", "0.5000"],
    ]


def test_a_prediction_of_zeros_stands_beside_the_constant_baseline(tmp_path: Path, write: Write) -> None:
    for seed in (0, 1):
        summary = {"test": {"loss": 1.0}, "trivial": {"loss": 2.0}, "zero": {"zero flow": {"loss": 3.0}}}
        write("train_centralized", {"task": "motion", "rand_seed": seed, "n_epochs": 1 + seed}, summary)
    table = metric_table(read_metrics(Results(tmp_path)), "motion")
    assert table[["model", "n_epochs", "seeds", "loss"]].values.tolist() == [
        ["constant baseline", "", 2, "2.0000 ± 0.0000"],
        ["zero flow", "", 2, "3.0000 ± 0.0000"],
        ["central", "1", 1, "1.0000"],
        ["central", "2", 1, "1.0000"],
    ]
