"""Files of optical flow: `.flo` of Middlebury, PNG of 16 bits of KITTI, and pairs of depth maps with poses.

| file | what |
|---|---|
| `x.flo` | the tag 202021.25, width and height in 32 bits, then x and y of each pixel as floats; unknown above 1e9 |
| `x.png` | red and green: 64 times x and y, plus 2^15; blue: 0 where nothing is known |
| `x.json` | a `Pair`, whose flow is computed as it is read |
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from datasets.motion import Pinhole, flow_by_depth
from utils.files import json_in, write_atomically

FLO, PAIR = ENDINGS = ".flo", ".json"
_TAG = np.float32(202021.25)
_HEADER = np.dtype([("tag", "<f4"), ("width", "<i4"), ("height", "<i4")])
_UNKNOWN = 1e9
_KITTI_ZERO, _KITTI_STEPS = 2.0**15, 64.0
_SAME_DEPTH = 0.03  # share by which a point's depth may differ in the next frame: depth cameras' noise at some metres


@dataclass(frozen=True)
class Pair:
    """Two depth maps of a video, of which the flow follows by the cameras' poses.

    `depth` and `depth_next` are cells of maps in z, `unit` and `invalid` are as in `Scale`, `intrinsics` are fx, fy, cx
    and cy in pixels of the maps, and `motion` (4 rows of 4) leads from the first camera's axes to the next one's, in
    the unit of depth. ValueError where they cannot be that.
    """

    depth: str
    depth_next: str
    unit: float
    invalid: tuple[float, ...]
    intrinsics: tuple[float, ...]
    motion: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        numbers = np.array([self.unit, *self.intrinsics, *self.invalid, *np.ravel(self.motion)], float)
        if len(self.intrinsics) != 4 or np.shape(self.motion) != (4, 4) or not np.isfinite(numbers).all():
            raise ValueError("no four intrinsics, or a motion that is not 4 x 4, or numbers that are not finite")
        if numbers[:3].min() <= 0 or not all(isinstance(name, str) for name in (self.depth, self.depth_next)):
            raise ValueError("its unit and focal lengths are above 0, and its maps are named by texts")

    @classmethod
    def read(cls, path: Path) -> Pair:
        """From its file; ValueError where that holds none."""
        try:
            return cls(**json_in(path))
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"no pair of depth maps ({error})") from error

    def write(self, data_path: Path, cell: str) -> None:
        """Into a cell's file, in a folder that is made where it is missing.

        One that says the same, and is as new as the maps, stays: what is packed of it is then as good as ever.
        """
        text, path = json.dumps(asdict(self)), data_path / cell
        maps = [data_path / name for name in (self.depth, self.depth_next)]
        with suppress(OSError):
            if path.read_text(encoding="utf-8") == text and _time(path) >= max(map(_time, maps)):
                return
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def flow(self, read_depth: Callable[[str, float, tuple[float, ...]], np.ndarray]) -> np.ndarray:
        """The flow (2, H, W) in pixels of the maps, NaN where nothing is known; see `flow_by_depth`.

        `read_depth` gives a cell's depth (H, W), NaN where nothing is known, by the unit and the invalid values.
        """
        first, second = (read_depth(cell, self.unit, self.invalid) for cell in (self.depth, self.depth_next))
        if first.shape != second.shape:
            raise ValueError(f"depth of {first.shape} and then of {second.shape} pixels")
        return flow_by_depth(first, second, Pinhole(*self.intrinsics), np.array(self.motion), _SAME_DEPTH)


def _time(path: Path) -> int:
    return path.stat().st_mtime_ns


def read_flo(path: Path) -> np.ndarray:
    """The flow (2, H, W) float32 of a `.flo` file, NaN where it is unknown; ValueError says what is wrong with it."""
    height, width = flo_size(path)
    values = np.fromfile(path, "<f4", offset=_HEADER.itemsize)
    if values.size != 2 * height * width:
        raise ValueError(f"{values.size} numbers where {width} x {height} pixels have {2 * height * width}")
    values = values.reshape(height, width, 2).transpose(2, 0, 1)
    with np.errstate(invalid="ignore"):
        return np.where((np.abs(values) <= _UNKNOWN).all(axis=0), values, np.float32(np.nan))


def flo_size(path: Path) -> tuple[int, int]:
    """Height and width of a `.flo` file, from its header; ValueError where it has none."""
    try:
        header = np.fromfile(path, _HEADER, 1)
    except OSError as error:
        raise ValueError(f"cannot be read ({error})") from error
    if not len(header) or header["tag"][0] != _TAG:
        raise ValueError(f"it does not begin with the tag {_TAG} of .flo files")
    height, width = int(header["height"][0]), int(header["width"][0])
    if min(height, width) < 1:
        raise ValueError(f"{width} x {height} pixels in its header")
    return height, width


def read_kitti_flow(path: Path) -> np.ndarray:
    """The flow (2, H, W) float32 of KITTI's PNG of 16 bits, NaN where nothing is known; ValueError if unreadable."""
    from torchvision.io import ImageReadMode, read_image  # Pillow reads the upper 8 bits alone

    try:
        values = read_image(str(path), ImageReadMode.UNCHANGED).numpy()
    except RuntimeError as error:
        raise ValueError(f"not a readable image ({error})") from error
    return with_known(np.concatenate([(values[:2] - _KITTI_ZERO) / _KITTI_STEPS, values[2:3]]))


def with_known(values: np.ndarray) -> np.ndarray:
    """A flow (2, H, W) float32 of two channels and of a third that says where it is known, if there is one."""
    if len(values) != 3:
        return values
    return np.where(values[2] > 0, values[:2], np.nan).astype(np.float32)
