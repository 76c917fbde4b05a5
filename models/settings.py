"""The settings that every model has, and every training, of a central model and of a client's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from datasets.augmentation import AUGMENTS
from datasets.tasks import TASKS
from models.networks.parts import TRAINABLE
from utils.args import POSITIVE, POSITIVE_INT
from utils.settings import REQUIRED, Settings, setting


@dataclass(frozen=True)
class ModelName(Settings):
    """Which model: what its files are called by."""

    heading: ClassVar[str] = "model"

    task: str = setting(REQUIRED, "what the model learns", choices=TASKS)
    use_cbam: bool = setting(False, "the model with attention (CBAM) in its decoder", bool)


@dataclass(frozen=True, kw_only=True)
class StepSettings(Settings):
    """What a step is like: which images it sees, and what it trains."""

    batch_size: int = setting(16, "images per step", POSITIVE_INT)
    init_lr: float = setting(0.1, "initial learning rate", POSITIVE)
    train: str = setting(
        "all",
        "what is trained; the rest is frozen: in eval mode, neither trained nor sent nor averaged",
        choices=tuple(TRAINABLE),
    )
    encoder_outputs: str = setting(
        "auto",
        "a frozen encoder runs once, and its outputs are kept in a file: auto, where they take at most 8 GiB; "
        "half, in half precision, whatever they take; never",
        choices=("auto", "half", "never"),
    )
    encoder_lr_factor: float = setting(1.0, "learning rate of the encoder over that of the rest", POSITIVE)
    augment: str = setting("none", "how images are changed in training, with their targets", choices=tuple(AUGMENTS))
