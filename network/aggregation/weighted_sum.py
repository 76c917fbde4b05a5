"""The weighted mean, or the sum, of clients' uploads over all processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator
    from torch import Tensor


class Uploads(Protocol):
    """What takes the uploads of a round, each process those of its clients, and puts them together."""

    @property
    def metrics(self) -> dict[str, str]:
        """Further columns of the round's metrics."""
        ...

    @property
    def state(self) -> dict[str, Tensor]:
        """What the server keeps among its tensors for the next round."""
        ...

    def clear(self, server: Mapping[str, Tensor] | None = None, round: int = 0) -> None:
        """Begin a round in which clients start from these tensors of the server; invalidates what `mean` returned."""

    def add(self, upload: Mapping[str, Tensor], weight: float, client: int = 0) -> None:
        """Take a client's upload; all must have the same tensors, with values that fit into single precision."""

    def mean(self, total_weight: float) -> dict[str, Tensor]:
        """The uploads as one, by name, in double precision; `total_weight` is the sum of all clients' weights.

        Every process must call it once per round.
        """
        ...


@dataclass(frozen=True)
class Surroundings:
    """What uploads are aggregated in.

    Attributes:
        accelerator: the processes.
        is_summed: whether the tensor of a name is summed over clients, rather than averaged.
        buffers: the names of the model's buffers, which count in no distance and which attackers leave alone.
        left_alone: the names of what else attackers leave alone, of what a method adds to uploads.
        reported: the names of what clients report beside their uploads, such as their loss: always a weighted mean.
        folder: where uploads lie that are too much for the memory.
        memory: bytes of uploads that a process keeps in memory.
    """

    accelerator: Accelerator
    is_summed: Callable[[str], bool] = lambda name: False
    buffers: Collection[str] = ()
    left_alone: Collection[str] = ()
    reported: Collection[str] = ()
    folder: Path = Path()
    memory: int = 1 << 30


class WeightedSum:
    """A running sum of uploads times their weights, as one flat vector in double precision that every round reuses.

    In double precision, sums of whole numbers of images times single-precision values are nearly always exact. So the
    mean hardly depends on the order in which clients are added, or on how they are spread over processes.

    Args:
        accelerator: the processes.
        is_summed: whether the tensor of a name is summed without weights, rather than averaged.
    """

    def __init__(self, accelerator: Accelerator, is_summed: Callable[[str], bool] = lambda name: False) -> None:
        self.metrics: dict[str, str] = {}
        self.state: dict[str, Tensor] = {}
        self._accelerator, self._is_summed = accelerator, is_summed
        self._known = accelerator.num_processes == 1  # whether all processes have the layout
        self._lay_out({})

    def clear(self, server: Mapping[str, Tensor] | None = None, round: int = 0) -> None:
        """Begin a round; invalidates what `mean` has returned. A sum does not ask what clients start from."""
        self._sum.zero_()

    def add(self, upload: Mapping[str, Tensor], weight: float, client: int = 0) -> None:
        """Add an upload; all must have the same tensors, with values that fit into single precision.

        A sum does not ask whose upload it is.
        """
        import torch

        if not self._shapes:
            self._lay_out({name: tensor.shape for name, tensor in upload.items()})
        for pieces, factor in zip(self._pieces, (weight, 1.0), strict=True):
            if pieces:
                torch._foreach_add_(list(pieces.values()), [upload[name] for name in pieces], alpha=factor)

    def mean(self, total_weight: float) -> dict[str, Tensor]:
        """The sums over all processes by name, as views; those that are to be averaged are divided by the total.

        Every process must call it once per round.
        """
        import torch
        from accelerate.utils import gather_object

        if not self._known:
            # A process that has had no client yet learns the layout from the others.
            shapes = next(filter(None, gather_object([self._shapes])))
            if not self._shapes:
                self._lay_out(shapes)
            self._known = True
        total(self._sum, self._accelerator)
        averaged, summed = self._pieces
        torch._foreach_div_(list(averaged.values()), total_weight)
        return averaged | summed

    def _lay_out(self, shapes: dict[str, torch.Size]) -> None:
        import torch

        device, size = self._accelerator.device, sum(shape.numel() for shape in shapes.values())
        self._shapes, self._sum = shapes, torch.zeros(size, dtype=sum_type(device), device=device)
        # The tensors that lie in the vector, by name: those that are averaged, and those that are summed.
        self._pieces: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
        flat = self._sum.split([shape.numel() for shape in shapes.values()])
        for (name, shape), piece in zip(shapes.items(), flat, strict=True):
            self._pieces[self._is_summed(name)][name] = piece.view(shape)


def sum_type(device: torch.device) -> torch.dtype:
    """The dtype that sums are kept in: double precision, where the device supports it."""
    import torch

    return torch.float32 if device.type == "mps" else torch.float64


def total(tensor: Tensor, accelerator: Accelerator) -> Tensor:
    """A tensor summed over all processes in double precision; every process must call it.

    A tensor that is in double precision already is summed in place.
    """
    import torch.distributed

    tensor = tensor.to(sum_type(accelerator.device))
    if accelerator.num_processes > 1:
        torch.distributed.all_reduce(tensor)
    return tensor
