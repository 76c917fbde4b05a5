"""The arguments that stages share, and what makes two runs the same.

Runs that differ in an argument are different runs. Exceptions are among the fields of `StageSettings` alone, because
such an argument says where files are or how a run is carried out (`StageArgument`). All others are part of what a run
computes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Self, get_type_hints

from utils.args import POSITIVE, POSITIVE_INT, Parser, boolean, number
from utils.arguments import Argument
from utils.settings import Settings, add_settings, arguments_in, setting, settings_of
from utils.versions import ANY, REUSE, SAME_SOURCE, SAME_VERSION


@dataclass(frozen=True)
class StageArgument(Argument):
    """An argument of `StageSettings`.

    Attributes:
        changes_numbers: whether runs that differ in it are different runs.
        may_change: whether a run may be resumed with another value.
    """

    changes_numbers: bool = True
    may_change: bool = False


# What is read may be anywhere, since its content is compared; but a run that is resumed reads the same files.
_PLACE: dict[str, Any] = {"type": Path, "of": partial(StageArgument, changes_numbers=False)}
_CARRIED_OUT: dict[str, Any] = {"of": partial(StageArgument, changes_numbers=False, may_change=True)}


@dataclass(frozen=True)
class StageSettings(Settings):
    """Where a stage's files are, and how it is carried out; a stage has those of these that it adds."""

    init_model_dir: Path = setting(Path("initial_models"), "folder of the initial models", heading="model", **_PLACE)
    trained_model_dir: Path = setting(Path("trained_models"), "folder of the central models", heading="model", **_PLACE)
    start_warm: bool = setting(False, "start from the central model instead of the initial one", bool, heading="model")
    load_model_dir: Path = setting(Path("trained_models"), "folder of the central models", heading="model", **_PLACE)
    checkpoint_path: Path = setting(
        Path("trained_models"), "folder for the trained models and their checkpoints", heading="model", **_PLACE
    )
    assignment_files_path: Path = setting(Path("assignments"), "folder of the clusters", heading="clusters", **_PLACE)
    partition_file: Path | None = setting(
        None, "use this saved partition: a run's partition.json or its folder", heading="partition", **_PLACE
    )
    allow_unassigned: float = setting(
        0.5,
        "largest share of the images that a rule may leave without a client",
        number(float, least=0, most=1),
        heading="partition",
        **_CARRIED_OUT,
    )
    data_path: Path | None = setting(
        None, "data folder; default: the one that images were last selected from", Path, heading="data", **_CARRIED_OUT
    )
    result_path: Path = setting(
        Path("results"), "folder of the run directories", Path, heading="output", **_CARRIED_OUT
    )
    plot_distribution: bool = setting(True, "draw what each client has", bool, heading="output", **_CARRIED_OUT)
    track: str | None = setting(
        None,
        "tracker that gets the values of metrics.csv as well; default: none",
        choices=("tensorboard", "wandb"),
        heading="output",
        **_CARRIED_OUT,
    )
    on_missing: str = setting(
        "stop",
        "what to do where a client is away or refused",
        choices=("stop", "skip_client"),
        of=partial(StageArgument, may_change=True),
    )
    timeout: float = setting(600.0, "seconds to wait for a client whose node is away", POSITIVE, **_CARRIED_OUT)
    rand_seed: int = setting(42, "seed of all random choices", number(int, least=0))
    resume_training: bool = setting(False, "continue the newest run with these arguments", bool, **_CARRIED_OUT)
    reuse: str = setting(
        SAME_VERSION,
        "which earlier runs count: any, or those made with the same declared versions, or with the same source files",
        choices=REUSE,
        **_CARRIED_OUT,
    )
    checkpoint_every: int = setting(1, "rounds between checkpoints", POSITIVE_INT, **_CARRIED_OUT)
    use_accelerator: bool = setting(
        True,
        "compute on the GPU that accelerate finds; False keeps to the CPU. "
        "Several processes, on GPUs or CPUs: accelerate launch --multi_gpu --num_processes N",
        bool,
        **_CARRIED_OUT,
    )
    precision: str = setting(
        "auto",
        "numbers to compute with; bf16 needs a device that has it, auto takes it on such GPUs",
        choices=("auto", "fp32", "bf16"),
    )
    test_mode: bool = setting(False, "a run of seconds: few steps, to see that everything works", bool)


_EXCEPTIONS = {
    name: argument for name, argument in arguments_in(StageSettings).items() if isinstance(argument, StageArgument)
}


