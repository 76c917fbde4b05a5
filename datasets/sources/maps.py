"""Photographs with maps of one's own: depth, normals, edges or any number per pixel, as RGB-D cameras leave them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from datasets.cameras import DISTANCES, RAY, Camera, Z
from datasets.flow_files import FLO
from datasets.left_out import main_error
from datasets.sources.labels import GROUP_PATTERN, groups_of_names
from datasets.sources.named_folders import InFolder, filled, in_folder, not_there, photographs, rows_of, say_alone
from datasets.sources.ranges import Sample, lines_of, most_of_map, sample_of
from datasets.sources.source import Source
from datasets.sources.taskonomy import MEDIAN_DEPTH
from datasets.sources.time_stamps import nearest_pairs, next_frame
from datasets.table import PART, Listing
from datasets.tasks import CLASS, MAPS, RGB, RGB_NEXT, TASKS, Encoding, Scale, valid_domain
from utils import progress
from utils.args import POSITIVE
from utils.arguments import Argument
from utils.errors import UserError

_ENDINGS = (".png", ".npy", ".tif", ".tiff", ".pfm", ".exr", ".PNG", ".hdf5", ".h5", FLO)
_SEE = "see --unit, --invalid, --bits and --max_median_depth"


@dataclass(frozen=True)
class _Target:
    """One kind of maps: how they are packed, where they are, how their names begin and end, and what values mean.

    And where the masks of what counts are, and how their names end, if there are some, as of several folders.
    """

    encoding: Encoding
    folder: str
    prefix: str
    suffix: str | None
    scale: Scale
    valid_folders: tuple[str, ...]
    valid_suffix: str | None

    @property
    def masks(self) -> dict[str, str]:
        """The columns of the table that masks of what counts have, and their folders."""
        return {valid_domain(self.encoding.domain, number): folder for number, folder in enumerate(self.valid_folders)}


class Maps(Source):
    """Photographs in folders, and in others, or the same, a map for each, which is a target of the task `--target`.

    A map has its photograph's name, but for what `--image_prefix`, `--image_suffix`, `--target_prefix` and
    `--target_suffix` give, or, with `--nearest_within`, the number that is nearest to its photograph's. Words in braces
    are parts and natural groups, see `datasets/sources/named_folders.py`. Several targets at once take a folder,
    prefix, suffix, unit and invalid value each, or the same for all. Depth is in z, or all of it along the rays, see
    `datasets/cameras.py`. Of a task that sees two frames, the second is the photograph whose name has the next number.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "image_folder": Argument(
            "rgb", "of the photographs; {part}: train, val and test in turn, {any_other_word}: a natural group"
        ),
        "image_suffix": Argument(None, "end of the photographs' names, such as .color.png; default: any image's"),
        "image_prefix": Argument("", "what the photographs' names begin with and the maps' do not, such as rgb_"),
        "target": Argument(None, "task that the maps are targets of, or several", choices=MAPS, nargs="+"),
        "target_folder": Argument(None, "of the maps, with the words of --image_folder", nargs="+"),
        "target_suffix": Argument(None, "end of the maps' names, such as .depth.png; default: .png, .npy …", nargs="+"),
        "target_prefix": Argument(("",), "what the maps' names begin with in its place, such as depth_", nargs="+"),
        "nearest_within": Argument(
            None, "pair by the numbers that files are called, this far from each other at most", POSITIVE
        ),
        "unit": Argument((1.0,), "what 1 in the files is: 0.001 for depth in millimetres", POSITIVE, nargs="+"),
        "invalid": Argument(
            (), "values of pixels where nothing was measured, beside what is not finite; of several targets one each",
            float, nargs="+",
        ),
        "bits": Argument(
            "plain", "of depth in 16 bits: plain, or rotated to the left by three, as SUN RGB-D's are",
            choices=("plain", "rotated"),
        ),
        "axes": Argument(
            "camera", "of normals: camera, the first along the image's width, or world; a mirrored image has none then",
            choices=("camera", "world"),
        ),
        "offset": Argument(0.0, "what is added to the files' values before the unit counts", float),
        "distance": Argument(
            Z, "what depth files hold: z, distances along the ray, or disparity in pixels", choices=DISTANCES
        ),
        "intrinsics": Argument(
            (), "fx fy cx cy in pixels of the maps, by which distances become depth in z", float, nargs=4
        ),
        "baseline": Argument(None, "metres between the two cameras of disparities", POSITIVE),
        "valid_folder": Argument(
            None, "of masks of what counts, with the maps' names, one for each target, or several for one",
            nargs="+",
        ),
        "valid_suffix": Argument(None, "end of the masks' names in place of --target_suffix", nargs="+"),
        "valid_from": Argument(1.0, "least value of these masks where a map counts", float),
        "valid_to": Argument(None, "largest value of these masks where a map counts; default: any", float),
        "together": Argument(None, "natural group whose images are in one split, such as sequence"),
    } | GROUP_PATTERN | MEDIAN_DEPTH  # fmt: skip
    image_folder: str
    image_prefix: str
    image_suffix: str | None
    target: Sequence[str] | None
    target_folder: Sequence[str] | None
    target_prefix: Sequence[str]
    target_suffix: Sequence[str] | None
    nearest_within: float | None
    unit: Sequence[float]
    invalid: Sequence[float]
    bits: str
    axes: str
    offset: float
    distance: str
    intrinsics: Sequence[float]
    baseline: float | None
    valid_folder: Sequence[str] | None
    valid_suffix: Sequence[str] | None
    valid_from: float
    valid_to: float | None
    together: str | None
    group_pattern: str | None
    max_median_depth: float

    def find(self) -> Listing:
        """All photographs that have every map, whole; the others are named."""
        targets = self._targets()
        others = [*(self.target_folder or ()), *(self.valid_folder or ())]
        where = self.image_folder, self.image_prefix, self.image_suffix
        listed = self._photographs = list(photographs(self.data_path, *where, others))
        if not listed:
            raise UserError(
                f"no photograph in {self.data_path / self.image_folder}; see --image_folder, --image_prefix and "
                "--image_suffix"
            )
        domains = [name for target in targets for name in _columns(target)]
        if any(TASKS[target.encoding.domain].frames > 1 for target in targets):
            domains.insert(0, RGB_NEXT.domain)
        rows = rows_of(listed, self.image_folder, domains)
        by_name = groups_of_names(rows[RGB.domain], self.group_pattern, {*rows, *domains, CLASS})
        rows = pd.concat([rows, by_name], axis=1).assign(**{CLASS: -1})
        if RGB_NEXT.domain in domains:
            rows[RGB_NEXT.domain] = rows[RGB.domain].map(next_frame)
        groups = tuple(name for name in rows if name not in (RGB.domain, RGB_NEXT.domain, PART, CLASS))
        self._sizes: set[tuple[int, ...]] = set()
        limits = {target.encoding.domain: self.max_median_depth for target in targets if _is_distance(target.encoding)}
        for target in targets:
            maps = self._maps_of(listed, target)
            endings = [target.suffix] if target.suffix else _ENDINGS
            used = [*maps, *(photograph.cell for photograph in listed)]
            say_alone(self.data_path, target.folder, target.prefix, endings, used)
            rows[target.encoding.domain] = maps
            for column, folder in target.masks.items():
                rows[column] = [self._mask_of(cell, target, folder) for cell in maps]
        self._most = most_of_map(len(rows))
        samples: dict[str, list[Sample]] = {target.encoding.domain: [] for target in targets}
        with ThreadPoolExecutor() as pool:
            answers = pool.map(lambda row: self._file_error(row, targets, limits, samples), rows.to_dict("records"))
            errors = list(progress.bar(answers, total=len(rows), desc="reading maps", unit="image"))
        for target in targets:
            for line in lines_of(target.encoding, target.scale, samples[target.encoding.domain]):
                print(line)
        named = [error for error in errors if error]
        if len(named) == len(rows):
            raise UserError(f"none of {len(rows)} photographs has its maps{main_error(named)}")
        self._say_camera()
        if self.intrinsics and self.distance == RAY and len(self._sizes) > 1:
            raise UserError(f"--intrinsics are those of maps of one size, and these have {len(self._sizes)}")
        rows = rows[[error is None for error in errors]].reset_index(drop=True)
        info = self.dataset_info(
            domains=(RGB.domain, *domains),
            groups=groups,
            together=self.together,
            limits=limits,
            scales={target.encoding.domain: target.scale for target in targets},
        )
        return Listing(rows, info, named)

    def _targets(self) -> list[_Target]:
        """What the arguments say of each target; UserError where they do not fit each other."""
        if not self.target or not self.target_folder:
            raise UserError(f"--source maps needs --target, one of {', '.join(MAPS)}, and --target_folder")
        for argument, value, name in (
            ("bits", self.bits != "plain", "depth"),
            ("axes", self.axes == "world", "normals"),
        ):
            if value and name not in self.target:
                raise UserError(f"--{argument} {getattr(self, argument)}: only of --target {name}")
        n = len(self.target)
        if len(set(self.target)) < n:
            raise UserError(f"--target {' '.join(self.target)} names one twice")
        camera = self._camera()
        if camera is not None and not any(_is_distance(MAPS[name]) for name in self.target):
            raise UserError(f"--distance {self.distance} is of --target depth")
        columns = {
            name: self._values_by_target(name) if getattr(self, name) else [None] * n
            for name in ("target_folder", "target_prefix", "target_suffix", "unit", "valid_suffix")
        }
        masks = self._values_of_target("valid_folder")
        invalid = self._values_of_target("invalid")
        return [
            _Target(
                MAPS[name],
                folder,
                prefix,
                suffix,
                self._scale_of(MAPS[name], unit, values, camera),
                valid_folders,
                valid_suffix,
            )
            for name, values, valid_folders, folder, prefix, suffix, unit, valid_suffix in zip(
                self.target, invalid, masks, *columns.values(), strict=True
            )
        ]

    def _camera(self) -> Camera | None:
        """What makes depth of distances; None where it is in z. UserError where its numbers are not those of one."""
        if self.distance == Z and not self.intrinsics and self.baseline is None:
            return None
        try:
            camera = Camera(self.distance, tuple(self.intrinsics), self.baseline)
        except ValueError as error:
            raise UserError(str(error)) from error
        meaning = (
            ", as they are: --intrinsics would make them depth in z" if not self.intrinsics else " become depth in z"
        )
        print(f"distances along the rays{meaning}" if self.distance == RAY else "disparities become depth in z")
        return camera

    def _say_camera(self) -> None:
        """Print where the middle of the camera's picture is outside of the maps, whose size is then another."""
        outside = [
            (height, width)
            for height, width in sorted(self._sizes)
            if self.intrinsics and not (0 <= self.intrinsics[2] <= width and 0 <= self.intrinsics[3] <= height)
        ]
        if outside:
            height, width = outside[0]
            print(
                f"--intrinsics: cx {self.intrinsics[2]:g} and cy {self.intrinsics[3]:g} lie outside of maps of {width} "
                f"x {height} pixels: are they those of a picture of another size?"
            )

    def _scale_of(self, encoding: Encoding, unit: float, invalid: tuple[float, ...], camera: Camera | None) -> Scale:
        """What stored values of a target mean."""
        assert encoding.maps is not None
        rotated, world = self.bits == "rotated", self.axes == "world"
        return Scale(
            unit,
            invalid,
            rotated=rotated and encoding.maps.distances,
            world=world and encoding.maps.signed,
            offset=self.offset,
            camera=camera if encoding.maps.distances else None,
            valid_from=self.valid_from,
            valid_to=self.valid_to,
        )

    def _values_by_target(self, name: str) -> list[Any]:
        """An argument's value for each target; UserError unless there is one for each, or one for all."""
        assert self.target is not None
        values = list(getattr(self, name))
        if len(values) not in (1, len(self.target)):
            raise UserError(f"--{name}: {len(values)} values for {len(self.target)} targets; give one, or one for each")
        return values * (len(self.target) // len(values))

    def _values_of_target(self, name: str) -> list[tuple[Any, ...]]:
        """An argument's values for each target: one, or none; or all of them for a single one."""
        assert self.target is not None
        values = getattr(self, name)
        if not values or len(self.target) == 1:
            return [tuple(values or ())] * len(self.target)
        return [(value,) for value in self._values_by_target(name)]

    def _maps_of(self, photographs: Sequence[InFolder], target: _Target) -> list[str]:
        """The cells of the photographs' maps, empty where no number is near; UserError where one is the photograph."""
        endings = [target.suffix] if target.suffix else _ENDINGS
        if self.nearest_within is not None:
            return self._nearest_maps(photographs, target, endings, self.nearest_within)
        cells = [photograph.beside(self.data_path, target.folder, target.prefix, endings) for photograph in photographs]
        if own := [cell for cell, photograph in zip(cells, photographs, strict=True) if cell == photograph.cell]:
            raise UserError(
                f"{own[0]} would be its own {target.encoding.domain}; see --image_suffix and --target_suffix, "
                "--image_prefix and --target_prefix"
            )
        return cells

    def _nearest_maps(
        self, listed: Sequence[InFolder], target: _Target, endings: Sequence[str], within: float
    ) -> list[str]:
        """`_maps_of` by the numbers that files are called, folder by folder."""
        of_folders: dict[tuple[str, str], list[int]] = {}
        for i, photograph in enumerate(listed):
            place = filled(target.folder, photograph.words), filled(target.prefix, photograph.words)
            of_folders.setdefault(place, []).append(i)
        cells = [""] * len(listed)
        for (folder, prefix), members in of_folders.items():
            maps = [
                photograph
                for suffix in endings
                for photograph in photographs(self.data_path, folder, prefix, suffix)
                if photograph.cell not in {listed[i].cell for i in members}
            ]
            numbers = [_number(feature_map) for feature_map in maps]
            for i, j in nearest_pairs([_number(listed[i]) for i in members], numbers, within).items():
                cells[members[i]] = maps[j].cell
        return cells

    def _mask_of(self, cell: str, target: _Target, folder: str) -> str:
        """The cell of the mask in a folder of what counts in a map, which has its name."""
        of_map = in_folder(cell, target.folder, target.prefix, target.suffix) if cell else None
        if of_map is None:
            return ""
        suffix = target.valid_suffix or target.suffix
        endings = [suffix] if suffix else _ENDINGS
        return of_map.beside(self.data_path, folder, target.prefix, endings)

    def _file_error(
        self,
        row: dict[str, str],
        targets: Sequence[_Target],
        limits: dict[str, float],
        samples: Mapping[str, list[Sample]],
    ) -> str | None:
        """What is wrong with a photograph's maps, which are read whole; None where nothing is. Adds to the samples."""
        from datasets.maps import counting, in_units, stored_map
        from datasets.packed import check_limit, surface

        after = row.get(RGB_NEXT.domain)
        if after and (after == row[RGB.domain] or not (self.data_path / after).is_file()):
            return not_there(self.data_path, after, "second frame")
        for target in targets:
            encoding = target.encoding
            cell, masks = row[encoding.domain], [row[column] for column in target.masks]
            if not cell:
                return f"{row[RGB.domain]}: no {encoding.domain} whose number is near enough; see --nearest_within"
            if not (self.data_path / cell).is_file():
                what = not_there(self.data_path, cell, "map")
                return f"{what}; see --target_folder, --target_prefix and --target_suffix"
            if absent := [mask for mask in masks if not (self.data_path / mask).is_file()]:
                what = not_there(self.data_path, absent[0], "mask of what counts")
                return f"{what}; see --valid_folder and --valid_suffix"
            try:
                stored = stored_map(self.data_path, cell, encoding)
                counts = counting(self.data_path, masks, stored.shape[1:], target.scale)
                values = in_units(stored, encoding, target.scale, counts)
                self._sizes.add(values.shape[1:])
            except ValueError as error:
                return f"{cell}: {error}"
            known = surface(values, encoding)
            samples[encoding.domain].append(sample_of(values, known, self._most, stored))
            try:
                check_limit(values[:, known], limits.get(encoding.domain), encoding)
            except ValueError as error:
                return f"{cell}: {error} {_SEE}"
        return None


def _is_distance(encoding: Encoding) -> bool:
    return encoding.maps is not None and encoding.maps.distances


def _columns(target: _Target) -> list[str]:
    """The columns of the table that a target has."""
    return [target.encoding.domain, *target.masks]


def _number(file: InFolder) -> float:
    """The number that a file is called; UserError where it is none."""
    try:
        if math.isfinite(number := float(file.stem)):
            return number
    except ValueError:
        pass
    raise UserError(
        f"{file.cell}: --nearest_within pairs files by their numbers, and {file.stem!r} is none; see --image_prefix "
        "and --image_suffix, --target_prefix and --target_suffix"
    )
