"""What a file of weights does not say: OpenAI's CLIP against open_clip's, lines and settings."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import open_clip
import pytest
import timm
import torch
from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg
from torch import nn

from models.embedding.features import image_features
from models.networks.config import ModelConfig
from models.networks.conventions import OWN_SCALING, Scaling, activation_of, add_scaling
from models.networks.task_model import TaskModel, fingerprint, load_model, make_initial_model, save_model
from models.networks.weights import EncoderWeights, conventions
from models.teacher.teachers import build_teacher
from tests.datasets.tables import classes_of
from utils.args import Parser
from utils.errors import UserError

GELU, QUICK = "timm:vit_base_patch32_clip_224", "timm:vit_base_patch32_clip_quickgelu_224"
SIZE = 224
CPU = torch.device("cpu")
OTHER: dict[str, Any] = {"image_mean": (0.1, 0.2, 0.3), "image_std": (0.4, 0.5, 0.6)}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timm's transformers have two narrow layers."""
    create = timm.create_model

    def narrow(name: str, **settings: Any) -> nn.Module:
        return create(name, **settings | {"depth": 2, "embed_dim": 64, "num_heads": 1})

    monkeypatch.setattr(timm, "create_model", narrow)


@pytest.fixture
def clip() -> CLIP:
    """A CLIP like OpenAI's, with pre-activations as large as trained weights have them."""
    torch.manual_seed(3)
    vision = CLIPVisionCfg(layers=2, width=64, head_width=64, patch_size=32, image_size=SIZE)
    made = CLIP(
        16, vision, CLIPTextCfg(context_length=4, vocab_size=10, width=32, heads=1, layers=1), quick_gelu=True
    ).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("mlp.c_fc.weight"):
                parameter.mul_(20)
    return made


def published(clip: CLIP, path: Path) -> Path:
    """The file as OpenAI's archives save their tensors."""
    numbers = {"input_resolution": SIZE, "context_length": 4, "vocab_size": 10}
    torch.save(clip.state_dict() | {name: torch.tensor(number) for name, number in numbers.items()}, path)
    return path


def of_scenes(encoder: str = "tiny", size: int = 32, **settings: Any) -> ModelConfig:
    return ModelConfig("class_scene", encoder, size, classes=classes_of("class_scene"), decoder="linear", **settings)


