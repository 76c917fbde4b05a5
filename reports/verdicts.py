"""The comparison in words: embedding-based against class-based splits on the same seeds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from reports.statistics import MARGIN, adjusted, bootstrap, bounds, finite, p_value, verdict, with_interval
from reports.tables import about, increase, setting
from utils.runs import SPLITS

WORDS = (
    "higher or lower where the 95 % interval leaves out 0; otherwise no difference where it lies within "
    f"±{MARGIN:g} %, and inconclusive where it reaches further"
)
_PHRASES = {
    "higher": "the embedding-based split costs more than the class-based one",
    "lower": "the embedding-based split costs less than the class-based one",
    "no": "both splits cost the same",
    "inconclusive": "which split costs more remains open",
}
_VERDICT = f"loss under the embedding split (margin ±{MARGIN:g} %)"


def verdicts(table: pd.DataFrame, dense: Collection[str] = ()) -> pd.DataFrame:
    """Whether the loss is higher under the embedding-based than the class-based split, for each row of `compare`.

    Runs are paired by seed. The verdict is that of the 95 % t interval of the mean increase (see `reports.statistics`).
    p is adjusted over all rows, because five of a hundred tests without a difference would find one by chance. The last
    rows are of the tasks in `dense` together, by each seed's mean increase over them: one question instead of many.
    """
    judged = [(about(row), increase(row["embedding"], row["class"])) for row in table.to_dict("records")]
    rows = [
        said
        | {
            "seeds": len(finite(values)),
            "embedding over class, %": with_interval(values, 1, "+"),
            "bootstrap, %": bounds(bootstrap(values), 1, "+"),
            "seeds higher": int((finite(values) > 0).sum()),
            "p, adjusted": p_value(values),
            _VERDICT: verdict(values),
        }
        for said, values in [*judged, *_together(table[table["task"].isin(dense)])]
    ]
    result = pd.DataFrame(rows)
    p_values = adjusted(result["p, adjusted"])
    return result.assign(**{"p, adjusted": ["–" if np.isnan(p) else f"{p:.3f}" for p in p_values]})


def _together(table: pd.DataFrame) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """Settings that several tasks have in common, with each seed's mean increase over the tasks."""
    for said, group in _alike_but(table, "task"):
        if len(group) > 1:
            increases = increase(_by_seed(group, "embedding"), _by_seed(group, "class"))
            yield said | {"task": f"{len(group)} dense tasks"}, increases.mean(axis=0)


def sentences(said: pd.DataFrame) -> list[str]:
    """One plain sentence for each row of `verdicts` on the clients' own data, which is the paper's measure."""
    columns = list(said)
    named = columns[: columns.index("model")]
    own = said[said["data"] == SPLITS["train"]].to_dict("records")
    return [f"{_setting(row, named)}: {_phrase(row)}, {row['embedding over class, %']} %" for row in own]


def _setting(row: Mapping[str, Any], named: Collection[str]) -> str:
    return ", ".join(f"α = {row[name]:g}" if name == "alpha" else str(row[name]) for name in named)


def _phrase(row: Mapping[str, Any]) -> str:
    """The verdict as a clause, with the number of seeds; unchanged if there are too few seeds for a verdict."""
    phrase = _PHRASES.get(row[_VERDICT].split()[0])
    return f"{phrase} ({row['seeds']} seeds)" if phrase else row[_VERDICT]


def alpha_slopes(table: pd.DataFrame) -> pd.DataFrame:
    """How much the loss changes when alpha grows tenfold, in percent, under each split, and how the splits differ.

    The slope of 100 ln(loss) over log10(alpha), by least squares for each seed that has all alphas; mean and 95 % t
    interval over seeds. There is no row for fewer than two alphas. A loss that falls as data become more even has a
    negative slope.
    """
    rows = []
    for said, group in _alike_but(table, "alpha"):
        if group["alpha"].nunique() < 2:
            continue
        slopes = {kind: _slopes(group, kind) for kind in ("class", "embedding")}
        difference = slopes["embedding"] - slopes["class"]
        rows.append(
            {name: value for name, value in said.items() if name != "alpha"}
            | {"alphas": " ".join(f"{alpha:g}" for alpha in sorted(group["alpha"]))}
            | {"seeds": len(difference)}
            | {f"{kind}, % per tenfold α": with_interval(values, 1, "+") for kind, values in slopes.items()}
            | {"difference": with_interval(difference, 1, "+")}
            | {f"falls with α under the embedding split (margin ±{MARGIN:g} %)": verdict(difference, "less", "more")}
        )
    return pd.DataFrame(rows)


def _alike_but(table: pd.DataFrame, name: str) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The rows of `compare` in groups that differ only in this part of the setting, each with `about` its first row."""
    if table.empty:
        return
    fixed = [part for part in setting(table.iloc[0].to_dict()) if part != name]
    for _, group in table.groupby([*fixed, "split", "model"], sort=False, dropna=False):
        yield about(group.iloc[0].to_dict()), group


def _slopes(group: pd.DataFrame, kind: str) -> np.ndarray:
    """The slope for each seed that all rows of the group have."""
    losses = _by_seed(group, kind)
    if not losses.size:
        return np.empty(0)
    return np.polyfit(np.log10(group["alpha"].astype(float)), 100 * np.log(losses), 1)[0]


def _by_seed(group: pd.DataFrame, kind: str) -> np.ndarray:
    """The losses (rows, seeds) of the seeds that all rows of the group have."""
    records: list[dict[str, Any]] = group.to_dict("records")
    common = sorted(set.intersection(*(set(record["seeds"]) for record in records)))
    return np.array([[record[kind][record["seeds"].index(seed)] for seed in common] for record in records])
