"""Losses of runs by round and by setting, as tables for figures."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from network.partition.rules import uses_alpha
from reports.finished import Finished, Results
from reports.labels import loss_label
from reports.tables import differing
from utils.errors import UserError
from utils.runs import MEASURED_ON, columns_of

# By partition and alpha, None where it is not used: the images of each group that each client has (clients, groups),
# and the target share.
Assigned = dict[str, dict[float | None, tuple[np.ndarray, float]]]
_ASSIGNED = ("partition", "groups")
_GRID = ["task", "method", "type", "alpha", "rand_seed"]


def read_rounds(results: Results, images: str, methods: Collection[str] = ()) -> pd.DataFrame:
    """The loss by round of the finished runs of some methods, or of all: a row per run and evaluated round.

    Columns: task, method, type, alpha, rand_seed, round, `loss` on the part `images` of the data (see
    `utils.runs.MEASURED_ON`), `trivial`, the constant baseline's loss there, and `measure`, the name of the loss. Over
    clients, a loss is a mean, of personal models where there are some. UserError if there are no runs, or if they
    differ in other arguments.
    """
    runs = _runs(results, methods)
    _check_alike(runs)
    return _with_losses(pd.concat([_rounds(run, images) for run in runs], ignore_index=True), images)


def read_last(results: Results, images: str, argument: str) -> pd.DataFrame:
    """The loss after the last round of all finished runs, a row each.

    The columns are those of `read_rounds` without the round, and the argument, with its values as they were given,
    numbers or text. UserError if there are no runs, if none has such a loss, or if they differ in other arguments
    than this one.
    """
    return _with_losses(_last(_runs(results, ()), results.path, images, argument), images)


def read_private(results: Results, images: str) -> pd.DataFrame:
    """The loss after the last round of all finished runs with differential privacy, as `read_last` by their noise.

    `epsilon` and `delta` are added. UserError if there are no runs, or if they differ in more than their noise.
    """
    runs = [run for run in _runs(results, ()) if "clip_norm" in run.args]
    if not runs:
        raise UserError(f"no finished run in {results.path} has --clip_norm")
    last = [pd.read_csv(run.path / "metrics.csv").iloc[-1] for run in runs]
    spent = {name: [row[name] for row in last] for name in ("epsilon", "delta")}
    return _with_losses(_last(runs, results.path, images, "noise_multiplier").assign(**spent), images)


def _last(runs: list[Finished], path: Path, images: str, argument: str) -> pd.DataFrame:
    if any(argument not in run.settings for run in runs):
        raise UserError(f"--argument {argument}: the runs in {path} have no such argument that affects the loss")
    _check_alike(runs, but=argument)
    last = pd.concat([_rounds(run, images).iloc[[-1]] for run in runs], ignore_index=True).drop(columns="round")
    values = pd.Series([run.args[argument] for run in runs], dtype=object)  # keeps None beside numbers
    return last.assign(**{argument: values})


def _with_losses(table: pd.DataFrame, images: str) -> pd.DataFrame:
    """The rows of tasks that have losses on this part of the data; UserError if none has.

    If each client keeps a part of its model, no model can be evaluated on global test.
    """
    has = table.groupby("task")["loss"].transform(lambda losses: losses.notna().any())
    if not has.any():
        keep = "clients that keep parts of their models have none on global test"
        raise UserError(f"no run has a loss on {MEASURED_ON[images]}; give another --data ({keep})")
    return table[has].reset_index(drop=True)


def read_assigned(results: Results) -> dict[str, Assigned]:
    """What clients have in each task's runs of the first seed, without IID partitions; UserError if none is left."""
    of_tasks: dict[str, Assigned] = {}
    uneven = [run for run in _runs(results, ()) if run.args["type"] != "iid"]
    if not uneven:
        raise UserError(
            f"all runs in {results.path} are of --type iid; run run_sweep.py or test_fed.py with another one"
        )
    for run in sorted(uneven, key=lambda run: run.args["rand_seed"]):
        split = run.args["type"]
        alpha = run.args["alpha"] if uses_alpha(split, run.args.get("partition")) else None
        of_split = of_tasks.setdefault(run.args["task"], {}).setdefault(split, {})
        if alpha not in of_split:
            client_of, groups = (np.load(run.path / f"{name}.npy", allow_pickle=False) for name in _ASSIGNED)
            assigned = client_of >= 0
            counts = np.zeros((client_of.max() + 1, groups.max() + 1), np.int64)
            np.add.at(counts, (client_of[assigned], groups[assigned]), 1)
            of_split[alpha] = counts, run.summary["heterogeneity"]["target_variance_share"]
    return of_tasks


def _runs(results: Results, methods: Collection[str]) -> list[Finished]:
    runs = results["test_federated"]
    chosen = [run for run in runs if not methods or run.args["method"] in methods]
    lacking = set(methods).difference(run.args["method"] for run in chosen)
    if lacking or not chosen:
        of = f" of {', '.join(sorted(lacking))}" if lacking else ""
        raise UserError(f"no finished run{of} in {results.path}; run run_sweep.py or test_fed.py")
    return chosen


def _check_alike(runs: list[Finished], but: str = "") -> None:
    """UserError if the runs of a task and method differ in more than the grid's arguments and this one."""
    settings = pd.DataFrame([run.settings for run in runs])
    others = differing(settings, [name for name in settings if name not in {*_GRID, but}], ["task", "method"])
    if others:
        raise UserError(f"the runs differ in --{', --'.join(others)} as well; give a --result_path with one setting")


def _rounds(run: Finished, images: str) -> pd.DataFrame:
    metrics = pd.read_csv(run.path / "metrics.csv")
    metrics = metrics[metrics.filter(regex="train_loss_mean$").notna().any(axis=1)]  # the others were not evaluated
    column = next((name for name in columns_of(images, "loss").values() if name in metrics), None)
    loss, trivial = metrics[column] if column else np.nan, run.summary["trivial"].get(images, {}).get("loss", np.nan)
    values = {"round": metrics["round"], "loss": loss, "trivial": trivial, "measure": loss_label(run.args)}
    return pd.DataFrame({name: run.args[name] for name in _GRID} | values)
