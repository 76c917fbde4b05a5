"""The models that clients keep, of all processes, as vectors: their distances and mixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from network.aggregation.weighted_sum import sum_type
from network.engine.state import ClientStates, add_prefix, cast_like, strip_prefix

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ClientModels:
    """The latest models of all clients as vectors, each read by the process that keeps it; a server's where new.

    `parameters` are the names between which distances are taken; those of `others`, such as buffers, follow them in a
    vector. `total` sums a tensor over the processes.
    """

    server: Mapping[str, Tensor]
    states: ClientStates
    parameters: Sequence[str]
    others: Sequence[str]
    total: Callable[[Tensor], Tensor]

    @cached_property
    def names(self) -> list[str]:
        """Of all tensors, in their order in a vector."""
        return [*self.parameters, *self.others]

    @cached_property
    def sizes(self) -> list[int]:
        """Of all tensors, in numbers."""
        return [self.server[name].numel() for name in self.names]

    def batches(self, clients: Sequence[int]) -> list[Sequence[int]]:
        """The clients in groups whose models, two of each in double precision, fit into the memory for states."""
        at_once = max(1, self.states.memory // (2 * 8 * sum(self.sizes)))
        return [clients[first : first + at_once] for first in range(0, len(clients), at_once)]

    def vector(self, client: int, names: Sequence[str]) -> Tensor:
        """These tensors of a client's model, one after the other."""
        import torch

        own = strip_prefix("own", self.states.load(client))
        return torch.cat([own.get(name, self.server[name]).flatten() for name in names])

    def tensors(self, vector: Tensor) -> dict[str, Tensor]:
        """A model's tensors from its vector, in the server's shapes and types."""
        parts = zip(self.names, vector.split(self.sizes), strict=True)
        return {name: cast_like(flat.view_as(self.server[name]), self.server[name]) for name, flat in parts}

    def distances(self, clients: Sequence[int]) -> Tensor:
        """|w_i - w_j|^2 between the models of B clients and those of all N: (B, N)."""
        import torch

        nothing = torch.zeros_like(self.vector(clients[0], self.parameters))
        mine = [self.vector(i, self.parameters) if i in self.states.of_process else nothing for i in clients]
        models = self.total(torch.stack(mine))
        distances = models.new_zeros(len(models), self.states.n_clients)
        apart = models.new_empty(models.shape)  # reused: an allocation per model would fragment the memory
        for other in self.states.of_process:
            difference = apart.copy_(models).sub_(self.vector(other, self.parameters))
            distances[:, other] = difference.square_().sum(1)
        return self.total(distances)

    def mixed(self, weights: Tensor) -> Tensor:
        """The vectors (B, P) of B mixtures of all N models, by weights (B, N)."""
        sums = weights.new_zeros(len(weights), sum(self.sizes))
        counts = weights.any(dim=0).tolist()
        for other in filter(counts.__getitem__, self.states.of_process):
            sums.addr_(weights[:, other], self.vector(other, self.names).to(weights.dtype))
        return self.total(sums)

    def save_mixed(self, prefix: str, clients: Sequence[int], weights: Tensor) -> None:
        """Put into each client's state, as `<prefix>.<name>`, its mixture of all N models, by its row of (B, N)."""
        batches = self.batches(clients)
        for batch, rows in zip(batches, weights.split([len(batch) for batch in batches]), strict=True):
            for client, vector in zip(batch, self.mixed(rows), strict=True):
                if client in self.states.of_process:
                    self.states.save(client, self.states.load(client) | add_prefix(prefix, self.tensors(vector)))

    def mean(self) -> dict[str, Tensor]:
        """The tensors of the mean of all clients' models."""
        return self.tensors(self._mean())

    def consensus_distance(self) -> float:
        """sqrt(1/N sum_i |w_i - w|^2), w being the mean of all N models; between parameters."""
        models = replace(self, others=())
        mean = models._mean()
        apart = mean.new_zeros(())
        for vector, count in models._counted():
            apart += count * (vector - mean).square().sum()
        return float(self.total(apart) / self.states.n_clients) ** 0.5

    def _counted(self) -> Iterator[tuple[Tensor, int]]:
        """The vectors of this process's clients, and how many have each: all that are new have the server's."""
        known = [client for client in self.states.of_process if client in self.states]
        if n_new := len(self.states.of_process) - len(known):
            new = next(client for client in self.states.of_process if client not in self.states)
            yield self.vector(new, self.names), n_new
        for client in known:
            yield self.vector(client, self.names), 1

    def _mean(self) -> Tensor:
        """The vector (P,) of the mean of all models: of equal ones exactly these, as their sum is exact."""
        import torch

        device = next(iter(self.server.values())).device
        summed = torch.zeros(sum(self.sizes), dtype=sum_type(device), device=device)
        for vector, count in self._counted():
            summed.add_(vector.to(summed.dtype), alpha=count)
        return self.total(summed) / self.states.n_clients
