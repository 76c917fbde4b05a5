"""FCOS as a decoder: a feature pyramid on an encoder's skip maps, and torchvision's head on each of its levels.

Tian et al. 2019 (arXiv 1904.01355) and 2020 (arXiv 2006.09214); feature pyramids: Lin et al. 2017 (arXiv 1612.03144).
One stage, a pyramid and dense targets are what it shares with the YOLOv5 of FedCV, whose licence (AGPL) keeps it out;
not CSP blocks, mosaics or YOLO's assignment.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.detection.fcos import FCOSClassificationHead, FCOSRegressionHead
from torchvision.ops import FeaturePyramidNetwork
from torchvision.ops.feature_pyramid_network import ExtraFPNBlock

from datasets.pyramid import LEVELS, Points, finest_stride, pyramid_points
from datasets.tasks import GRID
from models.networks.layers import normalisation
from utils.errors import UserError


class FCOSDecoder(nn.Module):
    """From skip maps to an embedding and the detector's output; see `datasets/pyramid.py`.

    The levels are the skip maps from the finest stride on, and coarser ones that are made of the last. The embedding
    is what stands before the last layers, where something is found: the maps of the two towers, side by side, times the
    score of their point (as a number: no gradient flows through it), as means in a grid of 8 by 8 cells, summed over
    the levels. Most points show nothing, and without the scores these would outweigh the objects.

    Args:
        skip_channels: channels of the encoder's maps at strides 2, 4, …, finest first; UserError where they end before
            the finest level.
        n_classes: C.
        image_size: S, a multiple of 16.
        channels: of the pyramid and the towers, a multiple of 8.
        n_convs: 3x3 convolutions of a tower.
    """

    def __init__(
        self, skip_channels: Sequence[int], n_classes: int, image_size: int, channels: int = 64, n_convs: int = 4
    ) -> None:
        super().__init__()
        finest = finest_stride(image_size)
        self._used = slice(finest.bit_length() - 2, None)  # skip map i has the stride 2 << i
        used = list(skip_channels[self._used])
        if not used:
            raise UserError(
                "a detector needs an encoder with skip maps; make the model with --encoder tiny, resnet18 or another "
                "convolutional network"
            )
        self.pyramid = FeaturePyramidNetwork(used, channels, extra_blocks=_Coarser(channels, LEVELS - len(used)))
        self.head = FCOSHead(channels, n_classes, n_convs)
        self.embedding_shape = (2 * channels, GRID, GRID)
        self.points: Tensor
        self.register_buffer("points", pyramid_points(image_size), persistent=False)

    def forward(self, encoded: Tensor, skips: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
        """Embedding (B, 2 channels, 8, 8) and output (B, A, C + 8); the vector is not looked at."""
        levels = self.pyramid({str(number): level for number, level in enumerate(skips[self._used])})
        towers = [self.head.towers(level) for level in levels.values()]
        outputs = torch.cat([self.head(*maps) for maps in towers], dim=1)
        output = torch.cat([outputs, self.points.expand(len(outputs), -1, -1)], dim=2)
        best = (
            Points.of(output.detach()).scores.amax(-1).split([level[0, 0].numel() for level in levels.values()], dim=1)
        )
        positions = [_where_found(torch.cat(maps, dim=1), scores) for maps, scores in zip(towers, best, strict=True)]
        return torch.stack(positions).sum(0), output


class FCOSHead(nn.Module):
    """torchvision's head, shared by all levels, which shows what its towers make before the last layers.

    Its norms have groups of eight channels, as everywhere here; torchvision's would have one or two here.
    """

    def __init__(self, channels: int, n_classes: int, n_convs: int) -> None:
        super().__init__()
        self.classes = FCOSClassificationHead(channels, 1, n_classes, n_convs, norm_layer=_norm)
        self.boxes = FCOSRegressionHead(channels, 1, n_convs, norm_layer=_norm)

    def towers(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """Maps like the level's, (B, channels, H, W), for classes and for boxes."""
        return self.classes.conv(level), self.boxes.conv(level)

    def forward(self, of_classes: Tensor, of_boxes: Tensor) -> Tensor:
        """What it says of the points of one level, (B, H W, C + 5), from the towers' maps."""
        distances = F.relu(self.boxes.bbox_reg(of_boxes))
        maps = [self.classes.cls_logits(of_classes), distances, self.boxes.bbox_ctrness(of_boxes)]
        return torch.cat(maps, dim=1).flatten(2).transpose(1, 2)


def _where_found(maps: Tensor, scores: Tensor) -> Tensor:
    """Maps (B, D, H, W) times their points' scores (B, H W), as means in a grid, (B, D, 8, 8); smaller are enlarged."""
    weighted = maps * scores.unflatten(1, maps.shape[2:]).unsqueeze(1)
    if min(maps.shape[2:]) >= GRID:
        return F.adaptive_avg_pool2d(weighted, GRID)
    return F.interpolate(weighted, (GRID, GRID), mode="bilinear", align_corners=False)


class _Coarser(ExtraFPNBlock):
    """Levels of half the size each, by stride-2 convolutions; two of them are torchvision's `LastLevelP6P7`."""

    def __init__(self, channels: int, n_levels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, 2, 1) for _ in range(n_levels))

    def forward(self, p: list[Tensor], c: list[Tensor], names: list[str]) -> tuple[list[Tensor], list[str]]:
        """The levels `p` and their names, with the further ones."""
        for number, conv in enumerate(self.convs):
            p.append(conv(F.relu(p[-1]) if number else p[-1]))
            names.append(f"coarser{number}")
        return p, names


def _norm(channels: int) -> nn.Module:
    return normalisation("group", channels)
