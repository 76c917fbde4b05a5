"""Which methods, aggregations and attacks go together: all others are refused in a line."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from network.aggregation import AGGREGATIONS, MEAN
from network.aggregation.krum import Krum
from network.aggregation.median import Median
from network.algorithms import ALGORITHMS
from network.algorithms.scaffold import Scaffold
from network.attacks import ATTACKS
from network.attacks.ipm import IPM
from network.choices import add_choices, resolve_choices
from network.config import FederationConfig
from network.engine.trainer import travelling
from network.importance import FedIR
from network.sampling import ClientSampling
from network.settings import LocalSettings, PrivacySettings
from tests.models.teacher.guiding import save_guidance
from tests.network import quadratic as q
from utils.args import Parser
from utils.errors import UserError

FIVE = [np.array([image]) for image in range(5)]
HELD_OUT = [np.arange(8, 11), *[np.zeros(0, np.int64)] * 4]
CONFIG = {"test_mode": False, "batch_size": 8, "rand_seed": 0}  # what scripts have in any case
REFUSED = {
    "aggregation": {"fedamp", "local", "centralized", "gossip", "scaffold", "fedproto", "feddisco"},
    "attack": {"fedamp", "local", "centralized", "gossip"},
}


@pytest.mark.parametrize("method", ALGORITHMS)
def test_every_combination_works_or_is_refused_in_a_line(method: str, tmp_path: Path) -> None:
    guidance = save_guidance(tmp_path / "guidance", "quadratic", 11, 4, q.DIM)
    rules = [("aggregation", name) for name in AGGREGATIONS] + [("attack", name) for name in ATTACKS]
    for kind, name in rules:
        config = CONFIG | {"method": method, "guidance_path": guidance, "contrast_temperature": 0.5, kind: name}
        if method in REFUSED[kind] and name not in (MEAN, "label_flip"):
            with pytest.raises(
                UserError, match=f"--{kind} {name} does not suit --method {method}: .+; omit one of them"
            ):
                FederationConfig.from_config(config)
            continue
        chosen = FederationConfig.from_config(config)
        run = q.trained(
            chosen.algorithm,
            tmp_path / name,
            replace(q.SETTINGS, n_rounds=1, sgd_per_epoch=1),
            clients=FIVE,
            held_out=HELD_OUT,
            aggregation=chosen.aggregation,
            attack=chosen.attack,
        )
        columns = [column for column in run.rows[-1] if column.endswith("train_loss_mean")]
        assert columns and all(np.isfinite(run.rows[-1][column]) for column in columns)


def parsed(*words: str) -> dict[str, Any]:
    parser = Parser("a script")
    add_choices(parser)
    return resolve_choices(vars(parser.parse_args(words)))


def test_runs_say_what_is_not_usual() -> None:
    usual, parts = parsed(), {*ClientSampling.arguments, *FedIR.arguments}
    assert usual.keys() == {"method"} | parts and usual == parsed("--aggregation", "mean", "--attack", "none")
    assert FederationConfig.from_config(CONFIG | usual).record().keys() == parts
    given = parsed("--aggregation", "krum", "--attack", "ipm", "--attackers", "3", "--virtual_client_size", "16")
    record = FederationConfig.from_config(CONFIG | given).record()
    assert record["assumed_attackers"] == 0.2 and record["attackers"] == 3 and record["ipm_epsilon"] == 0.5
    assert record["client_sampling"] == "systematic"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            "--attackers 2",
            "--attackers is not an argument of --attack none but of label_flip, sign_flip, gaussian, alie",
        ),
        (
            "--aggregation krum --trim_share 0.1",
            "--trim_share is not an argument of --aggregation krum but of trimmed_m",
        ),
        ("--attack ipm --attackers 1.5", "1.5 is neither a share below 1 nor a whole number"),
    ],
)
def test_arguments_of_others_are_refused(words: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        parsed(*words.split())


def test_bounded_uploads_are_those_of_the_mean_and_of_who_keeps_to_the_bound() -> None:
    bounded = CONFIG | {"method": "fedavg", "clip_norm": 1.0}
    FederationConfig.from_config(bounded | {"attack": "label_flip"})
    for kind, name in (("aggregation", "median"), ("attack", "ipm")):
        with pytest.raises(UserError, match=f"--{kind} {name} does not suit --clip_norm: .+; omit one of them"):
            FederationConfig.from_config(bounded | {kind: name})


def test_nothing_acts_on_uploads_where_there_are_none() -> None:
    """FedPer on a frozen body sends nothing; what attackers do to their own images they still can do."""
    model = nn.ModuleDict({"encoder": nn.Linear(1, 1), "decoder": nn.ModuleDict({"head": nn.Linear(1, 1)})})

    def checked(config: dict[str, Any]) -> None:
        federation = FederationConfig.from_config(config)
        federation.check_uploads(bool(travelling(model, federation)[1]))

    for given in ({"clip_norm": 1.0}, {"attack": "ipm"}, {"aggregation": "median"}):
        config = CONFIG | {"method": "fedper", "train": "head", **given}
        checked(config | {"train": "all"})
        [(name, value)] = given.items()
        with pytest.raises(UserError, match=f"--{name} {value} does not suit --method fedper: .+; omit one of them"):
            checked(config)
    for given in ({}, {"attack": "label_flip"}):
        config = CONFIG | {"method": "fedper", "train": "head", **given}
        checked(config)


def test_from_python_the_same_combinations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--aggregation median does not suit --method scaffold"):
        FederationConfig(Scaffold(), aggregation=Median())
    with pytest.raises(UserError, match="--attack ipm does not suit --clip_norm"):
        FederationConfig(attack=IPM(), privacy=PrivacySettings(clip_norm=1.0))
    with pytest.raises(UserError, match="with 2 attackers, Krum needs 7 clients per round"):
        q.simulation(q.method("fedavg"), tmp_path, aggregation=Krum(assumed_attackers=2))

    class Mine(Scaffold):
        pass

    with pytest.raises(UserError, match="--aggregation median does not suit --method Mine"):
        FederationConfig(Mine(), aggregation=Median())


def test_a_method_serves_several_configurations() -> None:
    scaffold = Scaffold()
    options = [
        FederationConfig(scaffold, LocalSettings(use_adam=adam)).algorithm.scaffold_option for adam in (True, False)
    ]
    assert options == [1, 2] and scaffold.scaffold_option is None


def test_help_describes_the_chosen_rule() -> None:
    parser = Parser("a script")
    add_choices(parser)
    parser._words = ["--aggregation", "krum"]
    text = parser.format_help()
    assert "attackers that the rule reckons with" in text and "trimmed_mean: --trim_share" in text


def test_rounds_must_be_large_enough_for_the_rule() -> None:
    for words, n_clients in (("", 6), ("--clients_per_round 4", 10)):
        chosen = FederationConfig.from_config(
            CONFIG | parsed(*f"--aggregation krum --assumed_attackers 2 {words}".split())
        )
        with pytest.raises(UserError, match="with 2 attackers, Krum needs 7 clients per round"):
            chosen.check(q.QuadraticData.task, n_clients)
    FederationConfig.from_config(CONFIG | parsed("--attack", "label_flip")).check(q.QuadraticData.task, 10)


def test_names_of_arguments_are_of_one_registry_each() -> None:
    names = [
        {name for entry in each.values() for name in entry.arguments} for each in (ALGORITHMS, AGGREGATIONS, ATTACKS)
    ]
    names += [{*ClientSampling.arguments}, {*FedIR.arguments}]
    assert all(a.isdisjoint(b) for a, b in product(names, names) if a is not b)
