"""Teachers of methods such as FedDifRC: frozen networks that make vectors of each image, whatever the task.

An image has one or more vectors, called columns: one for each text that the teacher is given with it, and last its own,
without such a text. A diffusion model gives both; any other network gives the image's own only. The teacher says which
column is the positive; what is learnt from the columns is left to the method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from models.embedding.features import features_name, image_features
from models.networks.conventions import OWN_SCALING, Scaling
from utils.args import POSITIVE_INT, number
from utils.errors import UserError
from utils.settings import Settings, setting
from utils.stage import StageSettings
from utils.streams import generator

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from datasets.table import Table

DIFFUSION = "diffusion"
PROMPTS = ("class", "neutral")
DEFAULT_MODEL = "stable-diffusion-v1-5/stable-diffusion-v1-5"
# Section 4.3 of FedDifRC: the texts of images whose class nobody knows.
SIMILAR, ANY_OBJECT = "a photo of a similar object", "a photo of a visual object"
_NEUTRAL_NEGATIVES = 9  # where no number is given: as many as CIFAR-10's images have
_STEPS = 1000  # of the noise that Stable Diffusion was trained with


def teacher_name(text: str) -> str:
    """An argparse type: `diffusion`, or a kind of features that looks at images alone."""
    if text in ("model", "target"):
        raise ArgumentTypeError(f"{text!r} is a task's own, and no teacher of it")
    return text if text == DIFFUSION else features_name(text)


def _place(text: str) -> str:
    """A folder by its absolute path, so that the settings hold wherever they are read; other names as they are."""
    return str(Path(text).resolve()) if Path(text).is_dir() else text


@dataclass(frozen=True)
class TeacherSettings(Settings):
    """What a teacher is made of; the names are those of `extract_diffusion_features.py`'s arguments."""

    heading: ClassVar[str] = "model"

    features: str = setting(
        DIFFUSION,
        "the teacher: diffusion, image (thumbnails), or a network with published or random weights, "
        "efficientnet_lite0, timm:<name> or random:<name>",
        teacher_name,
    )
    diffusion_model: str = setting(
        DEFAULT_MODEL, "Stable Diffusion: a folder that diffusers has saved, or a name of the Hugging Face hub", _place
    )
    diffusion_size: int = setting(224, "pixels per side of the teacher's images", number(int, least=16))
    timestep: int = setting(150, "step of the noise in an image's own features", number(int, least=0, most=_STEPS - 1))
    layers: Sequence[int] = setting((2, 3, 4), "blocks of the decoder, the deepest is 1", POSITIVE_INT, nargs="+")
    prompts: str = setting(
        "class", "texts for the teacher: the classes' names, or neutral ones that name no class", choices=PROMPTS
    )
    n_negatives: int | None = setting(
        None,
        "texts per image besides the right one; default: all other classes, "
        f"or {_NEUTRAL_NEGATIVES} with neutral prompts",
        POSITIVE_INT,
    )
    blank_images: bool = setting(False, "control: the teacher gets black images", bool)
    precision: str = StageSettings.precision
    rand_seed: int = StageSettings.rand_seed

    def __post_init__(self) -> None:
        """Layers are a tuple, as JSON has none."""
        object.__setattr__(self, "layers", tuple(self.layers))


class Teacher(ABC):
    """Makes `columns` vectors of each image of a table; the last column is the image's own.

    `positive` (N,) is each image's positive column, -1 where it has none. `layers` names what `maps` gives, and
    `inputs` everything that the values depend on beside the images. `same_texts` says that a column's text is the same
    for all images. `weights` is the SHA-256 of the teacher's, if it has any.
    """

    columns: int
    layers: tuple[str, ...]
    positive: np.ndarray
    inputs: str
    texts: tuple[str, ...] = ()
    same_texts = False
    weights = ""

    @abstractmethod
    def maps(
        self, images: Tensor, rows: np.ndarray, columns: np.ndarray, condition: Tensor | None = None
    ) -> Iterator[list[Tensor]]:
        """Some columns (B, n) of images (B, 3, S, S) in [0, 1], which stand in these rows of the table.

        Yields batch after batch, image by image, for each layer maps (b, C, H, W) or vectors (b, C), float32.
        `condition` (B, width) is added to all tokens of the texts, but not for an image's own column.
        """


