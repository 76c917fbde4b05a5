"""The comparison in words: embedding-based against class-based partitions on the same seeds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from reports.compare import SETTING, labels, settings_of
from reports.console import before
from reports.learnt import BY_HEART, NO
from reports.splits import OVER_IID
from reports.statistics import (
    LEVEL,
    MARGIN,
    WITHHELD,
    Change,
    bootstrap,
    bounds,
    increase,
    judged_rows,
    mean_change,
    mean_text,
)
from reports.tables import COMPARED, differing, in_words, telling
from utils.runs import MEASURED_ON

WORDS = (
    f"higher or lower where p, adjusted over the table, is at most {LEVEL:g}; otherwise no difference where the 95 % "
    f"interval lies within ±{MARGIN:g} %, and inconclusive where it reaches further"
)
_PHRASES = {
    "higher": "the embedding-based partition costs more than the class-based one",
    "lower": "the embedding-based partition costs less than the class-based one",
    "no": f"the partitions' costs differ by less than {MARGIN:g} %",
    "inconclusive": "which partition costs more remains open",
}
_OVER_IID_PHRASES = {
    "higher": "the partition costs more than a random one",
    "lower": "the partition costs less than a random one",
    "no": f"the partition's cost over a random one is less than {MARGIN:g} %",
    "inconclusive": "whether the partition costs anything remains open",
}
_VERDICT = f"loss under the embedding partition (margin ±{MARGIN:g} %)"


def verdicts(table: pd.DataFrame, dense: Collection[str] = ()) -> pd.DataFrame:
    """Whether the loss is higher under the embedding-based partition than the class-based, by row of `side_by_side`.

    Runs are paired by seed. The verdict follows p, which is adjusted over all rows, and the 95 % t interval of the mean
    increase (see `reports.statistics.judged`); the last column has what the interval alone would say. Where the IID
    runs have not learnt the task, it is withheld. The last rows are of the tasks in `dense` together that have been
    learnt, by each seed's mean increase over them: one question instead of many.
    """
    rows = []
    for row in table.to_dict("records"):
        cells = labels(row) | {"constant baseline": mean_text(row["trivial"], 3)}
        cells |= {"IID": mean_text(row["iid"], 3), "metric": row["metric"]}
        cells |= {f"metric, {label}": f"{row[f'{label.lower()}_value']:.3g}" for label in ("IID", *COMPARED)}
        rows.append((cells, row["over_class"]))
    rows += _together(table, dense)
    for cells, change in rows:
        cells |= {"seeds": change.seeds, "embedding over class, %": str(change)}
        cells |= {"bootstrap, %": bounds(bootstrap(change.values)), "seeds higher": int((change.values > 0).sum())}
    return judged_rows(_VERDICT, [(cells, of, cells["learnt"] == NO) for cells, of in rows]).fillna("")


def _alike_but(table: pd.DataFrame, name: str) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The rows of `side_by_side` in groups that differ only in this part of the setting; each with `labels` but for it.

    In the order in which the groups' first rows stand. What each method has one value of in a task, such as a learning
    rate, may differ between tasks.
    """
    if table.empty:
        return
    settings = settings_of(table)
    arguments = [part for part in settings if part not in SETTING]
    own = {*arguments}.difference(differing(settings, arguments, ["task", "method"])) if name == "task" else set()
    fixed = settings.drop(columns=[name, *own])
    keys = [fixed[part] for part in fixed] + [table["images"], table["model"]]
    for _, group in table.groupby(keys, sort=False, dropna=False):
        yield labels(group.iloc[0].to_dict(), name, "learnt", *own), group


def _together(table: pd.DataFrame, dense: Collection[str]) -> Iterator[tuple[dict[str, Any], Change]]:
    """Settings that several `dense` tasks have in common and have learnt, with the increase over them, by seed."""
    for about, group in _alike_but(table, "task"):
        group = group[group["task"].isin(dense) & (group["learnt"] != NO)]
        if len(group) > 1:
            losses = zip(_by_seed(group, "embedding"), _by_seed(group, "class"), strict=True)
            increases = np.array([increase(embedding, of_class) for embedding, of_class in losses])
            words = {BY_HEART} & {*group["learnt"]} or {*group["learnt"]}
            of_all = {"task": f"{len(group)} dense tasks"} | about | {"learnt": max(words)}
            yield of_all, Change.of(mean_change(increases, axis=0))


def headlines(compared: pd.DataFrame, splits: pd.DataFrame) -> dict[str, list[str]]:
    """A sentence for each setting on test images and then, below a heading of its own, on client train.

    `compared` is the table of `verdicts`, and `splits` that of `reports.splits.splits_table`, whose other partitions,
    such as those by natural groups, are held against IID; either may be empty. Test images are global test, or client
    test where clients have models of their own. Cells may be text, as read from the tables' files.
    """
    sentences: dict[str, list[str]] = {}
    others = splits if compared.empty or splits.empty else splits[~splits["type"].isin(COMPARED)]
    for table, wording in ((compared, _OF_VERDICTS), (others, _OF_SPLITS)):
        if table.empty:
            continue
        for heading, rows in _by_heading(table).items():
            keys = before(rows, "model")
            shown = {"type", *telling(rows, keys)}
            named = [name for name in keys if name in shown]
            sentences.setdefault(heading, []).extend(wording.sentence(row, named) for row in rows.to_dict("records"))
    return {heading: lines for heading, lines in sentences.items() if lines}


