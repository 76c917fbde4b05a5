"""Whether a partition by clusters costs more than one by classes where both separate an equal share of the target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from reports.compare import settings
from reports.learnt import beats_trivial
from reports.statistics import Change, increase, judged_rows, with_spread
from reports.tables import COMPARED

_SHARE = "target_variance_share"
_WIDEST = 0.5  # of a partition's range of shares: with wider gaps between its runs, a cost in the gap is a guess
_GAP, _VERDICT = "gap between runs", "at equal skew"


def equal_skew(runs: pd.DataFrame) -> pd.DataFrame:
    """What both partitions cost on client train at an equal share of the target's variance between clients.

    At equal alpha, the partitions separate different shares, and a larger share costs more, whatever it is made of.
    For each seed, both partitions are compared at the largest share that runs of both reach. A partition's cost there
    is that of a curve through its runs at all alphas and the IID run, whose cost is 0.

    The curve is a piecewise cubic that rises where the costs rise and turns only at runs (PCHIP, Fritsch and Carlson
    1980). Unlike isotonic regression, it does not change measured costs: pooling would raise the cost of the partition
    whose largest share it is. Noise of the runs is in the spread of the seeds' curves. Between runs, a curve may be
    wrong for all seeds alike. Its distance from straight lines between the runs estimates this error. The error widens
    the interval at both ends, and the verdict and p count only what exceeds it. There is no verdict where the gap
    between the runs beside the share is wider than half of a partition's range of shares. Nor is there one where the
    IID runs are not clearly below the constant baseline.

    A row per task, method and setting, as text, with p adjusted over the table. Empty if no seed has both partitions.
    """
    rows = []
    for fixed, part, iid in settings(runs, ["task", "method"]):
        points = pd.DataFrame(_at_equal_share(part, iid.dropna(subset=["train_loss", _SHARE])))
        if points.empty:
            continue
        changes = increase(100 + points["embedding"].to_numpy(), 100 + points["class"].to_numpy())
        change, gap = _beyond(changes, points["error"].to_numpy()), points["gap"].mean()
        cells = fixed | {"seeds": len(points), "target share": with_spread(points["share"], 2)}
        cells |= {f"{split} over IID, %": str(Change.of(points[split])) for split in COMPARED}
        cells |= {"embedding over class, %": str(change), _GAP: f"{gap:.0%}"}
        without = gap > _WIDEST or beats_trivial(iid["train_loss"], iid["train_trivial"]) is False
        rows.append((cells, change, without))
    return judged_rows(_VERDICT, rows)


def _at_equal_share(part: pd.DataFrame, iid: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """For each seed with both partitions and an IID run: the share, and each partition's cost at it, in percent.

    `error` is the distance between the curves' difference and that of straight lines, in percent. `gap` is the wider
    gap between runs beside the share, over its partition's range of shares.
    """
    for seed, of_seed in part.groupby("rand_seed"):
        assigned = {split: of_seed[of_seed["type"] == f"{split}_based"] for split in COMPARED}
        if seed not in iid.index or any(runs.empty for runs in assigned.values()):
            continue
        points = {split: _points(runs, iid.loc[seed]) for split, runs in assigned.items()}
        share = min(of.index[-1] for of in points.values())
        if share <= max(0.0, iid.loc[seed, _SHARE]):  # a partition separates nothing more than chance does
            continue
        costs = {split: float(PchipInterpolator(of.index, of)(share)) for split, of in points.items()}
        straight = {split: float(np.interp(share, of.index, of)) for split, of in points.items()}
        errors = [abs(cost - straight[split]) / (100 + min(cost, straight[split])) for split, cost in costs.items()]
        gap = max(_gap(of.index.to_numpy(), share) for of in points.values())
        yield {"share": share, "error": 100 * sum(errors), "gap": gap} | costs


def _points(runs: pd.DataFrame, iid: pd.Series) -> pd.Series:
    """Costs over the IID run's, in percent, by increasing share: of one partition's runs and of the IID run."""
    costs = np.append(increase(runs["train_loss"].to_numpy(), iid["train_loss"]), 0.0)
    return pd.Series(costs, [*runs[_SHARE], iid[_SHARE]]).dropna().groupby(level=0).mean()


def _gap(shares: np.ndarray, share: float) -> float:
    """The distance between the neighbours of `share`, over the range of all; 0 at a measured one."""
    above = int(np.searchsorted(shares, share))
    return 0.0 if shares[above] == share else float((shares[above] - shares[above - 1]) / np.ptp(shares))


def _beyond(changes: np.ndarray, errors: np.ndarray) -> Change:
    """The change of seeds each of which is known to ± its error, with p of the part that no error explains."""
    least, most = Change.of(changes - errors), Change.of(changes + errors)
    p = least.p if least.mean > 0 else most.p if most.mean < 0 else 1.0
    return Change.of(changes)._replace(low=least.low, high=most.high, p=p)
