"""RGB-D videos with poses, as of 7-Scenes, ScanNet and TUM: pairs of frames, whose flow follows by depth and poses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from datasets.cameras import Z
from datasets.flow_files import PAIR, Pair
from datasets.left_out import main_error
from datasets.sources.maps import Maps
from datasets.sources.named_folders import InFolder, filled
from datasets.sources.time_stamps import by_numbers, nearest_pairs
from datasets.table import Listing
from datasets.tasks import DEPTH_MAPS, MOTION, RGB, RGB_NEXT
from utils.args import POSITIVE_INT
from utils.arguments import Argument
from utils.errors import UserError
from utils.words import counted

_OF_MAPS = (
    "image_folder",
    "image_suffix",
    "image_prefix",
    "target_folder",
    "target_suffix",
    "target_prefix",
    "nearest_within",
    "unit",
    "invalid",
    "intrinsics",
    "together",
    "group_pattern",
    "max_median_depth",
)
_NO_ROTATION = 0.01  # by which a pose's axes may differ from unit length and right angles


class Motion(Maps):
    """Videos whose photographs have depth maps, as of `maps --target depth`, and the poses of their camera.

    A pose leads from the camera's axes, x right, y down and z ahead, to the world's. It is a file of 4 x 4 numbers for
    each photograph, or a line of one file for each video, `--trajectory`, the nearest in time to the photograph. Each
    photograph is the first of a pair, and the second is `--frame_step` further on in the same folder, by the numbers in
    the names. What says how the flow is computed is written into the folder `motion`, a file for each pair.
    """

    arguments: ClassVar[dict[str, Argument]] = {name: Maps.arguments[name] for name in _OF_MAPS} | {
        "pose_folder": Argument(None, "of the poses, a file for each photograph, with the words of --image_folder"),
        "pose_suffix": Argument(".txt", "end of their names, such as .pose.txt"),
        "trajectory": Argument(None, "file of a video's poses: lines of time, x y z, and quaternion x y z w, as TUM's"),
        "frame_step": Argument(1, "frames from the first photograph of a pair to the second", POSITIVE_INT),
    }
    pose_folder: str | None
    pose_suffix: str
    trajectory: str | None
    frame_step: int
    target: Sequence[str] | None = ("depth",)
    bits, axes, offset, distance, baseline = "plain", "camera", 0.0, Z, None
    valid_folder, valid_suffix, valid_from, valid_to = None, None, 1.0, None

    def find(self) -> Listing:
        """All pairs whose photographs have depth, whole, and poses; the others are named."""
        if not self.target_folder or len(self.intrinsics) != 4 or min(self.intrinsics[:2]) <= 0:
            raise UserError(
                "--source motion needs --target_folder, of depth, and --intrinsics fx fy cx cy in its pixels"
            )
        if (self.pose_folder is None) == (self.trajectory is None):
            raise UserError("--source motion needs --pose_folder or --trajectory, and not both")
        of_depth = super().find()
        depth = dict(zip(of_depth.rows[RGB.domain], of_depth.rows[DEPTH_MAPS.domain], strict=True))
        errors, pairs = [], {}
        for first, second in self._pairs():
            if first.cell not in depth:
                continue  # named already
            try:
                pairs[first.cell] = second.cell, self._written(first, second, depth)
            except ValueError as error:
                errors.append(f"{first.cell}: {error}")
        if not pairs:
            raise UserError(f"no pair of photographs with depth and poses{main_error([*of_depth.errors, *errors])}")
        print(f"{counted(len(pairs), 'pair')} of photographs, {counted(self.frame_step, 'frame')} apart")
        rows = of_depth.rows[of_depth.rows[RGB.domain].isin(list(pairs))].reset_index(drop=True)
        rows[[RGB_NEXT.domain, MOTION]] = [pairs[cell] for cell in rows[RGB.domain]]
        info = replace(of_depth.info, domains=(RGB.domain, RGB_NEXT.domain, DEPTH_MAPS.domain, MOTION))
        return Listing(rows, info, [*of_depth.errors, *errors])

    def _camera(self) -> None:
        """Depth is in z."""

    def _pairs(self) -> list[tuple[InFolder, InFolder]]:
        """The photographs of each folder with those `frame_step` further on."""
        videos: dict[Path, list[InFolder]] = defaultdict(list)
        for photograph in sorted(self._photographs, key=lambda listed: by_numbers(listed.cell)):
            videos[Path(photograph.cell).parent].append(photograph)
        return [pair for video in videos.values() for pair in zip(video, video[self.frame_step :], strict=False)]

    def _written(self, first: InFolder, second: InFolder, depth: dict[str, str]) -> str:
        """The cell of the file that says how a pair's flow is computed; ValueError says what the pair lacks."""
        if second.cell not in depth:
            raise ValueError(f"its second frame {second.cell} has no depth")
        motion = np.linalg.inv(self._pose(second)) @ self._pose(first)
        maps = depth[first.cell], depth[second.cell]
        cell = (Path(MOTION) / first.cell).with_suffix(PAIR).as_posix()
        rows = tuple(map(tuple, motion.tolist()))
        Pair(*maps, self.unit[0], tuple(self.invalid), tuple(self.intrinsics), rows).write(self.data_path, cell)
        return cell

    def _pose(self, photograph: InFolder) -> np.ndarray:
        """The pose (4, 4) of a photograph's camera; ValueError where there is none, or it is no pose."""
        if self.pose_folder is not None:
            cell = photograph.beside(self.data_path, self.pose_folder, "", [self.pose_suffix])
            pose = _numbers(self.data_path / cell)
        else:
            from scipy.spatial.transform import Rotation  # slow to import

            assert self.trajectory is not None
            cell = filled(self.trajectory, photograph.words)
            lines = _numbers(self.data_path / cell)
            if lines.shape[1] != 8:
                raise ValueError(f"{cell} has {lines.shape[1]} numbers in a line, and not time, x y z and x y z w")
            nearest = nearest_pairs([float(photograph.stem)], lines[:, 0].tolist(), self.nearest_within or 0.0)
            if not nearest:
                raise ValueError(f"no pose of {cell} is near enough; see --nearest_within")
            pose = np.eye(4)
            pose[:3, 3] = lines[nearest[0], 1:4]
            pose[:3, :3] = Rotation.from_quat(lines[nearest[0], 4:]).as_matrix()
        if pose.shape != (4, 4) or not np.isfinite(pose).all():
            raise ValueError(f"its pose {cell} is not 4 x 4 finite numbers")
        if np.abs(pose[:3, :3] @ pose[:3, :3].T - np.eye(3)).max() > _NO_ROTATION or np.linalg.det(pose[:3, :3]) < 0:
            raise ValueError(f"its pose {cell} has no rotation")
        return pose


@lru_cache(maxsize=8)
def _numbers(path: Path) -> np.ndarray:
    """The numbers of a text file in rows; ValueError where it cannot be read."""
    try:
        return np.loadtxt(path, ndmin=2)
    except (OSError, ValueError) as error:
        raise ValueError(f"its pose cannot be read ({error})") from error
