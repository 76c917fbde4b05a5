"""What weights were trained with, and a file of them does not say: the activation, and how images were scaled."""

from __future__ import annotations

from argparse import SUPPRESS
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from utils.args import Group, number

if TYPE_CHECKING:
    from torch import nn

LOCAL = "local-dir:"  # timm's prefix of a folder
QUICK_GELU = "QuickGELU"
# OpenAI's archives hold these numbers beside the weights; open_clip and timm, which convert them, leave them out.
_OPENAI = {"input_resolution", "context_length", "vocab_size"}
_CLIP = "visual.transformer."
_GATES = {"Sigmoid", "Hardsigmoid", "HardSigmoid", "HardSigmoidMe", "Softmax", "LogSoftmax", "MultiheadAttention"}
# Images are in [0, 1].
_BOUNDS = {"mean": number(float, least=0, most=1), "std": number(float, above=0, most=1)}
LONG = {"mean": "mean", "std": "standard deviation"}


class Scaling(NamedTuple):
    """Mean and standard deviation of red, green and blue, by which images in [0, 1] are scaled; None: the network's."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any], prefix: str = "image") -> Scaling:
        """From settings or arguments `<prefix>_mean` and `<prefix>_std`."""
        values = map(content.get, scaling_arguments(prefix))
        return cls(*(tuple(value) if value else None for value in values))

    def settings(self) -> dict[str, list[float]]:
        """What `of` takes, as JSON has it, of what is given."""
        return {f"image_{name}": list(value) for name, value in self._asdict().items() if value}

    def or_of(self, other: Scaling) -> Scaling:
        """These values, and where they are None the other's."""
        return Scaling(self.mean or other.mean, self.std or other.std)


OWN_SCALING = Scaling()  # the network's


def scaling_arguments(prefix: str) -> list[str]:
    """The names of the arguments that `Scaling.of` reads, the mean's first."""
    return [f"{prefix}_{name}" for name in Scaling._fields]


def add_scaling(group: Group, prefix: str, of: str) -> None:
    """`--image_mean` and `--image_std`, which `Scaling.of` reads; arguments that are not given do not exist."""
    for name, of_bounds in _BOUNDS.items():
        group.add_argument(
            f"--image_{name}",
            dest=f"{prefix}_{name}",
            type=of_bounds,
            nargs=3,
            metavar=("R", "G", "B"),
            default=SUPPRESS,
            help=f"{LONG[name]} by which {of} scales images in [0, 1]; default: as it was published",
        )


def is_openais(names: Mapping[str, Any]) -> bool:
    """Whether tensors have the names of the CLIP that OpenAI published, with what its archives hold beside weights."""
    return {name.rpartition(".")[2] for name in names} >= _OPENAI


def is_clip(names: Mapping[str, Any]) -> bool:
    """Whether tensors have the names of a CLIP with a transformer for images, whoever trained it."""
    return any(_CLIP in name for name in names)


def activation_of(network: nn.Module) -> str:
    """The class of most of a network's activations; empty where it has no module of any."""
    kinds = (type(module) for module in network.modules())
    counts = Counter(
        kind.__name__
        for kind in kinds
        if (".activation" in kind.__module__ or "GELU" in kind.__name__) and kind.__name__ not in _GATES
    )
    return counts.most_common(1)[0][0] if counts else ""


def with_quick_gelu(network: nn.Module) -> str:
    """The name of timm's network like this one, but with QuickGELU; empty where it has none."""
    import timm

    stem, is_clip, size = str(published_config(network).get("architecture", "")).partition("_clip_")
    likes = timm.list_models(f"{stem}_clip_quickgelu_*") if is_clip else []
    same = f"{stem}_clip_quickgelu_{size}"
    return same if same in likes else next(iter(likes), "")


def published_config(network: nn.Module) -> Mapping[str, Any]:
    """Timm's configuration of a network, or of what is in an encoder."""
    candidates = (network, getattr(network, "backbone", None))
    return next(
        (published for candidate in candidates if (published := getattr(candidate, "pretrained_cfg", None))), {}
    )
