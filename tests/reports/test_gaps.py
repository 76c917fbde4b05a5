"""Tables of both gaps, from made-up runs with known losses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import reports.gaps as g
from reports.finished import Results
from reports.splits import splits_over_iid, splits_table
from reports.statistics import Change
from reports.tables import read_runs
from tests.reports.finish import finish

Write = Callable[..., None]
TRIVIAL = {"train": 4.0, "local_test": 4.0, "test": 4.0, "unseen_train": 5.0, "unseen_test": 6.0}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a finished run with its three losses and, by steps, the non-participating clients' loss after adaptation.

    Clients without held-out images make the mean loss on training images larger by `not_tested`. Personal models have
    the losses `own` on the clients' training and held-out images.
    """

    def of(
        kind: str,
        seed: int,
        losses: tuple[float, float, float],
        after: dict[int, float] | None = None,
        own: tuple[float, float] | None = None,
        not_tested: float = 0.0,
        trivial: float = TRIVIAL["unseen_test"],
        **more,
    ) -> None:
        args = {"task": "normal", "method": "fedavg", "type": kind, "alpha": 0.1, "rand_seed": seed, **more}
        names = ("train_loss_mean", "local_test_loss_mean", "unseen_test_loss_mean")
        last = dict(zip(names, losses, strict=True)) | {"round": 3, "test_loss": 2.0, "unseen_train_loss_mean": 2.0}
        last["out_of_sample_gap"] = losses[1] - losses[0] + not_tested
        if own:
            last |= {"personal_train_loss_mean": own[0], "personal_local_test_loss_mean": own[1]}
            last["personal_out_of_sample_gap"] = own[1] - own[0]
        summary = {
            "last": last,
            "trivial": {split: {"loss": loss} for split, loss in (TRIVIAL | {"unseen_test": trivial}).items()},
            "heterogeneity": {"emd": 0.5},
        }
        if after:
            adapted = {0: losses[2], **after}
            summary["adaptation"] = [{"steps": n, "unseen_test_loss_mean": loss} for n, loss in adapted.items()]
        finish(tmp_path, args, summary)

    return of


def write_all(write: Write, **more: object) -> None:
    for seed, x in enumerate((1.0, 1.1, 0.9)):
        write("iid", seed, (1.0, 1.2, 1.2), {5: 1.1}, **more)
        write("class_based", seed, (1.0, 1.5, 1.5 * 1.1 * x), {5: 1.5}, **more)
        write("embedding_based", seed, (2.0, 2.0, 2.0 * 1.3 * x), {5: 2.2}, **more)


def test_gaps_are_increases_from_one_kind_of_images_to_the_next(tmp_path: Path, write: Write) -> None:
    write_all(write)
    table = g.gaps(read_runs(Results(tmp_path))).set_index("type")
    assert list(table.index) == ["iid", "class", "embedding"]  # IID runs stand once
    of_class = table.loc["class"]
    assert of_class["out-of-sample"].values.tolist() == pytest.approx([50.0] * 3)
    assert of_class["participation"].values.tolist() == pytest.approx([10.0, 21.0, -1.0])
    assert of_class["after"][5].values.tolist() == pytest.approx([0.0] * 3) and list(of_class["after"]) == [5]
    assert table.loc["embedding", "after"][5].values.tolist() == pytest.approx([10.0] * 3)
    assert of_class["of_iid"].values.tolist() == pytest.approx([0.0] * 3)
    assert of_class["by_itself"].values.tolist() == pytest.approx([50.0] * 3)
    assert (table["alpha"] == ["", "α = 0.1", "α = 0.1"]).all()


def test_clients_without_held_out_images_have_no_part_in_the_out_of_sample_gap(tmp_path: Path, write: Write) -> None:
    write("iid", 0, (1.5, 1.2, 1.2), not_tested=0.5)
    [row] = g.gaps(read_runs(Results(tmp_path))).to_dict("records")
    assert row["train"].tolist() == pytest.approx([1.0]) and row["out-of-sample"].values.tolist() == pytest.approx(
        [20.0]
    )


