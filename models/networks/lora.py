"""Low-rank adapters: an encoder's linear layers compute with W + (alpha / rank) B A where W stays as it was.

Hu et al. 2021 (arXiv 2106.09685). While a model trains, its tensors have A and B apart, beside W under the name that it
had before; `merged` makes one weight of them in what is saved for later stages, which so need not know of adapters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from datasets.tasks import get_task
from models.networks.config import ModelConfig
from models.networks.parts import LORA_A, LORA_B, Adapters, in_eval_mode
from utils.errors import UserError
from utils.settings import Configured
from utils.streams import derived_seed

_SCALE = "lora_scale"


class LoraLinear(nn.Linear):
    """A linear layer with an adapter: A (rank, in) is random at first, as in peft, and B (out, rank) is 0.

    Weight and bias are the layer's own. The scale is a buffer, so that a checkpoint says all that `merged` needs.
    """

    lora_scale: Tensor

    def __init__(self, layer: nn.Linear, rank: int, alpha: float, generator: torch.Generator) -> None:
        super().__init__(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.lora_A = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))
        self.lora_B = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
        self.register_buffer(_SCALE, layer.weight.new_tensor(alpha / rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5), generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) to (…, out)."""
        return super().forward(x) + self.lora_scale * F.linear(F.linear(x, self.lora_A), self.lora_B)


def adapt(encoder: nn.Module, config: ModelConfig, adapters: Configured, seed: int) -> None:
    """Give the encoder of a model with this config `Adapters`, drawn by the seed; anything else changes nothing.

    The encoder, on the CPU, computes what it did before. UserError where it has no linear layers, or none of the names
    in `--lora_targets`, or one that is smaller than the rank.
    """
    if not isinstance(adapters, Adapters):
        return
    rank, targets = adapters.lora_rank, adapters.lora_targets
    layers = _linear_layers(encoder, (1, get_task(config.task).in_channels, config.image_size, config.image_size))
    if not layers:
        raise UserError(
            f"--train lora: --encoder {config.encoder} has no linear layers to adapt; give a transformer of timm, "
            "or train all or the decoder"
        )
    names = sorted({path.rpartition(".")[2] for path in layers})
    taken = [path for path in layers if targets is None or _is_one_of(path, targets)]
    for target in targets or ():
        if not any(_is_one_of(path, [target]) for path in taken):
            raise UserError(
                f"--lora_targets {target}: no linear layer of --encoder {config.encoder} that can be adapted has this "
                f"name; there are {', '.join(names)}"
            )
    least, smallest = min((min(layers[path].weight.shape), path) for path in taken)
    if rank > least:
        size = " x ".join(map(str, layers[smallest].weight.shape))
        raise UserError(
            f"--lora_rank {rank} is larger than {smallest} of --encoder {config.encoder}, {size}; give at most "
            f"{least}, or --lora_targets for other layers of {', '.join(names)}"
        )
    generator = torch.Generator().manual_seed(derived_seed("lora", seed))
    for path in taken:
        encoder.set_submodule(path, LoraLinear(layers[path], rank, adapters.lora_alpha, generator))


def merged(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A model's tensors with its adapters made part of the weights, under the names of a model without adapters."""
    plain = dict(tensors)
    for name in tensors:
        if name.endswith(f".{_SCALE}"):
            layer = name.removesuffix(_SCALE)
            scale, a, b = (plain.pop(f"{layer}{part}") for part in (_SCALE, LORA_A, LORA_B))
            plain[f"{layer}weight"] = plain[f"{layer}weight"] + scale * (b @ a)
    return plain


def adapters(tensors: Mapping[str, Tensor]) -> dict[str, object]:
    """The shapes and scales of the adapters among a model's tensors: what a checkpoint must have in common with it."""
    return {
        name: float(tensor) if name.endswith(_SCALE) else tuple(tensor.shape)
        for name, tensor in tensors.items()
        if name.endswith((f".{LORA_A}", f".{LORA_B}", f".{_SCALE}"))
    }


def _is_one_of(path: str, targets: Sequence[str]) -> bool:
    return any(f".{path}".endswith(f".{target}") for target in targets)


@torch.no_grad()
def _linear_layers(encoder: nn.Module, shape: tuple[int, ...]) -> dict[str, nn.Linear]:
    """The encoder's linear layers by path, without those that are not called with images of this shape.

    Some networks read a layer's weight and compute the product themselves, which would pass an adapter by.
    """
    layers = {path: module for path, module in encoder.named_modules() if type(module) is nn.Linear}
    called: set[nn.Module] = set()
    hooks = [layer.register_forward_pre_hook(lambda layer, _: called.add(layer)) for layer in layers.values()]
    with in_eval_mode(encoder):
        encoder(torch.zeros(shape))
    for hook in hooks:
        hook.remove()
    return {path: layer for path, layer in layers.items() if layer in called}
