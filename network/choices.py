"""The arguments for what a federation has a choice of: its method, its aggregation, and what attackers do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from network.aggregation import AGGREGATIONS, MEAN
from network.algorithms import ALGORITHMS
from network.attacks import ATTACKS, NO_ATTACK
from network.importance import FedIR
from network.sampling import ClientSampling
from utils.arguments import add_arguments_of, check_arguments
from utils.settings import add_settings

if TYPE_CHECKING:
    from utils.args import Parser

# A run in which these have these values does not say so: it is the same run as one from before there were others.
UNSAID = {"aggregation": MEAN, "attack": NO_ATTACK}
READERS: dict[str, Mapping[str, Any]] = {"method": ALGORITHMS, "aggregation": AGGREGATIONS, "attack": ATTACKS}


def add_choices(parser: Parser) -> None:
    """Add `--method`, `--aggregation` and `--attack`, and the arguments of each method, rule and attack."""
    parser.group("method").add_argument("--method", choices=ALGORITHMS, default="fedavg", help="the federated method")
    text = "how the server puts the uploads of a round together"
    parser.group("aggregation").add_argument("--aggregation", choices=AGGREGATIONS, default=MEAN, help=text)
    text = "what some clients do to harm the others"
    parser.group("attack").add_argument("--attack", choices=(NO_ATTACK, *ATTACKS), default=NO_ATTACK, help=text)
    for each in (ClientSampling, FedIR):
        add_settings(parser, each, "method")
    for choice, readers in READERS.items():
        add_arguments_of(parser, choice, readers, choice)


def resolve_choices(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is `UNSAID`; UserError for arguments of what was not chosen."""
    for choice, readers in READERS.items():
        check_arguments(config, readers, choice)
    return {name: value for name, value in config.items() if UNSAID.get(name, ...) != value}
