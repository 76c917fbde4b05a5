"""The comparison of partitions, from made-up run directories with known losses."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import make_tables
from reports.compare import settings_of
from reports.finished import Results
from reports.splits import in_short, increases, methods, readable, side_by_side, splits_over_iid, splits_table
from reports.statistics import Change, increase
from reports.tables import read_runs
from reports.verdicts import headlines, verdicts
from tests.reports.finish import finish
from utils.errors import UserError
from utils.runs import MEASURED_ON

Write = Callable[..., Path]


@pytest.fixture
def write_run(tmp_path: Path) -> Write:
    """Write a finished run: `write_run("iid", 1.5, seed=0, …)`; each is newer than the one before."""

    def write(
        kind: str,
        own: float,
        held_out: float = 2.0,
        *,
        seed: int = 0,
        task: str = "normal",
        method: str = "fedavg",
        alpha: float = 0.1,
        emd: float = 0.5,
        trivial: float = 4.0,
        **others: object,
    ) -> Path:
        args = {"task": task, "method": method, "type": kind, "alpha": alpha, "rand_seed": seed, **others}
        summary = {
            "last": {"round": 20, "train_loss_mean": own, "test_loss": held_out},
            "trivial": {"train": {"loss": trivial}, "test": {"loss": trivial + 1}},
            "heterogeneity": {"emd": emd},
        }
        return finish(tmp_path, args, summary)

    return write


def write_three(write_run: Write, seed: int, losses: tuple[float, float, float], **others: object) -> None:
    """The runs that a row of the table needs, with the losses of IID, class and embedding."""
    for kind, loss in zip(("iid", "class_based", "embedding_based"), losses, strict=True):
        write_run(kind, loss, 10 * loss, seed=seed, **others)


def table_of(tmp_path: Path) -> pd.DataFrame:
    return readable(side_by_side(read_runs(Results(tmp_path))))


def test_means_deviations_and_percentages(tmp_path: Path, write_run: Write) -> None:
    for seed, losses in enumerate([(1.0, 1.1, 1.5), (2.0, 2.4, 2.6)]):
        write_three(write_run, seed, losses, emd=0.25 + seed / 2)
    own, held_out = table_of(tmp_path).to_dict("records")
    # Mean and standard deviation of a sample of two: |a - b| / sqrt(2).
    assert own["IID"] == "1.5000 ± 0.7071"  # 1 and 2
    assert own["class"] == "1.7500 ± 0.9192"  # 1.1 and 2.4: 1.3 / 1.41421
    assert own["embedding"] == "2.0500 ± 0.7778"  # 1.5 and 2.6: 1.1 / 1.41421
    # Seed by seed ratios of 1.1 and 1.2, 1.5 and 1.3, 1.5/1.1 and 2.6/2.4. Their means are the roots of 1.32, 1.95 and
    # 1.4773; the logarithms' half difference ln(1.2 / 1.1) / 2 is the standard error, t(0.975; 1) = 12.706.
    assert own["class over IID, %"] == "+14.9 [-33.9, +99.7]"
    assert own["embedding over IID, %"].startswith("+39.6 [")
    assert own["embedding over class, %"].startswith("+21.5 [")
    assert own["EMD class / embedding"] == "0.50 / 0.50"  # 0.25 and 0.75
    assert (own["constant baseline"], own["seeds"], own["data"]) == ("4.0000", 2, "client train")
    assert held_out["IID"] == "15.0000 ± 7.0711"
    assert held_out["class over IID, %"] == own["class over IID, %"]
    assert (held_out["constant baseline"], held_out["data"]) == ("5.0000", "global test")


def test_the_trivial_predictor_is_the_mean_over_seeds(tmp_path: Path, write_run: Write) -> None:
    for seed in range(2):  # which clients have which images, and so their mean loss, is drawn by the seed
        write_three(write_run, seed, (1.0, 1.1, 1.5), trivial=4.0 + seed)
    runs = read_runs(Results(tmp_path))
    own, held_out = readable(side_by_side(runs)).to_dict("records")
    assert (own["constant baseline"], held_out["constant baseline"]) == ("4.5000", "5.5000")
    assert increases(splits_over_iid(runs))["constant baseline"].tolist() == ["4.500", "5.500"] * 2
    assert splits_table(splits_over_iid(runs))["constant baseline"].tolist() == ["4.5000", "5.5000"] * 2


def test_the_trivial_predictor_beside_a_splits_loss_is_under_that_split(tmp_path: Path, write_run: Write) -> None:
    """A client's images of few classes are guessed otherwise than an even mixture."""
    for kind, loss, trivial in (("iid", 1.0, 4.0), ("class_based", 1.1, 5.0), ("embedding_based", 1.5, 6.0)):
        write_run(kind, loss, trivial=trivial)
    runs = read_runs(Results(tmp_path))
    table = side_by_side(runs)
    assert [part["constant baseline, IID"].tolist() for _, part in in_short(table)] == [["4.000"], ["5.000"]]
    assert readable(table)["constant baseline"].tolist() == ["4.0000 / 5.0000 / 6.0000", "5.0000 / 6.0000 / 7.0000"]
    of_split = splits_table(splits_over_iid(runs)).query('data == "client train"')
    assert of_split["constant baseline"].tolist() == ["4.0000 / 5.0000", "4.0000 / 6.0000"]


