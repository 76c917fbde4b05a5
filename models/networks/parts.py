"""Which part of a model is trained, and how fast: what is frozen stays as it is, bit by bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from utils.args import POSITIVE, POSITIVE_INT
from utils.settings import Configured, setting

if TYPE_CHECKING:
    from torch import nn

# What `--train` trains, by the path of its module; `lora` are the decoder and the adapters in the encoder.
LORA = "lora"
TRAINABLE = {"all": "", "decoder": "decoder", "head": "decoder.head", LORA: LORA}
FROZEN_ENCODER = ("decoder", "head")  # of these, what train nothing in the encoder
LORA_A, LORA_B = "lora_A", "lora_B"  # an adapter's parameters
_ENCODER = "encoder."


class Whole(Configured):
    """Tensors are trained as they are."""


class Adapters(Configured):
    """Low-rank adapters beside the encoder's linear layers: LoRA, Hu et al. 2022 (arXiv 2106.09685)."""

    lora_rank: int = setting(8, "rank of the adapters", POSITIVE_INT)
    lora_alpha: float = setting(8.0, "adapters count this much over their rank", POSITIVE)
    lora_targets: Sequence[str] | None = setting(
        None, "names of the encoder's linear layers with adapters, as qkv; default: all", nargs="+"
    )


# The choices of `--train`, as what only they have settings for.
TRAINS: dict[str, type[Configured]] = {part: Adapters if part == LORA else Whole for part in TRAINABLE}


def is_within(part: str, name: str) -> bool:
    """Whether a parameter or buffer belongs to this value of `TRAINABLE`, or the module at this path."""
    if part == LORA:
        return is_within("decoder", name) or name.endswith((f".{LORA_A}", f".{LORA_B}"))
    return not part or name.startswith(f"{part}.")


def lr_factor(name: str, of_encoder: float) -> float:
    """The factor of a parameter's learning rate: `of_encoder` for the encoder's, 1 for the others."""
    return of_encoder if name.startswith(_ENCODER) else 1.0


def set_eval(model: nn.Module) -> nn.Module:
    """The model in eval mode, with nothing kept from weights that it had before.

    Modules that keep there what they make of their weights, as attention biases in timm before 1.0.30, drop it where
    they are set to training mode.
    """
    return model.train().eval()


def train_part(model: nn.Module, part: str) -> None:
    """Training mode for the module at this path, eval mode for the rest; so for an encoder with adapters, too."""
    if part:
        set_eval(model)
    model.get_submodule("decoder" if part == LORA else part).train()


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode for a while; afterwards every module is in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
