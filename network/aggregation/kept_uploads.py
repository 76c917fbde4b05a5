"""The uploads of a round, kept until all are there, for rules that look at single ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import torch
from accelerate.utils import gather_object
from torch import Tensor

from network.aggregation.kept_rows import KeptRows
from network.aggregation.weighted_sum import Surroundings, WeightedSum, sum_type, total
from network.engine.state import add_prefix, strip_prefix

_BLOCK = 1 << 22  # numbers, of all clients together, that are looked at at once
_BEFORE = "aggregate"  # the prefix of the last aggregate among the server's tensors


class Rule(Protocol):
    """What is made of kept uploads; see `network/aggregation/rule.py`."""

    @property
    def remembers(self) -> bool:
        """Whether the round before's aggregate, without buffers, is a further row, the last one."""
        ...

    def aggregate(self, uploads: KeptUploads) -> Tensor:
        """The change (P,) that is made of all clients' changes."""
        ...

    def metrics(self, uploads: KeptUploads) -> dict[str, str]:
        """Columns of the round's metrics."""
        ...


class KeptUploads:
    """Takes the uploads of a round, as `WeightedSum` does, and puts them together by a rule.

    A process keeps those of its own clients as `KeptRows`. A rule sees blocks of columns of the matrix of all clients'
    changes, one row per client in the order of the clients' numbers; blocks are put together from all processes and are
    the same in each of them, so that results do not depend on the number of processes or the order of clients.

    `clients` are those of the rows, `metrics` the rule's columns of the round's metrics, and `state` what the server
    has to keep among its tensors for the next round.
    """

    def __init__(self, rule: Rule, within: Surroundings) -> None:
        self._rule, self._within = rule, within
        self._reported = WeightedSum(within.accelerator)
        self._shapes: dict[str, torch.Size] = {}
        self._rows = KeptRows(within.folder, within.memory)
        self.metrics: dict[str, str] = {}
        self.state: dict[str, Tensor] = {}
        self.clear({})

    def clear(self, server: Mapping[str, Tensor] | None = None, round: int = 0) -> None:
        """Begin a round in which clients start from these tensors; what the server has none of starts from 0."""
        self._server = server or {}
        self._first = self._last = torch.zeros(0)
        self._own: list[int] = []
        self._rows.clear()
        self._reported.clear()

    def add(self, upload: Mapping[str, Tensor], weight: float, client: int = 0) -> None:
        """Keep a client's upload; all must have the same tensors, with values that fit into single precision."""
        reported = self._within.reported
        self._reported.add({name: upload[name] for name in reported}, weight)
        if not self._shapes:
            names = sorted(upload.keys() - set(reported), key=lambda name: (name in self._within.buffers, name))
            self._shapes = {name: upload[name].shape for name in names}
        self._own.append(client)
        self._rows.add(upload[name] for name in self._shapes)

    def mean(self, total_weight: float) -> dict[str, Tensor]:
        """What the rule makes of all processes' uploads, and the weighted mean of what is reported; double precision.

        Every process must call it once per round; `total_weight` is the sum of the clients' weights.
        """
        reported = self._reported.mean(total_weight)
        self._gather_clients()
        if not sum(self._sizes):  # nothing travels
            return reported
        change = self._rule.aggregate(self)
        self.metrics = self._rule.metrics(self)
        if self._rule.remembers:
            before = {name: tensor for name, tensor in self._named(change).items() if name not in self._within.buffers}
            self.state = add_prefix(_BEFORE, {name: tensor.float() for name, tensor in before.items()})
        return self._named(change + self._first) | reported

    def blocks(self, compared: bool = False) -> Iterator[Tensor]:
        """The changes of all clients, and the last aggregate if the rule remembers it: (n, B) after (n, B).

        `compared` leaves out the buffers. Every process must ask for all blocks.
        """
        device = self._within.accelerator.device
        n_compared = sum(
            s for s, name in zip(self._sizes, self._shapes, strict=True) if name not in self._within.buffers
        )
        width = max(1, _BLOCK // len(self.clients))
        starts = [*range(0, n_compared, width), *range(n_compared, sum(self._sizes), width)]
        for begin, end in zip(starts, [*starts[1:], sum(self._sizes)], strict=True):
            if compared and begin >= n_compared:
                return
            block = torch.zeros(len(self.clients), end - begin, dtype=sum_type(device), device=device)
            for place, row in zip(self._places, self._rows.columns(begin, end), strict=True):
                block[place] = row.to(device, block.dtype) - self._first[begin:end]
            block = total(block, self._within.accelerator)
            yield torch.cat([block, self._last[None, begin:end]]) if self._rule.remembers else block

    def _gather_clients(self) -> None:
        """Learn from the other processes which clients there are, and the layout; the server's vectors follow."""
        gathered = [(self._own, self._shapes)]
        if self._within.accelerator.num_processes > 1:
            gathered = gather_object(gathered)
        self._shapes = next((shapes for _, shapes in gathered if shapes), {})
        self._sizes = [shape.numel() for shape in self._shapes.values()]
        self.clients = sorted(client for own, _ in gathered for client in own)
        self._places = [self.clients.index(client) for client in self._own]
        self._first = self._vector(self._server)
        if self._rule.remembers:
            self._last = self._vector(strip_prefix(_BEFORE, self._server))

    def _vector(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """These tensors one after the other in double precision, zeros for those that are missing."""
        device = self._within.accelerator.device
        vector = torch.zeros(sum(self._sizes), dtype=sum_type(device), device=device)
        for name, piece in zip(self._shapes, vector.split(self._sizes), strict=True):
            if name in tensors:
                piece.copy_(tensors[name].flatten())
        return vector

    def _named(self, vector: Tensor) -> dict[str, Tensor]:
        pieces = zip(self._shapes.items(), vector.split(self._sizes), strict=True)
        return {name: piece.view(shape) for (name, shape), piece in pieces}
