"""What new images of known clients cost, and what new clients cost, by split: Yuan et al. 2022 (arXiv 2110.14216).

Both gaps are relative, so that tasks can be compared: the out-of-sample gap is the increase in percent of the
participants' loss from their training images to their held-out ones, the participation gap that from the participants'
held-out images to those of non-participating clients. `Evaluation` has them as differences. Personal models count where
there are some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from reports.compare import SETTING, assigned_by_alpha, by_seed, random_settings, settings, settings_of
from reports.console import before_seeds, titled, wrapped
from reports.files import write_table
from reports.learnt import NO, learnt
from reports.statistics import MARGIN, WITHHELD, finite, increase, judged_rows, mean_text, with_interval, with_spread
from reports.tables import between_methods, differing, in_words
from utils.runs import MEASURED_ON
from utils.words import counted

_OUT, _PART = ("tested_train_loss", "local_test_loss"), ("local_test_loss", "unseen_test_loss")
_ADAPTED = re.compile(r"adapted_(\d+)_loss")
_IID, _OVER = "iid", "embedding over class, %"
_VERDICT = f"participation gap under the embedding partition (margin ±{MARGIN:g} %)"
_OF_TYPE = f"participation gap over IID's (margin ±{MARGIN:g} %)"
_PHRASES = {
    "higher": "the embedding-based partition opens a larger participation gap than the class-based one",
    "lower": "the embedding-based partition opens a smaller participation gap than the class-based one",
    "no": f"the partitions' participation gaps differ by less than {MARGIN:g} %",
    "inconclusive": "which partition opens the larger participation gap remains open",
    WITHHELD: "no verdict, since the task is not learnt on their images under IID",
}


def gaps(runs: pd.DataFrame) -> pd.DataFrame:
    """The gaps in percent of runs with non-participating clients: a row per task, method, partition, alpha and setting.

    Columns: task, method, type ("iid", "class", …), alpha (text, empty where it is not used), `more` (other arguments
    that tell rows apart which agree in these, as text), `rates` (a dictionary of the arguments that tell methods
    apart), `model` (of the participants: global or personal), seeds, and series by seed: `trivial`, the constant
    baseline's loss on non-participating clients' held-out images, `train`, `new` and `non_participating`, the three
    losses (the first of clients that have held-out images), `out-of-sample` and `participation`, `by_itself`, the
    constant baseline's participation gap, `of_iid`, that of the IID partition, whether the IID runs have `learnt` the
    task on these images, and in `after` the participation gap by steps of adaptation. IID runs have rows of their own,
    whatever else was assigned. Empty if no run has non-participating clients.
    """
    if runs.empty or not runs["unseen_test_loss"].notna().any():
        return pd.DataFrame()
    rows: list[dict[str, Any]] = []
    runs = runs[runs["unseen_test_loss"].notna()]
    for fixed, iid in random_settings(runs, ["task", "method"]):
        labels = {name: fixed.pop(name) for name in ("task", "method")}
        rows.append(labels | {"type": _IID, "alpha": "", "more": fixed} | _of(iid, iid))
    for fixed, part, iid in settings(runs, SETTING):
        split, alpha = fixed.pop("type"), fixed.pop("alpha")
        labels = {name: fixed.pop(name) for name in ("task", "method")}
        assigned = by_seed(part)
        cells = {
            "type": split.removesuffix("_based"),
            "alpha": f"α = {alpha:g}" if assigned_by_alpha(part, split) else "",
        }
        rows.append(labels | cells | {"more": fixed} | _of(assigned, iid))
    table = pd.DataFrame(sorted(rows, key=lambda row: (row["task"], row["method"])))
    about, others = settings_of(table), [*dict.fromkeys(name for more in table["more"] for name in more)]
    shown = differing(about, others, SETTING)
    rates = [name for name in between_methods(about, others) if name not in shown]
    return table.assign(
        more=[in_words({name: record.get(name, "") for name in shown}) for record in table["more"]],
        rates=[{name: record.get(name, "") for name in rates} for record in table["more"]],
    )


def _of(runs: pd.DataFrame, iid: pd.DataFrame) -> dict[str, Any]:
    """The losses and gaps of a setting's runs, and the IID runs' gap, both indexed by seed."""
    after = {int(match[1]): name for name in runs if (match := _ADAPTED.fullmatch(str(name)))}
    return {
        "model": runs["local_test_model"].iloc[0],
        "seeds": list(runs.index),
        "trivial": runs["unseen_test_trivial"],
        "train": runs[_OUT[0]],
        "new": runs["local_test_loss"],
        "non_participating": runs["unseen_test_loss"],
        "out-of-sample": _gap(runs, *_OUT),
        "participation": _gap(runs, *_PART),
        "by_itself": _gap(runs, "local_test_trivial", "unseen_test_trivial"),
        "learnt": learnt(iid, "unseen_test"),
        "of_iid": _gap(iid.reindex(runs.index), *_PART),
        "after": {n: _gap(runs, _PART[0], after[n]) for n in sorted(after) if n and runs[after[n]].notna().any()},
    }


def _gap(runs: pd.DataFrame, before: str, after: str) -> pd.Series:
    return pd.Series(increase(runs[after].to_numpy(float), runs[before].to_numpy(float)), runs.index)


def gap_table(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `gaps` as text: losses with their spread, gaps with their 95 % intervals and a verdict beside IID's.

    The verdict is on the increase of 1 + gap over that of the IID partition of the same seeds, p being adjusted over
    rows.
    """
    rows = []
    for row in table.to_dict("records"):
        over_iid = increase(100 + row["participation"], 100 + row["of_iid"])
        cells = {name: row[name] for name in (*SETTING, "more")} | row["rates"]
        cells |= {"model": row["model"], "seeds": len(row["seeds"]), "constant baseline": mean_text(row["trivial"], 4)}
        losses = {
            MEASURED_ON["train"]: "train",
            MEASURED_ON["local_test"]: "new",
            MEASURED_ON["unseen_test"]: "non_participating",
        }
        cells |= {label: with_spread(row[name], 4) for label, name in losses.items()}
        cells |= {f"{name} gap, %": with_interval(row[name]) for name in ("out-of-sample", "participation")}
        cells |= {f"after {counted(n, 'step')}, %": with_interval(of) for n, of in row["after"].items()}
        cells |= {"constant baseline's gap, %": with_interval(row["by_itself"])}
        rows.append((cells | {"over IID's, %": with_interval(over_iid)}, over_iid, row["learnt"] == NO))
    text = judged_rows(_OF_TYPE, rows).fillna("–")
    text.loc[text["type"] == _IID, [_OF_TYPE, "p, adjusted", "unadjusted"]] = ""
    empty = [name for name in ("alpha", "more") if (text[name] == "").all()]
    return text.drop(columns=empty)