def test_methods_stand_below_each_other_beside_all_tasks(tmp_path: Path, write_run: Write) -> None:
    write_three(write_run, 0, (1.0, 1.1, 1.5))
    assert methods(splits_over_iid(read_runs(Results(tmp_path)))).empty
    write_three(write_run, 0, (2.0, 2.2, 2.4), method="fedprox")
    write_three(write_run, 0, (3.0, 3.3, 3.9), method="fedprox", task="reshading")
    table = side_by_side(read_runs(Results(tmp_path)))
    said = methods(splits_over_iid(read_runs(Results(tmp_path))))
    keys = said[["data", "method", "type"]].itertuples(index=False, name=None)
    assert list(keys) == [*product(("client train", "global test"), ("fedavg", "fedprox"), ("class", "embedding"))]
    of_class, embedding = said.iloc[2], said.iloc[3]
    assert [of_class[f"normal, {loss}"] for loss in ("constant baseline", "IID", "loss")] == [
        "4.0000",
        "2.0000",
        "2.2000",
    ]
    assert (embedding["normal, loss"], embedding["reshading, loss"]) == ("2.4000", "3.9000")
    assert said.iloc[0]["reshading, IID"] == ""
    # On test images, FedProx has 20 of the constant baseline's 5.
    assert said.iloc[-1]["normal, IID"] == "20.0000 (not learnt)"
    # As many tasks as methods: the console has a table for each method; with one method more, for each task.
    assert [name for name, _ in in_short(table)][-1] == "fedprox, global model, global test"
    write_three(write_run, 0, (2.0, 2.2, 2.4), method="scaffold")
    heading, part = next(in_short(side_by_side(read_runs(Results(tmp_path)))))
    assert heading == "normal, global model, client train"
    assert part["method"].tolist() == ["fedavg", "fedprox", "scaffold"]


def test_without_an_iid_run_the_console_has_a_dash(tmp_path: Path, write_run: Write) -> None:
    for kind, loss in (("class_based", 1.1), ("embedding_based", 1.5)):
        write_run(kind, loss)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = [part for _, part in in_short(side_by_side(read_runs(Results(tmp_path))))]
    assert [part["IID"].tolist() for part in parts] == [["–"], ["–"]]


def test_folders_are_told_apart_by_what_they_do_not_have_in_common(tmp_path: Path, write_run: Write) -> None:
    for teacher in ("lite0", "random/lite0"):
        write_three(write_run, 0, (1.0, 1.1, 1.5), method="feddifrc", guidance_path=f"results/guidance/{teacher}")
    write_three(write_run, 0, (1.0, 1.1, 1.5))
    table = side_by_side(read_runs(Results(tmp_path)))
    assert set(settings_of(table)["guidance_path"]) == {"", "lite0", "random/lite0"}


