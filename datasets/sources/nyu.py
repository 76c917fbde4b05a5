"""NYU Depth v2: its 1449 labelled photographs, with every domain of Taskonomy that follows from photograph and depth.

Silberman et al., ECCV 2012. The file is `nyu_depth_v2_labeled.mat` (2.8 GB, HDF5) of the authors' page.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from PIL import Image

from datasets.classes import ClassSet
from datasets.sources.source import Source
from datasets.sources.taskonomy import SEGMENTED, SEGMENTS, commonest, depth_limit
from datasets.table import Listing
from datasets.tasks import CLASS
from utils import progress
from utils.arguments import Argument
from utils.errors import UserError
from utils.files import read_json, write_atomically, write_json

if TYPE_CHECKING:
    from datasets.captures import Capture

DOMAINS = (
    "rgb",
    "depth_euclidean",
    "normal",
    "reshading",
    "keypoints3d",
    "edge_texture",
    "principal_curvature",
    "segment_semantic",
)
# The colour camera's focal lengths and centre in pixels, from the data set's own toolbox (camera_params.m).
FOCAL, CENTRE = (518.857901, 519.469611), (325.582449, 253.736166)
# Rows and columns with labels: the margin around them is white, from undistorting the photographs.
_ROWS, _COLUMNS = slice(44, 471), slice(40, 601)
_WINDOW = 9  # pixels to a side of the patches that normals are fitted to
# The data set's names of Taskonomy's classes, where they differ.
_ALSO_CALLED = {
    "sofa": "couch", "plant": "potted plant", "table": "dining table", "television": "tv", "books": "book",
    "oven range": "oven",
}  # fmt: skip
_EXTRACTED = "nyu.json"
_VERSION = 1  # of the extracted files


class Nyu(Source):
    """Photograph, depth, segmentation and scene class as published; the rest computed (see `datasets/captures.py`).

    Depth becomes the distance along the ray; where the sensor measured nothing there is no surface. Of the scene types
    the 16 commonest are kept. Photographs of one `scene` (one recording) stay together. The first call writes the
    files, in Taskonomy's encodings, beside the `.mat` file.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "mat_file": Argument("nyu_depth_v2_labeled.mat", "the labelled NYUv2 file, in the data folder"),
    }
    is_rendered: ClassVar[bool] = True
    mat_file: str

    def find(self) -> Listing:
        """All photographs of the commonest scene types."""
        record_path = self.data_path / _EXTRACTED
        if not record_path.is_file():
            extract(self.data_path / self.mat_file, self.data_path)
        record = read_json(record_path, "extract_datapoints_for_experiments.py --source nyu")
        if record.get("version") != _VERSION:
            raise UserError(f"{record_path} is of another version; remove it to extract the photographs again")
        types = sorted(set(record["types"]))
        rows = pd.DataFrame({domain: [_cell(domain, i) for i in range(len(record["types"]))] for domain in DOMAINS})
        rows = rows.assign(place=[types.index(name) for name in record["types"]], scene=record["scenes"])
        rows, places = commonest(rows)
        info = self.dataset_info(
            domains=DOMAINS,
            groups=("scene",),
            together="scene",
            limits=depth_limit(),
            classes={CLASS: ClassSet(tuple(types[place] for place in places)), SEGMENTED: SEGMENTS},
        )
        return Listing(rows, info)


def extract(mat_file: Path, data_path: Path) -> None:
    """Write every photograph's domains as PNG files, and `nyu.json` with scene types and recordings."""
    try:
        import h5py
    except ImportError as error:
        raise UserError("--source nyu reads HDF5: pip install h5py") from error
    try:
        with h5py.File(mat_file) as file:
            names = ["unlabeled", *_strings(file, "names")]
            types, scenes = _strings(file, "sceneTypes"), _strings(file, "scenes")
            ids = taskonomy_ids(names)
            with ThreadPoolExecutor() as pool:
                numbers = range(len(types))
                written = pool.map(lambda i: _write(data_path, i, _Labelled(file, i).capture(ids)), numbers)
                for _ in progress.bar(written, total=len(types), desc="NYUv2", unit="photograph"):
                    pass
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise UserError(f"{mat_file}: not the labelled NYUv2 file ({error}); see --mat_file") from error
    write_json(data_path / _EXTRACTED, {"version": _VERSION, "types": types, "scenes": scenes})