def gap_verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """Whether the embedding-based partition opens a larger participation gap than the class-based one, as text.

    A row for each setting with both, before and after each number of steps; runs are paired by seed, and what is judged
    is the increase of 1 + gap, with p adjusted over all rows. Empty if no setting has both partitions.
    """
    rows = []
    for embedding, of_class in _pairs(table):
        theirs, its = ({0: row["participation"]} | row["after"] for row in (embedding, of_class))
        for n in sorted(theirs.keys() & its.keys()):
            of_embedding, of_classes = theirs[n].align(its[n], join="inner")
            change = increase(100 + of_embedding.to_numpy(), 100 + of_classes.to_numpy())
            cells = {name: embedding[name] for name in ("task", "method", "alpha", "more", "model")}
            cells |= {"steps": n, "seeds": len(finite(change))}
            cells |= {"class, %": with_interval(of_classes)}
            cells |= {"embedding, %": with_interval(of_embedding)}
            # The IID runs of both are the same.
            rows.append((cells | {_OVER: with_interval(change)}, change, embedding["learnt"] == NO))
    text = judged_rows(_VERDICT, rows)
    return text.drop(columns=[name for name in ("alpha", "more") if name in text and (text[name] == "").all()])


def gap_sentences(verdicts: pd.DataFrame) -> list[str]:
    """One plain sentence for each row of `gap_verdicts` before adaptation."""
    lines = []
    for row in verdicts[verdicts["steps"] == 0].to_dict("records"):
        setting = ", ".join(str(row[name]) for name in ("task", "method", "alpha", "more") if row.get(name))
        setting += ", personal models" * (row["model"] == "personal")
        phrase = _PHRASES.get(row[_VERDICT].split()[0], row[_VERDICT])
        lines.append(
            f"{setting}: {phrase} ({counted(row['seeds'], 'seed')}, adjusted p {row['p, adjusted']}): "
            f"{row['embedding, %']} % against {row['class, %']} %"
        )
    return lines


def report_gaps(runs: pd.DataFrame, folder: Path) -> None:
    """Write the tables and figure of the gaps, and print them in short; nothing without non-participating clients."""
    from reports.figures.gaps import gaps as draw

    table = gaps(runs)
    if table.empty:
        return
    text, verdicts = gap_table(table), gap_verdicts(table)
    write_table(text, folder / "gaps")
    keys = before_seeds(text)
    short = text[[*keys, *(name for name in text if "%" in name and "IID" not in name)]]
    heading = "new images and non-participating clients: increase of the loss over the images before"
    print(f"{titled(heading, short, keys, f'{folder}/gaps.md')}\n")
    print(f"figure in {draw(table, folder / 'gaps.png')}\n")
    if not verdicts.empty:
        write_table(verdicts, folder / "gap_verdicts")
        print("On non-participating clients:", *map(wrapped, gap_sentences(verdicts)), "", sep="\n")


def _pairs(table: pd.DataFrame) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The rows of the embedding-based and the class-based partition of each setting that has both."""
    records = table.to_dict("records")
    for row in records:
        for other in records:
            alike = all(row[name] == other[name] for name in ("task", "method", "alpha", "more"))
            if alike and (row["type"], other["type"]) == ("embedding", "class"):
                yield row, other