class DiffusionTeacher(Teacher):
    """A frozen Stable Diffusion: conditional features at t = 0, and one's own, denoising, at `timestep`.

    Equations 7 and 9 of FedDifRC (arXiv 2507.06482). Noise is drawn for each image, by the seed and the image's name.

    Args:
        settings: which model, and how.
        table: of the images.
        device: where it computes.
        at_once: passes of the denoiser that are computed together.
    """

    def __init__(self, settings: TeacherSettings, table: Table, device: torch.device, at_once: int) -> None:
        from models.teacher.diffusion import Diffusion

        self._settings, self._ids, self._at_once = settings, table.image_ids, at_once
        self.texts, self._text_of, self.positive = prompts_of(settings, table)
        self.columns = self._text_of.shape[1]
        self.same_texts = bool((self._text_of[:, :-1] == self._text_of[0, :-1]).all())
        self.layers = tuple(f"n = {layer}" for layer in settings.layers)
        self._model = Diffusion(settings.diffusion_model, settings.layers, device, settings.precision)
        self._encoded = self._model.texts(self.texts)
        self.weights = self._model.digest
        self.inputs = f"{self._model.digest} {_apart_from_place(settings)} {self.texts}"

    @property
    def width(self) -> int:
        """Of a token's embedding."""
        return self._model.width

    @property
    def token_norm(self) -> float:
        """The mean length of the texts' token embeddings."""
        return float(self._encoded.float().norm(dim=-1).mean())

    def maps(
        self, images: Tensor, rows: np.ndarray, columns: np.ndarray, condition: Tensor | None = None
    ) -> Iterator[list[Tensor]]:
        """One pass of the denoiser for each column of each image."""
        import torch

        clean, n = self._model.latents(images), columns.shape[1]
        noise = np.stack([self._noise(int(row), clean.shape[1:]) for row in rows])
        noisy = self._model.noisy(clean, torch.from_numpy(noise), self._settings.timestep)
        own = torch.from_numpy(columns == self.columns - 1).flatten().to(clean.device)
        image = torch.arange(len(rows), device=clean.device).repeat_interleave(n)
        text = torch.from_numpy(np.take_along_axis(self._text_of[rows], columns, axis=1).ravel()).to(clean.device)
        for at in torch.arange(len(image), device=clean.device).split(self._at_once):
            latents = noisy[image[at]].where(own[at, None, None, None], clean[image[at]])
            texts = self._encoded[text[at]]
            if condition is not None:
                texts = texts + (condition[image[at]] * ~own[at, None])[:, None].to(texts)
            yield self._model.maps(latents, torch.where(own[at], self._settings.timestep, 0), texts)

    def _noise(self, row: int, shape: Sequence[int]) -> np.ndarray:
        return generator("noise", self._settings.rand_seed, self._ids[row]).standard_normal(shape, np.float32)


class NetworkTeacher(Teacher):
    """Any network that looks at an image alone, of `models.embedding.features`: an image has its own vector only.

    `size` is that of its vectors. UserError where `--precision bf16` is asked of a device that does not have it.
    """

    columns, layers = 1, ("features",)

    def __init__(
        self,
        settings: TeacherSettings,
        table: Table,
        device: torch.device,
        weights_file: Path | None = None,
        scaling: Scaling = OWN_SCALING,
    ) -> None:
        from models.networks.precision import wants_bf16

        self._bf16 = wants_bf16(settings.precision, device)
        self._features = image_features(settings.features, device, weights_file, scaling)
        self.size = self._features.size
        self.weights = self._features.weights
        self.positive = np.full(len(table), -1)
        self.inputs = f"{self._features.inputs} {_apart_from_place(settings)}"

    def maps(
        self, images: Tensor, rows: np.ndarray, columns: np.ndarray, condition: Tensor | None = None
    ) -> Iterator[list[Tensor]]:
        """The features of the images (B, size), one batch."""
        import torch

        images = images.contiguous(memory_format=torch.channels_last)
        with torch.no_grad(), torch.autocast(images.device.type, torch.bfloat16, enabled=self._bf16):
            features = self._features.of(images)
        yield [features.float()]


