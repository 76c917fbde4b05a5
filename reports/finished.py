"""The finished runs of a results folder, and whether runs that are compared have the same versions of code and data."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from utils.errors import UserError
from utils.files import files_below, json_in
from utils.renamed import with_present_names
from utils.stage import key
from utils.versions import declared
from utils.words import some

_UNKNOWN = "unknown"  # for runs from before versions were declared
_REMEDY = "remove it or run it again"
_NAMED = 3  # rows with the same version that a line names


class _Summary(dict[str, Any]):
    """What a run's `summary.json` has; a part that is missing is a `UserError`."""

    def __init__(self, path: Path) -> None:
        super().__init__(_read(path))
        self.run = path.parent

    def __missing__(self, part: str) -> Any:
        raise UserError(f"{self.run}: not a readable run ({part!r}); {_REMEDY}")


class Finished(NamedTuple):
    """A finished run: its directory, and the contents of `args.json`, `summary.json` and `environment.json`."""

    path: Path
    args: dict[str, Any]
    summary: _Summary
    environment: dict[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that say what was computed, without where files are and how the run was carried out."""
        return key(self.args)

    def alike(self, but: Collection[str] = ()) -> str:
        """The settings as text, without those in `but`: runs that agree in it are the same run, or one's partner."""
        return json.dumps({name: value for name, value in self.settings.items() if name not in but}, sort_keys=True)

    def versions(self) -> Iterator[tuple[str, str, str]]:
        """Yields (part of the code or the data, row of tables, version): runs in a row must have the same versions.

        A row of a table has one task and one method, over seeds, partitions or values of an argument. The parts of the
        code that two runs have in common are the engine, and whatever else both use of what has a declared version.
        """
        task, method = self.args["task"], self.args.get("method")
        row = f"{task} by {method}" if method else task
        code: Mapping[str, object] = declared(self.environment) or {"engine": _UNKNOWN}
        for part, version in code.items():
            yield f"code ({part})", row, str(version)
        data = f"data of {task} at {self.args.get('image_size')} px"
        yield data, task, self.environment.get("data_version") or _UNKNOWN


class Results(dict[str, list[Finished]]):
    """The finished runs in a results folder, by stage: what all tables are made of. Each stage's are read once."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def __missing__(self, stage: str) -> list[Finished]:
        return self.setdefault(stage, finished_runs(self.path / stage))


def finished_runs(folder: Path) -> list[Finished]:
    """The finished runs under `folder`; UserError where one cannot be read.

    Of runs with the same arguments, only the newest counts. They come in the order of task, method and the other
    arguments' values, since which run ended first depends on how many were made at once. `check_versions` says whether
    their versions differ.
    """
    newest: dict[str, Finished] = {}
    for path in sorted(files_below(folder, "summary.json"), key=lambda path: path.stat().st_mtime):
        try:
            args = _by_what_was_assigned(with_present_names(_read(path.with_name("args.json"))))
            environment_file = path.with_name("environment.json")
            run = Finished(
                path.parent, args, _Summary(path), _read(environment_file) if environment_file.is_file() else {}
            )
        except (OSError, ValueError) as error:
            raise UserError(f"{path.parent}: not a readable run ({error}); {_REMEDY}") from error
        newest[run.alike()] = run
    return sorted(newest.values(), key=_place)


def _place(run: Finished) -> list[tuple[Any, ...]]:
    """A key to sort runs by: their arguments' names and values, task and method first."""
    settings = run.settings
    return [(name, *_rank(settings.get(name))) for name in dict.fromkeys(["task", "method", *settings])]


def _rank(value: Any) -> tuple[bool, float, str]:
    """A key to sort an argument's values by: none, then numbers by size, then text and lists."""
    as_number = isinstance(value, int | float)
    return not as_number and value is not None, value if as_number else -math.inf, json.dumps(value)


def _by_what_was_assigned(args: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a federated run, with the features in its type if it assigned clusters of other features.

    So "embedding_based" always means clusters of the model's embeddings, as in the paper.
    """
    if "type" not in args:
        return args
    features = args.get("features")
    if args["type"] == "embedding_based" and features not in (None, "model"):
        args = args | {"type": f"{features}_based"}
    return {name: value for name, value in args.items() if name != "features"}


def check_versions(results: Results, mixed_versions: bool) -> list[str]:
    """Sentences about versions of code and data that differ between finished runs.

    Raises `UserError` if runs within a row of a table differ or, with `mixed_versions`, warns of them in a sentence.
    Differences between rows are only named: runs within a row are comparable, those of different rows are not.
    """
    stages = "train_centralized", "test_federated"
    return [line for stage in stages for line in _mixtures(results[stage], mixed_versions)]


def _mixtures(runs: Sequence[Finished], allowed: bool) -> Iterator[str]:
    runs_by_version: dict[str, dict[str, dict[str, list[Path]]]] = {}
    for run in runs:
        for what, row, version in run.versions():
            runs_by_version.setdefault(what, {}).setdefault(row, {}).setdefault(version, []).append(run.path)
    for what, rows in runs_by_version.items():
        mixed = {row: versions for row, versions in rows.items() if len(versions) > 1}
        for row, versions in mixed.items():
            runs_of_versions = "; ".join(
                f"{name[:8]} ({len(of)} runs, such as {of[-1]})" for name, of in versions.items()
            )
            message = f"runs of {row} were made with {len(versions)} versions of the {what}: {runs_of_versions}"
            if not allowed:
                remedy = "move the runs of one version away, run all again, or give --mixed_versions True"
                raise UserError(f"{message}; {remedy}")
            yield f"warning: {message}; means over them mix what cannot be compared"
        alike: dict[str, list[str]] = {}
        for row, versions in rows.items():
            alike.setdefault(next(iter(versions)), []).append(row)
        if len(alike) > 1 and not mixed:
            runs_of_versions = "; ".join(f"{name[:8]} ({some(rows, _NAMED)})" for name, rows in sorted(alike.items()))
            yield f"{len(alike)} versions of the {what}, but one within each task and method: {runs_of_versions}"


def _read(path: Path) -> dict[str, Any]:
    content = json_in(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is not an object")
    return content