def _by_heading(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows on test images, one for each setting, and those on client train."""
    own, of_clients, common = (MEASURED_ON[images] for images in ("train", "local_test", "test"))
    held_out = table[table["data"].isin([of_clients, common])]
    rank = np.where(held_out["data"] == common, 1, np.where(held_out["model"] == "personal", 0, 2))
    first = held_out.assign(rank=rank).sort_values("rank", kind="stable").drop_duplicates(before(table, "model"))
    return {"On test images": first.sort_index().drop(columns="rank"), "On client train": table[table["data"] == own]}


class _Wording(NamedTuple):
    """How a table's rows are put into words: its columns of verdicts and changes, phrases, and partitions by column."""

    verdict: str
    change: str
    phrases: Mapping[str, str]
    splits: Sequence[str]

    def sentence(self, row: Mapping[str, Any], named: Sequence[str]) -> str:
        """A row's setting, verdict, change, and the task's metric under each partition."""
        setting = in_words({name: row[name] for name in named})
        if row[self.verdict] == WITHHELD:
            losses = f"the loss under IID is {row['IID']}, the constant baseline's {row['constant baseline']}"
            return f"{setting}: no verdict, since the task is not learnt ({losses}){self._metric(row)}"
        by_heart = ", learnt by heart" if row["learnt"] == BY_HEART else ""
        return f"{setting}: {self._phrase(row)}{by_heart}, {row[self.change]} %{self._metric(row)}"

    def _phrase(self, row: Mapping[str, Any]) -> str:
        """The verdict as a clause, with seeds and adjusted p; unchanged if there are too few seeds for a verdict."""
        phrase = self.phrases.get(row[self.verdict].split()[0])
        return f"{phrase} ({row['seeds']} seeds, adjusted p {row['p, adjusted']})" if phrase else row[self.verdict]

    def _metric(self, row: Mapping[str, Any]) -> str:
        values = {split: str(row[f"metric, {split}"]) for split in self.splits}
        shown = [f"{value} ({split})" for split, value in values.items() if value not in {"", "nan", "–"}]
        return f"; {row['metric']} {', '.join(shown)}" if row["metric"] and shown else ""


_OF_VERDICTS = _Wording(_VERDICT, "embedding over class, %", _PHRASES, ("IID", *COMPARED))
_OF_SPLITS = _Wording(OVER_IID, "over IID, %", _OVER_IID_PHRASES, ("IID", "partition"))


def alpha_slopes(table: pd.DataFrame) -> pd.DataFrame:
    """How much the loss changes when alpha grows tenfold, in percent, under each partition, and how they differ.

    The slope of ln(loss) over log10(alpha), by least squares for each seed that has a positive loss at all alphas; mean
    and 95 % t interval over seeds, and the verdict with p adjusted over the table. alpha = 0 has no logarithm and is
    left out; there is no row for fewer than two alphas, and no verdict where the task has not been learnt. A loss that
    falls as data become more even has a negative slope.
    """
    rows = []
    for about, group in _alike_but(table[table["alpha"] > 0] if len(table) else table, "alpha"):
        if group["alpha"].nunique() < 2:
            continue
        slopes = {split: _slopes(group, split) for split in COMPARED}
        difference = Change.of(increase(100 + slopes["embedding"], 100 + slopes["class"]))
        about |= {"alphas": " ".join(f"{alpha:g}" for alpha in sorted(group["alpha"])), "seeds": difference.seeds}
        about |= {f"{split}, % per tenfold α": str(Change.of(values)) for split, values in slopes.items()}
        about |= {"difference": str(difference)}
        rows.append((about, difference, (group["learnt"] == NO).any()))
    return judged_rows(f"falls with α under the embedding partition (margin ±{MARGIN:g} %)", rows, "less", "more")


def _slopes(group: pd.DataFrame, split: str) -> np.ndarray:
    """The change in percent for each seed that all rows of the group have; nan where a loss is not positive."""
    losses = _by_seed(group, split)
    slopes = np.full(losses.shape[-1], np.nan)
    if (positive := ((losses > 0) & np.isfinite(losses)).all(axis=0)).any():
        slopes[positive] = np.polyfit(np.log10(group["alpha"].astype(float)), np.log(losses[:, positive]), 1)[0]
    return 100 * np.expm1(slopes)


def _by_seed(group: pd.DataFrame, split: str) -> np.ndarray:
    """The losses (rows, seeds) of the seeds that all rows of the group have."""
    records: list[dict[str, Any]] = group.to_dict("records")
    common = sorted(set.intersection(*(set(record["seeds"]) for record in records)))
    return np.array([[record[split][record["seeds"].index(seed)] for seed in common] for record in records])
