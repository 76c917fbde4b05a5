"""Experiments: what a table or figure is made of, as a TOML file or a command line says it; docs/sweeps.md shows how.

An experiment is a table of keys (`KEYS`). `[scales.NAME]` and `[rooms]` change some of them; `vary` has lists of tables
whose keys vary together, and each combination of such tables is a part of the experiment. Within a part, any argument
of `[init]`, `[teacher]` and `[fed]` with a list of values is a further axis.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

from datasets.table import STAGE
from sweeps.grid import COMPARISON, SWEEP_TYPES, Command, Grid, Job
from sweeps.outputs import MAKE, Outputs
from sweeps.sources import ROOMS, Source, source_of
from utils.errors import UserError

UNTIL = ("selection", "clusters", "federated")
# The stages whose arguments the command line gives behind `--<stage>_arguments`, and their scripts.
SCRIPTS = {
    "init": "model_initialization.py",
    "train": "train_centralized_task_model.py",
    "embed": "extract_embeddings.py",
    "teacher": "extract_diffusion_features.py",
}
STAGES = ("select", *SCRIPTS, "fed")
# What a part of an experiment says, with its default; a list is of alternatives.
_OF_GRIDS: dict[str, Any] = {
    "scale": "builtin", "tasks": ["depth_euclidean", "normal", "class_scene"], "methods": ["fedavg"],
    "types": ["iid", "class_based", "embedding_based"], "alphas": ["0.1", "10"], "seeds": [0, 1, 2, 3, 4],
    "n_clusters": [16], "features": ["model"], "sweep": COMPARISON, "folder": "", "central": True, "guidance": "",
} | {stage: {} for stage in STAGES}  # fmt: skip
_OF_GRIDS["select"] = {"client_file_name": "rooms.csv", "taskonomy_clients_to_include": 4}
# What only the whole experiment says.
_OF_ALL: dict[str, Any] = {
    "title": "", "data": "", "result_path": "results", "until": "federated", "own_tasks": False, "make": {}, "vary": {},
}  # fmt: skip
KEYS = _OF_GRIDS | _OF_ALL
_CHANGES = {"base": "", "scales": {}, "rooms": {}}
BUILTIN = "builtin"  # the scale that is taken where none is named
_TYPES = {dict: "a table", str: "a text", bool: "true or false", object: ""}
_PRESENT = {"type": "sweep", "settings": "scale", "splits": "types"}  # keys by the names that they once had
_NAME = "name"  # of a table in `vary`, for `folder` and `guidance`
# Lists of names: where a table of `vary` has one, the command line says which of these are kept. Of lists of numbers it
# cannot tell: an alpha in a table may be one that has no part in what the table says.
_CHOSEN = ("tasks", "methods", "types", "features")

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Given:
    """What the command line says of an experiment.

    `more` are keys that change what stands in no table of `vary` or, of stages, everywhere; of the names in a table's
    `_CHOSEN` they keep those that they say.
    """

    source: Source | None = None
    scale: str = ""
    test_mode: bool = False
    more: Spec = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """Grids of runs on the images of one source, and what is made of their results.

    `select` are arguments of stage 1. `own_tasks` says that the tasks are to be those that the source's table serves.
    """

    title: str
    source: Source
    grids: tuple[Grid, ...]
    outputs: Outputs
    select: Spec
    until: str
    own_tasks: bool

    @property
    def tasks(self) -> list[str]:
        """All tasks of all grids."""
        return list(dict.fromkeys(task for grid in self.grids for task in grid.tasks))

    @property
    def result_path(self) -> Path:
        """The folder of all that is made."""
        return self.outputs.result_path

    def jobs(self) -> list[Job]:
        """Every job once, each after those that it needs; two grids may have models in common."""
        if self.until == "selection":
            return []
        made: dict[str, Job] = {}
        for grid in self.grids:
            for job in (*grid.central(), *(grid.federated() if self.until == "federated" else ())):
                made.setdefault(job.name, job)
        return list(made.values())

    def selection(self) -> Command:
        """The command that selects the images of a folder in Taskonomy's layout."""
        folders = ("--data_path", str(self.source.folder), "--result_path", str(self.result_path))
        return (STAGE, *words_of(self.select, "select"), *folders)

    @property
    def buildings(self) -> Path:
        """The list of the buildings of a folder in Taskonomy's layout."""
        return self.source.folder / str(self.select.get("client_file_name"))


