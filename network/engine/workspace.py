"""Working copies of the model, in which clients train: one, or several that are computed at once."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from models.networks.parts import is_within, set_eval, train_part
from models.networks.task_model import Outputs
from network.aggregation.weighted_sum import sum_type
from network.engine.client import copy_into
from network.engine.stacking import StackedBatchNorm, repeated, stack
from utils.errors import UserError

NOT_SIDE_BY_SIDE = "copies of this network that train side by side do not end where each does alone"
# Copies side by side are compared with the model in a step of so many copies on so many images each. Where they compute
# the same, numbers differ by less than a millionth in double precision; where channels are mixed, by a tenth and more.
_COPIES, _IMAGES, _ROUNDING = 2, 4, 1e-3
_PATTERN = 4093  # random numbers that a weight's are repeated from: large networks have too many to draw each


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
    """Copies with their channels side by side: see `stacking.py`; ValueError where a layer does not stack."""

    def __init__(self, model: nn.Module, n: int, compiled: bool = False, part: str = "") -> None:
        stacked = stack(model, n)
        if stacked is None:
            raise ValueError("the network has a layer that does not stack")
        self._stacked = stacked
        super().__init__(stacked, stacked.state_dict(keep_vars=True), n, compiled, part)

    def compute(self, images: Tensor) -> Outputs:
        """One forward pass of the stacked network."""
        together = self._stacked(images.unflatten(0, (self.n, -1)).transpose(0, 1).flatten(1, 2))
        return Outputs(*map(self._apart, together))

    def parts(self, tensor: Tensor) -> Sequence[Tensor]:
        """Its rows."""
        return tensor.unbind()

    def _apart(self, tensor: Tensor) -> Tensor:
        return tensor.unflatten(1, (self.n, -1)).transpose(0, 1).flatten(0, 1)


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
        return Outputs(*(output.flatten(0, 1) for output in outputs))

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


class Workspaces:
    """Makes workspaces of a model: itself, or n copies that are stacked if the network allows that, else by vmap.

    Modules between the layers may mix the copies' channels, and vmap does not know every operation. Neither can be told
    from code, so that a way is taken only where a step of copies with other weights each ends where each copy's own
    step does. That is tried once, when copies are first wanted, and draws no random numbers of the run.

    Args:
        model: what copies are made of.
        image_shape: of an image, without the batch.
        compiled: whether to compile forward passes.
        part: the path of the module that is trained.
    """

    def __init__(self, model: nn.Module, image_shape: Sequence[int], compiled: bool = False, part: str = "") -> None:
        self._model, self._image_shape, self._compiled, self._part = model, tuple(image_shape), compiled, part

    def __call__(self, n: int) -> Workspace:
        """A workspace of n copies; UserError where they cannot be trained side by side."""
        if n == 1:
            return OneCopy(self._model, self._compiled, self._part)
        if self._way is None:
            raise UserError(f"--vectorised_clients {n}: {NOT_SIDE_BY_SIDE}; give --vectorised_clients 1")
        return self._way(self._model, n, self._compiled, self._part)

    @property
    def side_by_side(self) -> bool:
        """Whether several copies can train at once."""
        return self._way is not None

    @cached_property
    def _way(self) -> type[StackedCopies] | type[VmappedCopies] | None:
        parameter = next(self._model.parameters())
        trial = copy.deepcopy(self._model).to(sum_type(parameter.device))
        # On a copy of its own: some modules keep what vmap made, which nothing outside it can read.
        alone = OneCopy(copy.deepcopy(trial), part=self._part)
        start = {name: tensor.clone() for name, tensor in alone.tensors[0].items()}
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(_COPIES, _IMAGES, *self._image_shape, generator=generator).to(next(trial.parameters()))
        for way in (StackedCopies, VmappedCopies):
            try:
                outcomes = _steps(way(trial, _COPIES, part=self._part), images, range(_COPIES))
            except torch.OutOfMemoryError:
                raise
            except Exception:  # whatever a network raises whose shapes do not fit, or vmap
                continue
            for i, mine in enumerate(outcomes):
                copy_into(alone.tensors[0], start)
                if not _agree(mine, *_steps(alone, images[[i]], [i])):
                    break
            else:
                return way
        return None


def workspace(
    model: nn.Module, n: int, image_shape: Sequence[int], compiled: bool = False, part: str = ""
) -> Workspace:
    """A workspace of n copies of a model, as `Workspaces` makes them."""
    return Workspaces(model, image_shape, compiled, part)(n)


def _steps(copies: Workspace, images: Tensor, numbers: Sequence[int]) -> list[list[list[Tensor]]]:
    """What a step of copies with these numbers computes on images (n, B, …): outputs, gradients and moved statistics.

    Weights are other ones than the model's, by the copy's number: timm starts the last scale of a block at zero, with
    which the block adds nothing. Dropout is off; batch norm uses the batch's statistics, as in training: with the
    running ones of a new network, differences between images fade from layer to layer, whatever is mixed.
    """
    generators = [torch.Generator().manual_seed(number) for number in numbers]
    weights = {name for name, _ in copies._module.named_parameters(remove_duplicate=False)}
    for tensors, generator in zip(copies.tensors, generators, strict=True):
        for name, tensor in tensors.items():
            if name in weights:
                _perturb(tensor, generator)
    set_eval(copies._module)  # what modules keep in eval mode is of other weights
    for norm in _batch_norms(copies._module):
        norm.train()
    with torch.enable_grad():
        for leaf in copies.leaves.values():
            leaf.requires_grad_(True)
        outputs = [output.unflatten(0, (copies.n, -1)) for output in copies.compute(images.flatten(0, 1))]
        loss = sum(
            (of_copy * torch.randn(of_copy.shape, generator=generator).to(of_copy)).sum()
            for output in outputs
            for of_copy, generator in zip(output, generators, strict=True)
        )
        gradients = torch.autograd.grad(loss, list(copies.leaves.values()), materialize_grads=True)
    rows = zip(*(copies.parts(gradient) for gradient in gradients), strict=True)
    moved = [[tensor for name, tensor in tensors.items() if name not in weights] for tensors in copies.tensors]
    return [[[output[i].detach() for output in outputs], list(row), moved[i]] for i, row in enumerate(rows)]


def _perturb(weight: Tensor, generator: torch.Generator) -> None:
    """Multiply a weight by factors from 0.5 to 1.5, and add noise that keeps the size of what is computed with it."""
    fan_in = weight[0].numel() if weight.ndim > 1 else 1
    factors = torch.rand(_PATTERN, generator=generator) + 0.5
    noise = torch.randn(_PATTERN, generator=generator) * 0.5 / max(fan_in, 4) ** 0.5
    for drawn, change in ((factors, weight.mul_), (noise, weight.add_)):
        change(drawn.repeat(-(-weight.numel() // _PATTERN))[: weight.numel()].view(weight.shape).to(weight))


def _agree(some: Sequence[Sequence[Tensor]], others: Sequence[Sequence[Tensor]]) -> bool:
    """Whether tensors are the same but for rounding, each by its largest number, and by the largest of its kind."""
    for mine, theirs in zip(some, others, strict=True):
        if any(one.shape != other.shape for one, other in zip(mine, theirs, strict=True)):
            return False
        pairs = [(one.double(), other.double()) for one, other in zip(mine, theirs, strict=True) if one.numel()]
        largest = max((float(other.abs().max()) for _, other in pairs), default=0.0)
        for one, other in pairs:
            if not (one - other).abs().max() <= _ROUNDING * (other.abs().max() + _ROUNDING * largest):
                return False
    return True


def _batch_norms(module: nn.Module) -> Iterator[nn.Module]:
    yield from (layer for layer in module.modules() if isinstance(layer, _BatchNorm | StackedBatchNorm))
