"""A federation's configuration: one value that says how clients train, who takes part and what the server does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from network.aggregation import AGGREGATIONS
from network.aggregation.mean import Mean
from network.aggregation.rule import Aggregation
from network.algorithms import ALGORITHMS
from network.algorithms.fedavg import FedAvg
from network.attacks import ATTACKS, NO_ATTACK
from network.attacks.attack import Attack
from network.choices import READERS, Choices
from network.importance import CLUSTER, FedIR
from network.sampling import ClientSampling
from network.settings import LocalSettings, PrivacySettings, SimulationSettings
from utils.errors import UserError
from utils.settings import Settings

if TYPE_CHECKING:
    from datasets.table import Table
    from datasets.tasks import Task


@dataclass(frozen=True)
class FederationConfig(Settings):
    """What the rounds follow from, besides the model and the clients' images.

    The defaults are FedAvg of all clients with the defaults of `test_fed.py`.

    Args:
        algorithm: the federated method, as `FedProx(mu=0.1)`; here it is `bound` to the settings.
        local: how clients train.
        settings: how the federation is simulated, with the seed of all random choices.
        sampling: which clients take part in a round.
        reweighting: what weights clients' images.
        aggregation: how the server aggregates uploads.
        attack: what some clients do to harm the others, who alone count in evaluations of clients.
        privacy: bounds of uploads, and noise.

    Raises:
        UserError: where these do not go together.
    """

    algorithm: FedAvg = field(default_factory=FedAvg)
    local: LocalSettings = field(default_factory=LocalSettings)
    settings: SimulationSettings = field(default_factory=SimulationSettings)
    sampling: ClientSampling = field(default_factory=ClientSampling)
    reweighting: FedIR = field(default_factory=FedIR)
    aggregation: Aggregation = field(default_factory=Mean)
    attack: Attack | None = None
    privacy: PrivacySettings = field(default_factory=PrivacySettings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "algorithm", self.algorithm.bound(self.local, self.settings))
        self.sampling.check_batches(self.local.batch_size)
        robust, changes = not isinstance(self.aggregation, Mean), self.attack is not None and self.attack.sends
        by_method, by_bound = self._name("method"), "--clip_norm"
        if self.privacy.clip_norm is not None:
            self._refuse("aggregation", by_bound, "noise is measured for a mean of bounded uploads" * robust)
            self._refuse("attack", by_bound, "attackers would send their uploads past the bound" * changes)
        self._refuse("aggregation", by_method, (self.algorithm.only_mean or self.algorithm.no_uploads) * robust)
        self._refuse("attack", by_method, self.algorithm.no_uploads * changes)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """That of a script's arguments."""
        chosen = Choices.from_config(config)
        return cls(
            ALGORITHMS[chosen.method].from_config(config),
            LocalSettings.from_config(config),
            SimulationSettings.from_config(config),
            ClientSampling.from_config(config),
            FedIR.from_config(config),
            AGGREGATIONS[chosen.aggregation].from_config(config),
            ATTACKS[chosen.attack].from_config(config) if chosen.attack != NO_ATTACK else None,
            PrivacySettings.from_config(config),
        )

    def check(self, task: Task, n_clients: int) -> None:
        """UserError where it does not fit the task or the number of clients."""
        self.algorithm.check_clients(n_clients)
        self.sampling.check(n_clients)
        self.aggregation.check_clients(min(self.sampling.clients_per_round or n_clients, n_clients))
        if self.attack:
            self.attack.check(task, n_clients)

    def check_uploads(self, travels: bool) -> None:
        """UserError where something is to act on uploads, and nothing of the model that is trained travels."""
        if travels or self.algorithm.no_uploads:
            return
        acts = {
            "aggregation": not isinstance(self.aggregation, Mean),
            "attack": self.attack is not None and self.attack.sends,
            "clip_norm": self.privacy.clip_norm is not None,
        }
        for name, acting in acts.items():
            stays = f"all that --train {self.local.train} trains stays with the clients"
            self._refuse(name, self._name("method"), stays * acting)

    def check_table(self, table: Table, task: str, shortened: bool) -> None:
        """UserError where what the method or FedIR reads of the images is missing."""
        self.reweighting.check_table(table, task, shortened)
        self.algorithm.check_table(table, task, shortened)

    @property
    def tells_clusters(self) -> bool:
        """Whether images are told apart by the clusters of the task's embeddings, whatever the partition is by."""
        return CLUSTER in (self.reweighting.importance_reweighting, getattr(self.algorithm, "label_source", None))

    def record(self) -> dict[str, Any]:
        """The arguments of its parts, by name: what was given, and what follows from that where nothing was."""
        parts = self.algorithm, self.sampling, self.reweighting, self.aggregation, self.attack
        return {name: value for part in parts if part for name, value in part.record().items()}

    def _name(self, argument: str) -> str:
        """A choice as the command line makes it, as `--method fedprox`."""
        if argument == "clip_norm":
            return f"--clip_norm {self.privacy.clip_norm}"
        chosen = type({"method": self.algorithm, "aggregation": self.aggregation, "attack": self.attack}[argument])
        names = (name for name, entry in READERS[argument].items() if entry is chosen)
        return f"--{argument} {next(names, chosen.__name__)}"  # one that is not of this package has no name

    def _refuse(self, argument: str, other: str, reason: str) -> None:
        """UserError where there is a reason why a choice does not go together with another argument."""
        if reason:
            raise UserError(f"{self._name(argument)} does not suit {other}: {reason}; omit one of them")
