"""What runs cost: parameters, operations, bytes, time and memory, and how memory depends on the batch size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from reports.finished import Results
from reports.labels import method_label, task_label
from reports.tables import NOT_IID, as_text, differing, groups
from utils.figures import save

_SETTING = ["task", "method", "encoder", "decoder", "image_size", "batch_size", "train", "device"]
_CENTRAL = "central"
_LEFT_OUT = {*_SETTING, "rand_seed"} | NOT_IID
# Columns of the table: the cost that each is made from, and its unit.
_COLUMNS = {
    "parameters, 10⁶": ("parameters", 1e6),
    "trained, 10⁶": ("parameters_trained", 1e6),
    "sent, 10⁶": ("parameters_sent", 1e6),
    "forward MACs per image, 10⁶": ("forward_macs", 1e6),
    "MB up per client and round": ("bytes_up", 1e6),
    "MB down": ("bytes_down", 1e6),
    "s per round or epoch": ("seconds", 1),
    "peak memory, MiB": ("peak_memory", 2**20),
}


def read_costs(results: Results) -> pd.DataFrame:
    """The costs of all finished runs that recorded them, a row per run: its setting, and the values of `_COLUMNS`.

    Its other arguments are columns, too, without the seed and those of the partition. A cost that a run does not have
    is nan: central training sends nothing. Empty without runs.
    """
    rows: list[dict[str, Any]] = []
    for run in (*results["train_centralized"], *results["test_federated"]):
        if costs := run.summary.get("costs"):
            record = {"method": _CENTRAL} | run.args | {"device": costs["device"]}
            values = {name: costs.get(key, float("nan")) / unit for name, (key, unit) in _COLUMNS.items()}
            others = {name: as_text(of) for name, of in run.settings.items() if name not in _LEFT_OUT}
            rows.append({name: record.get(name, "") for name in _SETTING} | others | values)
    return pd.DataFrame(rows)


def costs_table(costs: pd.DataFrame) -> pd.DataFrame:
    """The means over runs as text, a row per setting; devices and other arguments have a column where they differ."""
    rows = []
    for setting, runs in groups(costs, _keys(costs)):
        values = {name: "" if pd.isna(mean) else f"{mean:.4g}" for name, mean in runs[list(_COLUMNS)].mean().items()}
        rows.append(setting | {"runs": len(runs)} | values)
    table = pd.DataFrame(rows).fillna("")
    return table if table["device"].nunique() > 1 else table.drop(columns="device")


def _keys(costs: pd.DataFrame) -> list[str]:
    """The columns that say a setting: `_SETTING`, and the arguments that differ between runs of equal ones."""
    return [*_SETTING, *differing(costs, [name for name in costs if name not in {*_SETTING, *_COLUMNS}], _SETTING)]


def memory_by_batch(costs: pd.DataFrame, path: Path) -> Path | None:
    """Peak memory by batch size: a line per network and method that ran on a GPU with several sizes; None without any.

    On the CPU, the peak is that of the whole process with its libraries, which says little about the network.
    """
    on_gpu = costs[costs["device"] != "cpu"]
    memory = "peak memory, MiB"
    figure = Figure((5, 3.5), layout="constrained")
    axes, drawn = figure.subplots(), False
    for setting, runs in groups(on_gpu, [name for name in _keys(costs) if name != "batch_size"]):
        by_size = runs.groupby("batch_size")[memory].mean()
        if len(by_size) > 1:
            network = "{encoder}, {decoder}, {image_size} px".format(**setting)
            label = f"{task_label(setting['task'])}, {method_label(setting['method'])}: {network}"
            label += "" if setting["train"] == "all" else f", {setting['train']} only"
            others = {name: value for name, value in setting.items() if name not in _SETTING and value == value}
            label += "".join(f", {name} {value}" for name, value in others.items())
            axes.plot(by_size.index, by_size, marker="o", label=label)
            drawn = True
    if not drawn:
        return None
    axes.set(xlabel="batch size", ylabel=memory, title="GPU memory by batch size", ylim=(0, None))
    axes.legend(fontsize="small")
    return save(figure, path)
