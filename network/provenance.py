"""What a run was made with: the declared versions of all that a stage executes, the sources, data and files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from datasets.tasks import TASKS
from models.networks.decoders import DECODERS
from models.networks.encoders import ENCODERS
from network.aggregation import AGGREGATIONS, MEAN
from network.algorithms import ALGORITHMS
from network.attacks import ATTACKS
from network.engine.batch_norm import CHANGES
from network.partition.rules import PARTITIONERS, rule_of
from utils.command import command_line
from utils.versions import ENGINE, digests, source_hash, stage_of

# By the argument that chooses an entry.
_REGISTRIES: dict[str, Mapping[str, Any]] = {
    "task": TASKS,
    "partition": PARTITIONERS,
    "encoder": ENCODERS,
    "decoder": DECODERS,
    "aggregation": {name: entry for name, entry in AGGREGATIONS.items() if name != MEAN},  # which is the engine's
    "attack": ATTACKS,
    "batch_norm": CHANGES,
}


def code_version(script: str, arguments: Mapping[str, Any]) -> dict[str, int] | None:
    """The declared versions of all that a stage executes with these arguments, by name; None for other scripts."""
    if (stage := stage_of(script)) not in ENGINE:
        return None
    versions = {"engine": ENGINE[stage]}
    if method := ALGORITHMS.get(arguments.get("method", "")):
        versions |= {f"method {name}": version for name, version in method.versions().items()}
    values = dict(arguments)
    if "partition" in values:
        values["partition"] = rule_of(values["type"], values["partition"])
    for name, entries in _REGISTRIES.items():
        if entry := entries.get(values.get(name, "")):  # networks of timm have none
            versions[f"{name} {values[name]}"] = entry.version
    return versions


def code_of(script: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What `environment.json` says of the code that a script executes with these arguments."""
    return {"code_version": code_version(script, arguments), "source_hash": source_hash()}


def provenance(
    config: Mapping[str, Any], data_version: str | None = None, reads: Iterable[Path] = ()
) -> dict[str, Any]:
    """What `environment.json` says of a run's origin: the versions of code and data, and the files it reads.

    `config` has all the run's arguments, its method's and its model's among them; which file of weights its encoder
    started from, if any, is named beside these.
    """
    weights = config.get("weights")
    origin = {"data_version": data_version, "inputs": digests(reads, config["result_path"])}
    return code_of(command_line()[0], config) | origin | ({"encoder_weights": weights} if weights else {})
