"""The settings of a central training, which are arguments of `train_centralized_task_model.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from models.settings import StepSettings
from utils.args import POSITIVE_INT, number
from utils.settings import setting, settings_of
from utils.stage import StageSettings

_ON_PLATEAUS = {"lr_schedule": ("plateau",)}


@dataclass(frozen=True)
class TrainSettings(StepSettings):
    """How a central model is trained; `rand_seed` is of all randomness."""

    heading: ClassVar[str] = "training"

    rand_seed: int = StageSettings.rand_seed
    n_epochs: int = setting(100, "number of epochs in all", POSITIVE_INT)
    lr_schedule: str = setting(
        "plateau",
        "how the learning rate changes: on plateaus, as published, or up to --init_lr and down again",
        choices=("plateau", "one_cycle"),
    )
    lr_decay_rate: float = setting(
        0.95, "decay per epoch on a plateau", number(float, above=0, most=1), only=_ON_PLATEAUS
    )
    no_improvement_tolerance: int = setting(
        5, "epochs without improvement before the decay", POSITIVE_INT, only=_ON_PLATEAUS
    )
    use_adam: bool = setting(False, "Adam instead of SGD", bool)
    val_fraction: float = setting(0.1, "share of the training images to validate on", number(float, above=0, most=0.9))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The settings of these arguments; `--test_mode` asks for two epochs."""
        return cls(**settings_of(cls, config) | ({"n_epochs": 2} if config["test_mode"] else {}))
