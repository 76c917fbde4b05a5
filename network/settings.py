"""The settings of a federation, which are arguments of `test_fed.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from models.networks.parts import LORA, TRAINABLE, TRAINS
from models.settings import StepSettings
from network.engine.state import MEMORY
from utils.args import POSITIVE, POSITIVE_INT, Parser, increasing, number, number_or_auto
from utils.arguments import NON_NEGATIVE, add_arguments_of
from utils.errors import UserError
from utils.settings import Settings, arguments_in, check_read, recorded, setting, settings_of
from utils.stage import StageSettings

LR_SCHEDULES = ("plateau", "cosine", "step", "linear", "none")
_LOCAL_WORK = ("sgd_per_epoch", "epoch_per_round")  # which other arguments may replace
ON_NAN = ("stop", "skip_client")  # what to do where a loss is not finite


@dataclass(frozen=True)
class LocalSettings(StepSettings):
    """How clients train."""

    heading: ClassVar[str] = "local training"

    n_rounds: int = setting(100, "number of global rounds", POSITIVE_INT)
    sgd_per_epoch: int = setting(
        50, "steps that a client takes in a local epoch; auto, the default: 50", number_or_auto
    )
    epoch_per_round: int = setting(1, "local epochs per round; auto, the default: 1", number_or_auto)
    local_epochs: int | None = setting(
        None,
        "epochs over a client's own images per round, instead of these two; auto, the default: none",
        number_or_auto,
    )
    momentum: float = setting(
        0.0, "momentum of local SGD, within a round", number(float, least=0, most=0.999), only={"use_adam": (False,)}
    )
    weight_decay: float = setting(0.0, "weight decay of the local optimiser", NON_NEGATIVE)
    use_adam: bool = setting(False, "Adam as the local optimiser, new in each round, instead of SGD", bool)
    lr_schedule: str = setting(
        "plateau", "how the learning rate falls; plateau is the published rule", choices=LR_SCHEDULES
    )
    lr_decay_rate: float = setting(
        0.999,
        "decay per step on a plateau; step: per round",
        number(float, above=0, most=1),
        only={"lr_schedule": ("plateau", "step")},
    )
    no_improvement_tolerance: int = setting(
        5, "steps without improvement that make a plateau", POSITIVE_INT, only={"lr_schedule": ("plateau",)}
    )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The settings of these arguments; `--test_mode` asks for two rounds of two steps."""
        short = {"n_rounds": 2, "sgd_per_epoch": 2, "epoch_per_round": 1, "local_epochs": None}
        return cls(**settings_of(cls, config) | (short if config["test_mode"] else {}))

    def steps(self, n_images: int) -> int:
        """Steps per round of a client with this many images: by `local_epochs`, rounded, or the same for all."""
        if self.local_epochs is None:
            return self.sgd_per_epoch * self.epoch_per_round
        return round(self.local_epochs * n_images / min(self.batch_size, n_images))


def _norm(text: str) -> float:
    return math.inf if text == "inf" else POSITIVE(text)


@dataclass(frozen=True)
class PrivacySettings(Settings):
    """Central differential privacy (`network/privacy.py`): none without `clip_norm`."""

    heading: ClassVar[str] = "privacy"

    clip_norm: float | None = setting(
        None,
        "largest norm of what a client changes, the first one with --clip_quantile; inf: any",
        _norm,
        recorded=False,
    )
    noise_multiplier: float | None = setting(
        None,
        "standard deviation of the noise on the round's sum, in clip norms; default: 0",
        NON_NEGATIVE,
        recorded=False,
    )
    clip_quantile: float | None = setting(
        None,
        "adapt the norm so that this share of clients is within it",
        number(float, least=0, most=1),
        recorded=False,
    )
    clip_lr: float | None = setting(None, "how fast the norm adapts; default: 0.2", POSITIVE, recorded=False)
    clip_count_noise: float | None = setting(
        None,
        "standard deviation of the noise on the count of clients within the norm; default: a twentieth "
        "of --clients_per_round, at least --noise_multiplier",
        POSITIVE,
        recorded=False,
    )
    delta: float | None = setting(
        None, "the delta of epsilon; default: N^-1.1 for N clients", number(float, above=0, below=1), recorded=False
    )
    max_epsilon: float | None = setting(None, "stop before epsilon exceeds this", POSITIVE, recorded=False)


@dataclass(frozen=True)
class SimulationSettings(Settings):
    """How a federation is simulated.

    `rand_seed` seeds all randomness. Models are also evaluated and saved before the first round and after the last.
    `memory` is the number of bytes of clients' states that a process keeps in memory; the rest goes to disk.
    """

    rand_seed: int = StageSettings.rand_seed
    batch_norm: str = setting(
        "averaged",
        "local: each client keeps its own; group: replaced by group norm",
        choices=("averaged", "local", "group"),
        heading="model",
    )
    evaluate_every: int = setting(1, "rounds between evaluations of models", POSITIVE_INT, heading="output")
    evaluate_clients: int | None = setting(
        None,
        "clients on whose images models are evaluated, the same in every round, drawn by the seed; default: all",
        POSITIVE_INT,
        heading="output",
    )
    evaluate_apart: bool = setting(
        False,
        "evaluate the server's model on each client's images apart, as a deployed federation does: the same values "
        "but for rounding",
        bool,
    )
    on_nan: str = setting("stop", "what to do where a client's loss is not finite", choices=ON_NAN)
    vectorised_clients: int | None = setting(1, "clients trained at once; auto: the fastest number", number_or_auto)
    compile: bool = setting(False, "compile the forward pass of local training", bool)
    checkpoint_every: int = StageSettings.checkpoint_every
    memory: int = MEMORY


