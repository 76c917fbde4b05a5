"""Where a federation's clients are: what keeps their states, trains them, and evaluates models on their images."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from network.engine.client import ClientRound
    from network.engine.evaluation import Evaluation


class States(Protocol):
    """What clients keep between rounds, as the rounds go on, back, and into checkpoints: see `ClientStates`."""

    @property
    def of_process(self) -> Collection[int]:
        """The clients whose states these are."""

    def finish_round(self) -> None:
        """Keep the present states."""

    def roll_back(self, clients: Collection[int] | None = None) -> None:
        """Return to those of the last finished round."""

    def checkpoint(self) -> dict[int, int]:
        """Finish the round; returns the versions that have changed since the last checkpoint."""

    def forget_old(self) -> None:
        """Keep those of the last two checkpoints alone."""

    def check(self, versions: Mapping[int, int]) -> None:
        """UserError where states of a checkpoint are missing or broken."""

    def restore(self, versions: Mapping[int, int], before: Mapping[int, int] | None = None) -> None:
        """Return to a checkpoint, and keep the one before it."""


class ClientTrainer(Protocol):
    """What trains the clients of a round: see `Trainer`."""

    vectorisation: dict[str, Any]

    def choose_vectorisation(self, most: Callable[[], int]) -> dict[str, Any]:
        """How many clients train at once, and on how many threads."""

    def train(
        self, cohort: dict[int, ClientRound], server: Mapping[str, Tensor], round: int
    ) -> Iterator[tuple[int, dict[str, Tensor], Tensor]]:
        """Yields each client, its upload, and the first step whose loss is not finite."""


class Backend(NamedTuple):
    """Clients in this process, or on machines of their own."""

    states: States
    trainer: ClientTrainer
    evaluation: Evaluation
