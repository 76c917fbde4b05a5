"""Whole models: every decoder on encoders of its kind, their sizes, and what is refused in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import segmentation_models_pytorch as smp
import torch
import torch.nn.functional as F
from segmentation_models_pytorch import Unet
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models import get_model

from datasets.classes import ClassSet
from datasets.tasks import TASKS
from models.networks.config import ModelConfig
from models.networks.decoders import DECODERS, with_decoder
from models.networks.encoders import ENCODERS
from models.networks.linear import LinearDecoder
from models.networks.task_model import TaskModel, load_model, save_model
from network.engine.workspace import OneCopy, Workspace, workspace
from tests.datasets.tables import bound, classes_of
from tests.models.small_networks import n_parameters, undrawn
from utils.errors import UserError


@pytest.mark.parametrize("size", [0, 8, 24, 225])
def test_image_size_must_be_a_multiple_of_16(size: int) -> None:
    with pytest.raises(UserError, match=f"--image_size must be a multiple of 16, not {size}"):
        TaskModel(ModelConfig("normal", image_size=size))


@pytest.mark.parametrize("use_cbam", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_model_of_every_task(task: str, use_cbam: bool) -> None:
    classes = classes_of(task)
    decoder, size = ("fcos", 64) if TASKS[task].boxes else ("taskonomy", 128)
    config = ModelConfig(
        task, image_size=32, norm="group", use_cbam=use_cbam and not TASKS[task].boxes, classes=classes
    )
    model = TaskModel(replace(config, decoder=decoder))
    features, embedding, output = model(torch.rand(2, model.task.in_channels, 32, 32))
    assert features.shape == (2, size) and embedding[0].numel() == model.embedding_size
    channels = bound(task).out_channels
    if TASKS[task].boxes:  # two towers of 32 channels at stride 4; 64 + 16 + 4 + 1 + 1 points
        assert embedding.shape == (2, 64, 8, 8) and output.shape == (2, 86, channels + 8)
        return
    assert embedding.shape == (2, ENCODERS["tiny"].widths[-1], 32, 32)
    assert output.shape == ((2, channels, 32, 32) if TASKS[task].dense else (2, channels))


def test_linear_is_the_classifier_on_the_vector() -> None:
    torch.manual_seed(0)
    vectors = torch.rand(4, 20)
    plain, narrow = LinearDecoder(20, 5), LinearDecoder(20, 5, bottleneck=3)
    embedding, output = plain(vectors)
    assert embedding is vectors and plain.embedding_shape == (20,)
    torch.testing.assert_close(output, vectors @ plain.head.weight.T + plain.head.bias)
    embedding, output = narrow(vectors)
    assert embedding.shape == (4, 3) and narrow.embedding_shape == (3,)
    assert n_parameters(narrow) == 20 * 3 + 3 + 3 * 5 + 5


# Parameters in all, of the decoder, and billions of multiplications for an image, of the models as smp itself builds
# them; FedCV (arXiv 2111.11066) has 51.51 M, 9.01 M and 62.22 G for the second.
@pytest.mark.parametrize(
    "encoder, decoder, parameters, of_decoder, macs",
    [
        ("resnet101", "deeplabv3plus", 45.67, 3.17, 56.0),
        ("resnet101", "unet", 51.52, 9.02, 62.7),
        ("mobilenet_v2", "deeplabv3plus", 4.38, 2.16, 6.0),
        ("mobilenet_v2", "unet", 6.63, 4.41, 14.1),
    ],
)
def test_segmentation_networks_of_fedcv(
    encoder: str, decoder: str, parameters: float, of_decoder: float, macs: float
) -> None:
    classes = ClassSet(tuple(map(str, range(21))))
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model = TaskModel(ModelConfig("segmentation", encoder, 512, classes=classes, decoder=decoder)).eval()
        embedding, output = model(torch.empty(1, 3, 512, 512))[1:]
    assert (
        round(n_parameters(model) / 1e6, 2) == parameters and round(n_parameters(model.decoder) / 1e6, 2) == of_decoder
    )
    assert round(counter.get_total_flops() / 2e9, 1) == macs
    assert output.shape == (1, 21, 512, 512) and embedding[0].numel() == model.embedding_size


def test_deeplabs_dilation_is_torchvisions_and_with_timms_encoders_the_network_is_smps() -> None:
    images, settings = torch.rand(2, 3, 64, 64), {"classes": ClassSet(tuple("abc")), "decoder": "deeplabv3plus"}
    ours = TaskModel(ModelConfig("segmentation", "resnet50", 64, **settings)).eval()
    dilated = get_model("resnet50", replace_stride_with_dilation=[False, False, True]).eval()
    weights = list(ours.encoder.backbone.state_dict().values())
    dilated.load_state_dict(dict(zip(list(dilated.state_dict())[: len(weights)], weights, strict=True)), strict=False)
    scaled = (images - ours.encoder.mean) / ours.encoder.std
    with torch.no_grad():
        expected = nn.Sequential(*list(dilated.children())[:-2])(scaled)
        torch.testing.assert_close(ours.encoder(images)[1][-1], expected)

    ours = TaskModel(ModelConfig("segmentation", "timm:resnet10t", 64, **settings)).eval()
    theirs = smp.DeepLabV3Plus("tu-resnet10t", encoder_weights=None, classes=3).eval()
    for part, of in (
        (theirs.encoder, ours.encoder.backbone),
        (theirs.decoder, ours.decoder.decoder),
        (theirs.segmentation_head, ours.decoder.head),
    ):
        part.load_state_dict(dict(zip(part.state_dict(), of.state_dict().values(), strict=True)))
    scaled = (images - ours.encoder.mean) / ours.encoder.std
    with torch.no_grad():
        torch.testing.assert_close(ours(images).output, theirs(scaled))


# Every encoder with each decoder that can use it.
PAIRS = [
    (encoder, decoder)
    for encoder in [*ENCODERS, "timm:test_efficientnet", "timm:test_vit"]
    for decoder, entry in DECODERS.items()
    if not (entry.most_stride and encoder in ("vit_b16", "clip_vit_b32", "timm:test_vit"))
    and (encoder, decoder) != ("lenet", "deeplabv3plus")
]
# Those that are small, and relatives in timm of those that are not; the larger ones look at images of 16 pixels.
LARGER = ("resnet10", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0")
SMALL = [
    *(("tiny", decoder) for decoder in DECODERS),
    ("lenet", "linear"),
    ("resnet10", "linear"),
    ("mobilenet_v2", "linear"),
    ("mobilenet_v3_large", "linear"),
    ("efficientnet_b0", "linear"),
    ("timm:test_efficientnet", "deeplabv3plus"),
    ("timm:test_resnet", "unet"),
    ("timm:test_convnext", "unet"),
    ("timm:test_vit", "linear"),
    ("timm:test_vit", "taskonomy"),
]


def model_of(encoder: str, decoder: str, norm: str = "batch") -> TaskModel:
    """A model of this encoder and decoder for a task that suits it, without dropout."""
    torch.manual_seed(0)
    task = next(name for name in ("normal", "class_scene", "detection") if DECODERS[decoder].suits(TASKS[name]))
    model = TaskModel(ModelConfig(task, encoder, 32, norm, classes=classes_of(task), decoder=decoder))
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


@pytest.mark.parametrize("encoder, decoder", [pair for pair in PAIRS if pair[0] != "clip_vit_b32"])
def test_every_encoder_builds_with_every_decoder(encoder: str, decoder: str) -> None:
    model = undrawn(lambda: model_of(encoder, decoder))
    with torch.no_grad():
        features, embedding, output = model(torch.zeros(2, 3, 32, 32))
    channels = model.task.out_channels
    shape = (86, channels + 8) if model.task.boxes else (channels, 32, 32) if model.task.dense else (channels,)
    assert features.shape == (2, model.encoder.out_features) and embedding[0].numel() == model.embedding_size
    assert output.shape == (2, *shape)


def outputs_and_gradients(copies: Workspace, images: Tensor) -> tuple[Tensor, dict[str, Sequence[Tensor]]]:
    """The output, and each copy's gradient of the mean over its images of their mean square."""
    copies.prepare(copies.leaves)
    output = copies(images).output
    (output.square().flatten(1).mean(1).sum() * copies.n / len(images)).backward()
    return output.detach(), {name: copies.parts(leaf.grad) for name, leaf in copies.leaves.items()}


