"""The Taskonomy decoder: a feature vector in, a map at the image's size out, and from it the task's output.

Taskonomy, Zamir et al. 2018 (arXiv 1804.08328), with the channels of arXiv 2503.14553. CBAM: Woo et al. 2018
(arXiv 1807.06521).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from models.networks.layers import PAPER_STEM, PAPER_WIDTHS, conv_block, normalisation

SCALE = 16  # the decoder starts from a map of 1/16 of the image's size


class Upsample(nn.Module):
    """Stride-2 transposed convolution to twice the size, plus a skip map where there is one, norm, LeakyReLU."""

    def __init__(self, in_channels: int, out_channels: int, norm: str, skip_channels: int | None) -> None:
        super().__init__()
        self.deconv = nn.ConvTranspose2d(in_channels, out_channels, 3, 2, padding=1, output_padding=1, bias=False)
        self.skip = nn.Conv2d(skip_channels, out_channels, 1, bias=False) if skip_channels else None
        self.norm = normalisation(norm, out_channels)
        self.activation = nn.LeakyReLU(0.2)

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """(B, C, H, W) and an optional skip map (B, S, 2H, 2W) to (B, out_channels, 2H, 2W)."""
        x = self.deconv(x)
        if self.skip is not None:
            x = x + self.skip(skip)
        return self.activation(self.norm(x))


class CBAM(nn.Module):
    """Channel attention, then spatial attention, with a residual connection around both."""

    def __init__(self, channels: int, reduction: int = 7) -> None:
        super().__init__()
        hidden = channels // reduction
        self.channel = nn.Sequential(nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, channels))
        self.spatial = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Reweighted features of the shape of `x`, (B, C, H, W)."""
        weight = self.channel(x.amax((2, 3))) + self.channel(x.mean((2, 3)))
        attended = torch.sigmoid(weight)[:, :, None, None] * x
        pooled = torch.cat([attended.amax(1, keepdim=True), attended.mean(1, keepdim=True)], dim=1)
        return torch.sigmoid(self.spatial(pooled)) * attended + x


class TaskonomyDecoder(nn.Module):
    """Linear to 128 maps of 1/16 size, six 3x3 convolutions, four upsampling steps, and the task's head.

    The map before the head, (B, widths[-1], S, S), is the embedding. The published decoder pads its transposed
    convolutions by hand; PyTorch's own padding differs from that by a shift of one pixel and has the same weights.

    Args:
        in_features: length of the encoder's vector.
        out_channels: channels of a dense output, or classes.
        image_size: S, a multiple of 16.
        dense: a 3x3 convolution as head; otherwise Flatten and Linear.
        activation: "tanh" or "identity", after a dense head.
        norm: "batch" or "group"; the embedding itself is normalised by batch norm only.
        use_cbam: attention after the first reshape.
        stem: channels of the first map and of the six convolutions.
        widths: channels of the four upsampling steps.
        skip_channels: channels of the encoder's skip maps at strides 2, 4, …, finest first; empty for none.
    """

    def __init__(
        self,
        in_features: int,
        out_channels: int,
        image_size: int,
        *,
        dense: bool = True,
        activation: str = "tanh",
        norm: str = "batch",
        use_cbam: bool = False,
        stem: Sequence[int] = PAPER_STEM,
        widths: Sequence[int] = PAPER_WIDTHS,
        skip_channels: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.first = (stem[0], image_size // SCALE, image_size // SCALE)
        self.fc = nn.Linear(in_features, math.prod(self.first))
        self.attention = CBAM(stem[0]) if use_cbam else nn.Identity()
        self.stem = nn.Sequential(*(conv_block(a, b, norm) for a, b in pairwise(stem)))
        self.embedding_shape = (widths[-1], image_size, image_size)
        self.n_skips = len(skip_channels)
        channels = (stem[-1], *widths)
        skips = _coarse_first(skip_channels, len(widths))
        # Group norm of the embedding would take each image's own level (how far, how bright) away before the head.
        norms = [norm] * (len(widths) - 1) + ["none" if norm == "group" else norm]
        self.upsamples = nn.ModuleList(
            Upsample(a, b, n, skip) for (a, b), n, skip in zip(pairwise(channels), norms, skips, strict=True)
        )
        # The last step makes the embedding, so that no convolution follows it.
        self.convs = nn.ModuleList([*(conv_block(width, width, norm) for width in widths[:-1]), nn.Identity()])
        if dense:
            last = nn.Tanh() if activation == "tanh" else nn.Identity()
            self.head = nn.Sequential(nn.Conv2d(widths[-1], out_channels, 3, padding=1), last)
        else:
            self.head = nn.Sequential(nn.Flatten(), nn.Linear(widths[-1] * image_size**2, out_channels))

    def forward(self, encoded: Tensor, maps: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
        """Embedding (B, widths[-1], S, S) and output, (B, out_channels, S, S) or (B, classes)."""
        # The channels by what is left: several models in one (network/engine/stacking.py) have theirs side by side.
        x = self.fc(encoded).view(len(encoded), -1, *self.first[1:])
        x = self.stem(self.attention(x))
        levels = _coarse_first(maps[: self.n_skips], len(self.upsamples))
        for upsample, conv, skip in zip(self.upsamples, self.convs, levels, strict=True):
            x = conv(upsample(x, skip))
        return x, self.head(x)


def _coarse_first(skips: Sequence, n: int) -> list:
    """The skips in the order in which the decoder meets them, with None for each of its `n` steps without one."""
    return [*reversed(skips), *[None] * (n - len(skips))]