def test_folders_without_a_common_place_stay_as_they_were_given(tmp_path: Path, write_run: Write) -> None:
    given = ["/guidance/lite0", "guidance/lite0"]
    for folder in given:
        write_run("iid", 1.0, method="feddifrc", guidance_path=folder)
    assert sorted(read_runs(Results(tmp_path))["guidance_path"]) == given


def test_runs_are_paired_by_seed(tmp_path: Path, write_run: Write) -> None:
    # Written out of order; seed 5 has no class partition and seed 6 no embedding partition.
    for kind, losses in {
        "iid": {3: 1.0, 1: 2.0, 5: 9.0},
        "class_based": {1: 2.2, 3: 1.5, 6: 9.0},
        "embedding_based": {5: 9.0, 3: 2.0, 1: 3.0},
    }.items():
        for seed, loss in losses.items():
            write_run(kind, loss, seed=seed)
    row = side_by_side(read_runs(Results(tmp_path))).iloc[0]
    assert row["seeds"] == [1, 3]
    assert [row[kind].tolist() for kind in ("iid", "class", "embedding")] == [[2, 1], [2.2, 1.5], [3, 2]]


def test_newest_of_equal_runs_counts(tmp_path: Path, write_run: Write) -> None:
    write_three(write_run, 0, (1.0, 1.1, 1.5))
    write_run("embedding_based", 3.0)
    old = write_run("embedding_based", 9.0)
    os.utime(old / "summary.json", (10, 10))
    row = side_by_side(read_runs(Results(tmp_path))).iloc[0]
    assert row["embedding"].tolist() == [3.0]


def test_places_of_files_do_not_make_two_runs(tmp_path: Path, write_run: Write) -> None:
    for folder, loss in (("a", 1.0), ("b", 2.0)):
        write_run("iid", loss, data_path=folder, result_path=folder, plot_distribution=folder == "a")
    assert read_runs(Results(tmp_path))["train_loss"].tolist() == [2.0]


def test_runs_with_another_least_client_size_stay_apart(tmp_path: Path, write_run: Write) -> None:
    for least, loss in ((10, 1.0), (50, 2.0)):
        write_run("class_based", loss, min_client_ds_len=least)
    assert sorted(read_runs(Results(tmp_path))["train_loss"]) == [1.0, 2.0]


@pytest.mark.parametrize(
    "values",
    [
        (5, 20), ("paper", "equal_size"), (True, False),
        (None, 3),
        (None, "x"),
    ],
)  # fmt: skip
def test_argument_that_differs_becomes_a_column(tmp_path: Path, write_run: Write, values: tuple) -> None:
    for factor, value in enumerate(values, start=1):
        write_three(write_run, 0, (1.0 * factor, 1.1 * factor, 1.5 * factor), setting=value, same=7, nothing=None)
    rows = side_by_side(read_runs(Results(tmp_path)))
    own = rows[rows["images"] == "train"]
    assert [{*more} for more in own["more"]] == [{"setting"}] * 2
    assert settings_of(own)["setting"].nunique() == 2
    assert sorted(own["iid"].map(list)) == [[1.0], [2.0]]
    for row in own.to_dict("records"):
        assert increase(row["class"], row["iid"]) == pytest.approx([10])


