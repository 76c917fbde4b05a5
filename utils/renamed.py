"""Arguments and values that once had other names: command lines with these run, and records are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = {
    "clients_per_batch": "vectorised_clients",
    "clusters_of": "cluster_clients",
    "kinds": "label_source",
    "patience": "timeout",
    "splits": "types",
    "trained_on": "train_clients",
    "unseen_clients": "non_participating_clients",
}
_EXPERIMENTS = "experiments/task_perspective"
VALUES = {  # by the argument that has them
    "importance_target": {"held_out": "global_test"},
    "experiment": {f"{_EXPERIMENTS}/unseen_clients.toml": f"{_EXPERIMENTS}/non_participating_clients.toml"},
}
# What tables' column `data` said of the images that values are measured on.
DATA = {
    "clients' own": "client train", "clients' held out": "client test", "held out": "global test",
    "unseen clients' own": "non-participating train", "unseen clients' held out": "non-participating test",
}  # fmt: skip


def with_present_names(record: Mapping[str, Any]) -> dict[str, Any]:
    """What was recorded under names of before, under those of today, values included."""
    named = {NAMES.get(name, name): value for name, value in record.items()}
    return {name: present_value(name, value) for name, value in named.items()}


def present_value(name: str, value: Any) -> Any:
    """An argument's value by its name of today."""
    known = VALUES.get(name, {})
    return known.get(value, value) if isinstance(value, str) else value