def taskonomy_ids(names: list[str]) -> np.ndarray:
    """For each of NYUv2's label names Taskonomy's class id, uint8: 0 unlabelled, 1 background for all others."""
    known = {name: i for i, name in enumerate(SEGMENTS.names)}
    labels = [known.get(_ALSO_CALLED.get(name, name), known["background"]) for name in names]
    return np.array([0, *labels[1:]], np.uint8)


def normals_of(depth: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Unit normals (H, W, 3) that face the camera, by least squares in a window around each pixel.

    The inverse depth 1/z of a plane is linear in the ray's slopes x (right) and y (down), with the normal as
    coefficients: so planes come out exactly, however they lie. On the pixel grid x and y are uncorrelated in a window,
    and each coefficient is a covariance over a variance.

    Args:
        depth: (H, W) float64, z in metres, along the camera's axis, > 0.
        x: (H, W) float64, slopes of the rays to the right.
        y: (H, W) float64, slopes downwards.
    """

    from scipy import ndimage

    def mean(values: np.ndarray) -> np.ndarray:
        """The mean over the window around each pixel."""
        return ndimage.uniform_filter(values, _WINDOW, mode="nearest")

    inverse = 1 / depth
    middle = mean(inverse)
    a, b = ((mean(s * inverse) - mean(s) * middle) / (mean(s * s) - mean(s) ** 2) for s in (x, y))
    # (a, b, c) points away from the camera; in the camera's frame y goes up and z back.
    normals = np.stack([-a, b, middle - a * mean(x) - b * mean(y)], axis=-1)
    return normals / np.linalg.norm(normals, axis=-1, keepdims=True)


class _Labelled:
    """One photograph of the file, whose arrays are transposed as MATLAB's are."""

    def __init__(self, file: Any, number: int) -> None:
        self._file, self._number = file, number

    def _array(self, name: str) -> np.ndarray:
        return np.moveaxis(self._file[name][self._number], (-1, -2), (0, 1))[_ROWS, _COLUMNS]

    def capture(self, ids: np.ndarray) -> Capture:
        """The photograph with its geometry; `ids` maps the file's labels to Taskonomy's."""
        from datasets.captures import Capture

        depth, measured = self._array("depths").astype(np.float64), self._array("rawDepths") > 0
        rows, columns = np.mgrid[_ROWS, _COLUMNS]
        x, y = (columns - CENTRE[0]) / FOCAL[0], (rows - CENTRE[1]) / FOCAL[1]
        seen = measured & (depth > 0)
        depth = np.where(depth > 0, depth, 10.0)  # filled, so that what lies beside a gap has a neighbourhood
        ray = np.stack([x, -y, -np.ones_like(x)], axis=-1)
        points = depth[..., None] * ray

        def known(values: np.ndarray) -> np.ndarray:
            """The values, NaN where the sensor measured nothing."""
            return np.where(seen.reshape(*seen.shape, *[1] * (values.ndim - 2)), values, np.nan).astype(np.float32)

        return Capture(
            self._array("images").astype(np.float32) / 255,
            known(np.linalg.norm(points, axis=-1)),
            known(normals_of(depth, x, y)),
            known(points),
            ids[self._array("labels")],
        )


def _strings(file: Any, name: str) -> list[str]:
    """A cell array of texts."""
    return ["".join(map(chr, np.asarray(file[reference]).ravel())) for reference in np.asarray(file[name]).ravel()]


def _cell(domain: str, number: int) -> str:
    return f"{domain}/nyu/{number:04}.png"


def _write(data_path: Path, number: int, capture: Capture) -> None:
    from datasets.captures import encode

    for domain, values in encode(capture).items():
        with write_atomically(data_path / _cell(domain, number)) as temporary:
            Image.fromarray(values).save(temporary, format="png")
