"""What a deployed federation is asked for: the arguments of `test_fed.py`, without those that assign images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from datasets.tasks import TASKS
from models.networks.parts import FROZEN_ENCODER, TRAINS
from network.choices import add_choices, resolve_choices
from network.config import FederationConfig
from network.sampling import POISSON
from network.settings import PrivacySettings, add_federation, resolve_federation
from utils.args import Parser
from utils.arguments import with_defaults
from utils.errors import UserError
from utils.stage import add_model, add_shared, add_stage

_ANY = None
# What cannot be deployed: an argument and its value (any but the default), and why.
_REFUSED: dict[tuple[str, str | None], str] = {
    ("method", "fedamp"): "its server mixes the clients' models, which here never leave them; give another method",
    ("method", "gossip"): "clients send their models to a server here, and it has none; give another method",
    ("method", "centralized"): "it trains on all clients' images in one place; give another method",
    ("method", "feddifrc"): "its teacher's vectors are in one file, of all images; give another method",
    ("aggregation", _ANY): "uploads are aggregated by their mean alone; omit it",
    ("attack", _ANY): "attackers are simulated; omit it",
    ("test_mode", _ANY): "it would take other images on each machine; omit it, and lower --n_rounds",
    ("vectorised_clients", _ANY): "a client's machine trains one client; omit it",
    ("adapt_steps", _ANY): "there are no non-participating clients; omit it",
    **{
        (option.name, _ANY): "no account covers clients that may be away; omit it" for option in fields(PrivacySettings)
    },
    ("client_sampling", POISSON): "it is for the sums of differential privacy; give another",
}


def parse(words: Sequence[str]) -> dict[str, Any]:
    """The configuration in these words; UserError where they are wrong, or ask for what cannot be deployed."""
    parser = Parser("Train a federation whose clients are on machines of their own.")
    add_model(parser, TASKS)
    add_shared(parser, "start_warm", "trained_model_dir")
    add_federation(parser)
    add_choices(parser)
    add_shared(parser, "on_missing", "timeout")
    add_stage(parser, "continue the newest run with these arguments", "round")
    config = vars(parser.parse_args(list(words)))
    for (name, value), why in _REFUSED.items():
        default = parser.get_default(name)
        value_given = config.get(name, default)  # a method's argument is there if it was given
        if value_given != default if value is _ANY else value_given == value:
            raise UserError(f"--{name} {value_given} cannot be deployed: {why}")
    config = with_defaults(resolve_choices(resolve_federation(config)), TRAINS, "train")
    config["evaluate_apart"] = True  # clients see no other images
    if config["train"] in FROZEN_ENCODER:
        config["encoder_outputs"] = "never"  # each machine would round them otherwise
    return config


def check_no_clusters(config: FederationConfig) -> None:
    """UserError where images are told apart by clusters."""
    if config.tells_clusters:
        raise UserError("clusters are of all images together, which no machine has; give class in place of cluster")
