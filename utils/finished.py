"""The finished runs of a results folder, none of them mixed with runs of other code or data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from utils.errors import UserError

# Arguments that say where files are or how a run is carried out, and not what it computes.
ASIDE = {
    "data_path", "result_path", "init_model_dir", "trained_model_dir", "checkpoint_path", "load_model_dir",
    "assignment_files_path", "use_accelerator", "plot_distribution", "resume_training", "partition_file",
    "checkpoint_every",
}  # fmt: skip
_UNKNOWN = "unknown"  # of runs that were made before versions were noted


class Finished(NamedTuple):
    """A finished run: its directory, and what `args.json`, `summary.json` and `environment.json` hold."""

    path: Path
    args: dict[str, Any]
    summary: dict[str, Any]
    environment: dict[str, Any]

    def version(self, of: str) -> str:
        """Its version "code" or "data"."""
        return self.environment.get(f"{of}_version") or _UNKNOWN


def finished_runs(folder: Path, *parts: str) -> list[Finished]:
    """The finished runs under `folder`, whose summaries must have these parts, the oldest first.

    Of runs with the same arguments only the newest counts. Raises UserError where those of a task were then made with
    different versions of the code or the data: no mean is taken over such runs.
    """
    newest: dict[str, Finished] = {}
    for path in sorted(folder.rglob("summary.json"), key=lambda path: path.stat().st_mtime):
        try:
            args, summary = (_read(path.with_name(name)) for name in ("args.json", "summary.json"))
            summary = {part: summary[part] for part in parts}
            noted = path.with_name("environment.json")
            run = Finished(path.parent, args, summary, _read(noted) if noted.is_file() else {})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path.parent}: not a readable run ({error}); remove it or run it again") from error
        said = json.dumps({name: value for name, value in args.items() if name not in ASIDE}, sort_keys=True)
        newest.pop(said, None)
        newest[said] = run
    _refuse_mixtures(newest.values())
    return list(newest.values())


def _refuse_mixtures(runs: Iterable[Finished]) -> None:
    """UserError where runs of a task differ in the version of their code, or at one image size of their data."""
    found: dict[tuple, dict[str, list[Path]]] = {}
    for run in runs:
        task = run.args["task"]
        for key in (("code", task), ("data", task, run.args.get("image_size"))):
            found.setdefault(key, {}).setdefault(run.version(key[0]), []).append(run.path)
    for (what, task, *_), versions in found.items():
        if len(versions) > 1:
            each = "; ".join(f"{name[:8]} ({len(of)} runs, the last {of[-1]})" for name, of in versions.items())
            raise UserError(
                f"runs of {task} were made with {len(versions)} versions of the {what}: {each}; "
                "move the runs of one away, or make all anew"
            )


def _read(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is no object")
    return content
