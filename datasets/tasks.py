"""The vision tasks: everything in which one differs from another, one entry each.

A task says how its files are encoded (`Encoding`), how stored values become a target (`decode`), which loss and
metrics measure it (by name, from `losses.py` and `models/central/metrics.py`) and how it is drawn. To add one, add an
entry to `TASKS`; nothing else in the project branches on a task's name. No entry knows a data set: files, classes and
void ids come from the table of images (`datasets/table.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from datasets.cameras import Camera
from datasets.classes import VOID, ClassSet
from datasets.decoding import (
    decode_boxes,
    decode_class,
    decode_flow,
    decode_image_scale,
    decode_instances,
    decode_log_map,
    decode_log_metres,
    decode_map,
    decode_map_of_normals,
    decode_map_scale,
    decode_metres,
    decode_normals,
    decode_segments,
    decode_signed_scale,
    decode_unit_scale,
    log_in_metres,
    mirror_flow,
    mirror_normals,
    mirror_picture_of_normals,
    published_depth,
    published_in_metres,
    published_picture,
    remake_instances,
    rescale_flow,
    scaled_in_metres,
    scaled_in_units,
)
from utils.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

CLASS = "class"  # the table's column of classes
MASK = "mask"  # its column of id masks, where they are no domain of Taskonomy's
BOXES = "boxes"  # what the classes of its file of boxes are called, and of its maps of instances
INSTANCES = "instances"  # its column of these maps, see `datasets/instances.py`
COLOUR_WHEEL = "wheel"  # in place of a colour map: directions as hues, see `reports/figures/flow.py`
MOTION = "motion"  # its column of optical flow
GRID = 8  # cells per side of a target, or an image, that is made small

_LOSS_LABELS = {"l1": "L1 loss", "mse": "mean squared error", "cross_entropy": "cross-entropy, nats",
                "fcos": "FCOS loss", "panoptic_deeplab": "Panoptic-DeepLab loss",
                "endpoint": "end-point error, px"}  # fmt: skip

# (values as stored, which pixels hold a surface) -> (target, which pixels count)
Decode = Callable[["Tensor", "Tensor"], "tuple[Tensor, Tensor]"]
# (target or output, values as stored, which pixels hold a surface) -> the same in physical units
Physical = Callable[["Tensor", "Tensor", "Tensor"], "Tensor"]


@dataclass(frozen=True)
class Scale:
    """What the stored values of maps of one's own mean: `unit` times the value, and nothing where it is `invalid`.

    Of 16 bits that are `rotated` to the left by three, as SUN RGB-D's are, the value is what they were before. The axes
    of directions are the `world`'s, or else the camera's. `offset` is added to a value before the unit counts. What
    distances are of a `camera` that makes them depth in z. Where maps have masks of what counts, it does where these
    are `valid_from` or more, and `valid_to` or less if there is such a limit. ValueError where the unit is no positive
    number.
    """

    unit: float = 1.0
    invalid: tuple[float, ...] = ()
    rotated: bool = field(default=False, repr=False)  # what else is packed keeps its fingerprint
    world: bool = field(default=False, repr=False)
    offset: float = field(default=0.0, repr=False)
    camera: Camera | None = field(default=None, repr=False)
    valid_from: float = field(default=1.0, repr=False)
    valid_to: float | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not (0 < self.unit < math.inf):
            raise ValueError(f"unit {self.unit!r} is not a positive number")
        if not all(map(math.isfinite, (self.offset, self.valid_from, self.valid_to or 0.0))):
            raise ValueError(f"{self.offset!r}, {self.valid_from!r} and {self.valid_to!r} are to be finite")

    @property
    def more(self) -> dict[str, Any]:
        """What it says beside unit and invalid values, by name, where that is not what older tables mean."""
        usual = Scale()
        names = ("rotated", "world", "offset", "camera", "valid_from", "valid_to")
        return {name: value for name in names if (value := getattr(self, name)) != getattr(usual, name)}


def valid_domain(domain: str, number: int = 0) -> str:
    """The column of the masks of what counts in maps of a domain; of several masks of a map, those of this number."""
    return f"{domain}_valid" + f"_{number + 1}" * (number > 0)


@dataclass(frozen=True)
class MapFiles:
    """How maps of one's own may be stored, see `datasets/maps.py`.

    `distances` are of surfaces: 8 bits are too few for them, and none is 0. Of `signed` ones, whole numbers of 8 or 16
    bits go from -1 to 1, as in pictures of normals. A `flow` is in pixels, in x and y, which become those of the size
    that a map is packed at.
    """

    distances: bool = False
    signed: bool = False
    flow: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class Encoding:
    """How a domain's images are stored.

    `nothing` is the value (a number per channel) of pixels that show no surface; where the domain has no such value,
    `mask` is one that has it for the same view. `categorical` images hold ids, which are never averaged; packed, they
    are the numbers of the table's classes, and `VOID`. A `photograph` may be stored in any mode. `boxes` stand in the
    table's own file, and are packed as (M, 5) per image: left, top, right, bottom in pixels and class. `instances` are
    maps of objects; see `datasets/instances.py`. `maps` are anybody's, which the table says how to read; they are
    packed in their own unit.
    """

    domain: str
    dtype: str
    channels: int
    nothing: tuple[float, ...] | None = None
    mask: Encoding | None = None
    categorical: bool = False
    photograph: bool = False
    boxes: bool = False
    instances: bool = field(default=False, repr=False)  # what else is packed keeps its fingerprint
    maps: MapFiles | None = field(default=None, repr=False)

    @property
    def labelled_by(self) -> str:
        """Whose classes of the table a categorical domain has."""
        return BOXES if self.instances else self.domain

    @property
    def files(self) -> str:
        """The domain whose files are read: where boxes lie in a packed photograph depends on the photograph's size."""
        return RGB.domain if self.boxes else self.domain


