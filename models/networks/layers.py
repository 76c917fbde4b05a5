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
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(n_groups(channels), channels)


def n_groups(channels: int) -> int:
    """Groups of eight channels, or of the next number that divides them all; one group below that."""
    return next(groups for groups in range(max(1, channels // 8), 0, -1) if channels % groups == 0)


def with_group_norms(module: nn.Module) -> None:
    """Replace all batch norms within a module by group norms that keep their scales and shifts.

    timm's batch norms contain the activation and a dropping of features, which stay.
    """
    from torch import nn

    for name, layer in list(module.named_children()):
        if not isinstance(layer, nn.BatchNorm2d):
            with_group_norms(layer)
            continue
        from timm.layers import BatchNormAct2d, GroupNormAct  # takes seconds, and our own networks have none

        groups, channels = n_groups(layer.num_features), layer.num_features
        group_norm = nn.GroupNorm(groups, channels)
        if isinstance(layer, BatchNormAct2d):
            group_norm = GroupNormAct(channels, groups)
            group_norm.drop, group_norm.act = layer.drop, layer.act
        group_norm.weight, group_norm.bias = layer.weight, layer.bias
        module.register_module(name, group_norm)


def conv_block(in_channels: int, out_channels: int, norm: str, stride: int = 1) -> nn.Sequential:
    """3x3 convolution, normalisation, LeakyReLU(0.2)."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False),
        normalisation(norm, out_channels),
        nn.LeakyReLU(0.2),
    )
