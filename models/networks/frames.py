"""Encoders of several photographs at once: their channels stacked, or each by itself and the results joined."""

from __future__ import annotations

from torch import Tensor, nn

from datasets.tasks import RGB
from models.networks.backbones import Encoder
from utils.errors import UserError


def stack_frames(encoder: Encoder, frames: int) -> Encoder:
    """The encoder, whose first convolution sees as many photographs as one image of (B, 3 `frames`, S, S).

    The convolution is drawn anew. As FlowNetS has it (Dosovitskiy et al. 2015, arXiv 1504.06852). UserError where none
    takes the colours.
    """
    first = next((module for module in encoder.modules() if _takes_colours(module)), None)
    if first is None:
        raise UserError("this encoder has no convolution of colours that could take two photographs; give another")
    assert isinstance(first, nn.Conv2d)
    first.in_channels *= frames
    shape = (first.out_channels, first.in_channels, *first.kernel_size)
    first.weight = nn.Parameter(first.weight.new_empty(shape))
    first.reset_parameters()
    encoder.mean, encoder.std = (constant.repeat(1, frames, 1, 1) for constant in (encoder.mean, encoder.std))
    return encoder


def _takes_colours(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and module.in_channels == RGB.channels and module.groups == 1


class FramesApart(Encoder):
    """An encoder that sees each photograph by itself: vectors and maps of all stand side by side, as channels.

    It computes as often as there are photographs, and gives the decoder as many times the channels.
    """

    backbone: Encoder

    def __init__(self, encoder: Encoder, frames: int) -> None:
        statistics = [constant.flatten().tolist() for constant in (encoder.mean, encoder.std)]
        super().__init__(encoder, encoder.out_features * frames, statistics)
        self.frames, self.map_channels = frames, tuple(n * frames for n in encoder.map_channels)

    def take_images_as_they_are(self) -> None:
        """As for `Encoder`: the one inside scales images."""
        self.backbone.take_images_as_they_are()

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Vectors (B, out_features) and maps of images (B, 3 frames, S, S).

        Of N models side by side (`StackedCopies`) there are N times as many channels, a model's behind another's.
        """
        n = images.shape[1] // (RGB.channels * self.frames)
        apart = images.unflatten(1, (n, self.frames, RGB.channels)).movedim(2, 0)
        vectors, maps = self.backbone(apart.flatten(2, 3).flatten(0, 1))

        def joined(values: Tensor) -> Tensor:
            """Values (frames B, N C, …) as (B, N frames C, …)."""
            of_models = values.unflatten(1, (n, -1)).unflatten(0, (self.frames, -1))
            return of_models.movedim(0, 2).flatten(1, 3)

        return joined(vectors), [joined(feature_map) for feature_map in maps]
