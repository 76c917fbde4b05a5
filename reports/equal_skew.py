"""Whether a split by clusters costs more than one by classes where both separate an equal share of the target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from reports.statistics import verdict, with_interval, with_spread
from reports.tables import increase, settings

_SHARE = "target_variance_share"
_KINDS = ("class", "embedding")


def equal_skew(runs: pd.DataFrame) -> pd.DataFrame:
    """What both splits cost on the clients' own data at an equal share of the target's variance between clients.

    At equal alpha, the splits separate different shares, and the larger share costs more, whatever it is made of. For
    each seed, both splits are compared at the largest share that runs of both reach. The cost there is interpolated
    linearly between the runs with the nearest shares; the IID run, with a cost of 0, is one of them. Mean and 95 % t
    interval over seeds, as text; a row per task, method and setting. Empty where no seed has both splits.
    """
    rows = []
    for fixed, part, iid in settings(runs, ["task", "method"]):
        found = pd.DataFrame(_at_equal_share(part, iid), columns=["share", *_KINDS])
        if len(found):
            over_class = increase(100.0 + found["embedding"], 100.0 + found["class"])
            costs = {f"{kind} over IID, %": with_interval(found[kind], 1, "+") for kind in _KINDS}
            said = {"embedding over class, %": with_interval(over_class, 1, "+"), "at equal skew": verdict(over_class)}
            rows.append(fixed | {"seeds": len(found), "target share": with_spread(found["share"], 2)} | costs | said)
    return pd.DataFrame(rows)


def _at_equal_share(part: pd.DataFrame, iid: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """For each seed with both splits and an IID run: the share, and each split's cost at it, in percent."""
    for seed, of_seed in part.groupby("rand_seed"):
        kinds = {kind: of_seed[of_seed["type"] == f"{kind}_based"] for kind in _KINDS}
        if seed not in iid.index or any(runs.empty for runs in kinds.values()):
            continue
        curves = {kind: _curve(runs, iid.loc[seed]) for kind, runs in kinds.items()}
        share = min(shares[-1] for shares, _ in curves.values())
        if share > 0:  # else a split separates nothing
            yield {"share": share} | {kind: np.interp(share, *curve) for kind, curve in curves.items()}


def _curve(runs: pd.DataFrame, iid: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """The shares of one split's runs and the IID run, increasing, and their costs over the IID run's, in percent."""
    shares = np.append(runs[_SHARE], iid[_SHARE])
    costs = np.append(increase(runs["train_loss"].to_numpy(), iid["train_loss"]), 0.0)
    order = np.argsort(shares)
    return shares[order], costs[order]