def test_table_has_losses_gaps_and_what_the_gap_is_over_iids(tmp_path: Path, write: Write) -> None:
    write_all(write)
    text = g.gap_table(g.gaps(read_runs(Results(tmp_path)))).set_index("type")
    assert text.loc["class", "client test"] == "1.5000 ± 0.0000"
    assert text.loc["class", "participation gap, %"] == str(Change.of([10.0, 21.0, -1.0]))
    assert text.loc["class", "over IID's, %"] == text.loc["class", "participation gap, %"]  # IID has none
    assert text.loc["embedding", "after 5 steps, %"].startswith("+10.0")
    assert text.loc["embedding", "constant baseline's gap, %"].startswith("+50.0")
    assert (
        text.loc["iid", "p, adjusted"] == "" and text.loc["iid", "over IID's, %"] != text.loc["class", "over IID's, %"]
    )


def test_verdict_compares_the_splits_seed_by_seed(tmp_path: Path, write: Write) -> None:
    write_all(write)
    said = g.gap_verdicts(g.gaps(read_runs(Results(tmp_path))))
    assert said["steps"].tolist() == [0, 5]
    before, after = said.to_dict("records")
    # 1.3 over 1.1 in every seed; after five steps 1.1 over 1.
    assert before["embedding over class, %"].startswith("+18.2 [") and after["embedding over class, %"].startswith(
        "+10.0"
    )
    verdict = next(name for name in said if "margin" in name)
    assert before[verdict] == "higher (3 seeds only)"
    [sentence] = g.gap_sentences(said)
    assert sentence.startswith(
        "normal, fedavg, α = 0.1: the embedding-based partition opens a larger participation gap than"
    )
    assert "3 seeds" in sentence


def test_settings_are_not_mixed_and_each_has_its_own_iid_runs(tmp_path: Path, write: Write) -> None:
    write_all(write, adapt_train="all")
    for seed in range(3):
        write("iid", seed, (1.0, 1.0, 2.0), adapt_train="head")
        write("embedding_based", seed, (1.0, 1.0, 3.0), adapt_train="head")
    table = g.gaps(read_runs(Results(tmp_path)))
    head = table[table["more"] == "adapt_train head"].set_index("type")
    assert list(head.index) == ["iid", "embedding"]
    assert head.loc["embedding", "of_iid"].values.tolist() == pytest.approx([100.0] * 3)
    assert head.loc["embedding", "participation"].values.tolist() == pytest.approx([200.0] * 3)


def test_gaps_of_personal_models_are_called_so(tmp_path: Path, write: Write, capsys: pytest.CaptureFixture) -> None:
    write_all(write)
    for seed in range(3):
        for kind, non_participating in (("iid", 0.5), ("class_based", 0.6), ("embedding_based", 0.75)):
            write(kind, seed, (1.0, 1.2, non_participating), own=(0.4, 0.5), method="fedrep")
    g.report_gaps(read_runs(Results(tmp_path)), tmp_path / "tables")
    text = pd.read_csv(tmp_path / "tables/gaps.csv").set_index(["method", "type"])
    assert dict(zip(text.index, text["model"], strict=True)) == {
        (method, split): model
        for method, model in (("fedavg", "global"), ("fedrep", "personal"))
        for split in ("iid", "class", "embedding")
    }
    of_class = text.loc[("fedrep", "class")]
    assert of_class["out-of-sample gap, %"].startswith("+25.0") and of_class["participation gap, %"].startswith("+20.0")
    models = pd.read_csv(tmp_path / "tables/gap_verdicts.csv").set_index("method")["model"]
    assert {*models["fedavg"]} == {"global"} and models["fedrep"] == "personal"
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("normal, fed")] == [
        "normal, fedavg, α = 0.1",
        "normal, fedrep, α = 0.1, personal models",
    ]


def test_rates_that_tell_methods_apart_are_columns_and_not_in_sentences(tmp_path: Path, write: Write) -> None:
    write_all(write, init_lr=0.1, partition="equal_size")
    write_all(write, init_lr=0.01, partition="equal_size", method="fedrep")
    write("class_based", 0, (1.0, 1.5, 1.6), init_lr=0.1, partition="split_groups")  # of partitions, not of methods
    table = g.gaps(read_runs(Results(tmp_path)))
    text = g.gap_table(table)
    assert {*zip(text["method"], text["init_lr"], strict=True)} == {("fedavg", "0.1"), ("fedrep", "0.01")}
    assert "partition" not in text and all("init_lr" not in line for line in g.gap_sentences(g.gap_verdicts(table)))