@dataclass(frozen=True)
class AdaptSettings(Settings):
    """How non-participating clients adapt what the method gives them; without `adapt_steps` they do not."""

    heading: ClassVar[str] = "non-participating clients"

    adapt_steps: Sequence[int] | None = setting(
        None, "steps after which non-participating clients are evaluated again, as 5,20,80; default: none", increasing
    )
    adapt_images: int | None = setting(
        None, "of its own training images, how many a non-participating client adapts on; default: all", POSITIVE_INT
    )
    adapt_train: str | None = setting(
        None, "what non-participating clients train; default: all", choices=tuple(TRAINABLE)
    )
    adapt_rank: int | None = setting(
        None, "rank of the adapters of --adapt_train lora; default: --lora_rank's", POSITIVE_INT, recorded=False
    )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The settings of these arguments; `--test_mode` asks for at most two steps."""
        values = settings_of(cls, config)
        if config["test_mode"] and values["adapt_steps"]:
            values["adapt_steps"] = sorted({min(n, 2) for n in values["adapt_steps"]})
        return cls(**values)


SETTINGS = (LocalSettings, SimulationSettings, PrivacySettings, AdaptSettings)


def resolve_federation(config: Mapping[str, Any]) -> dict[str, Any]:
    """With what follows from the settings that were given; UserError where they do not go together."""
    resolved = resolve_privacy(resolve_adaptation(resolve_local_work(config)))
    check_read(resolved, LocalSettings)
    return recorded(resolved, *map(arguments_in, SETTINGS))


def resolve_adaptation(config: Mapping[str, Any]) -> dict[str, Any]:
    """With what non-participating clients train where they adapt; UserError for what is only read where they do.

    So it is where there can be none, because none are set aside and no saved partition may have some.
    """
    resolved = dict(config)
    arguments = [f"--{name}" for name in ("adapt_images", "adapt_train", "adapt_rank") if config[name] is not None]
    if config["adapt_steps"] is None and arguments:
        raise UserError(f"{arguments[0]} is read only with --adapt_steps; give that as well, or omit it")
    if config["adapt_rank"] is not None and config["adapt_train"] != LORA:
        raise UserError("--adapt_rank is read only with --adapt_train lora; give that as well, or omit it")
    if config["adapt_steps"] is not None:
        if config["partition_file"] is None:
            check_adaptation(config["adapt_steps"], config["non_participating_clients"])
        resolved["adapt_train"] = config["adapt_train"] or "all"
    return resolved


def check_adaptation(steps: Sequence[int] | None, n_non_participating: float | None) -> None:
    """UserError where clients are to adapt in these steps, and there are no non-participating ones."""
    if steps and not n_non_participating:
        raise UserError("--adapt_steps is for non-participating clients; give --non_participating_clients as well")


def add_federation(parser: Parser) -> None:
    """Add the arguments for these settings."""
    LocalSettings.add_arguments(parser)
    add_arguments_of(parser, "adapters", TRAINS, "train")
    parser.set_defaults(**dict.fromkeys(_LOCAL_WORK))  # until `resolve_local_work` knows what was given
    for settings in (PrivacySettings, SimulationSettings, AdaptSettings):
        settings.add_arguments(parser)


def resolve_local_work(config: Mapping[str, Any]) -> dict[str, Any]:
    """With how long clients train where it was not given; UserError where it was given in two ways."""
    steps = [f"--{name}" for name in _LOCAL_WORK if config[name] is not None]
    others = [f"--{name}" for name in ("virtual_client_size", "local_epochs") if config.get(name) is not None]
    if others and len(others) + len(steps) > 1:
        replaced = [*others[1:], *steps]
        raise UserError(
            f"{others[0]} takes the place of {' and '.join(replaced)}; omit one, "
            f"or give {' '.join(f'{name} auto' for name in replaced)} after an argument file"
        )
    return {**config, **{name: config[name] or getattr(LocalSettings, name) for name in _LOCAL_WORK}}


def resolve_privacy(config: Mapping[str, Any]) -> dict[str, Any]:
    """With the noise of a private run; UserError where arguments of privacy say nothing together."""
    values = {field.name: config[field.name] for field in fields(PrivacySettings) if config[field.name] is not None}
    noise, endless = values.get("noise_multiplier"), values.get("clip_norm") == math.inf
    if values and "clip_norm" not in values:
        raise UserError(f"--{min(values)} says nothing without a bound of what a client changes; give --clip_norm")
    if values.get("max_epsilon") and not noise:
        raise UserError("--max_epsilon: without noise epsilon is infinite; give --noise_multiplier")
    if noise and endless:
        raise UserError("--noise_multiplier: no noise covers changes of any size; give a finite --clip_norm")
    if noise and config["start_warm"]:
        raise UserError(
            "--start_warm: the central model has learnt the clients' images without noise; omit it, or the noise"
        )
    for name in {"clip_lr", "clip_count_noise"} & values.keys():
        if "clip_quantile" not in values:
            raise UserError(f"--{name} is of a norm that adapts; give --clip_quantile")
    if "clip_quantile" in values and endless:
        raise UserError("--clip_quantile: an infinite norm stays infinite; give a finite --clip_norm to begin with")
    if values.get("clip_count_noise") and not noise:
        raise UserError("--clip_count_noise: no count gets noise without --noise_multiplier; give that, or omit it")
    return {**config, "noise_multiplier": noise or 0.0} if values else dict(config)  # as tables of several say it
