"""What attacks have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from utils.args import count_of, share_or_number
from utils.errors import UserError
from utils.settings import Configured, setting
from utils.streams import generator

if TYPE_CHECKING:
    from torch import Tensor

    from datasets.tasks import Task

Change = Mapping[str, "Tensor"]


@dataclass(frozen=True)
class Honest:
    """What attackers know of the others: all uploads of the round's honest clients, as their mean and spread.

    `mean` and `std` (the population's standard deviation) are of the clients' changes, each client counting the same;
    `n` is how many clients are honest and `n_attackers` how many are not, in this round.
    """

    mean: Change
    std: Change
    n: int
    n_attackers: int


class Attack(Configured):
    """What attackers do: they train on false targets, or send something else than the change that training made.

    Fields that are settings are arguments. `title` is the attack's name in figures.
    `false_targets` says that attackers train on those of `datasets/false_targets.py`, `sends` that they change what
    they send, and `knows` that for this they need to know the honest clients' uploads. `version` is raised by one, from
    1, where numbers change.
    """

    version: ClassVar[int] = 1
    title: ClassVar[str] = ""
    false_targets: ClassVar[bool] = False
    sends: ClassVar[bool] = True
    knows: ClassVar[bool] = False
    attackers: float = setting(0.2, "clients that attack: a share below 1 of all clients, or a number", share_or_number)

    def check(self, task: Task, n_clients: int) -> None:
        """Raise UserError if the attack does not fit the task or the number of clients."""
        if not 0 < count_of(self.attackers, n_clients) < n_clients:
            raise UserError(
                f"--attackers {self.attackers:g} of {n_clients} clients: give a share or number of which at least one "
                "client attacks and at least one does not"
            )

    def draw(self, n_clients: int, seed: int) -> frozenset[int]:
        """The attackers: a part of all clients, drawn by the seed, the same in every round."""
        n = count_of(self.attackers, n_clients)
        return frozenset(generator("attackers", seed).choice(n_clients, n, replace=False).tolist())

    def sent(self, own: Change, honest: Honest | None, rng: np.random.Generator) -> Change:
        """The change that an attacker sends in place of its own; `honest` is known to an attack that `knows` alone."""
        return own