def changes_numbers(name: str) -> bool:
    """Whether an argument can change numbers: runs that differ in it are different runs.

    >>> changes_numbers("result_path"), changes_numbers("init_lr")
    (False, True)
    """
    return name not in _EXCEPTIONS or _EXCEPTIONS[name].changes_numbers


def key(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, as plain values, that say what a run computes: runs that agree in these are the same run."""
    return {name: plain(value) for name, value in config.items() if changes_numbers(name)}


def diff(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The arguments, of what a run recorded and of a configuration, that keep the run from being resumed with it.

    >>> diff({"init_lr": 0.1, "result_path": "a"}, {"init_lr": 0.2, "result_path": "b"})
    ['init_lr']
    """
    fixed = (name for name in {**now, **before} if name not in _EXCEPTIONS or not _EXCEPTIONS[name].may_change)
    return [name for name in fixed if before.get(name) != plain(now.get(name))]


def plain(value: Any) -> Any:
    """As it is read back from JSON: paths as text, and tuples, of a task's classes too, as lists."""
    if value is None or type(value) in (str, int, float, bool):  # most are, and tables of thousands of runs ask for all
        return value
    return json.loads(json.dumps(value, default=str))


@dataclass(frozen=True, kw_only=True)
class Stage(Settings):
    """All that a run of a stage follows from: a subclass has a field for each of its concerns.

    Attributes:
        running: where its files are, and how it is carried out.
        config: all the arguments by name, as `args.json` records them.
    """

    running: StageSettings
    config: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **others: Any) -> Self:
        """With the settings that each of its concerns has in this configuration, and others by their fields."""
        kinds = {name: kind for name, kind in get_type_hints(cls).items() if name not in others}
        kinds = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Settings)}
        concerns = {name: kind.from_config(config) for name, kind in kinds.items()}
        return cls(**{"config": config} | settings_of(cls, config) | concerns | others)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """With these values of arguments, by name, such as TOML or JSON has; the others have their defaults.

        UserError as on the command line. None is as if the argument were not given.
        """
        parser = cls.parser()
        return cls.from_config(vars(parser.parse_args(parser.words_of(values))))

    def to_json(self) -> dict[str, Any]:
        """The arguments as plain values, as `args.json` has them."""
        return plain(self.config)

    def key(self) -> dict[str, Any]:
        """What makes two runs the same: see `key`."""
        return key(self.config)

    def diff(self, before: Mapping[str, Any]) -> list[str]:
        """What keeps a run with this record from being resumed so: see `diff`."""
        return diff(before, self.config)


def shared(name: str) -> Any:
    """A field of a tool's that is this one of `StageSettings`."""
    [entry] = (entry for entry in fields(StageSettings) if entry.name == name)
    heading = entry.metadata["heading"] or StageSettings.heading
    return field(default=entry.default, metadata={**entry.metadata, "heading": heading})


def add_shared(parser: Parser, *names: str, **texts: str) -> None:
    """Add the arguments of these names, and those of others with texts of their own."""
    add_settings(parser, StageSettings, "running", dict.fromkeys(names, "") | texts)


def add_stage(parser: Parser, resuming: str, unit: str = "") -> None:
    """What every stage that computes has: its data, how it is resumed, which this text says, and where it runs.

    A training, with checkpoints every so many `unit`s, has `--checkpoint_every` and `--track` as well.
    """
    add_shared(parser, "data_path", "result_path", "rand_seed", resume_training=resuming)
    add_code(parser)
    if unit:
        add_shared(parser, "track", checkpoint_every=f"{unit}s between checkpoints")
    add_shared(parser, "use_accelerator", "precision", "test_mode")


def add_code(parser: Parser) -> None:
    """`--reuse`: which earlier runs count; see `utils.versions.CodePolicy`."""
    either, reuse = parser.group("running").add_mutually_exclusive_group(), _EXCEPTIONS["reuse"]
    either.add_argument("--reuse", choices=reuse.choices, default=reuse.default, help=reuse.text)
    for former, policy in (("--accept_code", ANY), ("--refuse_code", SAME_SOURCE)):
        either.add_argument(
            former,
            dest="reuse",
            nargs="?",
            const="True",
            type=partial(_policy, policy),
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )


def _policy(policy: str, text: str) -> str:
    """What a flag of before, `--accept_code True`, says today."""
    return policy if boolean(text) else SAME_VERSION
