"""Photographs in folders whose names say something, and the files beside them: `{part}/{city}` and the like.

In the name of a folder `{part}` stands for what begins with train, val or test, in any letters, and any other `{word}`
for anything; it becomes the natural group `word`, behind those of the words before it: `chess/seq-01`. The files beside
a photograph have its name, but for what both begin and end with, in which words stand for the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pandas as pd

from datasets.sources.listing import IMAGE_ENDINGS, say_no_part, say_not_read, walk
from datasets.table import PART, PARTS
from datasets.tasks import CLASS, RGB
from utils.errors import UserError
from utils.words import counted, some

PLACE = "{part}"
_WRITTEN = ("objects", "id_masks", "packed")  # folders of the data folder that the stages write
_WORD = re.compile(r"\{([A-Za-z_]\w*)\}", re.ASCII)
_DEEPEST = 8  # sub-folders
_STEM = "_stem"  # the word for what the names of files that belong together share


@dataclass(frozen=True)
class InFolder:
    """A photograph's cell, what it shares with the names beside it, and what the words in its path stand for."""

    cell: str
    stem: str
    words: Mapping[str, str]

    @property
    def part(self) -> str:
        """Its part; empty where the folder's name says none."""
        return part_of(self.words.get(PART, ""))

    def beside(self, data_path: Path, folder: str, prefix: str, endings: Sequence[str]) -> str:
        """The cell of its file in a folder, all with words: the first that is there with one of these endings."""
        stem = filled(prefix, self.words) + self.stem
        return beside(data_path, filled(folder, self.words), stem, [filled(ending, self.words) for ending in endings])


def photographs(
    data_path: Path,
    folder: str,
    prefix: str = "",
    suffix: str | None = None,
    others: Sequence[str | None] | None = None,
) -> Iterator[InFolder]:
    """The photographs in the folders that `folder` names, in order, whose names begin and end so.

    Without a `suffix` they end as those of any image do. Lines say which other pictures, which folders called like
    no part, are left out; where `others` says which folders hold something else, also which sub-folders with pictures.
    """
    say_no_part(
        folder,
        [
            sub_folder.as_posix()
            for sub_folder, words in folders_of_no_part(data_path, folder)
            if any(_photographs_in(data_path, sub_folder, words, prefix, suffix))
        ],
    )
    there = list(folders(data_path, folder))
    if others is not None:
        _say_sub_folders(data_path, folder, [sub_folder for sub_folder, _ in there], others)
    if suffix is None:
        names = [
            path.name
            for sub_folder, words in there
            for path in (data_path / sub_folder).iterdir()
            if _called(words, prefix, suffix).fullmatch(path.stem)
        ]
        say_not_read(folder, names)
    for sub_folder, words in there:
        yield from _photographs_in(data_path, sub_folder, words, prefix, suffix)


def say_alone(data_path: Path, name: str, prefix: str, endings: Sequence[str], used: Iterable[str]) -> None:
    """Print how many files of these names in the folders of a name with words are not among the `used` cells."""
    known = set(used)
    alone = [
        cell
        for folder, words in folders(data_path, name)
        for path in sorted((data_path / folder).iterdir())
        if (cell := (folder / path.name).as_posix()) not in known
        and not path.name.startswith(".")
        and path.name.startswith(filled(prefix, words))
        and path.name.endswith(tuple(filled(e, words) for e in endings))
    ]
    if alone:
        print(f"left out {counted(len(alone), 'file')} of {name} without a photograph: {some(alone, 3)}")


def _say_sub_folders(data_path: Path, name: str, there: Sequence[Path], others: Sequence[str | None]) -> None:
    """Print the folders with pictures right in those of a name, without what is of others, or written by the stages."""
    of_others = [path for other in others if other for path, _ in folders(data_path, other)]
    within = [
        folder / entry.name
        for folder in there
        for entry in sorted((data_path / folder).iterdir())
        if entry.is_dir() and not entry.name.startswith(".")
    ]
    strange = [
        path.as_posix()
        for path in within
        if path.as_posix() not in _WRITTEN
        and path not in there
        and not any(path == other or path in other.parents or other in path.parents for other in of_others)
        and any(walk(data_path / path, _DEEPEST, IMAGE_ENDINGS))
    ]
    if strange:
        print(f"left out sub-folders of {name} with pictures, which a word in braces reads: {some(strange, 8)}")


def _photographs_in(
    data_path: Path, folder: Path, words: Mapping[str, str], prefix: str, suffix: str | None
) -> Iterator[InFolder]:
    """`photographs` of one folder."""
    called = _called(words, prefix, suffix)
    for path in sorted((data_path / folder).iterdir()):
        match = called.fullmatch(path.name if suffix else path.stem)
        is_image = bool(suffix) or path.suffix.lower() in IMAGE_ENDINGS
        if match and is_image and not path.name.startswith("."):
            of_name = match.groupdict()
            if PART not in of_name or part_of(of_name[PART]):
                yield InFolder((folder / path.name).as_posix(), of_name.pop(_STEM), {**words, **of_name})


def _called(words: Mapping[str, str], prefix: str, suffix: str | None) -> re.Pattern[str]:
    """What photographs in a folder of these words are called."""
    return _expression(_named(filled(prefix, words), filled(suffix or "", words)))