class SeenTeacher(Teacher):
    """A network that has looked at all images: `vectors` (N, size) float32, by the table's rows, are what it saw."""

    def __init__(self, network: NetworkTeacher, vectors: np.ndarray) -> None:
        self.columns, self.layers, self.positive = network.columns, network.layers, network.positive
        self.inputs, self.weights, self._vectors = network.inputs, network.weights, vectors

    def maps(
        self, images: Tensor, rows: np.ndarray, columns: np.ndarray, condition: Tensor | None = None
    ) -> Iterator[list[Tensor]]:
        """The vectors of these rows, one batch."""
        import torch

        yield [torch.from_numpy(self._vectors[rows]).to(images.device)]


def build_teacher(
    settings: TeacherSettings,
    table: Table,
    device: torch.device,
    at_once: int,
    weights_file: Path | None = None,
    scaling: Scaling = OWN_SCALING,
) -> Teacher:
    """The teacher of these settings, or with the weights of a file; UserError where it could not be downloaded.

    `scaling` is of a network's images, as for `models.embedding.features.image_features`.
    """
    if settings.features == DIFFUSION:
        if weights_file:
            raise UserError("--features diffusion takes no --encoder_weights; give --diffusion_model a folder")
        if any(scaling):
            raise UserError("--features diffusion takes no --image_mean and --image_std; omit them")
        return DiffusionTeacher(settings, table, device, at_once)
    return NetworkTeacher(settings, table, device, weights_file, scaling)


def prompts_of(settings: TeacherSettings, table: Table) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """All texts; which of them each column of each image has, (N, P + 1); and each image's positive column (N,).

    With class prompts the columns are the classes, or with `n_negatives` the image's class and others drawn by the
    seed; an image without a class has no positive. The last column's text is that of the true class (equation 9).
    With neutral ones the first column is the positive and the others are names that have nothing to do with the data:
    the paper takes Tiny-ImageNet's; here they are all of ImageNet's, which include them and are at hand.
    """
    n, seed, n_negatives = len(table), settings.rand_seed, settings.n_negatives
    if settings.prompts == "neutral":
        names = _imagenet_names()
        if n_negatives and n_negatives > len(names):
            raise UserError(f"--n_negatives {n_negatives}: neutral prompts are of {len(names)} names; give no more")
        drawn = generator("negatives", seed).choice(len(names), n_negatives or _NEUTRAL_NEGATIVES, replace=False)
        texts = (SIMILAR, *(prompt(names[i]) for i in drawn), ANY_OBJECT)
        return texts, np.tile(np.arange(len(texts)), (n, 1)), np.zeros(n, np.int64)
    if not table.class_names:
        raise UserError(f"--prompts class: the images of {table.data_path} have no classes; give --prompts neutral")
    labels, n_classes = table.labels, len(table.class_names)
    texts = (*map(prompt, table.class_names), ANY_OBJECT)
    own = np.where(labels >= 0, labels, n_classes)[:, None]
    if n_negatives is None or n_negatives >= n_classes - 1:
        return texts, np.hstack([np.tile(np.arange(n_classes), (n, 1)), own]), labels.copy()
    drawn = np.stack(
        [
            generator("negatives", seed, name).permutation(np.delete(np.arange(n_classes), max(label, 0)))[:n_negatives]
            for name, label in zip(table.image_ids, labels.tolist(), strict=True)
        ]
    )
    return texts, np.hstack([np.maximum(labels, 0)[:, None], drawn, own]), np.where(labels >= 0, 0, -1)


def _apart_from_place(settings: TeacherSettings) -> TeacherSettings:
    return replace(settings, diffusion_model="")  # whose weights have a sum


def prompt(name: str) -> str:
    """The text of a class: underscores and slashes of a name such as Places' are spaces."""
    return f"a photo of a {' '.join(name.replace('_', ' ').replace('/', ' ').split())}"


def _imagenet_names() -> list[str]:
    from torchvision.models import ResNet18_Weights

    return ResNet18_Weights.DEFAULT.meta["categories"]
