"""What new images of known clients cost, and what new clients cost, by split: Yuan et al. 2022 (arXiv 2110.14216).

Both gaps are relative, so that tasks can be compared: the out-of-sample gap is the increase in percent of the
participants' loss from their training images to their held-out ones, the participation gap that from the participants'
held-out images to those of non-participating clients. `Evaluation` has them as differences. Personal models count where
there are some.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from reports.compare import SETTING, assigned_by_alpha, by_seed, of_random, settings, settings_of
from reports.console import before, titled, wrapped
from reports.files import write_table
from reports.learnt import NO, learnt
from reports.statistics import MARGIN, WITHHELD, Change, increase, judged_rows, mean_text, with_spread
from reports.tables import COMPARED, between_methods, differing, groups, in_settings, in_words
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
    losses (the first of clients that have held-out images); whether the IID runs have `learnt` the task on these
    images; and, each a `Change` by seed, `out-of-sample` and `participation`, `by_itself`, the constant baseline's
    participation gap, `of_iid`, that of the IID partition, and in `after` the participation gap by steps of adaptation.
    IID runs have rows of their own, whatever else was assigned. Empty if no run has non-participating clients.
    """
    if runs.empty or not runs["unseen_test_loss"].notna().any():
        return pd.DataFrame()
    rows: list[dict[str, Any]] = []
    runs = runs[runs["unseen_test_loss"].notna()]
    iid_runs, keys = of_random(*in_settings(runs, SETTING))[:2]
    of_iid = ((fixed, part, by_seed(part)) for fixed, part in groups(iid_runs, keys, in_order=True))
    for more, part, iid in chain(of_iid, settings(runs)):
        split, alpha = more.pop("type", _IID), more.pop("alpha", 0)
        labels = {"task": more.pop("task"), "method": more.pop("method"), "type": split.removesuffix("_based")}
        labels |= {"alpha": f"α = {alpha:g}" if assigned_by_alpha(part, split) else "", "more": more}
        rows.append(labels | _of(by_seed(part), iid))
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


def _gap(runs: pd.DataFrame, before: str, after: str) -> Change:
    return Change.of(pd.Series(increase(runs[after].to_numpy(float), runs[before].to_numpy(float)), runs.index))


def gap_table(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `gaps` as text: losses with their spread, gaps with their 95 % intervals and a verdict beside IID's.

    The verdict is on the increase of 1 + gap over that of the IID partition of the same seeds, p being adjusted over
    rows.
    """
    rows = []
    for row in table.to_dict("records"):
        over_iid = Change.of(increase(100 + row["participation"].values, 100 + row["of_iid"].values))
        cells = {name: row[name] for name in (*SETTING, "more")} | row["rates"]
        cells |= {"model": row["model"], "seeds": len(row["seeds"]), "constant baseline": mean_text(row["trivial"], 4)}
        losses = {"train": "train", "local_test": "new", "unseen_test": "non_participating"}
        cells |= {MEASURED_ON[images]: with_spread(row[name], 4) for images, name in losses.items()}
        cells |= {f"{name} gap, %": str(row[name]) for name in ("out-of-sample", "participation")}
        cells |= {f"after {counted(n, 'step')}, %": str(of) for n, of in row["after"].items()}
        cells |= {"constant baseline's gap, %": str(row["by_itself"])}
        rows.append((cells | {"over IID's, %": str(over_iid)}, over_iid, row["learnt"] == NO))
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
    for fixed, part in groups(table, ["task", "method", "alpha", "more"]):
        of_type = {row["type"]: row for row in part.to_dict("records")}
        if not of_type.keys() >= {*COMPARED}:
            continue
        embedding = of_type["embedding"]
        its, theirs = ({0: of_type[split]["participation"]} | of_type[split]["after"] for split in COMPARED)
        for n in sorted(theirs.keys() & its.keys()):
            of_embedding, of_class = theirs[n].values.align(its[n].values, join="inner")
            change = Change.of(increase(100 + of_embedding.to_numpy(), 100 + of_class.to_numpy()))
            cells = fixed | {"model": embedding["model"], "steps": n, "seeds": change.seeds}
            cells |= {"class, %": str(Change.of(of_class)), "embedding, %": str(Change.of(of_embedding))}
            # The IID runs of both are the same.
            rows.append((cells | {_OVER: str(change)}, change, embedding["learnt"] == NO))
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
    keys = before(text, "seeds")
    short = text[[*keys, *(name for name in text if "%" in name and "IID" not in name)]]
    heading = "new images and non-participating clients: increase of the loss over the images before"
    print(f"{titled(heading, short, keys, f'{folder}/gaps.md')}\n")
    print(f"figure in {draw(table, folder / 'gaps.png')}\n")
    if not verdicts.empty:
        write_table(verdicts, folder / "gap_verdicts")
        print("On non-participating clients:", *map(wrapped, gap_sentences(verdicts)), "", sep="\n")
