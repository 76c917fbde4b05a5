"""Photographs in folders whose names say something, and the files beside them: `{part}/{city}` and the like.

In the name of a folder `{part}` stands for folders whose names begin with train, val or test, and any other `{word}`
for all folders; their names become the natural group `word`, behind those of the words before it: `chess/seq-01`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pandas as pd

from datasets.sources.listing import IMAGE_ENDINGS, say_no_part, say_not_read
from datasets.table import PART, PARTS
from datasets.tasks import CLASS, RGB
from utils.errors import UserError

PLACE = "{part}"
_WORD = re.compile(r"\{([A-Za-z_]\w*)\}", re.ASCII)


@dataclass(frozen=True)
class InFolder:
    """A photograph's cell, its name without the ending, and what the words in its folder's name stand for."""

    cell: str
    stem: str
    words: Mapping[str, str]

    @property
    def part(self) -> str:
        """Its part; empty where the folder's name says none."""
        return _part_of(self.words.get(PART, ""))


def photographs(data_path: Path, folder: str, suffix: str | None) -> Iterator[InFolder]:
    """The photographs in the folders that `folder` names, in order; with a `suffix`, those whose names end with it.

    Lines say which other pictures, and which folders called like no part, are left out.
    """
    folders: list[tuple[Path, Mapping[str, str]]] = []
    no_part: list[tuple[Path, Mapping[str, str]]] = []
    for found, words in _folders(data_path, Path(), Path(folder).parts, {}):
        (folders if PLACE not in folder or _part_of(words[PART]) else no_part).append((found, words))
    say_no_part(folder, [found.as_posix() for found, _ in no_part if _has_photograph(data_path / found, suffix)])
    if suffix is None:
        say_not_read(folder, [path.name for found, _ in folders for path in (data_path / found).iterdir()])
    for found, words in folders:
        for path in sorted((data_path / found).iterdir()):
            is_image = path.name.endswith(suffix) if suffix else path.suffix.lower() in IMAGE_ENDINGS
            if is_image and not path.name.startswith("."):
                stem = path.name.removesuffix(suffix) if suffix else path.stem
                yield InFolder((found / path.name).as_posix(), stem, words)


def _has_photograph(folder: Path, suffix: str | None) -> bool:
    endings = (suffix,) if suffix else IMAGE_ENDINGS
    return any(path.name.lower().endswith(endings) for path in folder.iterdir())


def rows_of(found: Sequence[InFolder], folder: str, domains: Sequence[str]) -> pd.DataFrame:
    """A row for each photograph: its cell, its part where there are parts, and its natural groups.

    UserError where one of these is called like the class or one of the `domains` that the table will have.
    """
    words = [word for word in dict.fromkeys(_WORD.findall(folder)) if word != PART]
    if taken := {RGB.domain, CLASS, *domains}.intersection(words):
        name = min(taken)
        raise UserError(f"{folder}: {{{name}}} would be a natural group called like another column; rename it")
    rows = pd.DataFrame({RGB.domain: [each.cell for each in found]})
    if any(each.part for each in found):
        rows[PART] = [each.part for each in found]
    for number, word in enumerate(words, start=1):
        rows[word] = ["/".join(each.words[before] for before in words[:number]) for each in found]
    return rows


def filled(folder: str, words: Mapping[str, str]) -> str:
    """A folder's name with these words filled in; others stay as they are."""
    return _WORD.sub(lambda match: words.get(match[1], match[0]), folder)


def words_in(folder: str, path: str) -> dict[str, str]:
    """What the words in a folder's name stand for where it is called `path`; nothing where it cannot be."""
    match = _expression(Path(folder).as_posix()).fullmatch(path)
    return match.groupdict() if match else {}


def beside(data_path: Path, folder: str, stem: str, endings: Sequence[str]) -> str:
    """The cell of the file in a folder that is called `stem` with one of these endings: the first that is there."""
    places = [(Path(folder) / f"{stem}{ending}").as_posix() for ending in endings]
    return next((place for place in places if (data_path / place).is_file()), places[0])


def not_there(data_path: Path, cell: str, what: str) -> str:
    """The fault of a cell whose file is not there, and which one of its name is, with an ending that is not read."""
    path = data_path / cell
    other = _endings(path.parent).get(path.stem)
    return f"{cell}: there is no such {what}" + (f", but one that ends with {other}" if other else "")


@lru_cache(maxsize=64)
def _endings(folder: Path) -> dict[str, str]:
    """An ending of each name in a folder; none where there is no folder."""
    return {path.stem: path.suffix for path in folder.iterdir()} if folder.is_dir() else {}


def _part_of(name: str) -> str:
    return next((part for part in PARTS if name.startswith(part)), "")


def _expression(text: str) -> re.Pattern[str]:
    """A regular expression for a name with words; a word that stands there again stands for the same."""
    known: set[str] = set()
    pieces = []
    for number, piece in enumerate(_WORD.split(text)):
        if number % 2 == 0:
            pieces.append(re.escape(piece))
        else:
            pieces.append(f"(?P={piece})" if piece in known else f"(?P<{piece}>[^/]+)")
            known.add(piece)
    return re.compile("".join(pieces))


def _folders(
    data_path: Path, folder: Path, parts: Sequence[str], words: Mapping[str, str]
) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """The folders that the rest `parts` of a name leads to from `folder` on, in order, and what its words stand for."""
    if not (data_path / folder).is_dir():
        return
    if not parts:
        yield folder, words
        return
    name, rest = filled(parts[0], words), parts[1:]
    if not _WORD.search(name):
        yield from _folders(data_path, folder / name, rest, words)
        return
    expression = _expression(name)
    for entry in sorted(path.name for path in (data_path / folder).iterdir() if path.is_dir()):
        match = expression.fullmatch(entry)
        if match and not entry.startswith("."):
            yield from _folders(data_path, folder / entry, rest, {**words, **match.groupdict()})
