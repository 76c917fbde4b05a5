"""Run directories: what was run, with what, and what came out."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from utils.command import command_line
from utils.errors import UserError
from utils.files import locked, read_json, save_tensors, write_atomically, write_json
from utils.renamed import with_present_names
from utils.stage import diff, plain
from utils.versions import CodePolicy, warn

if TYPE_CHECKING:
    import pandas as pd
    from accelerate import Accelerator
    from torch import Tensor

# The images that values are measured on: their names in the columns of `metrics.csv`, and in figures and tables.
MEASURED_ON = {
    "train": "client train", "local_test": "client test", "test": "global test",
    "unseen_train": "non-participating train", "unseen_test": "non-participating test",
}  # fmt: skip
# The columns of `metrics.csv` with these values, by whose model it is and which of these images.
COLUMNS = {
    ("global", "train"): "train_{}_mean",
    ("global", "local_test"): "local_test_{}_mean",
    ("global", "test"): "test_{}",
    ("personal", "train"): "personal_train_{}_mean",
    ("personal", "local_test"): "personal_local_test_{}_mean",
    ("received", "unseen_train"): "unseen_train_{}_mean",
    ("received", "unseen_test"): "unseen_test_{}_mean",
}
_WRITTEN = ("args.json", "environment.json")  # at a run's start, in this order
_PACKAGES = ("torch", "torchvision", "numpy", "scipy", "scikit-learn", "accelerate", "safetensors")


def columns_of(images: str, name: str) -> dict[str, str]:
    """The columns of a value on these images, by whose model it is; the first that a run has counts.

    >>> columns_of("train", "loss")
    {'personal': 'personal_train_loss_mean', 'global': 'train_loss_mean'}
    """
    return {whose: column.format(name) for (whose, on), column in reversed(COLUMNS.items()) if on == images}


class Run:
    """One run's directory, `<result_path>/<stage>/…/<name>/`.

    It holds `args.json`, `environment.json`, `metrics.csv`, `checkpoint/` and `figures/`. A new run never writes
    into an old one's directory: if the name is taken it gets a number behind it. Whoever makes or takes up a run holds
    the directory until its process ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.figures = path / "figures"
        self.checkpoint = path / "checkpoint" / "last.safetensors"
        self._held = ExitStack()
        self._log: Callable[..., None] | None = None

    @classmethod
    def create(cls, config: Mapping[str, Any], *parts: str, origin: Mapping[str, Any] | None = None) -> Run:
        """Make the directory of a new run and write down its configuration, arguments by name, and versions.

        `origin`, of `network.provenance.provenance`, goes into `environment.json` as well.
        """
        base = Path(config["result_path"], *parts)
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
        run = cls(path)._hold()
        write_json(path / "args.json", plain(dict(config)))
        write_json(path / "environment.json", environment() | dict(origin or {}))
        return run

    @classmethod
    def start(
        cls,
        config: Mapping[str, Any],
        *parts: str,
        origin: Mapping[str, Any] | None = None,
        formerly: str | None = None,
    ) -> Run:
        """A new run, or with `--resume_training True` the newest of this name and origin that has a checkpoint.

        `formerly` is the name that such a run's folder once had. Raises `UserError` if there is nothing to resume, if
        in every run of these names an argument that bears on the numbers, a declared version of the code, the data or a
        file that it reads has changed, or if the run is still going on. `--reuse` says
        otherwise of the code, see `utils.versions.CodePolicy`.
        """
        if not config["resume_training"]:
            return cls.create(config, *parts, origin=origin)
        names = dict.fromkeys((parts[-1], formerly or parts[-1]))
        runs = [run for name in names for run in cls._named(config, *parts[:-1], name) if run.has_checkpoint]
        if not runs:
            base = Path(config["result_path"], *parts)
            raise UserError(f"{base} has no checkpoint to resume from; start without --resume_training True")
        return cls._first(runs, config, origin or {})._hold()

    @classmethod
    def take_up(cls, config: Mapping[str, Any], *parts: str, origin: Mapping[str, Any] | None = None) -> Run:
        """A new run, or with `--resume_training True` the newest unfinished one of this name, arguments and origin.

        For stages whose checkpoint lies elsewhere. Raises `UserError` if the code alone keeps such a run from being
        taken up.
        """
        named = cls._named(config, *parts) if config["resume_training"] else []
        unfinished = [run for run in named if not (run.path / "summary.json").exists()]
        runs = [run for run in unfinished if not run._differences(config, origin or {})]
        if runs:
            return cls._first(runs, config, origin or {})._hold()
        return cls.create(config, *parts, origin=origin)

    @classmethod
    def _first(cls, runs: Sequence[Run], config: Mapping[str, Any], origin: Mapping[str, Any]) -> Run:
        """The newest run that may be resumed; UserError in the words of the newest of all if there is none."""
        faults = []
        for run in sorted(runs, key=lambda run: run.path.stat().st_mtime, reverse=True):
            counts, difference = CodePolicy.from_config(config).judge(run._read("environment.json"), origin)
            fault = run._differences(config, origin)
            if counts and not fault:
                if difference:
                    warn(f"{run.path} was started with {difference}; going on with it")
                return run
            remedy = "start without --resume_training True, or go on with it by --reuse any"
            faults.append(f"{run.path} was started with {fault or f'{difference}; {remedy}'}")
        raise UserError(faults[0])

    @classmethod
    def _named(cls, config: Mapping[str, Any], *parts: str) -> list[Run]:
        """The runs of a name that have begun, with and without a number behind it.

        A run whose `environment.json` is missing, which is written last, was killed before it began.
        """
        base = Path(config["result_path"], *parts)
        paths = [p for p in base.parent.glob(f"{base.name}*") if p == base or _numbered(p.name, base.name)]
        return [cls(path) for path in paths if all((path / name).is_file() for name in _WRITTEN)]

    def _differences(self, config: Mapping[str, Any], origin: Mapping[str, Any]) -> str:
        """How this run's arguments, data and inputs differ from these, in words; empty if they do not."""
        before = with_present_names(self._read("args.json"))
        if changed := diff(before, config):
            return ", ".join(f"--{name} {before.get(name)}" for name in changed) + "; resume with the same arguments"
        before = self._read("environment.json")
        values = {name: value for name, value in origin.items() if name not in ("code_version", "source_hash")}
        other = [name.replace("_", " ") for name, value in values.items() if before.get(name) != value]
        return f"another {', '.join(other)}; start without --resume_training True" if other else ""

    def _read(self, name: str) -> dict[str, Any]:
        """One of the run's files that were written at its start."""
        content = read_json(self.path / name, "the run")
        if not isinstance(content, dict):
            raise UserError(f"{self.path / name} is not a run's; start without --resume_training True")
        return content

    def _hold(self) -> Run:
        self._held.enter_context(locked(self.path / ".lock", f"{self.path} is still running; wait for it or stop it"))
        return self

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is anything to resume from."""
        return bool(checkpoints(self.checkpoint))

    def track(self, accelerator: Accelerator, first: int) -> None:
        """Send rows to the accelerator's tracker as well, if it has one; the first that is to come has step `first`."""
        from utils.tracking import start_tracker

        if accelerator.log_with and accelerator.is_main_process:
            start_tracker(accelerator, self.path, first)
            self._log = accelerator.log

    def write_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Write `metrics.csv`, one row per round or epoch, of which the last is new; the tracker gets that one."""
        self.write_rows("metrics.csv", rows)
        if self._log:
            (_, step), *values = rows[-1].items()
            self._log(dict(values), step=step)

    def write_rows(self, name: str, rows: list[dict[str, Any]] | pd.DataFrame) -> None:
        """Write a CSV file of this name, a line for each row."""
        import pandas as pd

        with write_atomically(self.path / name) as temporary:
            pd.DataFrame(rows).to_csv(temporary, index=False)

    def write_summary(self, summary: Mapping[str, Any], outputs: Mapping[str, str] | None = None) -> None:
        """Write `summary.json`, which marks the run as finished; `outputs` are `digests` of what later stages read."""
        write_json(self.path / "summary.json", plain(dict(summary)) | ({"outputs": dict(outputs)} if outputs else {}))


def is_due(done: int, every: int, last: int) -> bool:
    """Whether what is done every so many rounds or epochs, and after the last, is due after this one."""
    return done % every == 0 or done == last


def previous(path: Path) -> Path:
    """Where the checkpoint before the one in `path` is kept."""
    return path.with_name(f"{path.stem}_previous{path.suffix}")


def checkpoints(path: Path) -> list[Path]:
    """Those that are there of the checkpoint in `path` and the one before; a kill may leave the second alone."""
    return [checkpoint for checkpoint in (path, previous(path)) if checkpoint.is_file()]


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors and a JSON-able state into one safetensors file, atomically; the one before is kept beside it."""
    # Copies: safetensors refuses tensors that share memory.
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    with write_atomically(path) as temporary:
        save_tensors(plain, temporary, {"state": json.dumps(state)})
        if path.is_file():
            path.replace(previous(path))


