"""What is clustered: the embedding of a central model, the target itself, the image, or a public network's features.

`model` is what the paper clusters. `target` clusters what the embedding stands in for, without training a network.
`image` is the control, which knows nothing of the task. `timm:<name>` is a public network, whose weights timm
downloads; `efficientnet_lite0` is one whose weights are a Python package; `random:<name>` is a network of timm with
random weights, the control that has learnt nothing.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets.tasks import GRID, RGB
from models.networks.conventions import LOCAL, OWN_SCALING, Scaling
from models.networks.published import LITE0, LITE0_OF_TIMM, load_lite0
from models.networks.weights import EncoderWeights, absolute, conventions, file_in, local_config, timm_filter
from utils.errors import UserError
from utils.streams import derived_seed
from utils.versions import tensors_digest

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from datasets.task_data import Batch, TaskData
    from models.networks.task_model import TaskModel

MODEL = "model"
NAMES = (MODEL, "target", "image", LITE0)
PUBLIC, RANDOM = "timm:", "random:"


@dataclass(frozen=True)
class Features:
    """A feature extractor: `of(batch)` gives (B, `size`) float32; `inputs` names all that the features depend on."""

    size: int
    inputs: str
    of: Callable[[Batch], Tensor]


@dataclass(frozen=True)
class ImageFeatures:
    """A feature extractor that needs the images only: `of` takes (B, 3, S, S) in [0, 1].

    `weights` is the SHA-256 of a network's tensors.
    """

    size: int
    inputs: str
    of: Callable[[Tensor], Tensor]
    weights: str = ""


def features_name(text: str) -> str:
    """An argparse type: one of `NAMES`, or `timm:` or `random:` and the name of a network."""
    if text not in NAMES and not any(text.startswith(prefix) and text != prefix for prefix in (PUBLIC, RANDOM)):
        raise ArgumentTypeError(f"{text!r} is not one of {', '.join(NAMES)}, {PUBLIC}<name> and {RANDOM}<name>")
    return absolute(text)


def features_of(
    name: str, model: TaskModel, data: TaskData, weights_file: Path | None = None, scaling: Scaling = OWN_SCALING
) -> Features:
    """The features of this name. Only "model" runs `model`, the central model; the others read its settings.

    `weights_file` and `scaling` are as for `image_features`, which sees the first photograph where there are several.
    """
    from models.networks.task_model import fingerprint

    _check_takes(name, weights_file, scaling)
    if name == "model":
        return Features(
            model.embedding_size, fingerprint(model), lambda batch: model(batch.images).embedding.flatten(1)
        )
    if name == "target":
        cells = GRID**2 if data.task.encoding else 1
        size = data.task.out_channels * cells
        return Features(size, f"target {GRID}", lambda batch: shrunk_target(data, batch))
    of_images = image_features(name, data.device, weights_file, scaling)
    return Features(of_images.size, of_images.inputs, lambda batch: of_images.of(batch.images[:, : RGB.channels]))


def image_features(
    name: str, device: torch.device, weights_file: Path | None = None, scaling: Scaling = OWN_SCALING
) -> ImageFeatures:
    """Features that look at images alone: "image", or a network.

    `weights_file` has the weights of `timm:<name>`, in place of timm's, and `scaling` is of a network's images, where
    that is not the network's own. UserError where they do not fit, the network could not be downloaded, or the features
    take none.
    """
    _check_takes(name, weights_file, scaling)
    if name == "image":
        return ImageFeatures(3 * GRID**2, f"image {GRID}", shrunk)
    return _network(name, device, weights_file, scaling)


def _check_takes(name: str, weights_file: Path | None, scaling: Scaling) -> None:
    if weights_file and not name.startswith(PUBLIC):
        raise UserError(f"--features {name} takes no --encoder_weights; give --features {PUBLIC}<name>")
    if any(scaling) and name in NAMES and name != LITE0:
        raise UserError(f"--features {name} takes no --image_mean and --image_std; give a network, or omit them")


def shrunk(values: Tensor) -> Tensor:
    """Maps or images (B, C, H, W) as means in a grid of 8 by 8 cells, (B, C * 64); anything else (B, …) flattened."""
    import torch.nn.functional as F

    return (F.adaptive_avg_pool2d(values, GRID) if values.ndim == 4 else values).flatten(1)


def shrunk_target(data: TaskData, batch: Batch) -> Tensor:
    """The targets' means over the pixels that count, in a grid of 8 by 8 cells: (B, C * 64) float32.

    Ids and boxes become shares of the classes; a task of one class per image has the class alone, (B, C). A cell in
    which nothing counts has the mean of its image, and an image in which nothing counts has zeros.
    """
    import torch.nn.functional as F

    from datasets.targets import countable

    values, valid = countable(data.task, batch)
    if values.ndim == 2:
        return (values * valid).float()
    weight = valid.expand_as(values).float()
    values = values.where(valid, 0).float()
    sums, counts = (F.adaptive_avg_pool2d(tensor, GRID) for tensor in (values, weight))
    mean = values.sum((2, 3), keepdim=True) / weight.sum((2, 3), keepdim=True).clamp(min=1)
    return (sums / counts.clamp(min=1e-12)).where(counts > 0, mean).flatten(1)


def _network(name: str, device: torch.device, weights_file: Path | None, scaling: Scaling) -> ImageFeatures:
    """Pooled features of a network of timm, of published or random weights, on images resized and scaled to suit it."""
    import timm  # takes seconds to import
    import torch

    from models.networks.encoders import quiet

    pretrained, of_timm = name.startswith(PUBLIC), LITE0_OF_TIMM if name == LITE0 else name.split(":", 1)[1]
    weights = None
    if pretrained:
        pretrained, weights = _weights_for(of_timm, weights_file)
    elif of_timm.startswith(LOCAL):
        local_config(of_timm)
    try:
        with torch.random.fork_rng(devices=[]), quiet():
            torch.manual_seed(derived_seed("random_network", 0))
            network: Any = timm.create_model(of_timm, pretrained=pretrained, num_classes=0).eval().to(device)
    except (OSError, RuntimeError, ValueError) as error:  # the hub's, and timm's for a name that it does not know
        raise UserError(
            f"--features {name}: timm has no such network or its weights could not be downloaded "
            f"({' '.join(str(error).split())[:200]})"
        ) from error
    if name == LITE0:
        load_lite0(network)
    if weights:
        weights.put_into(network, timm_filter(network))
        weights.check(network, f"--features {name}")
        print(weights.line)
    other = scaling.or_of(weights.scaling) if weights else scaling
    scaled = _Scaled(network, other)
    if not name.startswith(RANDOM) or any(scaling):
        print(conventions(network, f"--features {name}", scaled.scaling, scaling, weights))
    digest = tensors_digest(network.state_dict())
    # Some have a layer between pooling and classes.
    size = int(getattr(network, "head_hidden_size", network.num_features))
    inputs = f"{name} {timm.__version__} {digest}" + (f" {other.settings()}" if any(other) else "")
    return ImageFeatures(size, inputs, scaled.of, digest)


def _weights_for(name: str, weights_file: Path | None) -> tuple[bool, EncoderWeights | None]:
    """As `encoders.weights_for`: whether timm's own are taken, and otherwise those of the file or of timm's folder."""
    if name.startswith(LOCAL):
        local_config(name)
        weights_file = weights_file or file_in(name)
    return weights_file is None, EncoderWeights(weights_file) if weights_file else None


class _Scaled:
    """A network behind the resizing and scaling that its published configuration asks for, or another `scaling`."""

    def __init__(self, network: Any, scaling: Scaling) -> None:
        import torch

        config = network.pretrained_cfg
        self._network, self._size = network, list(config["input_size"][1:])
        device = next(network.parameters()).device
        self.scaling = scaling.or_of(Scaling(config["mean"], config["std"]))
        self._mean, self._std = (torch.tensor(constant, device=device).view(1, 3, 1, 1) for constant in self.scaling)

    def of(self, images: Tensor) -> Tensor:
        """(B, size) float32."""
        import torch.nn.functional as F

        images = F.interpolate(images, self._size, mode="bilinear", antialias=True)
        return self._network((images - self._mean) / self._std).flatten(1)
