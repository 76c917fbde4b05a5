"""The comparison in words: embedding-based against class-based splits on the same seeds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from reports.statistics import LEVEL, MARGIN, bootstrap, bounds, finite, judged_changes, mean_change, with_interval
from reports.tables import COMPARED, about, alike_but, in_words, increase, telling
from utils.runs import MEASURED_ON

WORDS = (
    f"higher or lower where p, adjusted over the table, is at most {LEVEL:g}; otherwise no difference where the 95 % "
    f"interval lies within ±{MARGIN:g} %, and inconclusive where it reaches further"
)
_PHRASES = {
    "higher": "the embedding-based split costs more than the class-based one",
    "lower": "the embedding-based split costs less than the class-based one",
    "no": f"the splits' costs differ by less than {MARGIN:g} %",
    "inconclusive": "which split costs more remains open",
}
_VERDICT = f"loss under the embedding split (margin ±{MARGIN:g} %)"


def verdicts(table: pd.DataFrame, dense: Collection[str] = ()) -> pd.DataFrame:
    """Whether the loss is higher under the embedding-based than the class-based split, for each row of `compare`.

    Runs are paired by seed. The verdict follows p, which is adjusted over all rows, and the 95 % t interval of the mean
    increase (see `reports.statistics.judged`); the last column has what the interval alone would say. The last rows are
    of the tasks in `dense` together, by each seed's mean increase over them: one question instead of many.
    """
    rows = [(about(row), increase(row["embedding"], row["class"])) for row in table.to_dict("records")]
    rows += _together(table[table["task"].isin(dense)])
    result = pd.DataFrame(
        [
            said
            | {
                "seeds": len(finite(values)),
                "embedding over class, %": with_interval(values, 1, "+"),
                "bootstrap, %": bounds(bootstrap(values), 1, "+"),
                "seeds higher": int((finite(values) > 0).sum()),
            }
            for said, values in rows
        ]
    )
    return result.assign(**judged_changes(_VERDICT, [values for _, values in rows]))


def _together(table: pd.DataFrame) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """Settings that several tasks have in common, with each seed's mean increase over the tasks."""
    for said, group in alike_but(table, "task"):
        if len(group) > 1:
            losses = zip(_by_seed(group, "embedding"), _by_seed(group, "class"), strict=True)
            increases = np.array([increase(embedding, of_class) for embedding, of_class in losses])
            yield {"task": f"{len(group)} dense tasks"} | said, mean_change(increases, axis=0)


def sentences(said: pd.DataFrame) -> list[str]:
    """One plain sentence for each row of `verdicts` on the clients' own data, which is the paper's measure."""
    own = said[said["data"] == MEASURED_ON["train"]]
    named = telling(own, list(own)[: list(own).index("model")])
    lines = []
    for row in own.to_dict("records"):
        setting = in_words({name: row[name] for name in named})
        lines.append(f"{setting}: {_phrase(row)}, {row['embedding over class, %']} %")
    return lines


def _phrase(row: Mapping[str, Any]) -> str:
    """The verdict as a clause, with seeds and adjusted p; unchanged if there are too few seeds for a verdict."""
    phrase = _PHRASES.get(row[_VERDICT].split()[0])
    return f"{phrase} ({row['seeds']} seeds, adjusted p {row['p, adjusted']})" if phrase else row[_VERDICT]


def alpha_slopes(table: pd.DataFrame) -> pd.DataFrame:
    """How much the loss changes when alpha grows tenfold, in percent, under each split, and how the splits differ.

    The slope of ln(loss) over log10(alpha), by least squares for each seed that has a positive loss at all alphas; mean
    and 95 % t interval over seeds, and the verdict with p adjusted over the table. alpha = 0 has no logarithm and is
    left out; there is no row for fewer than two alphas. A loss that falls as data become more even has a negative
    slope.
    """
    rows, differences = [], []
    for said, group in alike_but(table[table["alpha"] > 0] if len(table) else table, "alpha"):
        if group["alpha"].nunique() < 2:
            continue
        slopes = {split: _slopes(group, split) for split in COMPARED}
        differences.append(increase(100 + slopes["embedding"], 100 + slopes["class"]))
        rows.append(
            said
            | {"alphas": " ".join(f"{alpha:g}" for alpha in sorted(group["alpha"]))}
            | {"seeds": len(finite(differences[-1]))}
            | {f"{split}, % per tenfold α": with_interval(values, 1, "+") for split, values in slopes.items()}
            | {"difference": with_interval(differences[-1], 1, "+")}
        )
    name = f"falls with α under the embedding split (margin ±{MARGIN:g} %)"
    return pd.DataFrame(rows).assign(**judged_changes(name, differences, "less", "more"))


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