@dataclass(frozen=True)
class Task:
    """One vision task.

    `out_channels` are what the model emits: target channels, or classes where `categorical`. `encoding` is None
    where the target is the image's class, which stands in the table and in no image. Which `classes` a categorical
    task has is the table's to say: an entry of the registry has none, and no output, until `with_classes`. An image in
    which nothing is valid does not count, unless the task has `empty_counts`: no object is an answer, too. `unit` is
    that of pictures and their colour bars, into which `physical` turns targets and outputs that are in another.
    `title` is what figures call it; without one, they say `name` in words. Figures show the metrics `drawn` by round
    beside the loss, and call them as it says.
    Where they do not `show_uncounted` pixels, zero is a value like others there, and looks like one.
    `variants` maps a value of `--depth_target`, or "published" for `--published_quirks True`, to the fields that it
    replaces; the published code counts every pixel, and so its decoding is not `masked`. `mirror` is what becomes of a
    target's values, beside their places, where the image is mirrored left to right; `remade` is what is made anew of a
    target whose pixels were moved at all; `rescaled` is what becomes of the values, and of which of them count, where
    the image is enlarged by factors (B, 2) in x and y. Beside those of its classes a task may have `more_channels`.
    A model sees `frames` photographs at once, the channels of one behind those of the other. `zero` is what a
    prediction of zeros is called, where that is one that looks at no image. `version` is raised by one where numbers of
    the task change: its decoding, in any variant, its loss or its metrics.
    """

    name: str
    out_channels: int
    decode: Decode
    loss: str
    metrics: tuple[str, ...]
    encoding: Encoding | None = None
    categorical: bool = False
    activation: str = "identity"
    colormap: str = "viridis"
    value_range: tuple[float, float] | None = (0.0, 1.0)
    unit: str = ""
    physical: Physical | None = None
    classes: ClassSet | None = None
    masked: bool = True
    mirror: Callable[[Tensor], Tensor] | None = None
    remade: Callable[[Tensor], Tensor] | None = None
    rescaled: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    frames: int = 1
    zero: str = ""
    more_channels: int = 0
    empty_counts: bool = False
    title: str = ""
    drawn: Mapping[str, str] = field(default_factory=dict)
    show_uncounted: bool = True
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    version: int = 1

    @property
    def dense(self) -> bool:
        """Whether the target is a map; otherwise it is one class per image, or boxes."""
        return self.encoding is not None and not self.encoding.boxes

    @property
    def boxes(self) -> bool:
        """Whether the target is the boxes of objects."""
        return self.encoding is not None and self.encoding.boxes

    @property
    def instances(self) -> bool:
        """Whether the target is a map of objects."""
        return self.encoding is not None and self.encoding.instances

    @property
    def photographs(self) -> tuple[Encoding, ...]:
        """The photographs that a model sees of an image, in order."""
        return PHOTOGRAPHS[: self.frames]

    @property
    def in_channels(self) -> int:
        """The channels of a model's images: of all photographs that it sees."""
        return sum(photograph.channels for photograph in self.photographs)

    @property
    def label(self) -> str:
        """Its name in figures, such as "Surface normals"."""
        return self.title or self.name.replace("_", " ").capitalize()

    @property
    def loss_label(self) -> str:
        """Its loss in figures, with the unit where it has one: "L1 loss, m"."""
        in_unit = self.loss == "l1" and self.unit and self.physical is None
        return _LOSS_LABELS.get(self.loss, self.loss.replace("_", " ")) + (f", {self.unit}" if in_unit else "")

    @property
    def labelled_by(self) -> str:
        """The column of the table whose classes a categorical task has."""
        return self.encoding.labelled_by if self.encoding else CLASS

    def with_classes(self, classes: ClassSet) -> Task:
        """The task with these classes as outputs."""
        return replace(self, classes=classes, out_channels=len(classes.names) + self.more_channels)