def test_an_argument_that_one_rule_alone_has_is_not_said_of_the_others(tmp_path: Path, write: Write) -> None:
    write("iid", 0, (1.0, 1.0, 2.0))
    write("class_based", 0, (1.0, 1.0, 3.0))
    write("class_based", 0, (1.0, 1.0, 4.0), client_share=0.5)
    table = g.gaps(read_runs(Results(tmp_path)))
    assert set(table["more"]) == {"", "client_share 0.5"}


def test_an_argument_that_goes_with_the_split_is_not_said(tmp_path: Path, write: Write) -> None:
    write_all(write, partition="equal_size")
    write("class_based", 0, (1.0, 1.5, 1.6), partition="split_groups", alpha=1.0)
    assert set(g.gaps(read_runs(Results(tmp_path)))["more"]) == {""}
    write("class_based", 0, (1.0, 1.5, 1.6), partition="split_groups", shards=2)
    table = g.gaps(read_runs(Results(tmp_path)))
    assert table.loc[table["type"] == "class", "more"].tolist() == ["", "shards 2", ""]


def test_a_table_without_columns_may_have_no_records(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in pandas before 3.1."""
    records = pd.DataFrame.to_dict
    monkeypatch.setattr(pd.DataFrame, "to_dict", lambda of, *form: records(of, *form) if len(of.columns) else [])
    write_all(write)
    assert g.gaps(read_runs(Results(tmp_path)))["more"].tolist() == ["", "", ""]


def test_runs_without_non_participating_clients_have_no_gaps(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture
) -> None:
    write("class_based", 0, (1.0, 1.5, np.nan))
    runs = read_runs(Results(tmp_path))
    assert g.gaps(runs).empty and g.gaps(pd.DataFrame()).empty
    g.report_gaps(runs, tmp_path / "tables")
    assert not (tmp_path / "tables").exists() and capsys.readouterr().out == ""


def test_random_splits_alone_have_a_table(tmp_path: Path, write: Write) -> None:
    write("iid", 0, (1.0, 1.2, 1.5))
    table = g.gaps(read_runs(Results(tmp_path)))
    assert table["type"].tolist() == ["iid"] and g.gap_verdicts(table).empty
    assert g.gap_table(table)["participation gap, %"].tolist() == ["+25.0"]


def test_every_random_split_has_a_row_whatever_else_was_assigned(tmp_path: Path, write: Write) -> None:
    def rows() -> list[tuple]:
        table = g.gaps(read_runs(Results(tmp_path)))
        said = table[["task", "type", "more"]].itertuples(index=False, name=None)
        return [(*row, *gap) for row, gap in zip(said, (gap.values for gap in table["participation"]), strict=True)]

    write("iid", 0, (1.0, 1.0, 2.0), init_lr=0.1)
    write("iid", 0, (1.0, 1.0, 3.0), init_lr=0.01)
    slow, fast = ("normal", "iid", "init_lr 0.01", 200.0), ("normal", "iid", "init_lr 0.1", 100.0)
    assert rows() == [slow, fast]
    write("class_based", 0, (1.0, 1.0, 5.0), init_lr=0.1)
    assert rows() == [slow, fast, ("normal", "class", "init_lr 0.1", 400.0)]
    write("iid", 0, (1.0, 1.0, 1.5), task="depth", init_lr=0.1)
    assert ("depth", "iid", "init_lr 0.1", 50.0) in rows() and len(rows()) == 4


def test_the_trivial_predictor_is_that_of_all_seeds(tmp_path: Path, write: Write) -> None:
    for seed, trivial in enumerate((6.0, 7.0)):
        write("iid", seed, (1.0, 1.2, 1.5), trivial=trivial)
    assert g.gap_table(g.gaps(read_runs(Results(tmp_path))))["constant baseline"].tolist() == ["6.5000"]


def test_report_writes_tables_and_figure_and_stays_in_the_console(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture
) -> None:
    write_all(write)
    runs = read_runs(Results(tmp_path))
    g.report_gaps(runs, tmp_path / "tables")
    assert {path.name for path in (tmp_path / "tables").iterdir()} >= {"gaps.csv", "gap_verdicts.md", "gaps.png"}
    lines = [line for line in capsys.readouterr().out.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 120 and any(line.startswith("normal, fedavg") for line in lines)
    # The other tables have non-participating clients' losses as one more part of the data.
    text = splits_table(splits_over_iid(runs))
    assert "non-participating test" in set(text["data"])
    assert set(text.query('data == "non-participating test"')["model"]) == {"received"}
