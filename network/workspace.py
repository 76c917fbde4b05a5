"""Working copies of the model, in which clients train: one, or several that are computed at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from models.networks.parts import is_within, train_part
from models.networks.task_model import Outputs
from network.stacking import StackedBatchNorm, repeated, stack
from utils.errors import UserError


class Workspace(ABC):
    """N working copies of one model.

    `tensors` has each copy's parameters and buffers by their names in the model, as views: writing into them changes
    the copy. `leaves` are the parameters as autograd knows them, with all copies in one tensor (N, …).

    Args:
        module: the module whose training mode and batch norms are set.
        values: parameters and buffers, of one copy or, (N, …), of several.
        n: the number of copies.
        compiled: whether to compile the forward pass.
        part: the path of the module that is trained; the rest is frozen and not among the leaves.
    """

    def __init__(self, module: nn.Module, values: dict[str, Tensor], n: int, compiled: bool, part: str) -> None:
        self.n, self.part, self._module = n, part, module
        parameters = {name: value for name, value in values.items() if isinstance(value, nn.Parameter)}
        self.leaves = {name: value for name, value in parameters.items() if is_within(part, name)}
        for name in parameters.keys() - self.leaves.keys():
            parameters[name].requires_grad_(False)
        rows = zip(*(self.parts(value.detach()) for value in values.values()), strict=True)
        self.tensors = [dict(zip(values, row, strict=True)) for row in rows]
        self._forward: Callable[[Tensor], Outputs] = torch.compile(self.compute) if compiled else self.compute

    def __call__(self, images: Tensor) -> Outputs:
        """The outputs (N * B, …), copy after copy, of each copy on its own images, in training mode."""
        if len(images) == self.n:
            set_training(self._module, 1, self.part)
        try:
            return self._forward(images)
        except torch._dynamo.exc.TorchDynamoException as error:  # public base of what compilation can raise
            cause = " ".join(str(error).strip().splitlines()[:2])
            raise UserError(f"--compile True: the network cannot be compiled here ({cause}); omit --compile") from error

    def prepare(self, trained: Collection[str]) -> None:
        """Make these parameters trainable; the others are frozen and cost nothing in the backward pass."""
        train_part(self._module, self.part)
        for name, leaf in self.leaves.items():
            leaf.requires_grad_(name in trained).grad = None

    @abstractmethod
    def compute(self, images: Tensor) -> Outputs:
        """The forward pass of all copies."""

    @abstractmethod
    def parts(self, tensor: Tensor) -> Sequence[Tensor]:
        """Each copy's part of a leaf, or of a leaf's gradient, as views."""


class OneCopy(Workspace):
    """The model itself."""

    def __init__(self, model: nn.Module, compiled: bool = False, part: str = "") -> None:
        self._model = model
        super().__init__(model, model.state_dict(keep_vars=True), 1, compiled, part)

    def compute(self, images: Tensor) -> Outputs:
        """The model's forward pass."""
        return self._model(images)

    def parts(self, tensor: Tensor) -> Sequence[Tensor]:
        """The tensor."""
        return [tensor]


class StackedCopies(Workspace):
    """Copies with their channels side by side: see `network/stacking.py`."""

    def __init__(self, stacked: nn.Module, n: int, compiled: bool = False, part: str = "") -> None:
        self._stacked = stacked
        super().__init__(stacked, stacked.state_dict(keep_vars=True), n, compiled, part)

    def compute(self, images: Tensor) -> Outputs:
        """One forward pass of the stacked network."""
        together = self._stacked(images.unflatten(0, (self.n, -1)).transpose(0, 1).flatten(1, 2))
        return Outputs(*map(self._apart, together))

    def parts(self, tensor: Tensor) -> Sequence[Tensor]:
        """Its rows."""
        return tensor.unbind()

    def _apart(self, each: Tensor) -> Tensor:
        return each.unflatten(1, (self.n, -1)).transpose(0, 1).flatten(0, 1)


class VmappedCopies(Workspace):
    """Copies of any model, by `torch.func.vmap`."""

    def __init__(self, model: nn.Module, n: int, compiled: bool = False, part: str = "") -> None:
        self._model = model
        self._values: dict[str, Tensor] = {
            name: nn.Parameter(repeated(value.detach(), n)) if isinstance(value, nn.Parameter) else repeated(value, n)
            for name, value in model.state_dict(keep_vars=True).items()
        }
        super().__init__(model, self._values, n, compiled, part)

    def compute(self, images: Tensor) -> Outputs:
        """The model's forward pass, over parameters and images together."""
        with sdpa_kernel(SDPBackend.MATH):  # vmap has no rule for the fused kernels and would go through them in a loop
            of_copies = torch.func.vmap(self._one, randomness="different")
            outputs = of_copies(self._values, images.unflatten(0, (self.n, -1)))
        return Outputs(*(each.flatten(0, 1) for each in outputs))

    def parts(self, tensor: Tensor) -> Sequence[Tensor]:
        """Its rows."""
        return tensor.unbind()

    def _one(self, values: dict[str, Tensor], images: Tensor) -> Outputs:
        return torch.func.functional_call(self._model, values, (images,))


def set_training(module: nn.Module, n_images: int, part: str) -> None:
    """Set a part to training mode for batches of this many images.

    A single image is normalised by the running statistics: PyTorch refuses to train on it where a map has one pixel.
    """
    train_part(module, part)
    if n_images == 1:
        for norm in _batch_norms(module):
            norm.eval()


def workspace(
    model: nn.Module, n: int, image_shape: Sequence[int], compiled: bool = False, part: str = ""
) -> Workspace:
    """The model itself for n = 1; otherwise n copies: stacked if the network allows that, else by vmap."""
    if n == 1:
        return OneCopy(model, compiled, part)
    stacked = stack(model, n)
    if stacked is not None and _agrees(stacked, model, n, image_shape):
        return StackedCopies(stacked, n, compiled, part)
    return VmappedCopies(model, n, compiled, part)


@torch.no_grad()
def _agrees(stacked: nn.Module, model: nn.Module, n: int, image_shape: Sequence[int]) -> bool:
    """Whether a stacked network gives every copy's own output: a module between its layers might mix channels.

    Batch norm uses the batch's statistics, as in training: with the running statistics of a new network, differences
    between images fade from layer to layer, and outputs agree whatever is mixed. For the same reason, the error is
    compared with the differences between images rather than with the outputs.
    """
    images = torch.rand(n, 4, *image_shape, generator=torch.Generator().manual_seed(0)).to(next(model.parameters()))
    statistics = [*model.buffers(), *stacked.buffers()]
    before = [each.clone() for each in statistics]
    for network in (model, stacked):
        network.eval()  # no dropout
        for norm in _batch_norms(network):
            norm.train()
    try:
        together = StackedCopies(stacked, n).compute(images.flatten(0, 1)).output
        alone = torch.cat([model(each).output for each in images])
    except (RuntimeError, IndexError, AssertionError):  # shapes that do not fit
        return False
    finally:
        for each, value in zip(statistics, before, strict=True):
            each.copy_(value)
    if together.shape != alone.shape:
        return False
    # Mixed channels are far off; rounding errors are small, even in half precision.
    return bool((together - alone).abs().max() <= 0.05 * (alone - alone.mean(0)).abs().max())


def _batch_norms(module: nn.Module) -> Iterator[nn.Module]:
    yield from (each for each in module.modules() if isinstance(each, _BatchNorm | StackedBatchNorm))
