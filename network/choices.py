"""What a federation has a choice of: its method, how uploads are put together, and what attackers do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from network.aggregation import AGGREGATIONS, MEAN
from network.aggregation.rule import Aggregation
from network.algorithms import ALGORITHMS
from network.algorithms.fedavg import FedAvg
from network.attacks import ATTACKS, NO_ATTACK
from network.attacks.attack import Attack
from network.importance import CLUSTER, FedIR
from network.sampling import ClientSampling
from network.settings import LocalSettings, SimulationSettings
from utils.arguments import add_arguments_of, check_arguments
from utils.errors import UserError
from utils.settings import add_settings

if TYPE_CHECKING:
    from torch import nn

    from datasets.table import Table
    from datasets.tasks import Task
    from utils.args import Parser

# A run in which these have these values does not say so: it is the same run as one from before there were others.
UNSAID = {"aggregation": MEAN, "attack": NO_ATTACK}
READERS: dict[str, Mapping[str, Any]] = {"method": ALGORITHMS, "aggregation": AGGREGATIONS, "attack": ATTACKS}


class Choices(NamedTuple):
    """A federation's method, whom and what it samples and weights, its aggregation and, if there is one, attack."""

    algorithm: FedAvg
    sampling: ClientSampling
    reweighting: FedIR
    aggregation: Aggregation
    attack: Attack | None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Choices:
        """Those of the arguments; UserError where they do not go together."""
        names = {name: config.get(name, default) for name, default in UNSAID.items()}
        method = ALGORITHMS[config["method"]].from_config(config)
        method.bind(LocalSettings.from_config(config), SimulationSettings.from_config(config))
        sampling = ClientSampling.from_config(config)
        sampling.check_batches(config["batch_size"])
        attack = ATTACKS[names["attack"]].from_config(config) if names["attack"] != NO_ATTACK else None
        robust, changes = names["aggregation"] != MEAN, attack is not None and attack.sends
        by_method, by_bound = f"--method {config['method']}", "--clip_norm"
        if config.get("clip_norm") is not None:
            cls._refuse("aggregation", names, by_bound, "noise is measured for a mean of bounded uploads" * robust)
            cls._refuse("attack", names, by_bound, "attackers would send their uploads past the bound" * changes)
        cls._refuse("aggregation", names, by_method, (method.only_mean or method.no_uploads) * robust)
        cls._refuse("attack", names, by_method, method.no_uploads * changes)
        return cls(
            method, sampling, FedIR.from_config(config), AGGREGATIONS[names["aggregation"]].from_config(config), attack
        )

    @staticmethod
    def _refuse(name: str, names: Mapping[str, Any], other: str, reason: str) -> None:
        """UserError where there is a reason why a choice does not go together with another argument."""
        if reason:
            raise UserError(f"--{name} {names[name]} does not suit {other}: {reason}; omit one of them")

    def check(self, task: Task, n_clients: int) -> None:
        """UserError where they do not fit the task or the number of clients."""
        self.algorithm.check_clients(n_clients)
        self.sampling.check(n_clients)
        self.aggregation.check_clients(min(self.sampling.clients_per_round or n_clients, n_clients))
        if self.attack:
            self.attack.check(task, n_clients)

    def check_uploads(
        self, config: Mapping[str, Any], model: nn.Module, local_settings: LocalSettings, settings: SimulationSettings
    ) -> None:
        """UserError where something is to act on uploads, and nothing of the model that is trained travels."""
        from network.trainer import travelling  # slow to import, and a parser needs none of it

        _, shared = travelling(model, self.algorithm, local_settings, settings)
        if shared or self.algorithm.no_uploads:
            return
        acting = UNSAID | {"clip_norm": None}
        if self.attack and not self.attack.sends:
            del acting["attack"]
        names: dict[str, Any] = {name: config.get(name, default) for name, default in acting.items()}
        for name, default in acting.items():
            stays = f"all that --train {config['train']} trains stays with the clients"
            self._refuse(name, names, f"--method {config['method']}", stays * (names[name] != default))

    def check_table(self, table: Table, task: str, shortened: bool) -> None:
        """UserError where what the method or FedIR reads of the images is missing."""
        self.reweighting.check_table(table, task, shortened)
        self.algorithm.check_table(table, task, shortened)

    @property
    def tells_clusters(self) -> bool:
        """Whether images are told apart by the clusters of the task's embeddings, whatever the partition is by."""
        return CLUSTER in (self.reweighting.importance_reweighting, getattr(self.algorithm, "kinds", None))

    def record(self) -> dict[str, Any]:
        """The arguments that they go by, by name: what was given, and what they have settled on otherwise."""
        return {name: value for each in self if each for name, value in each.record().items()}


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
