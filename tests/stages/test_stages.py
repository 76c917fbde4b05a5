"""Each stage's configuration is one value, from words, TOML or JSON."""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from network.algorithms.fedprox import FedProx
from network.settings import AdaptSettings
from stages.central import CentralStage
from stages.clusters import ClusterStage
from stages.federated import FederatedStage
from stages.initial import InitialStage
from stages.partition import PartitionStage
from stages.table import TableStage
from stages.teacher import TeacherStage
from utils.errors import UserError
from utils.stage import Stage

# What each is given here, as TOML, and the same as a command line.
GIVEN: dict[type[Stage], tuple[str, str]] = {
    TableStage: ('data_path = "a"\nlevels = [0, 4095]', "--data_path a --levels 0 4095"),
    InitialStage: ('task = "normal"\nimage_mean = [0.1, 0.2, 0.3]', "--task normal --image_mean .1 .2 .3"),
    CentralStage: ('task = "normal"\nuse_cbam = true\nn_epochs = 7', "--task normal --use_cbam --n_epochs 7"),
    ClusterStage: ('task = "normal"\ncompare_n_clusters = [2, 4]', "--task normal --compare_n_clusters 2 4"),
    TeacherStage: ('features = "image"\nlayers = [1, 2]', "--features image --layers 1 2"),
    FederatedStage: (
        'task = "normal"\nmethod = "fedprox"\nmu = 0.1\nadapt_steps = [5, 20]\nnon_participating_clients = 0.25',
        "--task normal --method fedprox --mu 0.1 --adapt_steps 5,20 --non_participating_clients 0.25",
    ),
}


@pytest.mark.parametrize("stage", GIVEN, ids=lambda stage: stage.__name__)
def test_a_stage_is_the_same_from_toml_and_from_words(stage: type[Stage]) -> None:
    toml, words = GIVEN[stage]
    given, typed = stage.from_dict(tomllib.loads(toml)), stage.from_args(None, words.split())
    assert given.config == typed.config and given.key() == typed.key()
    for entry in fields(stage):
        if entry.name not in ("federation", "adapters"):  # whose methods are no plain values
            assert getattr(given, entry.name) == getattr(typed, entry.name), entry.name


@pytest.mark.parametrize("stage", GIVEN, ids=lambda stage: stage.__name__)
def test_its_record_is_read_back_as_the_same_run(stage: type[Stage]) -> None:
    made = stage.from_args(None, GIVEN[stage][1].split())
    record = json.loads(json.dumps(made.to_json()))
    assert made.diff(record) == [] and made.key().items() <= record.items()
    other = stage.from_args(None, [*GIVEN[stage][1].split(), "--rand_seed", "7"])
    assert other.diff(record) == ["rand_seed"] and other.key() != made.key()
    moved = stage.from_args(None, [*GIVEN[stage][1].split(), "--result_path", "elsewhere"])
    assert moved.diff(record) == [] and moved.key() == made.key() and moved.config != made.config


def test_a_federation_holds_what_its_arguments_say() -> None:
    stage = FederatedStage.from_dict(
        {"task": "normal", "method": "fedprox", "mu": 0.3, "alpha": 0.5, "n_clients": 4, "result_path": "r"}
    )
    method = stage.federation.algorithm
    assert isinstance(method, FedProx) and method.mu == 0.3
    assert stage.partition.assign.alpha == 0.5 and stage.partition.assign.n_clients == 4
    assert stage.running.result_path == Path("r") and stage.model.task == "normal"
    assert stage.adaptation == AdaptSettings()


def test_whole_groups_are_clients_of_a_partition_whatever_its_rule_is() -> None:
    stage = PartitionStage.from_dict({"users": "u.npy", "partition": "shards", "shards_per_client": 4, "n_clients": 9})
    assert (stage.assign.partition, stage.assign.n_clients, stage.assign.options) == ("natural", None, {})
    assert stage.files.users == Path("u.npy") and stage.to_json()["shards_per_client"] == 4
    with pytest.raises(UserError, match="--partition_file has nothing to assign; give --export_clients"):
        PartitionStage.from_dict({"partition_file": "saved"})


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"task": "normal", "n_rouns": 3}, "did you mean --n_rounds?"),
        ({"task": "normal", "n_rounds": "many"}, "'many' is not a whole number"),
        ({"task": "normal", "mu": 0.1}, "--mu is not an argument of --method fedavg"),
        ({}, "the following arguments are required: --task"),
    ],
)
def test_what_no_command_line_could_say_is_refused_in_its_words(values: dict, line: str) -> None:
    with pytest.raises(UserError) as refused:
        FederatedStage.from_dict(values)
    assert line in str(refused.value)
