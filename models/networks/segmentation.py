"""U-Net and DeepLabV3+ on an encoder's maps, from segmentation-models-pytorch.

Ronneberger et al. 2015 (arXiv 1505.04597); Chen et al. 2018 (arXiv 1802.02611), with separable convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence

from segmentation_models_pytorch.base import SegmentationHead
from segmentation_models_pytorch.decoders.deeplabv3.decoder import DeepLabV3PlusDecoder
from segmentation_models_pytorch.decoders.unet.decoder import UnetDecoder
from torch import Tensor, nn

from models.networks.layers import with_group_norms
from utils.errors import UserError

_UNET = (256, 128, 64, 32, 16)  # channels after each doubling, the last at the image's size
_DEEPLAB, _RATES, _DROPOUT = 256, (12, 24, 36), 0.5


class MapDecoder(nn.Module):
    """A decoder of smp's, whose result is the embedding, and a head that brings it to the image's size.

    Args:
        decoder: of the maps from the image's size on.
        embedding_shape: (E, S / stride, S / stride) of its result.
        out_channels: C.
        image_size: S.
        kernel_size: of the head's convolution.
        norm: "batch" or "group", of the decoder.
        activation: "tanh" or "identity", after the head.
    """

    def __init__(
        self,
        decoder: nn.Module,
        embedding_shape: tuple[int, int, int],
        out_channels: int,
        image_size: int,
        kernel_size: int,
        norm: str,
        activation: str,
    ) -> None:
        super().__init__()
        if norm == "group":
            with_group_norms(decoder)
        self.decoder, self.embedding_shape = decoder, embedding_shape
        self.head = SegmentationHead(
            embedding_shape[0],
            out_channels,
            kernel_size,
            nn.Tanh if activation == "tanh" else None,
            upsampling=image_size // embedding_shape[1],
        )

    def forward(self, encoded: Tensor, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Embedding and output (B, C, S, S) of maps at strides 2, 4, …; the vector is not looked at."""
        image = maps[0].new_empty(len(encoded), 0, 2 * maps[0].shape[2], 2 * maps[0].shape[3])
        embedding = self.decoder([image, *maps])  # they look at the image's size, and never at the image
        return embedding, self.head(embedding)


class UNet(MapDecoder):
    """The U-Net decoder on as many maps as the encoder has; the embedding is (B, channels[-1], S, S).

    `channels` are those after each doubling, the coarsest first, by default smp's: 16 at the image's size. UserError
    where there is not one for each map. Other arguments as for `MapDecoder`.
    """

    def __init__(
        self,
        map_channels: Sequence[int],
        out_channels: int,
        image_size: int,
        norm: str,
        activation: str,
        channels: Sequence[int] | None = None,
    ) -> None:
        widths = tuple(channels or _UNET[-len(map_channels) :])
        if len(widths) != len(map_channels):
            raise UserError(
                f"--decoder_channels needs {len(map_channels)} numbers, one for each of this encoder's maps, "
                f"not {len(widths)}"
            )
        decoder = UnetDecoder((3, *map_channels), widths, len(widths))
        super().__init__(decoder, (widths[-1], image_size, image_size), out_channels, image_size, 3, norm, activation)


class DeepLabV3Plus(MapDecoder):
    """The DeepLabV3+ decoder on maps up to stride 16; the embedding is (B, 256, S/4, S/4).

    The pooled map of one image alone has nothing to be normalised by: in training, batches need two images or more.
    """

    def __init__(
        self, map_channels: Sequence[int], out_channels: int, image_size: int, norm: str, activation: str
    ) -> None:
        depth = len(map_channels)
        if depth < 3:
            raise UserError("--decoder deeplabv3plus needs maps at strides 2, 4 and 8 at least; give another --encoder")
        channels = (3, *map_channels)
        decoder = DeepLabV3PlusDecoder(
            channels, depth, _DEEPLAB, _RATES, 16, aspp_separable=True, aspp_dropout=_DROPOUT
        )
        shape = (_DEEPLAB, image_size // 4, image_size // 4)
        super().__init__(decoder, shape, out_channels, image_size, 1, norm, activation)
