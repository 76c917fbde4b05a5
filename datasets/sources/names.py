"""Files of the names of classes: a name per line, `id: name` lines, tables of ids or of colours, or a `.yaml` file.

Line k, counted from 0, is id k; `id: name` is read where all lines have it. Scalars of a `.yaml` file have the meaning
of YAML 1.2, in which `off` and `no` are words and 010 is ten.
"""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from datasets.sources.colours import coloured
from datasets.sources.keyed import by_key
from utils.errors import UserError
from utils.words import counted, some

_NUMBERED = re.compile(r"(\d{1,9})\s*[:,;\t]\s*(.*)")
_BY_A_SPACE = re.compile(r"(\d{1,9})[\s:,;]\s*(\S.*)")
_COLUMNS_OF_IDS, _COLUMNS_OF_NAMES = ("idx", "id", "index"), ("name", "names", "class", "label", "category")
_NO_VALUE = ("", "~", "null", "Null", "NULL")  # of YAML 1.2, where they are not quoted
_YAML = (".yaml", ".yml")
IGNORED = 255  # in masks of a data set of Ultralytics', the id that counts nowhere


def read_names(path: Path, argument: str) -> dict[int, str]:
    """The name of each id, by id. Names that are equal, or but for capitals, are printed.

    UserError, which ends with the argument, where the file cannot be read, an id has no name or two, or it is not clear
    whether lines begin with ids.
    """
    return _read(path, argument, for_masks=False)[0]


def read_names_of_masks(path: Path, argument: str) -> tuple[dict[int, str], set[int]]:
    """`read_names` for the ids of masks, and the ids that the file says to be void.

    A `.yaml` file may map the masks' ids to those of its names (`label_mapping`), as Ultralytics' data sets do.
    """
    return _read(path, argument, for_masks=True)


def key_points_of(path: Path, argument: str) -> int | None:
    """How many numbers of key points follow each box, by `kpt_shape` of a `.yaml` file; None where it says nothing.

    UserError, which ends with the argument, where the file cannot be read.
    """
    if path.suffix.lower() not in _YAML:
        return None
    try:
        content = _mapping(yaml.compose(path.read_text(encoding="utf-8-sig"), Loader=yaml.BaseLoader))
        if "kpt_shape" not in content:
            return None
        shape = [_to_integer(_text(element)) for element in getattr(content["kpt_shape"], "value", ())]
        if len(shape) != 2 or shape[0] < 1 or shape[1] not in (2, 3):
            raise ValueError("kpt_shape is not how many key points there are, and how many numbers each has: 2 or 3")
    except (OSError, ValueError, TypeError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path}: {_reason(error)}; see {argument}") from error
    return shape[0] * shape[1]


def _reason(error: Exception) -> str:
    return (error.strerror or "") if isinstance(error, OSError) else " ".join(str(error).split())


def _read(path: Path, argument: str, for_masks: bool) -> tuple[dict[int, str], set[int]]:
    void: set[int] = set()
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() in _YAML:
            content = _mapping(yaml.compose(text, Loader=yaml.BaseLoader))
            names = _named(_yaml_pairs(content))
            if for_masks:
                names, void = _mapped(names, content)
        else:
            names = _named(_pairs_of_lines(text.splitlines()))
        if not names:
            raise ValueError("it names nothing")
        if empty := [identity for identity, name in names.items() if not name]:
            raise ValueError(f"id {empty[0]} has no name")
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path}: cannot read the names of the classes ({_reason(error)}); see {argument}") from error
    for line in alike(names):
        print(f"{path.name}: {line}; they are taken for different classes: if they are one, give it one id")
    return names, void


def alike(names: Mapping[int, str]) -> list[str]:
    """Ids whose names are equal, or but for capitals, spaces, the coding of accents or zeros before a number.

    A text for each.

    >>> alike({0: "cat", 2: "fish", 3: "fish", 5: "Cat"})
    ["ids 0 and 5 are called 'cat' and 'Cat'", "ids 2 and 3 are both called 'fish'"]
    """
    same: dict[str, list[int]] = {}
    for identity, name in names.items():
        plain = unicodedata.normalize("NFC", " ".join(name.split())).casefold()
        same.setdefault(plain.lstrip("0") if plain.isascii() and plain.isdigit() else plain, []).append(identity)
    texts = []
    for ids in same.values():
        if len(ids) > 1:
            called = list(dict.fromkeys(names[identity] for identity in ids))
            both = "both " * (len(ids) == 2)
            words = f"{both}called {called[0]!r}" if len(called) == 1 else f"called {' and '.join(map(repr, called))}"
            texts.append(f"ids {' and '.join(map(str, ids))} are {words}")
    return texts


def _named(pairs: Iterable[tuple[int, str]]) -> dict[int, str]:
    """The names by id, sorted; ValueError names all that is double where an id has two names."""
    pairs = list(pairs)
    try:
        return dict(sorted(by_key(pairs, "id").items()))
    except ValueError as error:
        raise ValueError("; ".join([str(error), *alike(dict(pairs))])) from error


