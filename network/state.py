"""What clients keep between rounds, by client and name."""

from __future__ import annotations

from collections.abc import Mapping

from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor


class ClientStates:
    """The tensors that each client of this process keeps between rounds.

    A client stays with one process for a whole run, so that its state never moves.
    """

    def __init__(self) -> None:
        self._states: dict[int, dict[str, Tensor]] = {}

    def __contains__(self, client: int) -> bool:
        return client in self._states

    def __getitem__(self, client: int) -> dict[str, Tensor]:
        return self._states[client]

    def __setitem__(self, client: int, state: dict[str, Tensor]) -> None:
        self._states[client] = state

    def gathered(self, accelerator: Accelerator) -> dict[str, Tensor]:
        """The states of all processes, as `<client>.<name>` on the CPU, for the checkpoint."""
        own = {f"{client}.{name}": t.cpu() for client, state in self._states.items() for name, t in state.items()}
        if accelerator.num_processes == 1:
            return own
        return {name: tensor for part in gather_object([own]) for name, tensor in part.items()}

    def restore(self, gathered: Mapping[str, Tensor], clients: set[int], accelerator: Accelerator) -> None:
        """Take from `gathered` the states of `clients`, those of this process."""
        for key, tensor in gathered.items():
            client, name = key.split(".", 1)
            if int(client) in clients:
                self._states.setdefault(int(client), {})[name] = tensor.to(accelerator.device)
