"""What differential privacy costs: the loss of private runs by epsilon, beside that without noise."""

from __future__ import annotations

import pandas as pd

from reports.compare import SETTING, Reference, compare, of_random
from reports.statistics import mean_text, with_spread
from reports.tables import arguments_of, differing, in_settings
from utils.runs import MEASURED_ON

_NOISE = "noise_multiplier"
_SPENT = {"epsilon", "at_delta", "max_epsilon", "clip_count_noise", _NOISE}  # what follows from the noise, or it itself


def noise_costs(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per task, method, partition, alpha, noise multiplier and part of the data, as text.

    Columns: epsilon and delta, the constant baseline's loss, the run's (mean ± standard deviation over seeds), its mean
    increase over that of the same seeds without noise (`--noise_multiplier 0`, with the same norm), and over that of
    the IID partition with the same noise, both with 95 % intervals. Further arguments that differ become columns.
    `runs` comes from `reports.tables.read_runs`; without private ones the table is empty.
    """
    if "epsilon" not in runs:
        return pd.DataFrame()
    private = runs[runs["epsilon"].notna()]
    arguments = [name for name in arguments_of(private) if name not in _SPENT]
    private, alike = in_settings(private, SETTING, differing(private, arguments, ["task", "method"]))
    keys = [*alike, _NOISE]
    over = {"silent": Reference(private[private[_NOISE] == 0], alike), "iid": of_random(private, keys)}
    rows = []
    for row in compare(private, keys, over).to_dict("records"):
        is_iid, means, more = row["type"] == "iid", row["means"], dict(row["more"])
        noise = f"{more.pop(_NOISE):g}"
        cells = {"task": row["task"], "method": row["method"], "type": "IID" if is_iid else row["type"]}
        cells |= {"α": "" if is_iid else f"{row['alpha']:g}"} | more
        cells |= {"noise": noise, "ε": f"{means['epsilon']:.3g}", "δ": f"{means['at_delta']:.2g}"}
        cells |= {"data": MEASURED_ON[row["images"]], "seeds": len(row["seeds"])}
        cells |= {"constant baseline": mean_text(row["trivial"], 4), "loss": with_spread(row["loss"], 4)}
        cells |= {"over no noise, %": str(row["over_silent"])}
        rows.append(cells | {"over IID, %": str(row["over_iid"])})
    return pd.DataFrame(rows)