def _pairs_of_lines(lines: Sequence[str]) -> list[tuple[int, str]]:
    """Ids and names of a text file's lines; ValueError where these do not tell them."""
    stripped = [line.strip() for line in lines if not line.lstrip().startswith("#")]
    if n_comments := len(lines) - len(stripped):
        print(f"left out {counted(n_comments, 'line')} that {'begins' if n_comments == 1 else 'begin'} with #")
    while stripped and not stripped[-1]:
        stripped.pop()
    filled = [line for line in stripped if line]
    if table_of_colours := coloured(filled):
        return [(number, name) for number, (name, _) in enumerate(table_of_colours)]
    if filled and (table := _table(filled)):
        return table
    numbered = [match for line in filled if (match := _NUMBERED.fullmatch(line))]
    if len(numbered) == len(filled):
        return [(int(match[1]), match[2]) for match in numbered]
    by_space = [match for line in filled if (match := _BY_A_SPACE.fullmatch(line))]
    if len(by_space) == len(filled):
        if [int(match[1]) for match in by_space] == list(range(len(filled))):
            return [(int(match[1]), match[2]) for match in by_space]
        number, rest = by_space[0].groups()
        raise ValueError(
            f"all lines begin with a number, as {filled[0]!r}: write '{number}: {rest}' where it is the id, "
            f"or '0: {filled[0]}' where it belongs to the name of id 0, and so on"
        )
    if numbered:
        print(
            f"{len(numbered)} of {len(filled)} lines of names begin with a number and not all: it is part of the name"
        )
    pairs = [(number, line) for number, line in enumerate(stripped) if line]
    if empty := [number for number, line in enumerate(stripped) if not line]:
        print(f"empty lines of names: no name has id {some([str(number) for number in empty], 8)}")
    return pairs


def _table(lines: Sequence[str]) -> list[tuple[int, str]]:
    """Ids and names of a table whose first line names its columns; nothing where it is none, ValueError without ids."""
    separator = max("\t,;", key=lines[0].count)
    header = [cell.strip().lower() for cell in lines[0].split(separator)]
    of_name = next((header.index(name) for name in _COLUMNS_OF_NAMES if name in header), None)
    if len(header) < 2 or of_name is None:
        return []
    of_id = next((header.index(name) for name in _COLUMNS_OF_IDS if name in header), None)
    if of_id is None:
        raise ValueError(f"its columns are {', '.join(header)}, of which none is {' or '.join(_COLUMNS_OF_IDS)}")
    pairs = []
    for cells in csv.reader(lines[1:], delimiter=separator, skipinitialspace=True):
        if len(cells) <= max(of_id, of_name) or not cells[of_id].strip().isdecimal():
            raise ValueError(f"{separator.join(cells)!r} has no id and name in the columns of {lines[0]!r}")
        pairs.append((int(cells[of_id]), cells[of_name].strip()))
    return pairs


def _yaml_pairs(content: Mapping[str, yaml.Node]) -> list[tuple[int, str]]:
    """Ids and names of the `names` or `classes` of a YAML file; ValueError where they are neither list nor mapping."""
    node = content.get("names") or content.get("classes")
    if isinstance(node, yaml.SequenceNode):
        pairs = [(number, _text(element)) for number, element in enumerate(node.value)]
    elif isinstance(node, yaml.MappingNode):
        pairs = [(_to_integer(_text(key)), _text(value)) for key, value in node.value]
    else:
        raise ValueError("no list or mapping 'names'")
    n_classes = content.get("nc")
    if n_classes is not None and _text(n_classes) != str(len(pairs)):
        print(f"nc is {_text(n_classes)}, and {counted(len(pairs), 'class')} have names")
    return pairs


def _mapped(names: dict[int, str], content: Mapping[str, yaml.Node]) -> tuple[dict[int, str], set[int]]:
    """The names by the ids of masks, and which of these are void, by a YAML file's `label_mapping` of ids to names."""
    void = {IGNORED} - names.keys() if "masks_dir" in content else set()
    if "label_mapping" not in content:
        return names, void
    targets = {_to_integer(key): _text(value) for key, value in _mapping(content["label_mapping"]).items()}
    by_id: dict[int, str] = {}
    ids: dict[int, int] = {}
    for identity, target in targets.items():
        number = int(target) if re.fullmatch(r"\d{1,9}", target) else -1
        if number in names:
            if ids.setdefault(number, identity) != identity:
                raise ValueError(
                    f"label_mapping makes ids {ids[number]} and {identity} both {names[number]!r}, and a class has one "
                    "id; give them one in the masks"
                )
            by_id[identity] = names[number]
        elif number in (-1, IGNORED):
            void |= {identity} if identity >= 0 else set()
        else:
            raise ValueError(f"label_mapping makes id {identity} class {number}, which has no name")
    if lacking := [name for number, name in names.items() if number not in ids]:
        print(f"label_mapping gives no id to {some(lacking, 8)}")
    return dict(sorted(by_id.items())), void - by_id.keys()


def _mapping(node: Any) -> dict[str, Any]:
    """The values of a YAML mapping by key; ValueError where it is none, or has a key twice."""
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("no mapping where one should be")
    content: dict[str, Any] = {}
    for key, value in node.value:
        if content.setdefault(_text(key), value) is not value:
            raise ValueError(f"{_text(key)!r} stands there twice")
    return content


def _text(node: yaml.Node) -> str:
    """A scalar as it is written, empty for YAML's null; ValueError for others."""
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError("a list or mapping where a name should be")
    return "" if node.style is None and node.value in _NO_VALUE else " ".join(node.value.split())


def _to_integer(text: str) -> int:
    """A whole number of YAML 1.2; ValueError for others."""
    if re.fullmatch(r"[-+]?\d{1,9}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"0x[0-9a-fA-F]{1,8}|0o[0-7]{1,9}", text):
        return int(text, 0)
    raise ValueError(f"{text!r} is no id, which is a whole number")