@pytest.mark.parametrize("encoder, decoder", SMALL)
def test_two_clients_train_side_by_side_as_they_do_one_by_one(encoder: str, decoder: str) -> None:
    model = model_of(encoder, decoder).double()  # batch norm of few values amplifies rounding
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    shape = (3, 16, 16) if encoder in LARGER else (3, 32, 32)
    images = torch.rand(8, *shape, dtype=torch.float64)
    copies = workspace(model, 2, shape)
    together, of_both = outputs_and_gradients(copies, images)
    for number, own in enumerate(images.chunk(2)):
        model.load_state_dict(start)
        output, of_one = outputs_and_gradients(OneCopy(model), own)
        torch.testing.assert_close(together[4 * number : 4 * number + 4], output, rtol=1e-5, atol=1e-5)
        largest = max(float(gradient.abs().max()) for [gradient] in of_one.values())
        for name, [gradient] in of_one.items():
            torch.testing.assert_close(of_both[name][number], gradient, rtol=1e-4, atol=1e-5 * largest, msg=name)
        for name, buffer in model.named_buffers():
            if name in start:
                torch.testing.assert_close(copies.tensors[number][name], buffer, msg=name)


def test_group_norm_reaches_the_decoders_of_smp() -> None:
    for decoder in ("unet", "deeplabv3plus"):
        names = {type(module).__name__ for module in model_of("resnet10", decoder, "group").modules()}
        assert "GroupNorm" in names and "BatchNorm2d" not in names


