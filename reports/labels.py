"""Labels in figures for tasks, methods and losses, which runs and tables know by the names of arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datasets.tasks import TASKS, get_task
from network.algorithms import ALGORITHMS

_SHARES = {
    "accuracy", "macro_f1", "pixel_accuracy", "miou", "fwiou", "miou_union", "map_50", "map", "pq", "edge_f1", "delta1",
    "within_11.25", "within_22.5", "within_30",
}  # fmt: skip


def task_label(name: str) -> str:
    """A task's title, such as "Depth"; for an unknown task, its name."""
    return TASKS[name].label if name in TASKS else name


def method_label(name: str) -> str:
    """A method's name as in its paper, such as "FedAvg"; for an unknown method, the name of the argument."""
    return ALGORITHMS[name].label() if name in ALGORITHMS else name


def loss_label(args: Mapping[str, Any]) -> str:
    """The loss of a run with these arguments and its unit, such as "L1 loss, m"."""
    if args["task"] not in TASKS:
        return "loss"
    return get_task(args["task"], args.get("depth_target", "scaled"), args.get("published_quirks", False)).loss_label


def headline_metric(task: str, names: Sequence[str]) -> str:
    """Which of a task's values, named as in its runs, is beside the loss in a headline; empty without metrics.

    The first that figures draw, such as the accuracy, and else the last.
    """
    drawn = [name for name in (TASKS[task].drawn if task in TASKS else ()) if name in names]
    return (drawn or [name for name in reversed(names) if name != "loss"] or [""])[0]


def is_share(metric: str) -> bool:
    """Whether a metric is a share, between 0 and 1, of which more is better."""
    return metric in _SHARES


def in_order(names: Iterable[str]) -> list[str]:
    """Tasks, each once, in the order of the registry; unknown ones come last."""
    ranks = {name: rank for rank, name in enumerate(TASKS)}
    return sorted(dict.fromkeys(names), key=lambda name: ranks.get(name, len(ranks)))
