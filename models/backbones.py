"""The networks of the encoders: images (B, 3, S, S) in [0, 1] to a feature vector and skip maps; see `encoders.py`."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from models.layers import conv_block

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
CENTRED = ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


class Encoder(nn.Module):
    """A backbone that maps normalised images to feature vectors, without skip connections."""

    skip_channels: tuple[int, ...] = ()
    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, out_features: int, statistics: tuple) -> None:
        super().__init__()
        self.backbone, self.out_features = backbone, out_features
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in statistics)
        # Constants of the input, not weights: they are neither saved nor averaged.
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", std, persistent=False)

    def take_images_as_they_are(self) -> None:
        """Leave out the normalisation, as the published code does, whose CLIP sees colours that it was not made for."""
        self.mean.zero_()
        self.std.fill_(1.0)

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Features (B, out_features) of images (B, 3, S, S) in [0, 1], and no skip maps."""
        return self.backbone((images - self.mean) / self.std), []


class TinyEncoder(Encoder):
    """Four 3x3 convolutions with stride 2, for small images on a CPU; all maps but the last are skip maps.

    It has no layer at full resolution: on a CPU such a layer costs as much as all others together.
    """

    skip_channels = (16, 32, 48)

    def __init__(self, image_size: int, norm: str, out_features: int = 128) -> None:
        widths = (3, *self.skip_channels, 64)
        blocks = [conv_block(a, b, norm, stride=2) for a, b in pairwise(widths)]
        super().__init__(nn.Sequential(*blocks), out_features, CENTRED)
        self.project = nn.Linear(widths[-1] * (image_size // 16) ** 2, out_features)

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Features (B, out_features) and the maps at strides 2, 4 and 8."""
        maps = [(images - self.mean) / self.std]
        for block in self.backbone.children():
            maps.append(block(maps[-1]))
        return self.project(maps[-1].flatten(1)), maps[1:-1]