def test_unet_upsamples_what_the_encoder_gives() -> None:
    model = model_of("tiny", "unet").eval()
    images = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        maps, output = model.encoder(images)[1], model(images).output
        x = maps[-1]
        for block, skip in zip(model.decoder.decoder.blocks, [*reversed(maps[:-1]), None], strict=True):
            x = F.interpolate(x, scale_factor=2)
            x = block.conv2(block.conv1(x if skip is None else torch.cat([x, skip], 1)))
        torch.testing.assert_close(output, torch.tanh(F.conv2d(x, *model.decoder.head[0].parameters(), padding=1)))


# What is refused


@pytest.mark.parametrize(
    "task, settings, message",
    [
        (
            "normal",
            {"decoder": "linear"},
            "linear is for classes, not for --task normal; give --decoder taskonomy or u",
        ),
        (
            "class_scene",
            {"decoder": "unet"},
            "unet is for maps, not for --task class_scene; give --decoder taskonomy or",
        ),
        ("normal", {"decoder": "fpn"}, "unknown decoder 'fpn'; --decoder takes one of taskonomy"),
        (
            "normal",
            {"bottleneck": 64, "decoder": "unet"},
            "--bottleneck is not an argument of --decoder unet but of linear",
        ),
        (
            "normal",
            {"use_cbam": True, "decoder": "unet"},
            "--use_cbam is not an argument of --decoder unet but of taskonomy",
        ),
        (
            "normal",
            {"decoder_channels": (8, 8), "decoder": "deeplabv3plus"},
            "--decoder_channels is not an argument of --decoder deeplabv3plus but of unet",
        ),
        (
            "normal",
            {"decoder_channels": (8, 8), "decoder": "unet"},
            "--decoder_channels needs 4 numbers, one for each of this encoder's maps, not 2",
        ),
        ("normal", {"encoder": "lenet", "decoder": "deeplabv3plus"}, "deeplabv3plus needs maps at strides 2, 4 and 8"),
        ("normal", {"encoder": "timm:test_vit", "decoder": "unet"}, "this encoder has no maps for --decoder to take"),
    ],
)
def test_what_cannot_be_built_is_one_line(task: str, settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        TaskModel(ModelConfig(task, image_size=32, classes=classes_of(task), **settings))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("channels", [None, (64, 48, 32, 16, 8)])
def test_the_width_of_a_unet_is_smps_and_stays_with_the_model(channels: tuple | None, tmp_path: Path) -> None:
    expected = Unet("resnet18", encoder_weights=None, classes=3, **({"decoder_channels": channels} if channels else {}))
    model = TaskModel(ModelConfig("normal", "resnet18", 32, decoder="unet", decoder_channels=channels))
    assert n_parameters(model.decoder.decoder) == n_parameters(expected.decoder)
    assert n_parameters(model) == n_parameters(expected)
    assert model.decoder.embedding_shape == ((channels or (16,))[-1], 32, 32)
    save_model(model, tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors", "normal", "nobody")
    assert loaded.config == model.config and loaded.config.decoder_channels == channels


def test_the_decoder_is_by_default_the_encoders_own() -> None:
    assert with_decoder(ModelConfig("class_scene", "lenet")).decoder == "linear"
    assert with_decoder(ModelConfig("class_scene", "lenet", decoder="taskonomy")).decoder == "taskonomy"
    assert with_decoder(ModelConfig("normal", "timm:test_vit")).decoder == "taskonomy"
    assert with_decoder(ModelConfig("normal", "lenet")).decoder == "taskonomy"
    assert with_decoder(ModelConfig("detection")).decoder == "fcos"
    assert TaskModel(ModelConfig("normal", "lenet", 32)).config.decoder == "taskonomy"  # what is saved names it