RGB = Encoding("rgb", "uint8", 3, photograph=True)
PHOTOGRAPHS = RGB, RGB_NEXT = RGB, Encoding("rgb_next", "uint8", 3, photograph=True)  # a view, and the frame after it
NO_DEPTH = 65535
DEPTH = Encoding("depth_euclidean", "uint16", 1, nothing=(NO_DEPTH,))
NO_NORMAL = 128
NORMAL = Encoding("normal", "uint8", 3, nothing=(NO_NORMAL,) * 3)
NOTHING = -math.inf  # in packed maps of one's own


def map_encoding(domain: str, channels: int, files: MapFiles) -> Encoding:
    """That of maps of one's own, which the source `maps` finds for the task of the domain's name."""
    return Encoding(domain, "float32", channels, nothing=(NOTHING,) * channels, maps=files)


DEPTH_MAPS = map_encoding("depth", 1, MapFiles(distances=True))

# What tasks of the same kind have in common, whatever their files are: how they are drawn, and depth's variants.
_DEPTH: dict[str, Any] = {
    "activation": "tanh",
    "colormap": "magma_r",
    "value_range": None,
    "unit": "m, given the farthest surface",
}
_IN_METRES: dict[str, Any] = {"activation": "identity", "unit": "m", "physical": None}
_LOG_METRES = _IN_METRES | {"metrics": ("mae", "rmse"), "physical": log_in_metres}
_NORMALS: dict[str, Any] = {"activation": "tanh", "value_range": (-1.0, 1.0), "mirror": mirror_normals}

