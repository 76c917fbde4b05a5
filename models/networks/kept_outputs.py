"""A model behind a frozen encoder whose outputs are kept: it takes rows of them in the place of images.

The engine sees a model without an encoder, so that nothing of it is copied, stacked, trained or computed per step;
`whole` puts it back for what is saved and counted.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

_Model = TypeVar("_Model", bound=nn.Module)


@dataclass(frozen=True)
class Layout:
    """What a row (K,) of an encoder's outputs holds, one after another: its vector (F,) and its maps (H, W, C).

    A map that the decoder does not look at has C = 0: its size stays known.
    """

    encoded: int
    maps: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, encoded: Tensor, maps: Sequence[Tensor], taken: Sequence[bool]) -> Layout:
        """The layout of outputs like these (B, F) and (B, C, H, W), without the maps that are not taken."""
        shapes = [
            (*feature_map.shape[2:], feature_map.shape[1] * take) for feature_map, take in zip(maps, taken, strict=True)
        ]
        return cls(encoded.shape[1], tuple(shapes))

    @property
    def sizes(self) -> list[int]:
        """The lengths of a row's parts."""
        return [self.encoded, *map(math.prod, self.maps)]

    def pack(self, encoded: Tensor, maps: Sequence[Tensor]) -> Tensor:
        """Rows (B, K) float32 of an encoder's outputs."""
        levels = zip(maps, self.maps, strict=True)
        parts = [
            encoded,
            *(feature_map.permute(0, 2, 3, 1)[..., :channels].flatten(1) for feature_map, (*_, channels) in levels),
        ]
        return torch.cat([part.float() for part in parts], dim=1)

    def unpack(self, rows: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The outputs in rows (B, K); maps have the memory order that convolutions prefer.

        Rows (B, N K) of N models side by side (`StackedCopies`) give outputs with their channels side by side.
        """
        encoded, *flat = rows.unflatten(1, (-1, sum(self.sizes))).split(self.sizes, dim=2)
        maps = [
            part.unflatten(2, shape).permute(0, 2, 3, 1, 4).flatten(3).permute(0, 3, 1, 2)
            for part, shape in zip(flat, self.maps, strict=True)
        ]
        return encoded.flatten(1), maps


class KeptOutputs(nn.Module):
    """Stands in an encoder's place and gives what a row says that the encoder has given.

    It has no parameters, and the encoder is not among its modules.

    Args:
        encoder: what it stands for.
        layout: of the rows.
        flops: operations that the encoder takes for an image.
    """

    def __init__(self, encoder: nn.Module, layout: Layout, flops: int) -> None:
        super().__init__()
        self.layout, self.flops = layout, flops
        self._hidden = (encoder,)

    @property
    def encoder(self) -> nn.Module:
        """The encoder, which is frozen."""
        return self._hidden[0]

    def __deepcopy__(self, memo: dict) -> KeptOutputs:
        """Itself: copies of a model have nothing of an encoder that never changes."""
        return self

    def forward(self, rows: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The encoder's vectors and maps, from rows (B, K) of its outputs."""
        return self.layout.unpack(rows)


def behind(model: _Model, layout: Layout, flops: int) -> _Model:
    """The same model, sharing all weights, which takes rows of its encoder's outputs for images."""
    return _with_encoder(model, KeptOutputs(model.get_submodule("encoder"), layout, flops))


def full_model(model: _Model) -> _Model:
    """The model with its encoder, sharing all weights, where it is behind kept outputs; otherwise itself."""
    encoder = getattr(model, "encoder", None)
    return _with_encoder(model, encoder.encoder) if isinstance(encoder, KeptOutputs) else model


def kept_flops(model: nn.Module) -> int:
    """Operations that the encoder behind kept outputs would take for an image; 0 without."""
    return sum(module.flops for module in model.modules() if isinstance(module, KeptOutputs))


def load_full_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> bool:
    """Load a whole model's tensors; False, without loading, if kept outputs are not those of this encoder."""
    mine, all_of_it = model.state_dict(), full_model(model)
    aside = {name: tensor for name, tensor in all_of_it.state_dict().items() if name not in mine}
    if any(name not in tensors or not torch.equal(tensors[name], tensor.cpu()) for name, tensor in aside.items()):
        return False
    all_of_it.load_state_dict(tensors)
    return True


def _with_encoder(model: _Model, encoder: nn.Module) -> _Model:
    other = copy.copy(model)
    other._modules = model._modules | {"encoder": encoder}
    return other