def read_experiment(path: Path, scale: str | None) -> dict[str, Any]:
    """What an experiment's file says at a scale, by default the built-in one; UserError where it is not one."""
    said, scales = _read(path, scale or BUILTIN)
    if not said.get("title"):
        raise UserError(f"{path} has no title, since it is the base of others; give one of these")
    if scale and scale not in scales:
        raise UserError(
            f"--scale {scale}: {path} has " + (f"the scales {', '.join(scales)}" if scales else "no scales")
        )
    return said


def _read(path: Path, scale: str, within: tuple[Path, ...] = ()) -> tuple[dict[str, Any], list[str]]:
    """What a file says at a scale, over what its `base` says there; and the scales of both."""
    try:
        said = _with_present_keys(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: not a readable experiment ({reason})") from error
    if path.resolve() in within:
        raise UserError(f"{path}: this experiment has itself as its base, directly or by way of others; take that out")
    _check_keys(said, {**KEYS, **_CHANGES}, str(path))
    own, base = said.pop("scales", {}), said.pop("base", None)
    for name, changes in (*own.items(), ("rooms", said.get("rooms", {}))):
        _check_keys(changes, KEYS, f"{path}: {name}")
    below, scales = _read(path.parent / base, scale, (*within, path.resolve())) if base else ({}, [])
    return merged(merged(below, said), own.get(scale, {})), list(dict.fromkeys((*scales, *own)))


def _with_present_keys(table: Any) -> Any:
    """A file's table, or list of tables, with keys of before under the names of today; arguments of stages stay.

    Before today's `scales` there was `scale`, which was a table then.
    """
    if isinstance(table, list):
        return [_with_present_keys(each) for each in table]
    if not isinstance(table, Mapping):
        return table
    return {
        _present_key(name, value): value if name in STAGES else _with_present_keys(value)
        for name, value in table.items()
    }


def _present_key(name: str, value: Any) -> str:
    return "scales" if name == "scale" and isinstance(value, Mapping) else _PRESENT.get(name, name)


def merged(below: Spec, above: Spec) -> dict[str, Any]:
    """Two tables as one: of keys in both, tables are merged in the same way, and of other values the upper is taken."""
    both = {
        name: merged(below[name], value)
        if isinstance(value, Mapping) and isinstance(below.get(name), Mapping)
        else value
        for name, value in above.items()
    }
    return {**below, **both}


def experiment_of(
    said: Spec, given: Given, reads: Mapping[str, Mapping[str, Collection[str]]], tasks: Sequence[str] | None = None
) -> Experiment:
    """The experiment of some keys, for these `tasks` if there are any; UserError for a value that a key cannot have.

    `reads` is as for `Grid`.
    """
    if given.source is None and not said.get("data"):
        raise UserError("no data: give --data FOLDER, a folder in which stage 1 has made a table of images")
    source = given.source or source_of(said["data"], given.test_mode)
    said = merged(
        {n: v for n, v in said.items() if n != "rooms"}, said.get("rooms", {}) if source.name == ROOMS else {}
    )
    whole = merged(KEYS, said)
    above = {**given.more, **({"tasks": tasks} if tasks else {})}
    spec = merged(whole, above)
    if spec["until"] not in UNTIL:
        raise UserError(f"until: {spec['until']!r} is not one of {', '.join(UNTIL)}")
    _check_keys(spec["make"], MAKE, "make")
    result_path = _result_path(spec, given, source)
    combined = [*_parts(whole, above)]
    read_somewhere = {name for part, *_ in combined for name in _read_by(part, reads)}
    parts = [(_narrowed(part, whole, varied, given, reads, read_somewhere), names) for part, varied, names in combined]
    _check_chosen(above, [part for part, _ in parts], whole)
    grids = tuple(grid for part in parts for grid in _grids(*part, source, result_path, given, reads))
    folders = tuple(dict.fromkeys(grid.runs_path for grid in grids))
    own_tasks = spec["own_tasks"] and given.source is not None and not tasks and "tasks" not in given.more
    outputs = Outputs(result_path, source.folder, folders, grids, spec["make"])
    return Experiment(spec["title"], source, grids, outputs, spec["select"], spec["until"], own_tasks)


def _result_path(spec: Spec, given: Given, source: Source) -> Path:
    """The folder that the command line names, or the file: then test mode has one of its own."""
    if "result_path" in given.more:
        return Path(given.more["result_path"])
    scale = f"{given.scale}_{source.title}" if given.source and source.name != ROOMS else given.scale
    path = _filled(spec["result_path"], {"data": source.title, "scale": scale}, "result_path")
    return Path(path + ("_test" if given.test_mode else ""))


def _parts(spec: Spec, above: Spec) -> Iterator[tuple[Spec, Spec, dict[str, str]]]:
    """Every combination of the tables in `vary`, merged into the rest and what the command line says, and by itself.

    After both come the tables' names by the list that has them.
    """
    for axis, tables in spec["vary"].items():
        if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
            raise UserError(f"vary.{axis}: must be a list of tables, [[vary.{axis}]]")
        for each in tables:
            _check_keys(each, {**_OF_GRIDS, _NAME: ""}, f"vary.{axis}")
    _alternatives(spec["vary"], "vary")
    everywhere = {stage: above[stage] for stage in STAGES if stage in above}
    for tables in product(*spec["vary"].values()):
        names = {axis: str(each[_NAME]) for axis, each in zip(spec["vary"], tables, strict=True) if _NAME in each}
        varied: Spec = reduce(merged, tables, {})
        chosen = {
            key: [name for name in _list(varied[key]) if name in _list(above[key])]
            for key in _CHOSEN
            if key in varied and key in above
        }
        if all(chosen.values()):  # else nothing of what these tables say is left
            yield merged(merged(merged(spec, above), varied), everywhere | chosen), varied, names


def _check_chosen(above: Spec, parts: Sequence[Spec], spec: Spec) -> None:
    """UserError for a name of the command line that no part has, since the tables of `vary` have others."""
    tables = [table for tables in spec["vary"].values() for table in tables]
    for key in _CHOSEN:
        known = [name for table in tables for name in _list(table.get(key, []))]
        kept = {name for part in parts for name in _list(part[key])}
        others = {name: value for name, value in above.items() if name != key}
        for name in _list(above.get(key, [])):
            if known and name not in kept:
                left = [name for part, *_ in _parts(spec, others) for name in _list(part[key])]
                has = ", ".join(dict.fromkeys(map(text_of, left or known)))
                raise UserError(f"{key}: no run has {name} with what else is given; the tables of vary have {has}")


def _narrowed(
    part: Spec,
    whole: Spec,
    varied: Spec,
    given: Given,
    reads: Mapping[str, Mapping[str, Collection[str]]],
    read_somewhere: set[str],
) -> Spec:
    """A part without arguments of `[fed]` that nothing in it reads, where these are meant for other runs.

    What `whole`, the file outside its tables, gives FedProx has no run where the part's tables `varied` name other
    methods, and neither has what a table gives FedProx with `--methods fedavg`. What the command line gives is meant
    for the parts that read it, if there are any: `read_somewhere` are the names that some part reads. What a table
    gives its own methods stays, and what nothing reads, so that the scripts refuse it.
    """
    by_hand = given.more.get("fed", {}).keys()
    of_file = _read_by(whole, reads) - varied.get("fed", {}).keys() | _read_by(merged(whole, varied), reads)
    gone = (of_file - by_hand | by_hand & read_somewhere) - _read_by(part, reads)
    return {**part, "fed": {name: value for name, value in part["fed"].items() if name not in gone}}


def _read_by(spec: Spec, reads: Mapping[str, Mapping[str, Collection[str]]]) -> set[str]:
    """The arguments that the methods, rules, aggregations and attacks of a part read."""
    chosen = spec["fed"] | {"method": spec["methods"]}
    return {
        name
        for choice, readers in reads.items()
        for value in _list(chosen.get(choice, []))
        for name in readers.get(text_of(value), ())
    }


def _grids(
    part: Spec, names: Mapping[str, str], source: Source, result_path: Path, given: Given, reads: Mapping
) -> Iterator[Grid]:
    """A grid for each initial model and teacher of a part."""
    tasks = _list(part["tasks"])
    if part["sweep"] not in SWEEP_TYPES:
        raise UserError(f"sweep: {part['sweep']!r} is not one of {', '.join(SWEEP_TYPES)}")
    axes = {name: [_value(each) for each in values] for name, values in _alternatives(part["fed"], "fed").items()}
    for init, teacher in product(_choices(part["init"], "init"), _choices(part["teacher"], "teacher")):
        known = {**names, **_texts(init), **_texts(teacher), "task": "_".join(map(str, tasks))}
        folder = result_path / _filled(part["folder"], known, "folder")
        guidance = result_path / "guidance" / _filled(part["guidance"], known, "guidance") if part["guidance"] else None
        yield Grid(
            scale=part["scale"],
            data_path=source.folder,
            result_path=folder,
            tasks=tasks,
            methods=_list(part["methods"]),
            types=_list(part["types"]),
            alphas=[text_of(alpha) for alpha in _list(part["alphas"])],
            seeds=_list(part["seeds"]),
            n_clusters=_list(part["n_clusters"]),
            sweep_type=part["sweep"],
            init=tuple(_init_words(init)),
            common=("--test_mode", "True") if given.test_mode else (),
            axes=axes,
            features=_list(part["features"]),
            reads=reads,
            train=words_of(part["train"], "train"),
            embed=words_of(part["embed"], "embed"),
            has_central=part["central"],
            guidance=guidance,
            teacher=words_of(teacher, "teacher"),
        )


def _alternatives(arguments: Spec, where: str) -> dict[str, list[Any]]:
    """The values of each of some arguments; a list within a list is one value of several words."""
    values = {name: _list(value) for name, value in arguments.items()}
    if not all(values.values()):
        raise UserError(f"{where}: an empty list says no value")
    return values


def _choices(arguments: Spec, where: str) -> list[dict[str, Any]]:
    """Every combination of some arguments' values."""
    values = _alternatives(arguments, where)
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def _value(value: Any) -> str | Command:
    """A value as a word or, where it is a list, as several."""
    return tuple(map(text_of, value)) if isinstance(value, list) else text_of(value)


def _init_words(arguments: Spec) -> Iterator[str]:
    """The arguments of an initial model as they stand on its command line."""
    for name, value in arguments.items():
        words = _value(value)
        yield from (f"--{name}={words}",) if isinstance(words, str) else (f"--{name}", *words)


def words_of(arguments: Spec, where: str) -> Command:
    """A stage's arguments as they stand on its command line."""
    words: list[str] = []
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            raise UserError(f"{where}.{name}: must be a value, and not a table")
        words += [f"--{name}", *(text_of(each) for each in _list(value))]
    return tuple(words)


def text_of(value: Any) -> str:
    """A TOML value as it is written on a command line; a list's words stand apart."""
    return " ".join(map(text_of, value)) if isinstance(value, list) else str(value)


def _texts(arguments: Spec) -> dict[str, str]:
    """Arguments' values as parts of a folder's name."""
    return {name: text_of(value).replace(" ", "") for name, value in arguments.items()}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _filled(template: str, known: Mapping[str, str], key: str) -> str:
    """A text with the values of the names that it has in braces."""
    try:
        return template.format_map(known)
    except (KeyError, ValueError, IndexError) as error:
        raise UserError(f"{key} = {template!r}: in braces there may be {', '.join(known)}") from error


def _check_keys(said: Any, known: Mapping[str, Any], where: str) -> None:
    """UserError for a key that is not among the known ones, with the nearest, or whose value is not of its type."""
    if not isinstance(said, Mapping):
        raise UserError(f"{where}: must be a table")
    for name, value in said.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}"
            raise UserError(f"{where}: unknown key {name}, {hint}")
        wanted = type(known[name])
        if wanted is list and (value == [] or isinstance(value, Mapping)):
            raise UserError(f"{where}: {name} must be a value or a list of some")
        if wanted is not list and not isinstance(value, wanted):
            raise UserError(f"{where}: {name} must be {_TYPES[wanted]}")