def load_checkpoint(
    path: Path, remedy: str = "start without --resume_training True"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_checkpoint` wrote, tensors on the CPU; UserError with the remedy where it is missing or broken."""
    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads(file.metadata()["state"])
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path}: not a readable checkpoint ({error}); {remedy}") from error


def load_newest(
    path: Path, check: Callable[[dict[str, Any]], None] = lambda state: None, agree: Callable[[bool], bool] = bool
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The checkpoint in `path`, or the one before where that is broken, which then takes its place.

    Args:
        path: of the newest.
        check: raises `UserError` where other files, which the checkpoint's state names, are broken.
        agree: given whether this process finds it broken, tells whether any process does.

    Raises:
        UserError: if neither can be read.
    """
    loaded, fault = _try(path, check)
    if not agree(fault is not None) and loaded:
        return loaded
    before, no_way = _try(previous(path), check)
    if agree(no_way is not None) or before is None:
        raise fault or no_way or UserError(f"{path}: another process finds it broken; start without --resume_training")
    if fault:
        print(f"{fault.args[0].split('; start')[0]}; going on from the one before".replace("\n", " "), file=sys.stderr)
    with suppress(FileNotFoundError):  # another process has done so
        previous(path).replace(path)
    return before


def state_before(path: Path) -> dict[str, Any]:
    """The state in the checkpoint before the one in `path`; empty where there is none, or a broken one."""
    try:
        return load_checkpoint(previous(path))[1]
    except UserError:
        return {}


def _try(
    path: Path, check: Callable[[dict[str, Any]], None]
) -> tuple[tuple[dict[str, Tensor], dict[str, Any]] | None, UserError | None]:
    try:
        loaded = load_checkpoint(path)
        check(loaded[1])
    except UserError as error:
        return None, error
    return loaded, None


def environment() -> dict[str, Any]:
    """Versions and machine, as far as they bear on numbers."""
    import torch

    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": _versions(),
        "commit": _commit(),
        "command": command_line(),
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
    path = given or _noted(note)
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; see --data_path")
    return path


def _noted(note: Path) -> Path:
    made_by = "extract_datapoints_for_experiments.py"
    content = read_json(note, made_by)
    path = content.get("data_path") if isinstance(content, dict) else None
    if not isinstance(path, str) or not Path(path).is_absolute():
        raise UserError(f"{note} names no data folder; run {made_by} again, or give --data_path")
    return Path(path)


@cache
def _versions() -> dict[str, str | None]:
    """Those of the packages, None for one that is missing, as they are when this is first called."""
    return {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def _commit() -> str | None:
    """The checkout's commit when this is first called, `-dirty` if files differ from it; None outside a checkout."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _numbered(name: str, base: str) -> bool:
    return name.startswith(f"{base}_") and name[len(base) + 1 :].isdigit()