@pytest.mark.parametrize(("argument", "value"), [("evaluate_clients", 20), ("attack", "sign_flip")])
def test_what_makes_a_loss_another_one_is_said_wherever_it_does(
    argument: str, value: object, tmp_path: Path, write_run: Write
) -> None:
    write_three(write_run, 0, (1.0, 1.1, 1.5), **{argument: None})
    assert argument not in settings_of(side_by_side(read_runs(Results(tmp_path))))
    for path in tmp_path.rglob("args.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {argument: value}))
    assert set(settings_of(side_by_side(read_runs(Results(tmp_path))))[argument]) == {str(value)}


def test_argument_that_differs_between_methods_only_is_no_column(tmp_path: Path, write_run: Write) -> None:
    write_three(write_run, 0, (1.0, 1.1, 1.5), method="fedavg", mu=None)
    write_three(write_run, 0, (1.0, 1.2, 1.6), method="fedprox", mu=0.1)
    rows = table_of(tmp_path)
    assert "mu" not in rows
    assert rows["method"].tolist() == ["fedavg", "fedavg", "fedprox", "fedprox"]
    assert rows["class over IID, %"].tolist() == ["+10.0", "+10.0", "+20.0", "+20.0"]


def write_rates(write_run: Write) -> None:
    """Three methods, whose learning rates are another each, and two of which have a server's and a mu."""
    fixed = {"batch_size": 8, "mu": None, "server_lr": None}
    write_three(write_run, 0, (1.0, 1.1, 1.5), method="fedavg", **fixed | {"init_lr": 0.1})
    write_three(write_run, 0, (1.0, 1.2, 1.6), method="fedadam", **fixed | {"init_lr": 0.01, "server_lr": 0.3, "mu": 1})
    write_three(write_run, 0, (1.0, 1.2, 1.6), method="scaffold", **fixed | {"init_lr": 0.1, "server_lr": 1, "mu": 2})


def test_rates_that_tell_methods_apart_are_in_their_tables(tmp_path: Path, write_run: Write) -> None:
    write_rates(write_run)
    runs = read_runs(Results(tmp_path))
    splits = splits_over_iid(runs)
    expected = {("fedadam", "0.01", "0.3"), ("fedavg", "0.1", ""), ("scaffold", "0.1", "1")}
    _, in_console = next(in_short(side_by_side(runs)))
    for table in (increases(splits), splits_table(splits), readable(side_by_side(runs)), in_console):
        assert {*table[["method", "init_lr", "server_lr"]].itertuples(index=False, name=None)} == expected
        assert not {"mu", "batch_size"} & {*table}
    lines = headlines(verdicts(side_by_side(runs)), splits_table(splits))["On client train"]
    assert len(lines) == 3 and all("lr" not in line for line in lines)  # the method says it


def test_rates_stand_beside_each_tasks_losses_where_methods_have_a_row_for_all_tasks(
    tmp_path: Path, write_run: Write
) -> None:
    write_rates(write_run)
    for method, rate in (("fedavg", 0.5), ("fedadam", 0.25)):
        write_three(write_run, 0, (1.0, 1.1, 1.5), method=method, task="reshading", init_lr=rate)
    table = methods(splits_over_iid(read_runs(Results(tmp_path)))).query('data == "global test" and type == "class"')
    rates = ["normal, init_lr", "normal, server_lr", "reshading, init_lr"]
    assert table.set_index("method")[rates].T.to_dict("list") == {
        "fedadam": ["0.01", "0.3", "0.25"],
        "fedavg": ["0.1", "", "0.5"],
        "scaffold": ["0.1", "1", ""],
    }
    assert not {"init_lr", "reshading, server_lr", "normal, mu"} & {*table}
    # Dense tasks are judged together, each at its own rate.
    together = verdicts(side_by_side(read_runs(Results(tmp_path))), ["normal", "reshading"]).query(
        'task == "2 dense tasks"'
    )
    assert together[["method", "data", "init_lr"]].values.tolist() == [
        [method, "client train", ""] for method in ("fedadam", "fedavg")
    ]


def test_a_rate_of_one_method_alone_or_of_one_value_is_no_column(tmp_path: Path, write_run: Write) -> None:
    write_three(write_run, 0, (1.0, 1.1, 1.5), method="fedavg", init_lr=0.1)
    write_three(write_run, 0, (1.0, 1.1, 1.5), method="fedadam", init_lr=0.1, server_lr=0.3)
    write_three(write_run, 0, (1.0, 1.1, 1.5), method="fedavg", init_lr=0.2, task="reshading")  # of tasks, not methods
    assert not {"init_lr", "server_lr"} & {*increases(splits_over_iid(read_runs(Results(tmp_path))))}


def test_iid_run_of_any_alpha_serves_all(tmp_path: Path, write_run: Write) -> None:
    write_run("iid", 1.0, alpha=7.0)
    for alpha, loss in ((0.1, 1.5), (10.0, 1.2)):
        write_run("class_based", 1.1, alpha=alpha)
        write_run("embedding_based", loss, alpha=alpha)
    rows = side_by_side(read_runs(Results(tmp_path)))
    own = rows[rows["images"] == "train"]
    assert own["alpha"].tolist() == [0.1, 10.0]
    assert [increase(row["embedding"], row["iid"])[0] for row in own.to_dict("records")] == pytest.approx([50, 20])


def test_missing_iid_runs_give_dashes(tmp_path: Path, write_run: Write) -> None:
    write_run("class_based", 2.0)
    write_run("embedding_based", 3.0)
    write_run("iid", 1.0, task="reshading")
    row = table_of(tmp_path).iloc[0]
    assert (row["IID"], row["class over IID, %"], row["embedding over IID, %"]) == ("–", "–", "–")
    assert (row["class"], row["embedding"], row["embedding over class, %"]) == ("2.0000", "3.0000", "+50.0")


def test_rows_are_in_order_and_the_own_data_comes_first(tmp_path: Path, write_run: Write) -> None:
    for task, alpha in (("reshading", 0.1), ("normal", 10.0), ("normal", 0.1)):
        write_three(write_run, 0, (1.0, 1.1, 1.5), task=task, alpha=alpha)
    rows = table_of(tmp_path)
    assert list(zip(rows["task"], rows["alpha"], strict=True))[::2] == [
        ("normal", 0.1),
        ("normal", 10.0),
        ("reshading", 0.1),
    ]
    assert rows["data"].tolist() == ["client train", "global test"] * 3


def test_personal_models_stand_for_methods_that_have_them(tmp_path: Path, write_run: Write) -> None:
    for method, columns in {
        "fedavg": {"train_loss_mean": 2.0, "local_test_loss_mean": 3.0, "test_loss": 4.0},
        "ditto": {
            "train_loss_mean": 2.0, "local_test_loss_mean": 3.0, "test_loss": 4.0,
            "personal_train_loss_mean": 1.0, "personal_local_test_loss_mean": 2.5,
        },
        "local": {"personal_train_loss_mean": 0.5, "personal_local_test_loss_mean": 9.0},
    }.items():  # fmt: skip
        for kind, factor in (("iid", 1.0), ("class_based", 1.1), ("embedding_based", 1.2)):
            path = write_run(kind, 0.0, method=method)
            summary = json.loads((path / "summary.json").read_text())
            summary["last"] = {"round": 20} | {name: factor * value for name, value in columns.items()}
            summary["trivial"]["local_test"] = {"loss": 6.0}
            (path / "summary.json").write_text(json.dumps(summary))
    table = table_of(tmp_path)
    rows = {(row["method"], row["data"]): row for row in table.to_dict("records")}
    assert {key: (row["model"], row["IID"]) for key, row in rows.items()} == {
        ("fedavg", "client train"): ("global", "2.0000"), ("fedavg", "client test"): ("global", "3.0000"),
        ("fedavg", "global test"): ("global", "4.0000"), ("ditto", "client train"): ("personal", "1.0000"),
        ("ditto", "client test"): ("personal", "2.5000"), ("ditto", "global test"): ("global", "4.0000"),
        ("local", "client train"): ("personal", "0.5000"), ("local", "client test"): ("personal", "9.0000"),
    }  # fmt: skip
    assert set(table["embedding over IID, %"]) == {"+20.0"}
    assert {row["constant baseline"] for key, row in rows.items() if key[1] == "client test"} == {"6.0000"}


def test_iid_run_serves_splits_by_other_rules(tmp_path: Path, write_run: Write) -> None:
    write_run("iid", 1.0, partition="paper", n_clusters=10, shards_per_client=2)
    for kind, loss in (("class_based", 1.1), ("embedding_based", 1.5)):
        write_run(kind, loss, partition="shards", n_clusters=8, shards_per_client=4)
    row = table_of(tmp_path).iloc[0]
    assert (row["class over IID, %"], row["embedding over IID, %"]) == ("+10.0", "+50.0")
    assert not {"partition", "n_clusters", "shards_per_client"} & set(row.index)


# Every kind of partition


def test_every_kind_of_split_over_iid(tmp_path: Path, write_run: Write) -> None:
    for seed, loss in ((0, 1.0), (1, 2.0)):
        write_run("iid", loss, 10 * loss, seed=seed, partition="paper", n_clients=4)
        write_run("domain_based", 1.2 * loss, 20 * loss, seed=seed, partition="natural", n_clients=4, emd=0.25)
    write_run("class_based", 3.0, seed=1, partition="equal_size", n_clients=4, alpha=10.0)
    write_run("class_based", 3.0, seed=1, partition="equal_size", n_clients=8, alpha=10.0)
    rows = splits_table(splits_over_iid(read_runs(Results(tmp_path)))).to_dict("records")
    assert [(row["type"], row["n_clients"], row["data"]) for row in rows] == [
        ("class", "4", "client train"), ("class", "4", "global test"), ("class", "8", "client train"),
        ("class", "8", "global test"), ("domain", "4", "client train"), ("domain", "4", "global test"),
    ]  # fmt: skip
    own = {(row["type"], row["n_clients"]): row for row in rows if row["data"] == "client train"}
    assert {key: (row["alpha"], row["seeds"], row["IID"], row["over IID, %"]) for key, row in own.items()} == {
        ("class", "4"): ("10", 1, "2.0000", "+50.0"),
        ("class", "8"): ("10", 1, "–", "–"),
        ("domain", "4"): ("", 2, "1.5000 ± 0.7071", "+20.0 [+20.0, +20.0]"),
    }
    assert own["domain", "4"]["EMD"] == "0.25" and own["domain", "4"]["partition"] == "natural"
    assert rows[-1]["over IID, %"] == "+100.0 [+100.0, +100.0]"


@pytest.mark.parametrize("absent", [{}, {"shards_per_client": None}])
def test_an_argument_of_one_rule_is_blank_in_rows_of_another(
    tmp_path: Path, write_run: Write, absent: dict[str, None]
) -> None:
    write_run("iid", 1.0, partition="paper", **absent)
    for loss, rule in ((2.0, {"partition": "paper", **absent}), (3.0, {"partition": "shards", "shards_per_client": 2})):
        for kind in ("class_based", "embedding_based"):
            write_run(kind, loss, **rule)
    runs = read_runs(Results(tmp_path))
    costs = splits_table(splits_over_iid(runs)).drop_duplicates(["type", "partition"])
    assert costs[["partition", "shards_per_client"]].to_numpy().tolist() == [["paper", ""], ["shards", "2"]] * 2
    own = table_of(tmp_path).drop_duplicates("partition")
    assert own[["partition", "shards_per_client"]].to_numpy().tolist() == [["paper", ""], ["shards", "2"]]
    assert own["class over IID, %"].tolist() == ["+100.0", "+200.0"]  # the IID run serves both


def test_tables_need_no_class_split(
    tmp_path: Path, write_run: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("iid", "site_based"):
        write_run(kind, 1.0, partition="natural")
    arguments = ["--result_path", str(tmp_path), "--assignment_files_path", str(tmp_path / "none")]
    monkeypatch.setattr(sys, "argv", ["make_tables.py", *arguments])
    make_tables.main()
    assert "what partitions cost over IID" in capsys.readouterr().out
    written = pd.read_csv(tmp_path / "tables" / "splits.csv")
    assert written["type"].tolist() == ["site", "site"] and not (tmp_path / "tables" / "comparison.csv").exists()


# What cannot be compared


def test_no_run_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_federated" / "fedavg").mkdir(parents=True)
    assert read_runs(Results(tmp_path)).empty
    monkeypatch.setattr(sys, "argv", ["make_tables.py", "--result_path", str(tmp_path)])
    with pytest.raises(UserError, match=r"no finished run in .*run train_centralized_task_model\.py or test_fed\.py"):
        make_tables.main()


@pytest.mark.parametrize("kinds", [["iid"], ["iid", "class_based"], ["embedding_based"]])
def test_one_kind_of_split_is_nothing_to_compare(tmp_path: Path, write_run: Write, kinds: list[str]) -> None:
    for kind in kinds:
        write_run(kind, 1.0)
    assert side_by_side(read_runs(Results(tmp_path))).empty


def test_run_that_is_not_finished_does_not_count(tmp_path: Path, write_run: Write) -> None:
    write_run("iid", 1.0)
    (write_run("iid", 2.0, seed=1) / "summary.json").unlink()
    assert read_runs(Results(tmp_path))["rand_seed"].tolist() == [0]


@pytest.mark.parametrize(
    "name, content",
    [
        ("args.json", "{"),
        ("args.json", None),
        ("summary.json", ""),
        ("summary.json", "{}"),
    ],
)
def test_broken_run_is_named(tmp_path: Path, write_run: Write, name: str, content: str | None) -> None:
    path = write_run("iid", 1.0)
    (path / name).unlink()
    if content is not None:
        (path / name).write_text(content)
    with pytest.raises(UserError, match=f"{path}: not a readable run.*remove it or run it again"):
        read_runs(Results(tmp_path))


# Numbers as text


def test_sign_of_an_increase() -> None:
    assert str(Change.of(increase(np.array([1.2]), np.array([1.0])))) == "+20.0"
    assert str(Change.of(increase(np.array([0.5]), np.array([1.0])))) == "-50.0"


def test_losses_that_are_not_positive_keep_the_sign_of_their_difference() -> None:
    # Of -1 and -3 the mean absolute value is 2; the higher losses are more by 0.5 and 2 of it. The
    # other way round, that of 0, 1 and 1 is 2/3.
    reference = np.array([-1.0, -3.0, np.nan])
    assert increase(np.array([0.0, 1.0, 1.0]), reference) == pytest.approx([50.0, 200.0, np.nan], nan_ok=True)
    assert increase(reference, np.array([0.0, 1.0, 1.0])) == pytest.approx([-150.0, -600.0, np.nan], nan_ok=True)
    assert np.isnan(increase(np.array([1.0]), np.array([0.0]))).all()


def test_alpha_of_zero_beside_another(
    tmp_path: Path, write_run: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, alpha in product(range(2), (0.0, 0.1, 10.0)):
        write_three(write_run, seed, (1.0, 1.1 + alpha / 100, 1.5 - alpha / 100), alpha=alpha)
    monkeypatch.setattr("reports.stages.tables.draw", lambda table, path: path)
    monkeypatch.setattr(sys, "argv", ["make_tables.py", "--result_path", str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    make_tables.main()
    assert "α = 0: " in capsys.readouterr().out
    slopes = pd.read_csv(tmp_path / "tables/alpha_slopes.csv")
    assert set(slopes["alphas"]) == {"0.1 10"}


def test_splits_by_clusters_of_other_features_stand_apart(write_run: Write, tmp_path: Path) -> None:
    write_run("iid", 1.0)
    write_run("embedding_based", 1.5, features="model")
    write_run("embedding_based", 2.0, features="target")
    found = splits_table(splits_over_iid(read_runs(Results(tmp_path))))
    assert found[found["data"] == MEASURED_ON["train"]].set_index("type")["over IID, %"].to_dict() == {
        "embedding": "+50.0",
        "target": "+100.0",
    }
