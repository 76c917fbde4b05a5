"""What is printed fits a console of 120 columns, and says all that it is to say."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import make_tables
from datasets.tasks import TASKS, get_task
from models.central.metrics import metric_names
from network.partition.heterogeneity import report, report_text
from reports.console import WIDTH, titled, wrapped
from reports.stages.central import print_values
from reports.stages.clusters import report_clusters
from reports.stages.federated import of_gaps
from tests.reports.finish import finish
from utils.runs import COLUMNS, MEASURED_ON


def fits(text: str) -> bool:
    return max(map(len, text.splitlines())) <= WIDTH


def test_keys_that_all_rows_share_stand_in_the_heading() -> None:
    table = pd.DataFrame({"task": ["a", "b"], "method": "fedavg", "n_clients": 4, "more": "", "loss": [0.5, np.nan]})
    table.insert(4, "seeds", 3)
    assert titled("losses", table, ["task", "method", "n_clients", "more"]).splitlines() == [
        "losses (all with method fedavg, 4 clients, 3 seeds)",
        "task  loss",
        "a      0.5",
        "b        –",
    ]


def test_a_single_row_keeps_its_first_key() -> None:
    table = pd.DataFrame({"task": ["a"], "alpha": ["1"], "loss": ["0.5"]})
    assert titled("losses", table, ["task", "alpha"]).splitlines() == [
        "losses (all with alpha 1)",
        "task  loss",
        "a      0.5",
    ]


def test_keys_are_not_repeated_but_for_the_last() -> None:
    table = pd.DataFrame(
        {"task": [*"aaab"], "method": [*"xxyy"], "alpha": ["1", "10", "1", "1"], "loss": ["0.5 ± 0.1", "–", "1", "2"]}
    )
    _, names, *rows = titled("losses", table, ["task", "method", "alpha"]).splitlines()
    assert names.split() == [*table]
    assert [row.split() for row in rows] == [
        ["a", "x", "1", "0.5", "±", "0.1"],
        ["10", "–"],
        ["y", "1", "1"],
        ["b", "y", "1", "2"],
    ]


def test_names_of_columns_are_broken_before_columns_are_left_out() -> None:
    names = [f"increase of column {n}, in percent" for n in range(9)]
    table = pd.DataFrame({"task": ["a", "b"], **dict.fromkeys(names, "0.5 ± 0.1")})
    text = titled("costs", table, ["task"])
    assert fits(text) and len(text.splitlines()) == 1 + 4 + 2
    assert text.splitlines()[-1].split() == ["b", *["0.5", "±", "0.1"] * 9]


def test_columns_that_do_not_fit_are_named_with_the_file_that_has_them() -> None:
    table = pd.DataFrame({"task": ["a", "b"], **{f"column {n}": [f"{n}" + "x" * 30, f"{n}2"] for n in range(5)}})
    text = titled("costs", table, ["task"], "tables/costs.md")
    assert fits(text) and len(text.splitlines()) == 5
    assert text.endswith("tables/costs.md: also column 3, column 4") and "32" not in text


def test_rows_are_sentences_where_keys_alone_are_too_wide() -> None:
    keys = [f"argument{n}" for n in range(12)]
    table = pd.DataFrame({name: [f"value {n} of {name}" for n in range(2)] for name in [*keys, "loss"]})
    text = titled("losses", table, keys)
    assert fits(text) and text.count("value 1 of") == len(table.columns)
    assert text.splitlines()[1].startswith("argument0 value 0 of argument0, argument1 value 0 of argument1, ")


def test_sentences_are_wrapped_and_paths_are_not() -> None:
    path = "/".join(["folder"] * 30)
    lines = wrapped(f"{'word ' * 40}{path}").splitlines()
    assert len(lines) == 3 and lines[-1].strip() == path and all(len(line) <= WIDTH for line in lines[:-1])


def write_sweep(folder: Path) -> None:
    """Runs of three tasks, methods and seeds, and two alphas; and central models of two settings."""
    rng = np.random.default_rng(0)
    for task, seed in product(("principal_curvature", "normal", "segment_semantic"), range(3)):
        names = metric_names(TASKS[task])
        values = {split: dict(zip(names, 10 * rng.random(len(names)), strict=True)) for split in MEASURED_ON}
        for size in (32, 64):
            central = {"task": task, "rand_seed": seed, "image_size": size}
            results = {"test": values["test"], "trivial": values["train"]}
            finish(folder, central, results, stage="train_centralized", environment={"code_version": {"engine": 1}})
        for method, kind, alpha in product(
            ("fedavg", "scaffold", "fedrep"), ("iid", "class_based", "embedding_based"), (0.1, 100)
        ):
            if kind == "iid" and alpha != 0.1:
                continue
            prefix = "personal_" if method == "fedrep" else ""
            last = {f"{prefix}{split}_loss_mean": 10 * rng.random() for split in ("train", "local_test")}
            last |= {} if prefix else {"test_loss": rng.random()}
            args = {"task": task, "method": method, "type": kind, "alpha": alpha, "rand_seed": seed}
            uneven = {"emd": 0.5, "gradient_dispersion": 12.0}
            trivial = {split: dict.fromkeys(names, 100.0) for split in MEASURED_ON}
            made_with = {"code_version": {"engine": 1 if prefix else 2}}
            finish(folder, args, {"last": last, "trivial": trivial, "heterogeneity": uneven}, environment=made_with)


def test_all_that_make_tables_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["make_tables.py"])
    monkeypatch.setattr("reports.stages.tables.draw", lambda table, path: path)
    make_tables.main()
    text = capsys.readouterr().out
    assert fits(text)
    assert {"fedrep, personal model, client test", "scaffold, global model, global test"} < {*text.splitlines()}
    assert text.count("principal_curvature, scaffold, α = 100: ") == 2  # on held-out images, and on clients' own
    assert "which partition costs more remains open (3 seeds, adjusted p" in text and "lies within ±2 %" in " ".join(
        text.split()
    )
    assert "2 versions of the code (engine), but one within each task and method: " in text
    written = {path.stem for path in (tmp_path / "results/tables").glob("*.md")}
    assert {"central", "comparison", "increases", "verdicts", "alpha_slopes", "metrics_normal"} <= written


@pytest.mark.parametrize("variant", [{}, {"depth_target": "metric"}, {"published_quirks": True}])
@pytest.mark.parametrize("task", TASKS)
def test_all_that_stages_print_at_their_end(task: str, variant: dict, capsys: pytest.CaptureFixture[str]) -> None:
    names = metric_names(get_task(task, **variant))
    labels = [f"{whose}, {MEASURED_ON[images]}" for whose, images in COLUMNS]
    labels += [f"constant baseline, {images}" for images in MEASURED_ON.values()]
    print_values(f"{task}, 160 test images", {label: dict.fromkeys(names, 0.5) for label in labels})
    assert fits(capsys.readouterr().out)


def test_columns_of_values_are_as_wide_as_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    print_values("title", {"model": {"loss": 0.25, "pixel_accuracy": 0.5, "miou": 0.125}})
    _, head, row = capsys.readouterr().out.splitlines()
    assert len(head) == len(row) and head.index("pixel_accuracy") + len("pixel_accuracy") == row.index("0.5000") + 6


def test_gaps_after_many_steps() -> None:
    last = {"participation_gap": 0.1, "out_of_sample_gap": -0.1}
    adapted = [{"steps": steps, "participation_gap": 0.1} for steps in (0, 1, 5, 10, 50, 100)]
    lines = of_gaps(last, adapted)
    assert fits("\n".join(lines)) and "+0.1000 after 100 steps" in " ".join(" ".join(lines).split())


def test_the_gap_of_personal_models_is_called_so() -> None:
    def lines(last: dict[str, float], **adapted: float) -> list[str]:
        rows = [{"steps": steps, **adapted} for steps in (0, 5)]
        return [" ".join(line.split()) for line in of_gaps(last, rows)]

    last = {"participation_gap": 0.5, "out_of_sample_gap": 0.25}
    gaps, after = lines(last, participation_gap=0.125)
    assert gaps.endswith("participation gap, non-participating over participating clients: +0.5000")
    assert after.endswith("over participating clients: +0.1250 after 5 steps")
    # Clients have been evaluated with both: their own models count.
    last |= {"personal_participation_gap": 0.75, "personal_out_of_sample_gap": -0.25}
    gaps, after = lines(last, participation_gap=0.125, personal_participation_gap=0.375)
    assert "client test over client train: -0.2500" in gaps
    assert gaps.endswith("non-participating over participating clients with their personal models: +0.7500")
    assert after.endswith("over participating clients with their personal models: +0.3750 after 5 steps")


def test_sizes_of_many_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    found = np.repeat(np.arange(50), 1000)
    report_clusters("normal", np.zeros((1, 512)), np.zeros((1, 64)), 0.9, found)
    text = capsys.readouterr().out
    assert fits(text) and text.split().count("1000") == 50


def test_the_report_of_a_partition() -> None:
    owners, groups = np.arange(100000) % 1000, np.arange(100000) % 16
    rng = np.random.default_rng(0)
    values = report(owners, groups, 1000, rng.random((100000, 2)))
    assert fits(report_text(values | {"gradient_dispersion": 1234.5}))
