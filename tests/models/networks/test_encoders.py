"""The encoders' shapes and numbers of parameters against published counts, timm's networks, and counts by hand."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import timm
import torch
from timm.layers import GroupNormAct
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from models.networks.backbones import LeNet, TinyEncoder
from models.networks.encoders import EncoderRequest, build_encoder
from models.networks.layers import n_groups, with_group_norms
from tests.models.small_networks import n_parameters, undrawn
from utils.errors import UserError


def wanted(size: int, norm: str = "batch", most_stride: int | None = None) -> EncoderRequest:
    return EncoderRequest(size, False, norm, most_stride)


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("size", [16, 48, 64])
def test_tiny_encoder(size: int, norm: str) -> None:
    features, maps = build_encoder("tiny", wanted(size, norm))(torch.rand(2, 3, size, size))
    assert features.shape == (2, 128)
    expected = [(2, c, size // stride, size // stride) for c, stride in ((16, 2), (32, 4), (48, 8), (64, 16))]
    assert [each.shape for each in maps] == expected


def test_a_network_of_ours_does_without_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm.layers", None)  # what imports it fails
    names = {type(module).__name__ for module in build_encoder("tiny", wanted(16, "group")).modules()}
    assert "GroupNorm" in names and "BatchNorm2d" not in names


def test_tiny_encoder_has_79728_parameters_at_32_pixels() -> None:
    # Convolutions without bias and norm: 9·3·16 + 32 = 464, 9·16·32 + 64 = 4,672, 9·32·48 + 96 = 13,920,
    # 9·48·64 + 128 = 27,776; projection of 64·2·2 to 128: 32,768 + 128 = 32,896. In all 79,728.
    assert n_parameters(TinyEncoder(32, "batch")) == 79_728


def test_lenet_has_1756426_parameters_with_ten_classes() -> None:
    # 3·25·64 + 64 = 4,864, 64·25·64 + 64 = 102,464, 64·8·8·384 + 384 = 1,573,248, 384·192 + 192 = 73,920;
    # and a classifier of 192·10 + 10 = 1,930. In all 1,756,426, as the notes on arXiv 2003.08082 have it.
    assert n_parameters(LeNet(32)) + 1930 == 1_756_426


# Published numbers without the last layer, of 1000 classes and as many inputs and a bias as there are features.
@pytest.mark.parametrize(
    "name, features, published",
    [
        ("resnet18", 512, 11_689_512), ("resnet50", 2048, 25_557_032), ("resnet101", 2048, 44_549_160),
        ("mobilenet_v2", 1280, 3_504_872), ("mobilenet_v3_large", 1280, 5_483_032),
        ("efficientnet_b0", 1280, 5_288_548), ("vit_b16", 768, 86_567_656),
    ],
)  # fmt: skip
def test_published_networks(name: str, features: int, published: int) -> None:
    with torch.device("meta"), torch.no_grad():
        encoder = build_encoder(name, wanted(224)).eval()
        vector, _ = encoder(torch.empty(2, 3, 224, 224))
    assert vector.shape == (2, features) == (2, encoder.out_features)
    assert n_parameters(encoder) == published - 1000 * (features + 1)


def test_resnet10() -> None:
    with torch.device("meta"), torch.no_grad():
        encoder = build_encoder("resnet10", wanted(32)).eval()
        vector, maps = encoder(torch.empty(2, 3, 32, 32))
    # Stem 9·3·64 + 128; a block of 2·9·64·64 + 256; then blocks of 9·a·b + 9·b·b + 4b with a shortcut of a·b + 2b.
    widths = [(64, 128), (128, 256), (256, 512)]
    blocks = sum(9 * a * b + 9 * b * b + 4 * b + a * b + 2 * b for a, b in widths)
    assert n_parameters(encoder) == 9 * 3 * 64 + 128 + 2 * 9 * 64 * 64 + 256 + blocks
    assert vector.shape == (2, 512)
    assert [each.shape[1:] for each in maps] == [(128, 16, 16), (256, 8, 8), (512, 4, 4)]


@pytest.mark.parametrize("most_stride", [32, 16])
@pytest.mark.parametrize(
    "name, equal",
    [
        ("resnet18", "resnet18"), ("resnet101", "resnet101"), ("mobilenet_v2", "mobilenetv2_100"),
        ("mobilenet_v3_large", "mobilenetv3_large_100"), ("efficientnet_b0", "efficientnet_b0"),
    ],
)  # fmt: skip
def test_maps_are_those_of_timm(name: str, equal: str, most_stride: int) -> None:
    dilated = {"output_stride": 16} if most_stride == 16 and "v3" not in equal else {}
    encoder = undrawn(lambda: build_encoder(name, wanted(64, most_stride=most_stride)))
    theirs = undrawn(lambda: timm.create_model(equal, features_only=True, **dilated))
    with torch.no_grad():
        vector, maps = encoder(torch.zeros(2, 3, 64, 64))
        expected = theirs(torch.zeros(2, 3, 64, 64))
    sides = [min(2**level, most_stride) for level in range(1, 6)]
    assert [each.shape[2:] for each in maps] == [(64 // side, 64 // side) for side in sides]
    assert [each.shape[1] for each in maps[:-1]] == [each.shape[1] for each in expected[:-1]]
    assert vector.shape == (2, maps[-1].shape[1]) == (2, encoder.out_features)
    assert encoder.map_channels == tuple(each.shape[1] for each in maps)


def test_a_dilated_network_sees_what_it_saw() -> None:
    # Where the map is even in size, every second place of a dilated map is the map without dilation.
    torch.manual_seed(0)
    plain = build_encoder("resnet18", wanted(128, most_stride=32)).eval()
    dilated = build_encoder("resnet18", wanted(128, most_stride=16)).eval()
    dilated.load_state_dict(plain.state_dict())
    images = torch.rand(1, 3, 128, 128)
    with torch.no_grad():
        coarse, fine = plain(images)[1][-1], dilated(images)[1][-1]
    torch.testing.assert_close(fine[:, :, ::2, ::2], coarse, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(importlib.util.find_spec("open_clip") is None, reason="open_clip is not installed")
def test_clip_is_the_visual_tower_alone() -> None:
    encoder = build_encoder("clip_vit_b32", wanted(224)).eval()
    # Patches 768·3·32·32, class token 768, 50 positions of 768, three layer norms of 2·768 (two outside the blocks),
    # 12 blocks of 4·768·768 + 4·768 (attention), 2·768·3072 + 3072 + 768 (MLP) and 4·768 (norms), projection 768·512.
    block = (4 * 768**2 + 4 * 768) + (2 * 768 * 3072 + 3072 + 768) + 4 * 768
    assert n_parameters(encoder) == 768 * 3 * 32**2 + 768 + 50 * 768 + 2 * 2 * 768 + 12 * block + 768 * 512
    vector, maps = encoder(torch.rand(1, 3, 224, 224))
    assert (vector.shape, maps) == ((1, 512), [])


def test_constants_of_the_input_are_no_state() -> None:
    state = build_encoder("tiny", wanted(16, "group")).state_dict()
    assert not {"mean", "std"} & set(state)


# Networks of timm


@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet", "test_convnext", "test_vit"])
def test_features_of_timm_are_its_own(name: str) -> None:
    torch.manual_seed(0)
    encoder = build_encoder(f"timm:{name}", wanted(64)).eval()
    images = torch.rand(2, 3, 64, 64)
    own = timm.create_model(name, num_classes=0, **({"img_size": 64} if "vit" in name else {})).eval()
    own.load_state_dict(encoder.backbone.state_dict())
    scaled = (images - encoder.mean) / encoder.std
    assert encoder.mean.flatten().tolist() == pytest.approx(own.pretrained_cfg["mean"])
    with torch.no_grad():
        features, maps = encoder(images)
        torch.testing.assert_close(features, own(scaled))
    assert features.shape[1] == encoder.out_features and maps == []


@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet", "test_convnext"])
def test_maps_of_timm_lie_at_powers_of_two(name: str) -> None:
    encoder = build_encoder(f"timm:{name}", wanted(64, most_stride=32))
    features, maps = encoder(torch.rand(2, 3, 64, 64))
    assert [each.shape[1] for each in maps] == list(encoder.map_channels)
    assert [each.shape[2] for each in maps] == [32, 16, 8, 4, 2]
    torch.testing.assert_close(features, maps[-1].mean((2, 3)))
    sum(each.sum() for each in maps).backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())  # nothing travels for nothing


@pytest.mark.parametrize("name", ["vit_b16", "timm:test_vit", "clip_vit_b32"])
def test_what_has_no_maps_says_so(name: str) -> None:
    message = "has no maps for --decoder to take; give --decoder taskonomy or linear"
    # CLIP's is moved when it has been built, which no tensor without data can be.
    with torch.device("cpu" if name.startswith("clip") else "meta"), pytest.raises(UserError, match=message):
        build_encoder(name, wanted(32, most_stride=32))


def test_a_network_that_cannot_be_dilated_says_so() -> None:
    with pytest.raises(UserError, match=r"timm:mobilenetv3_small_050 cannot be built .*; give another") as raised:
        build_encoder("timm:mobilenetv3_small_050", wanted(32, most_stride=16))
    assert "\n" not in str(raised.value)


# Norms


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "efficientnet_b0", "timm:efficientnet_b0"])
def test_group_norms_take_the_place_of_all_batch_norms(name: str) -> None:
    with torch.device("meta"):
        plain, grouped = (build_encoder(name, wanted(64, norm)) for norm in ("batch", "group"))
    n_norms = sum(isinstance(module, _BatchNorm) for module in plain.modules())
    kinds = [type(module) for module in grouped.modules() if isinstance(module, nn.GroupNorm)]
    assert len(kinds) == n_norms and not any(isinstance(module, _BatchNorm) for module in grouped.modules())
    assert set(kinds) == {GroupNormAct if name.startswith("timm:") else nn.GroupNorm}
    assert n_parameters(plain) == n_parameters(grouped)


def test_replaced_norms_keep_scale_shift_and_activation() -> None:
    torch.manual_seed(0)
    network = timm.create_model("test_efficientnet", num_classes=0)
    batch = {name: each for name, each in network.named_modules() if isinstance(each, _BatchNorm)}
    for each in batch.values():
        nn.init.normal_(each.weight), nn.init.normal_(each.bias)
    with_group_norms(network)
    acts = []
    for name, before in batch.items():
        after, x = network.get_submodule(name), torch.randn(2, before.num_features, 3, 3)
        expected = nn.functional.group_norm(x, before.num_features // 8, before.weight, before.bias)
        torch.testing.assert_close(after(x), before.act(before.drop(expected)))
        acts.append(type(before.act))
    assert nn.SiLU in acts and nn.Identity in acts


def test_groups_have_eight_channels_where_that_divides() -> None:
    assert [n_groups(channels) for channels in (2, 8, 16, 24, 40, 28, 100)] == [1, 1, 2, 3, 5, 2, 10]


# Published weights


@pytest.mark.parametrize("name", ["tiny", "lenet", "resnet10", "timm:coatnet_0_224"])
def test_weights_that_do_not_exist_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"weights of --encoder {name} do not exist; give --pretrained False"):
        build_encoder(name, EncoderRequest(32, True, "batch"))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "vit_b16", "timm:test_vit"])
def test_weights_that_cannot_be_had_are_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", refused)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refused)
    monkeypatch.setattr("timm.models._builder.load_pretrained", refused)
    message = rf"weights of {name} could not be downloaded \(no route to host\); .*--pretrained False"
    with torch.device("meta"), pytest.raises(UserError, match=message):
        build_encoder(name, EncoderRequest(32, True, "batch"))


@pytest.mark.parametrize(
    "name, message",
    [
        ("vgg", "unknown encoder 'vgg'; --encoder takes one of tiny, .* and timm:<name>"),
        ("timm:no_such_net", "timm .* has no such network"),
    ],
)
def test_unknown_encoders_are_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_encoder(name, wanted(32))
