"""What runs have learnt, from made-up losses: the table, the lines, and what a user reads first."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

import make_tables
from reports.central import read_central
from reports.finished import Results
from reports.page import report_page
from reports.tables import read_runs
from reports.trivial import central_not_learnt, learnt_table, not_learnt
from tests.reports.finish import finish


def write(folder: Path, kind: str, own: float, held_out: float, seed: int, **more: object) -> None:
    """A federated run, and the constant baseline's losses: 1 on clients' own images, 1.618 on held-out ones."""
    args = {"task": "classification", "method": "fedavg", "type": kind, "alpha": 0.1, "rand_seed": seed, **more}
    last = {"round": 0, "train_loss_mean": own, "test_loss": held_out, "test_accuracy": 0.25, "test_macro_f1": 0.125}
    trivial = {"train": {"loss": 1.0}, "test": {"loss": 1.618, "accuracy": 0.2, "macro_f1": 0.1}}
    finish(folder, args, {"last": last, "trivial": trivial, "heterogeneity": {}}, metrics=[last])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three seeds that learn the clients' images by heart: skew seems to lower the held-out loss by 31.6 %."""
    for seed in range(3):
        write(tmp_path, "iid", 0.5 + seed / 100, 2.607 + seed / 100, seed)
        write(tmp_path, "class_based", 0.6, 1.783 + seed / 100, seed)
        write(tmp_path, "embedding_based", 0.7, 2.1 + seed / 100, seed)
    return tmp_path


def test_what_is_not_learnt_comes_first_and_is_named(runs: Path) -> None:
    table = learnt_table(read_runs(Results(runs)))
    assert table[["data", "learnt"]].to_numpy().tolist() == [["global test", "no"], ["client train", "by heart"]]
    assert table["IID"].tolist() == ["2.6170 [2.5922, 2.6418]", "0.5100 [0.4852, 0.5348]"]  # ± 4.303 * 0.01 / √3
    [line] = not_learnt(table)
    assert line == (
        "classification, fedavg: under IID the loss is not clearly below the constant baseline's, and there is no "
        "verdict, on global test (2.6170 [2.5922, 2.6418], constant baseline 1.6180); learnt by heart: client train "
        "(0.5100 [0.4852, 0.5348], constant baseline 1.0000)"
    )
    for path in runs.rglob("summary.json"):
        path.write_text(path.read_text().replace("2.6", "0.6"))
    table = read_runs(Results(runs))
    assert not_learnt(learnt_table(table)) == [] and learnt_table(table.query("type != 'iid'")).empty


def test_settings_that_differ_have_lines_of_their_own(runs: Path) -> None:
    for seed in range(3):
        write(runs, "iid", 1.5, 0.5, seed, init_lr=0.1)
    first, second = not_learnt(learnt_table(read_runs(Results(runs))))
    assert first.startswith("classification, fedavg: ") and "global test" in first
    assert second.startswith("classification, fedavg, init_lr 0.1: under IID") and "global test" not in second


def test_console_and_report_open_with_it_and_withhold_the_verdict(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {name: {"loss": loss, "accuracy": 0.2} for name, loss in (("test", 1.7), ("trivial", 1.618))}
    finish(runs, {"task": "classification", "rand_seed": 0}, values, stage="train_centralized")
    [named] = central_not_learnt(read_central(Results(runs)))
    assert named.startswith("classification: the central model's loss on global test, 1.7000, is not clearly below")
    arguments = ["--result_path", str(runs), "--assignment_files_path", str(runs / "none")]
    monkeypatch.setattr(sys, "argv", ["make_tables.py", *arguments])
    make_tables.main()
    printed = capsys.readouterr().out
    assert printed.startswith("not learnt:\nclassification: the central model's")
    held_out, own = (printed.index(f"{heading}:\n") for heading in ("On test images", "On client train"))
    assert held_out < own
    first = " ".join(printed[held_out:own].split())
    assert "no verdict, since the task is not learnt" in first and "accuracy 0.25 (IID), 0.25 (class)" in first
    assert "%" not in first
    tables = {name: pd.read_csv(runs / f"tables/{name}.csv") for name in ("verdicts", "splits", "increases")}
    for table in tables.values():
        assert set(table.loc[table["data"] == "global test", "learnt"]) == {"no"}
    withheld = tables["splits"].loc[tables["splits"]["data"] == "global test", "loss over IID's (margin ±2 %)"]
    assert withheld.tolist() == ["withheld", "withheld"]
    page = report_page(runs)
    assert page.index("On test images") < page.index("no verdict, since the task is not learnt") < page.index("<img")
    assert page.index("<img") < page.index("What is not learnt</h2>") < page.index("How partitions are made</h2>")
