"""Photographs with maps of one's own: depth, normals, edges or any number per pixel, as RGB-D cameras leave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from datasets.left_out import main_fault
from datasets.sources.labels import GROUP_PATTERN, groups_of_names
from datasets.sources.named_folders import InFolder, beside, filled, not_there, photographs, rows_of
from datasets.sources.ranges import Sample, lines_of, most_of_map, sample_of
from datasets.sources.source import Source
from datasets.sources.taskonomy import MEDIAN_DEPTH
from datasets.table import PART, Found
from datasets.tasks import CLASS, MAPS, RGB, Encoding, Scale
from utils import progress
from utils.args import POSITIVE
from utils.arguments import Argument
from utils.errors import UserError

_ENDINGS = (".png", ".npy", ".tif", ".tiff", ".pfm", ".exr", ".PNG")
_SEE = "see --unit, --invalid, --bits and --max_median_depth"


@dataclass(frozen=True)
class _Target:
    """One kind of maps: how they are packed, where they are, the endings of their names, and what their values mean."""

    encoding: Encoding
    folder: str
    endings: Sequence[str]
    scale: Scale


class Maps(Source):
    """Photographs in folders, and in others, or the same, a map for each, which is a target of the task `--target`.

    A map has its photograph's name, but for the endings that `--image_suffix` and `--target_suffix` give. Words in
    braces in the names of folders are parts and natural groups, see `datasets/sources/named_folders.py`. Several
    targets at once take a folder, suffix, unit and invalid value each, or the same for all.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "image_folder": Argument(
            "rgb", "of the photographs; {part}: train, val and test in turn, {any_other_word}: a natural group"
        ),
        "image_suffix": Argument(None, "end of the photographs' names, such as .color.png; default: any image's"),
        "target": Argument(None, "task that the maps are targets of, or several", choices=MAPS, nargs="+"),
        "target_folder": Argument(None, "of the maps, with the words of --image_folder", nargs="+"),
        "target_suffix": Argument(None, "end of the maps' names, such as .depth.png; default: .png, .npy …", nargs="+"),
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
        "together": Argument(None, "natural group whose images are held out together, such as sequence"),
    } | GROUP_PATTERN | MEDIAN_DEPTH  # fmt: skip
    image_folder: str
    image_suffix: str | None
    target: Sequence[str] | None
    target_folder: Sequence[str] | None
    target_suffix: Sequence[str] | None
    unit: Sequence[float]
    invalid: Sequence[float]
    bits: str
    axes: str
    together: str | None
    group_pattern: str | None
    max_median_depth: float

    def find(self) -> Found:
        """All photographs that have every map, whole; the others are named."""
        targets = self._targets()
        found = list(photographs(self.data_path, self.image_folder, self.image_suffix))
        if not found:
            raise UserError(
                f"no photograph in {self.data_path / self.image_folder}; see --image_folder, --image_suffix"
            )
        domains = [each.encoding.domain for each in targets]
        rows = rows_of(found, self.image_folder, domains)
        by_name = groups_of_names(rows[RGB.domain], self.group_pattern, {*rows, *domains, CLASS})
        rows = pd.concat([rows, by_name], axis=1).assign(**{CLASS: -1})
        groups = tuple(name for name in rows if name not in (RGB.domain, PART, CLASS))
        limits = {each.encoding.domain: self.max_median_depth for each in targets if self._is_distance(each)}
        for target in targets:
            rows[target.encoding.domain] = [self._map_of(each, target) for each in found]
        self._most = most_of_map(len(rows))
        samples: dict[str, list[Sample]] = {each.encoding.domain: [] for each in targets}
        with ThreadPoolExecutor() as pool:
            answers = pool.map(lambda row: self._fault(row, targets, limits, samples), rows.to_dict("records"))
            faults = list(progress.bar(answers, total=len(rows), desc="reading maps", unit="image"))
        for target in targets:
            for line in lines_of(target.encoding, target.scale, samples[target.encoding.domain]):
                print(line)
        named = [fault for fault in faults if fault]
        if len(named) == len(rows):
            raise UserError(f"none of {len(rows)} photographs has its maps{main_fault(named)}")
        rows = rows[[fault is None for fault in faults]].reset_index(drop=True)
        about = self.about(
            domains=(RGB.domain, *(each.encoding.domain for each in targets)), groups=groups, together=self.together,
            limits=limits, scales={each.encoding.domain: each.scale for each in targets},
        )  # fmt: skip
        return Found(rows, about, named)

    def _targets(self) -> list[_Target]:
        """What the arguments say of each target; UserError where they do not fit each other."""
        if not self.target or not self.target_folder:
            raise UserError(f"--source maps needs --target, one of {', '.join(MAPS)}, and --target_folder")
        for argument, given, name in (
            ("bits", self.bits != "plain", "depth"),
            ("axes", self.axes == "world", "normals"),
        ):
            if given and name not in self.target:
                raise UserError(f"--{argument} {getattr(self, argument)}: only of --target {name}")
        n = len(self.target)
        if len(set(self.target)) < n:
            raise UserError(f"--target {' '.join(self.target)} names one twice")
        folders, units = self._each("target_folder"), self._each("unit")
        suffixes = self._each("target_suffix") if self.target_suffix else [None] * n
        invalid = [tuple(self.invalid)] if n == 1 or not self.invalid else [(each,) for each in self._each("invalid")]
        return [
            _Target(MAPS[name], folder, [suffix] if suffix else _ENDINGS, self._scale_of(MAPS[name], unit, values))
            for name, folder, suffix, unit, values in zip(
                self.target, folders, suffixes, units, invalid * (n // len(invalid)), strict=True
            )
        ]

    def _scale_of(self, encoding: Encoding, unit: float, invalid: tuple[float, ...]) -> Scale:
        """What stored values of a target mean."""
        assert encoding.maps is not None
        rotated, world = self.bits == "rotated", self.axes == "world"
        return Scale(unit, invalid, rotated and encoding.maps.distances, world and encoding.maps.signed)

    def _each(self, name: str) -> list[Any]:
        """An argument's value for each target; UserError unless there is one for each, or one for all."""
        assert self.target is not None
        values = list(getattr(self, name))
        if len(values) not in (1, len(self.target)):
            raise UserError(f"--{name}: {len(values)} values for {len(self.target)} targets; give one, or one for each")
        return values * (len(self.target) // len(values))

    def _map_of(self, photograph: InFolder, target: _Target) -> str:
        """The cell of a photograph's map; UserError where that would be the photograph itself."""
        cell = beside(self.data_path, filled(target.folder, photograph.words), photograph.stem, target.endings)
        if cell == photograph.cell:
            raise UserError(f"{cell} would be its own {target.encoding.domain}; see --image_suffix and --target_suffix")
        return cell

    @staticmethod
    def _is_distance(target: _Target) -> bool:
        return target.encoding.maps is not None and target.encoding.maps.distances

    def _fault(
        self,
        row: dict[str, str],
        targets: Sequence[_Target],
        limits: dict[str, float],
        samples: Mapping[str, list[Sample]],
    ) -> str | None:
        """What is wrong with a photograph's maps, which are read whole; None where nothing is. Adds to the samples."""
        from datasets.maps import in_units, stored_map
        from datasets.packed import check_limit, surface

        for target in targets:
            encoding = target.encoding
            cell = row[encoding.domain]
            if not (self.data_path / cell).is_file():
                return not_there(self.data_path, cell, "map")
            try:
                stored = stored_map(self.data_path, cell, encoding)
                values = in_units(stored, encoding, target.scale)
            except ValueError as error:
                return f"{cell}: {error}"
            known = surface(values, encoding)
            samples[encoding.domain].append(sample_of(values, known, self._most, stored))
            try:
                check_limit(values[:, known], limits.get(encoding.domain), encoding)
            except ValueError as error:
                return f"{cell}: {error} {_SEE}"
        return None
