"""Models on disk: what is saved comes back the same, and a file that is not such a model is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from datasets.classes import ClassSet
from models.networks.config import ModelConfig
from models.networks.encoders import ENCODERS, EncoderEntry
from models.networks.task_model import TaskModel, init_file, load_model, make_initial_model, save_model
from tests.datasets.tables import classes_of
from utils.errors import UserError
from utils.streams import derived_seed

STAGE = "model_initialization.py"


def small_model(task: str = "normal", **settings: object) -> TaskModel:
    """A random model whose batch-norm statistics have moved."""
    torch.manual_seed(0)
    model = TaskModel(ModelConfig(task, image_size=16, classes=classes_of(task), **settings))
    with torch.no_grad():
        model(torch.rand(8, 3, 16, 16))
    return model.eval()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = init_file(tmp_path / "new folder", "normal", use_cbam=False)
    save_model(small_model(), path)
    return path


@pytest.mark.parametrize(
    "task, settings",
    [
        ("normal", {}),
        ("depth_euclidean", {"depth_target": "log", "use_cbam": True}),
        ("class_scene", {"norm": "group"}),
        ("segment_semantic", {"encoder": "resnet18"}),
    ],
)
def test_loaded_model_gives_the_same_outputs(tmp_path: Path, task: str, settings: dict[str, object]) -> None:
    model = small_model(task, **settings)
    save_model(model, tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors", task, STAGE).eval()
    assert loaded.config == model.config
    images = torch.rand(2, 3, 16, 16)
    for before, after in zip(model(images), loaded(images), strict=True):
        assert torch.equal(before, after)


def test_published_quirks_reach_task_and_input() -> None:
    config = ModelConfig("segment_semantic", image_size=16, classes=classes_of("segment_semantic"))
    plain, quirky = TaskModel(config), TaskModel(replace(config, published_quirks=True))
    quirky.load_state_dict(plain.state_dict())
    images = torch.rand(2, 3, 16, 16)
    seen = []
    for model in (plain.eval(), quirky.eval()):
        model.encoder.backbone[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        output = model(images).output
    torch.testing.assert_close(seen[0], (images - 0.5) / 0.25)  # the tiny encoder's normalisation
    torch.testing.assert_close(seen[1], images)
    assert output.abs().max() <= 1.0  # the published code bounds even logits


def test_name_of_the_file_says_task_and_attention() -> None:
    assert init_file(Path("a"), "normal", False) == Path("a/init_model_normal.safetensors")
    assert init_file(Path("a"), "normal", True) == Path("a/init_model_normal_cbam.safetensors")


def test_missing_file_names_the_stage(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"is missing; run {STAGE} --task normal first"):
        load_model(tmp_path / "no.safetensors", "normal", STAGE)


def test_model_of_another_task_is_refused(saved: Path) -> None:
    with pytest.raises(UserError, match="holds a model for normal, not for --task reshading"):
        load_model(saved, "reshading", STAGE)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_name_the_stage(saved: Path, value: float) -> None:
    with safe_open(saved, framework="pt") as file:
        said = file.metadata()
    tensors = load_file(saved)
    tensors["decoder.head.0.weight"].flatten()[3] = value
    save_file(tensors, saved, metadata=said)
    with pytest.raises(UserError, match=f"not finite, of decoder.head.0.weight; run {STAGE} again"):
        load_model(saved, "normal", STAGE)


@pytest.mark.parametrize("length", [0, 4, 50, 2000, -1])
def test_truncated_file_names_the_stage(saved: Path, length: int) -> None:
    saved.write_bytes(saved.read_bytes()[:length])
    with pytest.raises(UserError, match=f"not a model of this project.*run {STAGE} again"):
        load_model(saved, "normal", STAGE)


@pytest.mark.parametrize("metadata", [None, {"config": "no json"}, {"config": "[1]"}, {"config": '{"colour": 1}'}])
def test_file_without_settings_names_the_stage(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"a": torch.zeros(2)}, path, metadata=metadata)
    with pytest.raises(UserError, match=f"not a model of this project.*run {STAGE} again"):
        load_model(path, "normal", STAGE)


def test_file_of_another_kind_names_the_stage(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("not tensors at all, and long enough to have a header of eight bytes")
    with pytest.raises(UserError, match=f"run {STAGE} again"):
        load_model(path, "normal", STAGE)


def test_weights_of_another_network_name_the_stage(saved: Path) -> None:
    with safe_open(saved, framework="pt") as file:
        metadata = file.metadata()
    save_file({"a": torch.zeros(2)}, saved, metadata=metadata)
    with pytest.raises(UserError, match=f"the weights do not fit the network; run {STAGE} again"):
        load_model(saved, "normal", STAGE)


@pytest.mark.parametrize("task", ["class_scene", "segmentation"])
def test_classes_travel_with_the_model(tmp_path: Path, task: str) -> None:
    classes = ClassSet(("cat", "dög", "eel"), (3, 0, 9), (255,), ("#ff0000", "#00ff00", "#0000ff"))
    model = TaskModel(ModelConfig(task, image_size=16, classes=classes))
    save_model(model, tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors", task, STAGE)
    assert loaded.task.classes == classes and loaded.task.out_channels == 3
    assert loaded(torch.rand(2, 3, 16, 16)).output.shape[1] == 3


def test_model_of_classes_that_names_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"class_scene: the model names no classes; run model_initialization\.py"):
        TaskModel(ModelConfig("class_scene", image_size=16))
    path = tmp_path / "old.safetensors"
    save_file({"a": torch.zeros(2)}, path, metadata={"config": '{"task": "class_scene", "image_size": 16}'})
    with pytest.raises(UserError, match="the model names no classes"):
        load_model(path, "class_scene", STAGE)


@pytest.mark.parametrize("classes", ["[]", "3", '{"names": []}', '{"names": ["a"], "ids": [1, 2]}'])
def test_classes_that_are_none_name_the_stage(tmp_path: Path, classes: str) -> None:
    path = tmp_path / "other.safetensors"
    config = f'{{"task": "class_scene", "image_size": 16, "classes": {classes}}}'
    save_file({"a": torch.zeros(2)}, path, metadata={"config": config})
    with pytest.raises(UserError, match=f"not a model of this project.*run {STAGE} again"):
        load_model(path, "class_scene", STAGE)


def test_a_network_that_cannot_take_the_size_is_refused_before_it_is_saved(tmp_path: Path) -> None:
    name, path = "crossvit_9_240", tmp_path / "x.safetensors"
    if not timm.is_model(name):
        pytest.skip(f"timm {timm.__version__} has no {name}")
    config = ModelConfig("class_scene", f"timm:{name}", 96, decoder="linear", classes=ClassSet(("a", "b")))
    with pytest.raises(
        UserError,
        match=r"timm:crossvit_9_240 with --decoder linear cannot be trained on images of 96 pixels .* --image_size",
    ):
        make_initial_model(path, config, 0, False)
    assert not path.exists()


# What a new model is tried for


class Patches(nn.Module):
    """An encoder of patches of so many pixels; what is left over at the borders is cut off."""

    map_channels, out_features = (), 4

    def __init__(self, side: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, side, side)

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        return self.conv(images).mean((2, 3)), []


@pytest.mark.parametrize(
    "side, size, share, sizes",
    [(32, 48, "56%", "32 or 64"), (32, 80, "36%", "64 or 96"), (32, 112, "27%", "96 or 128"), (14, 64, "23%", "112")],
)
def test_pixels_that_no_patch_has_are_refused_with_the_nearest_sizes(
    side: int, size: int, share: str, sizes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENCODERS, "tiny", EncoderEntry(lambda _: Patches(side), decoder="linear"))
    config = ModelConfig("class_scene", image_size=size, classes=classes_of("class_scene"))
    expected = f"tiny divides images into patches, and at {size} pixels {share} of .*; give --image_size {sizes}$"
    with pytest.raises(UserError, match=expected):
        make_initial_model(tmp_path / "model.safetensors", config, 0)
    assert not list(tmp_path.iterdir())
    fits = replace(config, image_size=int(sizes.split()[-1]))
    assert "\n" not in make_initial_model(tmp_path / "model.safetensors", fits, 0)


class Shared(Patches):
    """A weight with two names."""

    def __init__(self) -> None:
        super().__init__(16)
        self.other = self.conv


class Breaking(Patches):
    """Right forwards; no gradient can be had of it."""

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        vectors = super().forward(images)[0]
        doubled = vectors * vectors
        vectors.add_(1)  # what the gradient needs is gone
        return doubled, []


class Cropping(Patches):
    """Never looks at the last column of pixels."""

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        return images[..., :-1].mean((2, 3)) @ self.conv.weight.mean((2, 3)).T, []


def test_what_cannot_be_trained_is_said_before_it_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig("class_scene", image_size=32, classes=classes_of("class_scene"))
    for network, line in ((Shared(), "layers that share weights"), (Breaking(16), "cannot be trained on images of 32")):
        monkeypatch.setitem(ENCODERS, "tiny", EncoderEntry(lambda _, network=network: network, decoder="linear"))
        with pytest.raises(UserError, match=f"--encoder tiny .*{line}"):
            make_initial_model(tmp_path / "model.safetensors", config, 0)
    assert not list(tmp_path.iterdir())
    monkeypatch.setitem(ENCODERS, "tiny", EncoderEntry(lambda _: Cropping(16), decoder="linear"))
    said = make_initial_model(tmp_path / "model.safetensors", config, 0).splitlines()
    assert said[0] == "--encoder tiny leaves out 3.1% of the pixels, at the borders"


def test_trying_a_model_leaves_weights_and_random_numbers(tmp_path: Path) -> None:
    config = ModelConfig("normal", image_size=16)
    make_initial_model(tmp_path / "model.safetensors", config, 3)
    drawn = torch.rand(1)
    found = load_model(tmp_path / "model.safetensors", "normal", STAGE)
    torch.manual_seed(derived_seed("initial_model", 3))
    expected = TaskModel(config)
    assert torch.equal(drawn, torch.rand(1))
    assert all(torch.equal(tensor, found.state_dict()[name]) for name, tensor in expected.state_dict().items())


def test_batch_norm_over_vectors_cannot_be_group_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(Patches(16), nn.BatchNorm1d(4))
    network.out_features, network.map_channels = 4, ()
    monkeypatch.setitem(ENCODERS, "tiny", EncoderEntry(lambda _: network, decoder="linear"))
    config = ModelConfig("class_scene", image_size=32, norm="group", classes=classes_of("class_scene"))
    with pytest.raises(UserError, match=r"--encoder tiny: 1 of its batch norms .*; give --norm batch"):
        TaskModel(config)
