"""Run directories: what was run, with what, and what came out."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from utils.errors import UserError
from utils.files import read_json, write_atomically, write_json

_MAY_CHANGE = {"resume_training", "result_path", "plot_distribution", "use_accelerator", "data_path"}
_PACKAGES = ("torch", "torchvision", "numpy", "scipy", "scikit-learn", "accelerate", "safetensors")


class Run:
    """One run's directory, `<result_path>/<stage>/…/<name>/`.

    It holds `args.json`, `environment.json`, `metrics.csv`, `checkpoint/` and `figures/`. A new run never writes
    into an old one's directory: if the name is taken it gets a number behind it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.figures = path / "figures"
        self._checkpoint = path / "checkpoint" / "last.safetensors"

    @classmethod
    def create(cls, args: Namespace, *parts: str, origin: Mapping[str, Any] | None = None) -> Run:
        """Make the directory of a new run and write down its arguments and versions.

        `origin`, of `utils.versions.provenance`, goes into `environment.json` as well.
        """
        base = Path(args.result_path, *parts)
        try:
            base.parent.mkdir(parents=True, exist_ok=True)
            path, number = base, 1
            while True:
                try:
                    path.mkdir()  # fails if it exists, so that two runs started at once get two names
                    break
                except FileExistsError:
                    number += 1
                    path = base.with_name(f"{base.name}_{number}")
        except OSError as error:
            raise UserError(f"{base}: cannot make the run directory ({error.strerror}); see --result_path") from error
        run = cls(path)
        write_json(path / "args.json", {key: _plain(value) for key, value in vars(args).items()})
        write_json(path / "environment.json", environment() | dict(origin or {}))
        return run

    @classmethod
    def start(cls, args: Namespace, *parts: str, origin: Mapping[str, Any] | None = None) -> Run:
        """A new run, or with `--resume_training True` the newest of this name and origin that has a checkpoint.

        Raises `UserError` if there is nothing to resume, or if an argument that bears on the numbers, the code, the
        data or a file that the run reads has changed in all there is.
        """
        if not args.resume_training:
            return cls.create(args, *parts, origin=origin)
        base = Path(args.result_path, *parts)
        siblings = [p for p in base.parent.glob(f"{base.name}*") if p == base or _numbered(p.name, base.name)]
        runs = [cls(path) for path in siblings if (path / "checkpoint" / "last.safetensors").is_file()]
        if not runs:
            raise UserError(f"{base} has no checkpoint to resume from; start without --resume_training True")
        runs.sort(key=lambda run: run.path.stat().st_mtime, reverse=True)
        differences = [run._differences(args, origin or {}) for run in runs]
        if all(differences):
            raise UserError(f"{runs[0].path} was started with {differences[0]}")
        return runs[differences.index("")]

    def _differences(self, args: Namespace, origin: Mapping[str, Any]) -> str:
        """What this run was started with where these arguments or this origin are others; empty if none are."""
        before = read_json(self.path / "args.json", "the run")
        changed = [k for k, v in vars(args).items() if k not in _MAY_CHANGE and before.get(k) != _plain(v)]
        if changed:
            return ", ".join(f"--{name} {before.get(name)}" for name in changed) + "; resume with the same arguments"
        before = read_json(self.path / "environment.json", "the run")
        other = [name.replace("_", " ") for name, value in origin.items() if before.get(name) != value]
        return f"another {', '.join(other)}; start without --resume_training True" if other else ""

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Write `metrics.csv`, one row a round or epoch."""
        with write_atomically(self.path / "metrics.csv") as temporary:
            pd.DataFrame(rows).to_csv(temporary, index=False)

    def write_summary(self, summary: Mapping[str, Any], outputs: Mapping[str, str] | None = None) -> None:
        """Write `summary.json`, which marks the run as finished; `outputs` are `digests` of what later stages read."""
        plain = {key: _plain(value) for key, value in summary.items()}
        write_json(self.path / "summary.json", plain | ({"outputs": dict(outputs)} if outputs else {}))

    def save_checkpoint(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Replace the checkpoint by these tensors and this JSON-able state, in one atomic step."""
        save_checkpoint(self._checkpoint, tensors, state)

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The last checkpoint's tensors (on the CPU) and state."""
        return load_checkpoint(self._checkpoint)


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors and a JSON-able state into one safetensors file, atomically."""
    # Copies: safetensors refuses tensors that share memory.
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    with write_atomically(path) as temporary:
        save_file(plain, temporary, metadata={"state": json.dumps(state)})


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_checkpoint` wrote; UserError where the file is missing or broken."""
    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads(file.metadata()["state"])
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path}: no readable checkpoint ({error}); start without --resume_training True") from error


def environment() -> dict[str, Any]:
    """Versions and machine, as far as they bear on numbers."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "commit": _commit(),
        "command": sys.argv,
        "cpu_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
    }


def remember_data_path(data_path: Path, result_path: Path) -> None:
    """Note which data folder was selected from, for the later stages' default."""
    write_json(result_path / "data_path.json", {"data_path": str(data_path.resolve())})


def data_path_or_default(given: Path | None, result_path: Path) -> Path:
    """The given data folder, or the one that the first stage last selected from; UserError if there is none."""
    note = result_path / "data_path.json"
    if given is None and not note.is_file():
        raise UserError("no data selected yet; run extract_datapoints_for_experiments.py first, or give --data_path")
    path = given or Path(read_json(note, "extract_datapoints_for_experiments.py")["data_path"])
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; see --data_path")
    return path


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The checkout's commit, with `-dirty` if files differ from it; None outside a git checkout."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _numbered(name: str, base: str) -> bool:
    return name.startswith(f"{base}_") and name[len(base) + 1 :].isdigit()


def _plain(value: Any) -> Any:
    """Paths as text, everything else as it is."""
    return str(value) if isinstance(value, Path) else value
