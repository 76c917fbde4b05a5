"""Taskonomy on disk: where the file of each domain lies, and how the split files and class lists read.

One image of Taskonomy is a view of a point in a building, and every domain (rgb, depth, scene class …) has one
file a view: `<data_path>/<domain>/taskonomy/<building>/point_<p>_view_<v>_domain_<name>`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from utils.errors import UserError

N_PLACES = 365

# File endings that are not simply `<domain>.png`; the first is the one that the download tool writes.
_ENDINGS = {
    "segment_semantic": ("segmentsemantic.png", "segment_semantic.png"),
    "class_scene": ("class_places.npy", "class_scene.npy"),
}
_VIEW = re.compile(r"point_(\d+)_view_(\d+)_domain_")


@dataclass(frozen=True, order=True)
class View:
    """One image: view `view` of point `point` in building `building`."""

    building: str
    point: int
    view: int

    @classmethod
    def parse(cls, path: str | Path) -> View:
        """The view that a Taskonomy file shows, from its path; ValueError if the name is not Taskonomy's."""
        path = Path(path)
        match = _VIEW.match(path.name)
        if match is None:
            raise ValueError(f"not a Taskonomy file name: {path.name}")
        if not is_building(path.parent.name):
            raise ValueError(f"{path.parent.name!r} is no building name")
        return cls(path.parent.name, int(match[1]), int(match[2]))

    def path(self, domain: str, ending: str | None = None) -> Path:
        """The file of `domain`, relative to the data folder, as the download tool names it."""
        ending = ending or file_endings(domain)[0]
        name = f"point_{self.point}_view_{self.view}_domain_{ending}"
        return Path(domain, "taskonomy", self.building, name)

    def find(self, data_path: Path, domain: str) -> Path | None:
        """The file of `domain` under `data_path`, under any accepted name; None where there is none."""
        candidates = (data_path / self.path(domain, ending) for ending in file_endings(domain))
        return next((path for path in candidates if path.is_file()), None)


def is_building(name: str) -> bool:
    """Whether this can be a building's name: that of a folder which lies in no other place than its domain's."""
    return re.fullmatch(r"[\w.\-]+", name) is not None and set(name) != {"."}


def file_endings(domain: str) -> tuple[str, ...]:
    """The accepted endings of a domain's file names, the usual one first."""
    return _ENDINGS.get(domain, (f"{domain}.png",))


def list_views(data_path: Path, domain: str, building: str) -> list[View]:
    """The views of a building that have a file of `domain`, in order of point and view."""
    folder = data_path / domain / "taskonomy" / building
    endings = tuple(f"_domain_{ending}" for ending in file_endings(domain))
    if not folder.is_dir():
        return []
    names = (entry.name for entry in folder.iterdir() if entry.name.endswith(endings))
    return sorted({View.parse(folder / name) for name in names if _VIEW.match(name)})


def read_buildings(path: Path) -> list[str]:
    """Building names of a split file (columns id, train, val, test), in its order.

    The official files end their lines with a bare carriage return, which `splitlines` takes like any other.
    """
    lines = _read_text(path, "the building list", "--client_file_name").splitlines()
    header = [column.strip() for column in lines[0].split(",")] if lines else []
    if "id" not in header:
        raise UserError(f"{path}: the first line must name a column 'id', as in Taskonomy's split files")
    column = header.index("id")
    rows = [line.split(",") for line in lines[1:] if line.strip()]
    buildings = [row[column].strip() if column < len(row) else "" for row in rows]
    strange = [name for name in buildings if not is_building(name)]
    if strange:
        raise UserError(f"{path}: {strange[0]!r} is no building name; mend the list, see --client_file_name")
    return list(dict.fromkeys(buildings))


def read_class_names(path: Path) -> list[str]:
    """The 365 Places class names without quotes and letter folders: `'/b/bathroom'` reads `bathroom`."""
    lines = _read_text(path, "the scene class names", "--scene_class_file_name").splitlines()
    names = [re.sub(r"^/\w/", "", line.split()[0].strip("'\"")) for line in lines if line.strip()]
    if len(names) != N_PLACES:
        raise UserError(f"{path}: {len(names)} class names where Places has {N_PLACES}")
    return names


def read_scene_class(path: Path) -> int:
    """The Places class of one view: the largest of the 365 logits in a `class_scene` file.

    Raises ValueError, which says what is wrong with the file.
    """
    try:
        logits = np.load(path, allow_pickle=False)
        finite = np.isfinite(logits).all()
    except (OSError, ValueError, EOFError, TypeError, SyntaxError, AttributeError) as error:
        raise ValueError(f"cannot be read as a NumPy array of numbers ({error})") from error
    if logits.size != N_PLACES or not finite:
        raise ValueError(f"{logits.size} values where {N_PLACES} finite logits should stand")
    return int(logits.reshape(-1).argmax())


def _read_text(path: Path, what: str, argument: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read {what} ({error}); see {argument}") from error
