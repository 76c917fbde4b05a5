"""The few layers that encoders and decoders share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

NORMS = ("batch", "group")
# The decoder's channels in the paper, at 1/16 of the image's size and after each doubling of it.
PAPER_STEM = (128, 128, 128, 64, 64, 32, 32)
PAPER_WIDTHS = (16, 8, 4, 2)


def normalisation(norm: str, channels: int) -> nn.Module:
    """Batch norm, group norm in groups of eight channels (all of them in one group below that), or "none"."""
    from torch import nn

    if norm == "none":
        return nn.Identity()
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(max(1, channels // 8), channels)


def conv_block(in_channels: int, out_channels: int, norm: str, stride: int = 1) -> nn.Sequential:
    """3x3 convolution, normalisation, LeakyReLU(0.2)."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False),
        normalisation(norm, out_channels),
        nn.LeakyReLU(0.2),
    )
