"""An encoder's weights from a file, against timm's own loader and the networks that were saved; and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor, nn

from models.embedding.features import image_features
from models.networks.config import ModelConfig
from models.networks.encoders import EncoderRequest, _resized_clip, build_encoder, encoder_name
from models.networks.task_model import TaskModel, fingerprint, load_model, make_initial_model, save_model
from models.networks.weights import EncoderWeights
from models.teacher.teachers import build_teacher
from network.provenance import provenance
from utils.errors import UserError
from utils.versions import file_digest, tensors_digest

VIT, RESNET = "timm:test_vit", "timm:test_resnet"
CPU = torch.device("cpu")
Saved = Callable[[Any], Path]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """What torch.save makes of something."""

    def save(content: Any) -> Path:
        torch.save(content, tmp_path / "weights.pth")
        return tmp_path / "weights.pth"

    return save


def network(name: str = "test_vit", **settings: Any) -> nn.Module:
    torch.manual_seed(5)
    made = timm.create_model(name, **settings).eval()
    for tensor in made.state_dict().values():
        if tensor.is_floating_point():  # statistics of batch norm, too
            tensor.copy_(torch.rand_like(tensor) / 4 + 0.01)
    return made


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def encoder_of(name: str, path: Path, size: int = 64, most_stride: int | None = None, norm: str = "batch") -> nn.Module:
    return build_encoder(name, EncoderRequest(size, False, norm, most_stride, EncoderWeights(path))).eval()


WRAPPERS: dict[str, Callable[[dict[str, Tensor]], Any]] = {
    "none": lambda tensors: tensors,
    "state_dict": lambda tensors: {"epoch": 3, "state_dict": tensors, "optimizer": {"lr": 0.1}},
    "model, module": lambda tensors: {"model": with_prefix("module.", tensors), "args": Namespace(lr=1)},
    "backbone": lambda tensors: with_prefix("backbone.", tensors) | {"head.weight": torch.zeros(3)},
    "module.backbone": lambda tensors: with_prefix("module.backbone.", tensors),
    "teacher": lambda tensors: {
        "student": with_prefix("module.backbone.", {name: tensor * 0 for name, tensor in tensors.items()}),
        "teacher": with_prefix("backbone.", tensors),
    },
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", [VIT, RESNET])
def test_wrappers_prefixes_and_the_classifier_are_taken_off(name: str, wrapper: str, saved: Saved) -> None:
    of_file = network(name.removeprefix("timm:"))
    encoder = encoder_of(name, saved(WRAPPERS[wrapper](of_file.state_dict())), size=160)
    of_file.reset_classifier(0)  # type: ignore[operator]
    assert all(torch.equal(tensor, of_file.state_dict()[n]) for n, tensor in encoder.backbone.state_dict().items())
    images = torch.rand(1, 3, 160, 160)
    with torch.no_grad():
        torch.testing.assert_close(encoder(images)[0], of_file((images - encoder.mean) / encoder.std))


def test_position_embeddings_are_resized_as_timm_does(saved: Saved) -> None:
    path = saved(network().state_dict())
    expected = timm.create_model(
        "test_vit", pretrained=True, pretrained_cfg_overlay={"file": str(path)}, img_size=64, num_classes=0
    ).state_dict()
    found = encoder_of(VIT, path).backbone.state_dict()
    assert found["pos_embed"].shape != network().state_dict()["pos_embed"].shape
    assert found.keys() == expected.keys() and all(torch.equal(found[each], expected[each]) for each in found)


def test_positions_of_clip_are_resized() -> None:
    visual = SimpleNamespace(grid_size=(2, 2))
    saved = {"positional_embedding": torch.arange(10.0)[:, None].expand(10, 4), "proj": torch.ones(1)}
    found = _resized_clip(saved, visual)  # type: ignore[arg-type]
    assert found["positional_embedding"].shape == (5, 4) and found["proj"] is saved["proj"]
    assert (found["positional_embedding"][0] == 0).all()  # the class's own
    torch.testing.assert_close(found["positional_embedding"][1:].mean(), torch.tensor(5.0))  # the mean of 1 to 9


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_torchvisions_networks_take_their_own_names(name: str, suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    of_file, path = torchvision.models.get_model(name).eval(), tmp_path / f"x{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(of_file.state_dict(), path)
    encoder, images = encoder_of(name, path), torch.rand(1, 3, 64, 64)
    last = of_file.fc if name == "resnet18" else of_file.classifier[1]
    scaled = (images - encoder.mean) / encoder.std
    with torch.no_grad():
        torch.testing.assert_close(last(encoder(images)[0]), of_file(scaled))


@pytest.mark.parametrize(
    "name, norm", [("tiny", "group"), ("resnet10", "batch"), ("resnet18", "group"), (RESNET, "batch")]
)
def test_a_model_of_ours_gives_its_encoder(name: str, norm: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    torch.manual_seed(1)
    before = TaskModel(ModelConfig("normal", name, 32, norm))
    save_model(before, path)
    after = encoder_of(name, path, 32, norm=norm).state_dict()
    assert all(torch.equal(tensor, after[each]) for each, tensor in before.encoder.state_dict().items())


def test_layers_that_a_decoder_of_maps_does_without_may_be_missing(saved: Saved) -> None:
    tensors = network("test_efficientnet").state_dict()
    path = saved({name: tensor for name, tensor in tensors.items() if not name.startswith(("conv_head", "bn2"))})
    encoder_of("timm:test_efficientnet", path, most_stride=32)
    with pytest.raises(UserError, match=r"5 of its \d+ tensors are missing or of another shape \(conv_head.weight"):
        encoder_of("timm:test_efficientnet", path)


def test_what_was_read_stands_in_line_settings_and_environment(saved: Saved, tmp_path: Path) -> None:
    path, model = saved(network("test_resnet").state_dict()), tmp_path / "model.safetensors"
    line, _, made = make_initial_model(model, ModelConfig("normal", RESNET, 32), 0, None, path).split("\n")
    loaded = load_model(model, "normal", "a stage")
    assert line.startswith(
        f"all {len(loaded.encoder.state_dict())} tensors of the encoder are from {path}, which has 2 "
    )
    assert "(fc.weight, fc.bias)" in line and "(weights.pth)" in made
    about = {"file": "weights.pth", "bytes": path.stat().st_size, "sha256": file_digest(path)}
    assert loaded.config.weights == about
    config = loaded.config.record() | {"result_path": tmp_path}
    assert json.loads(json.dumps(provenance(config)))["encoder_weights"] == about


def test_models_without_a_file_are_what_they_were(tmp_path: Path) -> None:
    model = TaskModel(ModelConfig("normal", "tiny", 32))
    said = {
        "task": "normal", "encoder": "tiny", "image_size": 32, "norm": "batch", "use_cbam": False,
        "depth_target": "scaled", "published_quirks": False, "classes": None, "decoder": "taskonomy",
        "bottleneck": None,
    }  # fmt: skip
    digest = hashlib.sha256((json.dumps(said) + tensors_digest(model.state_dict())).encode()).hexdigest()
    assert fingerprint(model) == digest
    assert "encoder_weights" not in provenance(model.config.record() | {"result_path": tmp_path})


def test_both_kinds_of_weights_are_refused(saved: Saved) -> None:
    for pretrained in (True, False):
        with pytest.raises(UserError, match="--encoder_weights takes the place of --pretrained; give one"):
            make_initial_model(Path(), ModelConfig("normal", RESNET, 32), 0, pretrained, saved({}))


# Files that are no weights


class Code:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("was_run",)


def torn(path: Path) -> None:
    torch.save(network("test_resnet").state_dict(), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def of_safetensors_torn(path: Path) -> None:
    save_file(network("test_resnet").state_dict(), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def with_nan(path: Path) -> None:
    tensors = network("test_resnet").state_dict()
    tensors["layer1.0.conv1.weight"][0, 0, 0, 0] = torch.nan
    torch.save(tensors, path)


UNREADABLE = "neither safetensors nor a state dict without pickled code, or cut off .*; copy it again, or save it by"
BAD: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "absent": ("x.pth", lambda path: None, r"x\.pth: cannot be read \(No such file or directory\)"),
    "folder": ("x.pth", Path.mkdir, "is a folder; give the file of weights in it"),
    "pipe": ("x.pth", os.mkfifo, "is not a file; give the file of weights"),
    "empty": ("x.pth", Path.touch, "is empty; copy it again"),
    "pointer": (
        "x.safetensors",
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"),
        "is a pointer of Git LFS, not the weights; fetch them: git lfs pull",
    ),
    "torn": ("x.pth", torn, UNREADABLE),
    "torn safetensors": ("x.safetensors", of_safetensors_torn, UNREADABLE),
    "page": ("x.bin", lambda path: path.write_text("<!DOCTYPE html><html>Not found</html>"), UNREADABLE),
    "code": ("x.pth", lambda path: torch.save({"conv1.weight": Code()}, path), UNREADABLE),
    "pickle": ("x.pkl", lambda path: path.write_bytes(pickle.dumps({"a": Code()})), UNREADABLE),
    "whole model": ("x.pth", lambda path: torch.save(network("test_resnet"), path), UNREADABLE),
    "a list": ("x.pth", lambda path: torch.save([torch.zeros(2)], path), UNREADABLE),
    "no tensors": ("x.pth", lambda path: torch.save({"epoch": 1}, path), "holds no tensors; give a state dict"),
    "another's": (
        "x.pth",
        lambda path: torch.save(network("test_vit").state_dict(), path),
        r"does not fit --encoder timm:test_resnet: \d+ of its \d+ tensors are missing or of another shape "
        r"\(conv1\.\S+, \S+, \S+ and \d+ more\); give the weights of that network",
    ),
    "nan": ("x.pth", with_nan, r"1 of \d+ tensors have values that are not finite \(layer1\.0\.conv1\.weight\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_one_line(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, write, message = BAD[case]
    write(tmp_path / name)
    with pytest.raises(UserError, match=message) as raised:
        make_initial_model(tmp_path / "init.safetensors", ModelConfig("normal", RESNET, 32), 0, None, tmp_path / name)
    assert "\n" not in str(raised.value) and not Path("was_run").exists()
    assert not (tmp_path / "init.safetensors").exists()


# Folders of timm, and features


def local_dir(path: Path, name: str = "test_vit") -> nn.Module:
    """A folder as timm saves it for the hub."""
    made = network(name)
    path.mkdir()
    timm.models.save_for_hf(made, path, safe_serialization=True)
    return made


def test_a_folder_of_timm_is_an_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_file = local_dir(tmp_path / "own")
    monkeypatch.chdir(tmp_path)
    name = encoder_name("timm:local-dir:own")
    assert name == f"timm:local-dir:{tmp_path / 'own'}"
    line = make_initial_model(tmp_path / "init.safetensors", ModelConfig("normal", name, 160), 0)
    assert "are from" in line
    loaded = load_model(tmp_path / "init.safetensors", "normal", "a stage")
    assert loaded.config.weights == EncoderWeights(tmp_path / "own/model.safetensors").record
    assert torch.equal(loaded.encoder.backbone.pos_embed, of_file.pos_embed)
    make_initial_model(tmp_path / "random.safetensors", ModelConfig("normal", name, 32), 0, False)
    assert load_model(tmp_path / "random.safetensors", "normal", "a stage").config.weights is None


def test_features_of_a_file_are_those_of_the_folder(tmp_path: Path) -> None:
    of_file = local_dir(tmp_path / "own")
    images = torch.rand(2, 3, 160, 160)
    folder = image_features(f"timm:local-dir:{tmp_path / 'own'}", CPU)
    file = image_features(VIT, CPU, tmp_path / "own/model.safetensors")
    with torch.no_grad():
        of_file.reset_classifier(0)  # type: ignore[operator]
        mean, std = (torch.tensor(of_file.pretrained_cfg[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
        expected = of_file((images - mean) / std)
        torch.testing.assert_close(folder.of(images), expected)
        torch.testing.assert_close(file.of(images), expected)
    random = image_features("random:test_vit", CPU)
    assert folder.weights == file.weights != random.weights
    assert all(len(each.weights) == 64 and each.weights in each.inputs for each in (folder, file, random))


@pytest.mark.parametrize("make", ["absent", "no config", "no weights", "unknown"])
def test_folders_that_are_none_are_one_line(make: str, tmp_path: Path) -> None:
    own = tmp_path / "own"
    messages = {
        "absent": "has no config.json of a network of timm",
        "no config": "has no config.json of a network of timm",
        "no weights": "has no model.safetensors or pytorch_model.bin; bring the weights, too",
        "unknown": "has no network 'nosuch'; see timm.list_models",
    }
    if make != "absent":
        local_dir(own)
    if make in ("no config", "no weights"):
        (own / {"no config": "config.json", "no weights": "model.safetensors"}[make]).unlink()
    if make == "unknown":
        (own / "config.json").write_text(json.dumps({"architecture": "nosuch", "pretrained_cfg": {}}))
    for ask in (
        lambda: make_initial_model(tmp_path / "x.safetensors", ModelConfig("normal", f"timm:local-dir:{own}", 32), 0),
        lambda: image_features(f"timm:local-dir:{own}", CPU),
    ):
        with pytest.raises(UserError, match=messages[make]) as raised:
            ask()
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["image", "random:test_vit", "efficientnet_lite0"])
def test_only_public_networks_take_a_file(kind: str, saved: Saved) -> None:
    with pytest.raises(UserError, match=f"--features {kind} takes no --encoder_weights; give --features timm:<name>"):
        image_features(kind, CPU, saved({}))


def test_a_diffusion_model_takes_no_file(saved: Saved) -> None:
    settings: Any = SimpleNamespace(features="diffusion")
    with pytest.raises(UserError, match="diffusion takes no --encoder_weights; give --diffusion_model a folder"):
        build_teacher(settings, None, CPU, 1, saved({}))  # type: ignore[arg-type]


def test_another_networks_file_is_refused_for_features(saved: Saved) -> None:
    with pytest.raises(UserError, match="does not fit --features timm:test_vit: "):
        image_features(VIT, CPU, saved(network("test_resnet").state_dict()))