_ENTRIES = (
    Task(
        "depth_euclidean", 1, decode_image_scale, "l1", ("mae", "rmse", "abs_rel", "delta1"), DEPTH,
        title="Depth", physical=scaled_in_metres, **_DEPTH,
        variants={
            "metric": _IN_METRES | {"decode": decode_metres},
            "log": _LOG_METRES | {"decode": decode_log_metres},
            "published": {"decode": published_depth, "physical": published_in_metres, "masked": False},
        },
    ),
    Task(
        "normal", 3, decode_normals, "l1", ("angle",), NORMAL, title="Surface normals", **_NORMALS,
        variants={
            "published": {
                "decode": published_picture, "metrics": ("mae", "rmse"), "value_range": (0.0, 1.0), "masked": False,
                "mirror": mirror_picture_of_normals,
            },
        },
    ),
    Task(
        "reshading", 1, decode_unit_scale, "mse", ("mae", "rmse", "ssim"),
        Encoding("reshading", "uint8", 1, mask=DEPTH), activation="tanh", colormap="gray",
        variants={"published": {"decode": published_picture, "masked": False}},
    ),
    Task(
        "keypoints3d", 1, decode_image_scale, "l1", ("mae", "rmse"), Encoding("keypoints3d", "uint16", 1),
        title="3D key points", activation="tanh", colormap="inferno",
    ),
    Task(
        "edge_texture", 1, decode_image_scale, "l1", ("mae", "rmse", "edge_f1"),
        Encoding("edge_texture", "uint16", 1, nothing=(0,)), title="Texture edges", activation="tanh", colormap="gray",
        show_uncounted=False,
    ),
    Task(
        "principal_curvature", 2, decode_signed_scale, "mse", ("mae", "rmse"),
        Encoding("principal_curvature", "uint8", 2, nothing=(0, 0)), activation="tanh", colormap="coolwarm",
        value_range=(-0.5, 0.5),
        variants={"published": {"decode": published_picture, "value_range": (0.25, 0.75), "masked": False}},
    ),
    Task(
        "depth", 1, decode_map_scale, "l1", ("mae", "rmse", "abs_rel", "delta1"),
        DEPTH_MAPS,
        title="Depth maps", physical=scaled_in_units, **_DEPTH,
        variants={"metric": _IN_METRES | {"decode": decode_map}, "log": _LOG_METRES | {"decode": decode_log_map}},
    ),
    Task(
        "normals", 3, decode_map_of_normals, "l1", ("angle",), map_encoding("normals", 3, MapFiles(signed=True)),
        title="Maps of normals", **_NORMALS,
    ),
    Task(
        "edges", 1, decode_map_scale, "l1", ("mae", "rmse", "edge_f1"), map_encoding("edges", 1, MapFiles()),
        activation="tanh", colormap="gray",
    ),
    Task(
        "regression", 1, decode_map, "l1", ("mae", "rmse"), map_encoding("regression", 1, MapFiles()),
        title="Regression map", value_range=None,
    ),
    Task(
        "motion", 2, decode_flow, "endpoint", ("flow",), map_encoding(MOTION, 2, MapFiles(flow=True)),
        title="Optical flow", colormap=COLOUR_WHEEL, value_range=None, unit="px", mirror=mirror_flow,
        rescaled=rescale_flow, frames=2, zero="zero flow", drawn={"outliers": "outliers"},
    ),
    Task(
        "segment_semantic", 0, decode_segments, "cross_entropy", ("overlap",),
        Encoding("segment_semantic", "uint8", 1, nothing=(VOID,), categorical=True), categorical=True,
        title="Semantic segmentation", value_range=None, drawn={"miou": "mean IoU"},
        variants={"published": {"activation": "tanh", "metrics": ("published_overlap",)}},
    ),
    Task(
        "segmentation", 0, decode_segments, "cross_entropy", ("overlap",),
        Encoding(MASK, "uint8", 1, nothing=(VOID,), categorical=True), categorical=True, value_range=None,
        drawn={"miou": "mean IoU"},
    ),
    Task(
        "detection", 0, decode_boxes, "fcos", ("average_precision",),
        Encoding(BOXES, "float32", 5, boxes=True), categorical=True, value_range=None, empty_counts=True,
        drawn={"map_50": "mAP at an IoU of 0.5"},
    ),
    Task(
        "instances", 0, decode_instances, "panoptic_deeplab", ("instances",),
        Encoding(INSTANCES, "uint8", 2, nothing=(VOID, 0), categorical=True, instances=True),
        categorical=True, title="Instance segmentation", value_range=None, remade=remake_instances,
        more_channels=4,  # the background, the centres' heat map, and the way to the centre in x and y
        drawn={"pq": "panoptic quality", "map_50": "mask mAP at an IoU of 0.5"},
    ),
    Task(
        "class_scene", 0, decode_class, "cross_entropy", ("hits",), title="Scene classes", categorical=True,
        value_range=None,
        drawn={"accuracy": "accuracy"},
    ),
    Task(
        "classification", 0, decode_class, "cross_entropy", ("hits",), categorical=True, value_range=None,
        drawn={"accuracy": "accuracy"},
    ),
)  # fmt: skip

TASKS: dict[str, Task] = {task.name: task for task in _ENTRIES}
MAPS = {name: task.encoding for name, task in TASKS.items() if task.encoding and task.encoding.maps}
DIRECTIONS = frozenset(task.encoding.domain for task in TASKS.values() if task.encoding and task.mirror)  # in the image
DEPTH_TARGETS = ("scaled", "metric", "log")


def get_task(name: str, depth_target: str = "scaled", published_quirks: bool = False) -> Task:
    """The registry's entry, in the variant that `--depth_target` or `--published_quirks` asks for.

    Raises UserError if there is no such task, or for both arguments at once: the published depth is the scaled one.
    """
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}; --task takes one of {', '.join(TASKS)}")
    if published_quirks and depth_target != "scaled":
        raise UserError(f"--published_quirks True does not support --depth_target {depth_target}; give one of the two")
    task = TASKS[name]
    return replace(task, **task.variants.get("published" if published_quirks else depth_target, {}))
