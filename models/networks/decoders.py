"""Decoders: from what an encoder gives to the embedding and the task's output.

One entry in `DECODERS` is all that another decoder needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from datasets.tasks import get_task
from utils.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from datasets.tasks import Task
    from models.networks.backbones import Encoder
    from models.networks.config import ModelConfig


class Decoder(Protocol):
    """The module that an entry builds."""

    @property
    def embedding_shape(self) -> tuple[int, ...]:
        """Of an image's embedding."""

    @property
    def head(self) -> nn.Module:
        """The last layer, which methods with a personal head keep."""

    def __call__(self, encoded: Tensor, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Embedding (B, *embedding_shape) and output of an encoder's vectors (B, F) and maps at strides 2, 4, …"""


@dataclass(frozen=True)
class DecoderEntry:
    """How to build a decoder, and for what.

    `suits` says whether it can do a task, and `does` in words which it can. `most_stride` is the largest stride of the
    encoder's maps that the decoder takes, None where it takes the vector (and at most the maps made on the way to it).
    `options` are the settings of a model that this decoder reads and not every other. `version` is raised by one where
    the decoder's numbers change.
    """

    build: Callable[[ModelConfig, Task, Encoder], Decoder]
    does: str
    suits: Callable[[Task], bool]
    most_stride: int | None = None
    options: tuple[str, ...] = ()
    version: int = 1


def _taskonomy(config: ModelConfig, task: Task, encoder: Encoder) -> Decoder:
    from models.networks.encoders import encoder_entry
    from models.networks.taskonomy import TaskonomyDecoder

    entry = encoder_entry(config.encoder)
    return TaskonomyDecoder(
        encoder.out_features,
        task.out_channels,
        config.image_size,
        dense=task.dense,
        activation=task.activation,
        norm=config.norm,
        use_cbam=config.use_cbam,
        stem=entry.stem,
        widths=entry.widths,
        skip_channels=encoder.map_channels[: entry.n_skips],
    )


def _linear(config: ModelConfig, task: Task, encoder: Encoder) -> Decoder:
    from models.networks.linear import LinearDecoder

    return LinearDecoder(encoder.out_features, task.out_channels, config.bottleneck)


def _unet(config: ModelConfig, task: Task, encoder: Encoder) -> Decoder:
    from models.networks.segmentation import UNet

    return UNet(
        encoder.map_channels,
        task.out_channels,
        config.image_size,
        config.norm,
        task.activation,
        config.decoder_channels,
    )


def _deeplabv3plus(config: ModelConfig, task: Task, encoder: Encoder) -> Decoder:
    from models.networks.segmentation import DeepLabV3Plus

    return DeepLabV3Plus(encoder.map_channels, task.out_channels, config.image_size, config.norm, task.activation)


def _fcos(config: ModelConfig, task: Task, encoder: Encoder) -> Decoder:
    from models.detection.fcos import FCOSDecoder
    from models.networks.encoders import encoder_entry

    channels, n_convs = encoder_entry(config.encoder).pyramid
    return FCOSDecoder(encoder.map_channels, task.out_channels, config.image_size, channels, n_convs)


def _is_map(task: Task) -> bool:
    return task.dense


def _is_class(task: Task) -> bool:
    return not task.dense and not task.boxes


def _is_map_or_class(task: Task) -> bool:
    return not task.boxes


def _is_boxes(task: Task) -> bool:
    return task.boxes


DECODERS: dict[str, DecoderEntry] = {
    "taskonomy": DecoderEntry(_taskonomy, "maps and classes", _is_map_or_class, options=("use_cbam",)),
    "linear": DecoderEntry(_linear, "classes", _is_class, options=("bottleneck",)),
    "unet": DecoderEntry(_unet, "maps", _is_map, most_stride=32, options=("decoder_channels",)),
    "deeplabv3plus": DecoderEntry(_deeplabv3plus, "maps", _is_map, most_stride=16),
    "fcos": DecoderEntry(_fcos, "boxes", _is_boxes, most_stride=32, version=2),
}


def with_decoder(config: ModelConfig) -> ModelConfig:
    """The settings, with a decoder where they name none: the encoder's own, or the first that can do the task."""
    from models.networks.encoders import encoder_entry

    if config.decoder:
        return config
    own, task = encoder_entry(config.encoder).decoder, get_task(config.task)
    return replace(config, decoder=next(name for name in (own, *DECODERS) if DECODERS[name].suits(task)))


def decoder_entry(config: ModelConfig, task: Task) -> DecoderEntry:
    """The entry of a model's decoder.

    UserError if there is none, if it cannot do the task, or for settings that only other decoders read.
    """
    if config.decoder not in DECODERS:
        raise UserError(f"unknown decoder {config.decoder!r}; --decoder takes one of {', '.join(DECODERS)}")
    entry = DECODERS[config.decoder]
    if not entry.suits(task):
        others = " or ".join(name for name, other in DECODERS.items() if other.suits(task))
        raise UserError(
            f"--decoder {config.decoder} is for {entry.does}, not for --task {task.name}; give --decoder {others}"
        )
    for name, other in DECODERS.items():
        for option in set(other.options) - set(entry.options):
            if getattr(config, option):
                raise UserError(f"--{option} is not an argument of --decoder {config.decoder} but of {name}; omit it")
    return entry
