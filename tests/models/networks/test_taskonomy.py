"""The Taskonomy decoder's shapes and numbers of parameters against counts made by hand, and attention against NumPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.signal import correlate2d
from torch import nn

from models.networks.layers import PAPER_STEM, PAPER_WIDTHS
from models.networks.taskonomy import CBAM, TaskonomyDecoder
from tests.models.small_networks import n_parameters


def counted(
    in_features: int, out_channels: int, size: int, stem: tuple[int, ...], widths: tuple[int, ...], dense: bool
) -> int:
    """A decoder's parameters with batch or group norm (two numbers per channel) everywhere."""
    first = stem[0] * (size // 16) ** 2
    count = in_features * first + first
    count += sum(9 * a * b + 2 * b for a, b in pairwise(stem))  # convolutions
    count += sum(9 * a * b + 2 * b for a, b in pairwise((stem[-1], *widths)))  # transposed convolutions
    count += sum(9 * w * w + 2 * w for w in widths[:-1])  # and the convolutions after them
    last = widths[-1] * (9 if dense else size**2)
    return count + last * out_channels + out_channels


# The decoder


def test_paper_decoder_has_13313471_parameters() -> None:
    # First map 512 · 25,088 + 25,088 = 12,870,144. Six convolutions with norm: 2 · (9·128·128 + 256) = 295,424,
    # 9·128·64 + 128 = 73,856, 9·64·64 + 128 = 36,992, 9·64·32 + 64 = 18,496, 9·32·32 + 64 = 9,280.
    # Four times up: 4,640 + 1,168 + 296 + 76; three convolutions after them: 2,336 + 592 + 152; head 18 + 1.
    assert 12_870_144 + 295_424 + 73_856 + 36_992 + 18_496 + 9_280 + 6_180 + 3_080 + 19 == 13_313_471
    assert n_parameters(TaskonomyDecoder(512, 1, 224)) == 13_313_471


SMALL = {"stem": (24, 16, 16), "widths": (16, 8, 8, 4)}


@pytest.mark.parametrize(
    "in_features, out_channels, size, dense, channels",
    [
        (512, 3, 224, True, {"stem": PAPER_STEM, "widths": PAPER_WIDTHS}),
        (512, 16, 64, False, {"stem": PAPER_STEM, "widths": PAPER_WIDTHS}),
        (32, 18, 48, True, SMALL),
        (7, 16, 16, False, SMALL),
    ],
)
def test_number_of_parameters(
    in_features: int, out_channels: int, size: int, dense: bool, channels: dict[str, tuple[int, ...]]
) -> None:
    decoder = TaskonomyDecoder(in_features, out_channels, size, dense=dense, **channels)
    assert n_parameters(decoder) == counted(in_features, out_channels, size, **channels, dense=dense)


def test_options_add_or_take_their_parameters() -> None:
    plain = n_parameters(TaskonomyDecoder(32, 1, 32, **SMALL))
    # The embedding of 4 channels has no group norm: 2 · 4 fewer.
    assert n_parameters(TaskonomyDecoder(32, 1, 32, **SMALL, norm="group")) == plain - 8
    # 1x1 convolutions from the skip maps at strides 8, 4 and 2: 16·12 + 8·10 + 8·6.
    skips = n_parameters(TaskonomyDecoder(32, 1, 32, **SMALL, skip_channels=(6, 10, 12)))
    assert skips == plain + 192 + 80 + 48
    # Attention over 24 channels, 3 hidden: 24·3 + 3 + 3·24 + 24, and a 7x7 convolution from 2 maps.
    assert n_parameters(TaskonomyDecoder(32, 1, 32, **SMALL, use_cbam=True)) == plain + 171 + 98


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("size", [16, 48, 64])
def test_output_and_embedding_shapes(size: int, dense: bool, norm: str) -> None:
    decoder = TaskonomyDecoder(10, 5, size, dense=dense, norm=norm, use_cbam=True, **SMALL)
    embedding, output = decoder(torch.randn(2, 10))
    assert embedding.shape == (2, 4, size, size)
    assert output.shape == ((2, 5, size, size) if dense else (2, 5))


def test_activation_bounds_the_output_where_asked() -> None:
    largest = {}
    for activation in ("tanh", "identity"):
        decoder = TaskonomyDecoder(10, 2, 16, activation=activation, **SMALL)
        nn.init.constant_(decoder.head[0].bias, 5.0)
        largest[activation] = decoder(torch.randn(2, 10))[1].detach().abs().max().item()
    assert largest["tanh"] <= 1 < 2 < largest["identity"]


def test_skip_maps_reach_the_output() -> None:
    torch.manual_seed(0)
    decoder = TaskonomyDecoder(10, 2, 32, skip_channels=(6, 10, 12), **SMALL).eval()
    features = torch.randn(1, 10)
    skips = [torch.randn(1, channels, 32 // stride, 32 // stride) for channels, stride in ((6, 2), (10, 4), (12, 8))]
    outputs = [decoder(features, skips)[1]]
    for changed in range(3):
        other = [skip + (i == changed) for i, skip in enumerate(skips)]
        outputs.append(decoder(features, other)[1])
    assert all(not torch.allclose(outputs[0], output) for output in outputs[1:])


# Attention


def test_cbam_has_4852_parameters() -> None:
    # 128 channels, 128 // 7 = 18 hidden: 128·18 + 18 + 18·128 + 128 = 4,754; 2 · 7 · 7 = 98 for the places.
    assert n_parameters(CBAM(128)) == 4754 + 98


def test_cbam_without_weights_is_a_constant_factor() -> None:
    attention = CBAM(14)
    for parameter in attention.parameters():
        nn.init.zeros_(parameter)
    x = torch.randn(2, 14, 5, 5)
    torch.testing.assert_close(attention(x), 1.25 * x)  # two sigmoids of 0, 1/2 · 1/2, and x itself


def test_cbam_equals_numpy() -> None:
    torch.manual_seed(0)
    attention = CBAM(14)
    x = torch.randn(2, 14, 9, 9)
    weights = {name: parameter.detach().double().numpy() for name, parameter in attention.named_parameters()}

    def channel_scores(pooled: np.ndarray) -> np.ndarray:
        hidden = np.maximum(weights["channel.0.weight"] @ pooled + weights["channel.0.bias"], 0)
        return weights["channel.2.weight"] @ hidden + weights["channel.2.bias"]

    for result, image in zip(attention(x).detach().numpy(), x.double().numpy(), strict=True):
        scores = channel_scores(image.max(axis=(1, 2))) + channel_scores(image.mean(axis=(1, 2)))
        attended = image / (1 + np.exp(-scores))[:, None, None]
        kernels = weights["spatial.weight"][0]
        places = correlate2d(attended.max(axis=0), kernels[0], "same")
        places += correlate2d(attended.mean(axis=0), kernels[1], "same")
        np.testing.assert_allclose(result, attended / (1 + np.exp(-places)) + image, atol=1e-5)
