"""The attackers among a federation's clients: what they train on, and what the server receives."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from datasets.false_targets import falsified
from network.aggregation.kept_rows import KeptRows
from network.aggregation.weighted_sum import Uploads, WeightedSum, sum_type, total
from network.attacks.attack import Attack, Honest
from network.engine.state import add_prefix, strip_prefix
from utils.streams import generator

if TYPE_CHECKING:
    from datasets.task_data import Batch, TaskData
    from network.aggregation.weighted_sum import Surroundings


class AttackedUploads:
    """Between clients and the aggregator: honest ones pass, attackers' are changed on the way.

    An attack looks at changes of what clients start from; what is summed over clients is a change as it is. Buffers,
    what clients report and what the method says is left alone pass unchanged: a negative variance or count would give
    an attacker away. What is reported is that of the honest clients, or of all where a round has
    no honest client. Attackers that need to know all honest uploads send theirs when those are there, in `mean`; until
    then theirs wait as `KeptRows`.

    Args:
        uploads: what uploads are passed on to.
        attack: what attackers do.
        attackers: who they are.
        within: what uploads are aggregated in.
        seed: of all random choices.
    """

    def __init__(
        self,
        uploads: Uploads,
        attack: Attack,
        attackers: Collection[int],
        within: Surroundings,
        seed: int,
    ) -> None:
        self._uploads, self._attack, self._attackers = uploads, attack, attackers
        self._within, self._seed = within, seed
        self._honest = WeightedSum(within.accelerator)
        self._reports = [WeightedSum(within.accelerator) for _ in range(2)]  # of honest clients, and of all
        self._rows = KeptRows(within.folder, within.memory)
        self.clear()

    @property
    def metrics(self) -> dict[str, str]:
        """As of what uploads are passed on to."""
        return self._uploads.metrics

    @property
    def state(self) -> dict[str, Tensor]:
        """As of what uploads are passed on to."""
        return self._uploads.state

    def clear(self, server: Mapping[str, Tensor] | None = None, round: int = 0) -> None:
        """Begin a round in which clients start from these tensors."""
        self._server, self._round = server or {}, round
        self._n_honest = self._weight = self._of_all = 0.0  # both weights: of the honest clients, and of all
        self._waiting: list[tuple[int, float]] = []  # clients, with their weights, by rows
        self._rows.clear()
        for uploads in (self._uploads, self._honest, *self._reports):
            uploads.clear(server, round)

    def add(self, upload: Mapping[str, Tensor], weight: float, client: int = 0) -> None:
        """Take a client's upload."""
        report = {name: upload[name] for name in self._within.reported}
        self._reports[1].add(report, weight)
        self._of_all += weight
        if client not in self._attackers:
            self._n_honest, self._weight = self._n_honest + 1, self._weight + weight
            self._reports[0].add(report, weight)
            if self._attack.knows:
                changes = {name: change.double() for name, change in self._changes(upload).items()}
                squares = {name: change.square() for name, change in changes.items()}
                self._honest.add(add_prefix("mean", changes) | add_prefix("square", squares), 1.0)
            self._uploads.add(upload, weight, client)
        elif self._attack.knows:
            self._waiting.append((client, weight))
            self._rows.add(upload.values())
            self._layout = {name: (tensor.shape, tensor.dtype) for name, tensor in upload.items()}
        elif self._attack.sends:
            self._pass_on(client, weight, upload, None)
        else:
            self._uploads.add(upload, weight, client)

    def mean(self, total_weight: float) -> dict[str, Tensor]:
        """What is made of the uploads that the server receives; every process must call it once per round."""
        device = self._within.accelerator.device
        counts = [self._n_honest, self._weight, self._of_all, len(self._waiting)]
        added = total(torch.tensor(counts, dtype=sum_type(device), device=device), self._within.accelerator)
        n_honest, weight, of_all, n_waiting = added.tolist()
        honest = self._known(int(n_honest), int(n_waiting)) if n_honest and n_waiting else None
        for client, of_client, upload in self._waited():
            if honest:
                self._pass_on(client, of_client, upload, honest)
            else:  # nobody to hide behind
                self._uploads.add(upload, of_client, client)
        # `total_weight` may differ from the weight of all: where sums are private, it is that of the clients expected.
        reported = (
            self._reports[0].mean(weight * (total_weight / of_all)) if weight else self._reports[1].mean(total_weight)
        )
        return self._uploads.mean(total_weight) | reported

    def _waited(self) -> Iterator[tuple[int, float, dict[str, Tensor]]]:
        """The attackers of this process that wait, with their weights and uploads, as these came."""
        for (client, weight), row in zip(self._waiting, self._rows.columns(), strict=True):
            parts = row.to(self._within.accelerator.device).split([shape.numel() for shape, _ in self._layout.values()])
            layout = zip(self._layout.items(), parts, strict=True)
            yield client, weight, {name: part.view(shape).to(dtype) for (name, (shape, dtype)), part in layout}

    def _known(self, n_honest: int, n_attackers: int) -> Honest:
        """Mean and spread over the honest clients of all processes."""
        sums = self._honest.mean(float(n_honest))
        means, squares = strip_prefix("mean", sums), strip_prefix("square", sums)
        stds = {name: (squares[name] - mean.square()).clamp(min=0.0).sqrt() for name, mean in means.items()}
        return Honest(means, stds, n_honest, n_attackers)

    def _changes(self, upload: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What training changed, of all that attackers may change."""
        left_alone = {*self._within.buffers, *self._within.reported, *self._within.left_alone}
        return {name: tensor - self._start(name) for name, tensor in upload.items() if name not in left_alone}

    def _start(self, name: str) -> Tensor | float:
        """What a tensor of an upload has changed from: 0 where it is summed, or none of the server's."""
        return 0.0 if self._within.is_summed(name) else self._server.get(name, 0.0)

    def _pass_on(self, client: int, weight: float, upload: Mapping[str, Tensor], honest: Honest | None) -> None:
        """Put a change of the attacker's choice in place of its own."""
        rng = generator("attack", self._seed, self._round, client)
        changes = self._attack.sent(self._changes(upload), honest, rng)
        sent = {name: (change + self._start(name)).to(upload[name]) for name, change in changes.items()}
        self._uploads.add({**upload, **sent}, weight, client)


def with_false_targets(data: TaskData, clients: Sequence[np.ndarray], attackers: Collection[int]) -> TaskData:
    """The data, with false targets of the images that attackers train on."""
    return cast("TaskData", _Falsified(data, np.concatenate([clients[i] for i in sorted(attackers)])))


class _Falsified:
    """Data that give out false targets of some images, and are otherwise those that they are made of."""

    def __init__(self, data: TaskData, positions: np.ndarray) -> None:
        self._data = data
        is_false = np.zeros(len(data.table), bool)
        is_false[positions] = True
        self._is_false = torch.from_numpy(is_false).to(data.device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)

    def batch(self, positions: Tensor) -> Batch:
        """As `TaskData.batch`."""
        return self._falsified(positions.to(self._is_false.device), self._data.batch(positions))

    def batches(self, plan: Sequence[np.ndarray]) -> Iterator[tuple[Tensor, Batch]]:
        """As `TaskData.batches`."""
        for positions, batch in self._data.batches(plan):
            yield positions, self._falsified(positions, batch)

    def _falsified(self, positions: Tensor, batch: Batch) -> Batch:
        wrong = falsified(self._data.task, batch.target, batch.valid)
        which = self._is_false[positions].view(-1, *(1,) * (wrong.ndim - 1))
        return replace(batch, target=wrong.where(which, batch.target))
