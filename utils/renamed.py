"""Arguments that once had other names: command lines that use these still run, and runs that recorded them are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = {
    "clients_per_batch": "vectorised_clients",
    "clusters_of": "cluster_clients",
    "kinds": "label_source",
    "patience": "timeout",
    "trained_on": "train_clients",
}


def with_present_names(record: Mapping[str, Any]) -> dict[str, Any]:
    """What was recorded under names of before, under those of today."""
    return {NAMES.get(name, name): value for name, value in record.items()}