def folders(data_path: Path, name: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """The folders that a name with words leads to, in order, and what the words stand for."""
    yield from _of_parts(data_path, name, Path.is_dir)


def folders_of_no_part(data_path: Path, name: str) -> list[tuple[Path, dict[str, str]]]:
    """Those that `folders` passes over: what `{part}` stands for there is called like no part."""
    folders = _matching(data_path, Path(), Path(name).parts, {}, Path.is_dir)
    return [(path, words) for path, words in folders if PART in words and not part_of(words[PART])]


def files(data_path: Path, name: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """`folders` for a name of files."""
    yield from _of_parts(data_path, name, Path.is_file)


def of_part(data_path: Path, name: str, words: Mapping[str, str], find: Callable[[Path, str], Iterable]) -> Path:
    """What a name with words stands for: what is called so, or else the only one of the same part.

    Photographs may be in `training`, and their annotations be called `train.json`. `find` is `folders` or `files`.
    """
    plain = Path(filled(name, words))
    if (data_path / plain).exists() or PART not in words:
        return plain
    others = {word: text for word, text in words.items() if word != PART}
    folders = [
        path for path, more in find(data_path, filled(name, others)) if part_of(more[PART]) == part_of(words[PART])
    ]
    return folders[0] if len(folders) == 1 else plain


def rows_of(photographs: Sequence[InFolder], folder: str, domains: Sequence[str]) -> pd.DataFrame:
    """A row for each photograph: its cell, its part where there are parts, and its natural groups.

    UserError where one of these is called like the class or one of the `domains` that the table will have.
    """
    words = [word for word in dict.fromkeys(_WORD.findall(folder)) if word != PART]
    if taken := {RGB.domain, CLASS, *domains}.intersection(words):
        name = min(taken)
        raise UserError(f"{folder}: {{{name}}} would be a natural group called like another column; rename it")
    rows = pd.DataFrame({RGB.domain: [photograph.cell for photograph in photographs]})
    if any(photograph.part for photograph in photographs):
        rows[PART] = [photograph.part for photograph in photographs]
    for number, word in enumerate(words, start=1):
        rows[word] = ["/".join(photograph.words[before] for before in words[:number]) for photograph in photographs]
    return rows


def filled(folder: str, words: Mapping[str, str]) -> str:
    """A folder's name with these words filled in; others stay as they are."""
    return _WORD.sub(lambda match: words.get(match[1], match[0]), folder)


def in_folder(cell: str, folder: str, prefix: str, suffix: str | None) -> InFolder | None:
    """A file in a folder and of a name with words; None where it cannot be called so."""
    path = Path(cell)
    name = path if suffix else path.with_suffix("")
    match = _expression((Path(folder) / _named(prefix, suffix or "")).as_posix()).fullmatch(name.as_posix())
    words = match.groupdict() if match else {}
    return InFolder(cell, words.pop(_STEM), words) if match else None


def beside(data_path: Path, folder: str, stem: str, endings: Sequence[str]) -> str:
    """The cell of the file in a folder that is called `stem` with one of these endings: the first that is there."""
    places = [(Path(folder) / f"{stem}{ending}").as_posix() for ending in endings]
    return next((place for place in places if (data_path / place).is_file()), places[0])


def not_there(data_path: Path, cell: str, what: str) -> str:
    """The error of a cell whose file is not there, and which one of its name is, with an ending that is not read."""
    path = data_path / cell
    other = _endings(path.parent).get(path.stem)
    return f"{cell}: there is no such {what}" + (f", but one that ends with {other}" if other else "")


@lru_cache(maxsize=64)
def _endings(folder: Path) -> dict[str, str]:
    """An ending of each name in a folder; none where there is no folder."""
    return {path.stem: path.suffix for path in folder.iterdir()} if folder.is_dir() else {}


def part_of(name: str) -> str:
    """The part that a name says by how it begins; empty where it says none."""
    return next((part for part in PARTS if name.lower().startswith(part)), "")


def _named(prefix: str, suffix: str) -> str:
    return f"{prefix}{{{_STEM}}}{suffix}"


def _expression(text: str) -> re.Pattern[str]:
    """A regular expression for a name with words; a word that stands there again stands for the same."""
    known: set[str] = set()
    pieces = []
    for number, piece in enumerate(_WORD.split(text)):
        if number % 2 == 0:
            pieces.append(re.escape(piece))
        else:
            some = "[^/]*" if piece == _STEM else "[^/]+"
            pieces.append(f"(?P={piece})" if piece in known else f"(?P<{piece}>{some})")
            known.add(piece)
    return re.compile("".join(pieces))


def _of_parts(data_path: Path, name: str, is_there: Callable[[Path], bool]) -> Iterator[tuple[Path, dict[str, str]]]:
    """`_matching` a name, without what is called like no part."""
    for path, words in _matching(data_path, Path(), Path(name).parts, {}, is_there):
        if PART not in words or part_of(words[PART]):
            yield path, words


def _matching(
    data_path: Path, folder: Path, names: Sequence[str], words: Mapping[str, str], is_there: Callable[[Path], bool]
) -> Iterator[tuple[Path, dict[str, str]]]:
    """What the rest `names` of a path with words leads to from `folder` on, in order, and what its words stand for."""
    if not names:
        if is_there(data_path / folder):
            yield folder, dict(words)
        return
    name, rest = filled(names[0], words), names[1:]
    if not _WORD.search(name):
        yield from _matching(data_path, folder / name, rest, words, is_there)
        return
    expression = _expression(name)
    is_right = Path.is_dir if rest else is_there
    there = (data_path / folder).iterdir() if (data_path / folder).is_dir() else ()
    for entry in sorted(path.name for path in there if is_right(path)):
        match = expression.fullmatch(entry)
        if match and not entry.startswith("."):
            yield from _matching(data_path, folder / entry, rest, {**words, **match.groupdict()}, is_there)
