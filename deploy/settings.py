"""What a deployed federation is asked for: the arguments of `test_fed.py`, without those that assign images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from models.networks.parts import FROZEN_ENCODER
from models.settings import ModelName
from network.choices import add_choices
from network.config import FederationConfig
from network.sampling import POISSON
from network.settings import PrivacySettings, add_federation
from stages.federated import FederationStage
from utils.args import Parser
from utils.errors import UserError
from utils.stage import add_shared, add_stage

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


@dataclass(frozen=True, kw_only=True)
class DeployedStage(FederationStage):
    """A federation whose clients are on machines of their own."""

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        """Add its arguments."""
        ModelName.add_arguments(parser)
        add_shared(parser, "init_model_dir", "start_warm", "trained_model_dir")
        add_federation(parser)
        add_choices(parser)
        add_shared(parser, "on_missing", "timeout")
        add_stage(parser, "continue the newest run with these arguments", "round")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **others: Any) -> Self:
        """With what follows from these arguments; UserError where they ask for what cannot be deployed."""
        parser = cls.parser()
        for (name, value), why in _REFUSED.items():
            default = parser.get_default(name)
            value_given = config.get(name, default)  # a method's argument is there if it was given
            if value_given != default if value is _ANY else value_given == value:
                raise UserError(f"--{name} {value_given} cannot be deployed: {why}")
        alone: dict[str, Any] = {"evaluate_apart": True}  # clients see no other images
        if config["train"] in FROZEN_ENCODER:
            alone["encoder_outputs"] = "never"  # each machine would round them otherwise
        return super().from_config({**config, **alone}, **others)


def check_no_clusters(config: FederationConfig) -> None:
    """UserError where images are told apart by clusters."""
    if config.tells_clusters:
        raise UserError("clusters are of all images together, which no machine has; give class in place of cluster")
