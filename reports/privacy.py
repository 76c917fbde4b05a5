"""What differential privacy costs: the loss of private runs by epsilon, beside that without noise."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.statistics import increase, mean_text, with_interval, with_spread
from reports.tables import NOT_IID, arguments_of, as_text, by_seed, differing
from utils.runs import MEASURED_ON

_NOISE = "noise_multiplier"
_SETTING = ["task", "method", "type", "alpha"]
_SPENT = {"epsilon", "at_delta", "max_epsilon", "clip_count_noise", _NOISE}  # what follows from the noise, or it itself


def noise_costs(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per task, method, split, alpha, noise multiplier and part of the data, as text; empty without private runs.

    Columns: epsilon and delta, the constant baseline's loss, the run's (mean ± standard deviation over seeds), its mean
    increase over that of the same seeds without noise (`--noise_multiplier 0`, with the same norm), and over that of
    the IID split with the same noise, both with 95 % intervals. Further arguments that differ become columns. `runs`
    comes from `reports.tables.read_runs`.
    """
    if "epsilon" not in runs:
        return pd.DataFrame()
    private = runs[runs["epsilon"].notna()]
    arguments = [name for name in arguments_of(private) if name not in _SPENT]
    varying = differing(private, arguments, _SETTING[:2])
    private = private.assign(**private[varying].map(as_text))
    rows = []
    for key, part in private.groupby([*_SETTING, *varying], dropna=False):
        fixed = dict(zip([*_SETTING, *varying], key, strict=True))
        shared = {name: value for name, value in fixed.items() if name not in NOT_IID}
        is_iid = (private[[*shared]] == [*shared.values()]).all(axis=1) & (private["type"] == "iid")
        without = by_seed(part[part[_NOISE] == 0])
        for noise, noisy in part.groupby(_NOISE):
            of, iid = by_seed(noisy), by_seed(private[is_iid & (private[_NOISE] == noise)])
            labels = _named(fixed) | {"noise": f"{noise:g}", "ε": f"{of['epsilon'].mean():.3g}"}
            labels |= {"δ": f"{of['at_delta'].mean():.2g}"}
            for images in (split for split in MEASURED_ON if of[f"{split}_loss"].notna().any()):
                loss, trivial = of[f"{images}_loss"], of[f"{images}_trivial"]
                cells = {"data": MEASURED_ON[images], "seeds": len(of), "trivial": mean_text(trivial, 4)}
                cells |= {"loss": with_spread(loss, 4)}
                for name, others in (("over no noise, %", without), ("over IID, %", iid)):
                    reference = others[loss.name].reindex(loss.index)
                    cells[name] = with_interval(increase(loss.to_numpy(), reference.to_numpy()), 1, "+")
                rows.append(labels | cells)
    return pd.DataFrame(rows)


def _named(fixed: dict[str, Any]) -> dict[str, Any]:
    """A setting in the words of tables."""
    alpha = "" if fixed["type"] == "iid" else f"{fixed['alpha']:g}"
    split = "IID" if fixed["type"] == "iid" else fixed["type"].removesuffix("_based")
    others = {name: value for name, value in fixed.items() if name not in _SETTING}
    return {name: fixed[name] for name in _SETTING[:2]} | {"split": split, "α": alpha} | others