def test_openais_clip_computes_as_open_clip_does(
    small: None, clip: CLIP, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path, model = published(clip, tmp_path / "clip.pt"), tmp_path / "model.safetensors"
    taken, line, _ = make_initial_model(model, of_scenes(QUICK, SIZE), 0, None, path).splitlines()
    assert taken.startswith("all ") and line == (
        "activation QuickGELU (timm's vit_base_patch32_clip_quickgelu_224.laion400m_e32); "
        f"mean 0.4815 0.4578 0.4082, standard deviation 0.2686 0.2613 0.2758 ({path})"
    )
    loaded, features = load_model(model, "class_scene", "a stage").eval(), image_features(QUICK, CPU, path)
    assert capsys.readouterr().out.splitlines()[1] == line
    images = torch.rand(2, 3, SIZE, SIZE)
    normalise = open_clip.image_transform(SIZE, is_train=False).transforms[-1]
    with torch.no_grad():
        expected = clip.encode_image(normalise(images))
        for vectors in (loaded.encoder(images)[0], features.of(images)):
            torch.testing.assert_close(vectors @ clip.visual.proj, expected, rtol=1e-5, atol=1e-5)


def test_openais_clip_in_a_network_with_gelu_is_refused(small: None, clip: CLIP, tmp_path: Path) -> None:
    path, model = published(clip, tmp_path / "clip.pt"), tmp_path / "model.safetensors"
    message = "clip.pt is OpenAI's CLIP, which was trained with QuickGELU, and {} {} has GELU; give {} {}$"
    with pytest.raises(UserError, match=message.format("--encoder", GELU, "--encoder", QUICK)):
        make_initial_model(model, of_scenes(GELU, SIZE), 0, None, path)
    with pytest.raises(UserError, match=message.format("--features", f"{GELU}.openai", "--features", QUICK)):
        image_features(f"{GELU}.openai", CPU, path)
    assert not model.exists()


def test_of_another_clip_the_line_leaves_open_whose_it_is(small: None, clip: CLIP, tmp_path: Path) -> None:
    torch.save(clip.state_dict(), path := tmp_path / "clip.pt")
    _, line, _ = make_initial_model(tmp_path / "x.safetensors", of_scenes(GELU, SIZE), 0, None, path).splitlines()
    assert line.startswith("activation GELU, mean 0.4815 ")
    assert line.endswith("; the file's names do not say whose CLIP it is: OpenAI's has QuickGELU, LAION's GELU")


def test_weights_that_timm_publishes_for_another_activation_are_named() -> None:
    network = timm.create_model("test_vit", num_classes=0)
    network.pretrained_cfg |= {"notes": ("natively QuickGELU, use quickgelu model variant for original results",)}
    used = Scaling((0.5, 0.25, 0.125), (0.5, 0.5, 0.5))
    assert conventions(network, "--encoder timm:test_vit", used, OWN_SCALING).endswith(
        "; timm's weights of this name were trained with QuickGELU"
    )


@pytest.mark.parametrize(
    "name, activation",
    [("resnet18", "ReLU"), ("tf_efficientnet_lite0", "ReLU6"), ("efficientnet_b0", "SiLU"), ("test_vit", "GELU"),
     ("mobilenetv3_small_050", "Hardswish"), ("test_vit3", "GELU")],
)  # fmt: skip
def test_the_activation_is_that_of_most_layers(name: str, activation: str) -> None:
    assert activation_of(timm.create_model(name)) == activation


def test_activations_of_our_own_networks_and_of_open_clip(clip: CLIP) -> None:
    assert activation_of(clip.visual) == "QuickGELU"
    assert activation_of(TaskModel(of_scenes()).encoder) == "LeakyReLU"
    assert activation_of(nn.Linear(2, 2)) == activation_of(nn.Sigmoid()) == ""


# --image_mean and --image_std


def scaled(encoder: nn.Module) -> Scaling:
    return Scaling(*([round(value, 6) for value in each.flatten().tolist()] for each in (encoder.mean, encoder.std)))


def test_given_means_and_deviations_scale_images_in_every_stage(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    line, _ = make_initial_model(path, of_scenes(**OTHER), 0).splitlines()
    assert line == (
        "activation LeakyReLU (--encoder tiny); mean 0.1 0.2 0.3 (--image_mean); "
        "standard deviation 0.4 0.5 0.6 (--image_std)"
    )
    loaded, images = load_model(path, "class_scene", "a stage").eval(), torch.rand(2, 3, 32, 32)
    assert loaded.config.scaling == tuple(OTHER.values())
    other = TaskModel(of_scenes())
    other.load_state_dict(loaded.state_dict())
    by_hand = (images - torch.tensor(OTHER["image_mean"])[:, None, None]) / torch.tensor(OTHER["image_std"])[
        :, None, None
    ]
    with torch.no_grad():
        torch.testing.assert_close(loaded.encoder(images)[0], other.eval().encoder(by_hand / 4 + 0.5)[0])
    assert len({fingerprint(each) for each in (loaded, other)}) == 2


def test_what_is_not_given_is_the_networks(tmp_path: Path) -> None:
    network = "timm:test_vit"
    line = make_initial_model(
        tmp_path / "x.safetensors", of_scenes(network, 64, image_std=OTHER["image_std"]), 0, False
    ).splitlines()[0]
    assert line.endswith("mean 0.5 0.5 0.5 (timm's test_vit.r160_in1k); standard deviation 0.4 0.5 0.6 (--image_std)")


def test_a_model_of_ours_brings_its_mean_and_deviation(tmp_path: Path) -> None:
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    save_model(TaskModel(of_scenes(**OTHER)), first)
    line = make_initial_model(second, of_scenes(), 1, None, first).splitlines()[1]
    assert line.endswith(f"mean 0.1 0.2 0.3, standard deviation 0.4 0.5 0.6 ({first})")
    loaded = load_model(second, "class_scene", "a stage")
    assert scaled(loaded.encoder) == tuple(map(list, OTHER.values())) and loaded.config.image_mean is None
    third = TaskModel(of_scenes(image_mean=(0, 0, 0)), weights=EncoderWeights(second))
    assert scaled(third.encoder) == ([0, 0, 0], [0.4, 0.5, 0.6])  # what is given goes before


def test_features_take_them_and_are_others(capsys: pytest.CaptureFixture) -> None:
    plain, other = (
        image_features("random:test_vit", CPU, None, each) for each in (OWN_SCALING, Scaling(*OTHER.values()))
    )
    assert plain.inputs != other.inputs
    assert capsys.readouterr().out.splitlines()[0].startswith("activation GELU (timm's test_vit.r160_in1k); mean 0.1 ")
    images = torch.rand(2, 3, 160, 160)
    mean, std = (torch.tensor(each)[:, None, None] for each in OTHER.values())
    with torch.no_grad():
        torch.testing.assert_close(other.of(images), plain.of((images - mean) / std * 0.5 + 0.5))


@pytest.mark.parametrize("name", ["image", "target", "model"])
def test_features_without_a_network_refuse_them(name: str) -> None:
    with pytest.raises(UserError, match=f"--features {name} takes no --image_mean and --image_std; give a network"):
        image_features(name, CPU, None, Scaling(std=(1, 1, 1)))


def test_a_diffusion_model_refuses_them() -> None:
    settings: Any = Namespace(features="diffusion")
    with pytest.raises(UserError, match="--features diffusion takes no --image_mean and --image_std; omit them"):
        build_teacher(settings, None, CPU, 1, None, Scaling(mean=(0, 0, 0)))  # type: ignore[arg-type]


def test_published_quirks_refuse_them() -> None:
    with pytest.raises(UserError, match="--published_quirks takes images as they are, unscaled; omit --image_mean"):
        TaskModel(of_scenes(published_quirks=True, **OTHER))


@pytest.mark.parametrize(
    "words, message",
    [
        ("--image_mean 123.7 116.3 103.5", "123.7 must be .*at most 1"),
        ("--image_std 0 1 1", "0 must be above 0"),
        ("--image_std 0.2 0.2", "expected 3 arguments"),
        ("--image_mean 0.5 x 0.5", "'x' is not a number"),
    ],
)
def test_wrong_numbers_are_one_line(words: str, message: str) -> None:
    parser = Parser(None)
    add_scaling(parser.group("model"), "image", "the encoder")
    with pytest.raises(UserError, match=message):
        parser.parse_args(words.split())
    assert Scaling.of(vars(parser.parse_args(["--image_std", ".1", ".2", ".3"])), "image") == (None, (0.1, 0.2, 0.3))
    assert not vars(parser.parse_args([]))  # runs without are what they were
