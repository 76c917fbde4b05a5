"""The arguments for what a federation has a choice of: its method, its aggregation, and what attackers do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from network.aggregation import AGGREGATIONS, MEAN
from network.algorithms import ALGORITHMS
from network.attacks import ATTACKS, NO_ATTACK
from network.importance import FedIR
from network.sampling import ClientSampling
from utils.arguments import add_arguments_of, check_arguments
from utils.settings import Settings, arguments_in, recorded, setting

if TYPE_CHECKING:
    from utils.args import Parser

READERS: dict[str, Mapping[str, Any]] = {"method": ALGORITHMS, "aggregation": AGGREGATIONS, "attack": ATTACKS}


@dataclass(frozen=True)
class Choices(Settings):
    """What a federation has a choice of, by name."""

    method: str = setting("fedavg", "the federated method", choices=ALGORITHMS, heading="method")
    aggregation: str = setting(
        MEAN,
        "how the server puts the uploads of a round together",
        choices=AGGREGATIONS,
        heading="aggregation",
        recorded=False,
    )
    attack: str = setting(
        NO_ATTACK,
        "what some clients do to harm the others",
        choices=(NO_ATTACK, *ATTACKS),
        heading="attack",
        recorded=False,
    )


def add_choices(parser: Parser) -> None:
    """Add `--method`, `--aggregation` and `--attack`, and the arguments of each method, rule and attack."""
    for settings in (Choices, ClientSampling, FedIR):
        settings.add_arguments(parser)
    for choice, readers in READERS.items():
        add_arguments_of(parser, choice, readers, choice)


def resolve_choices(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without what a run leaves out; UserError for arguments of what was not chosen."""
    for choice, readers in READERS.items():
        check_arguments(config, readers, choice)
    return recorded(config, arguments_in(Choices))
