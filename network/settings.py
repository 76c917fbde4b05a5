"""The settings of a federation, and the arguments of `test_fed.py` that they come from."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, fields

from datasets.augmentation import add_augment
from models.parts import add_part
from network.state import MEMORY
from utils.args import POSITIVE, POSITIVE_INT, Parser, number, number_or_auto
from utils.errors import UserError

LR_SCHEDULES = ("plateau", "cosine", "step", "linear", "none")
_LOCAL_WORK = {"sgd_per_epoch": 50, "epoch_per_round": 1}  # where nothing else is given
ON_NAN = ("stop", "skip_client")  # what is done where a loss is not finite


@dataclass(frozen=True)
class LocalSettings:
    """How clients train; the names are those of `test_fed.py`'s arguments."""

    batch_size: int
    sgd_per_epoch: int
    epoch_per_round: int
    n_rounds: int
    init_lr: float
    momentum: float
    lr_schedule: str
    lr_decay_rate: float
    no_improvement_tolerance: int
    local_epochs: int | None = None
    weight_decay: float = 0.0
    use_adam: bool = False
    train: str = "all"
    encoder_lr_factor: float = 1.0
    augment: str = "none"

    @classmethod
    def of(cls, args: Namespace) -> LocalSettings:
        """The settings of these arguments; `--test_mode` asks for two rounds of two steps."""
        given = {setting.name: getattr(args, setting.name) for setting in fields(cls)}
        short = {"n_rounds": 2, "sgd_per_epoch": 2, "epoch_per_round": 1, "local_epochs": None}
        return cls(**given | (short if args.test_mode else {}))

    def steps(self, n_images: int) -> int:
        """Steps per round of a client with so many images: `local_epochs` of them, rounded, or the same for all."""
        if self.local_epochs is None:
            return self.sgd_per_epoch * self.epoch_per_round
        return round(self.local_epochs * n_images / min(self.batch_size, n_images))


@dataclass(frozen=True)
class SimulationSettings:
    """How a federation is simulated; the names are those of `test_fed.py`'s arguments.

    Attributes:
        rand_seed: of all randomness.
        batch_norm: "local" leaves its tensors with the clients, whatever the method; otherwise they travel like others.
        evaluate_every: rounds between evaluations of the models; there is one before the first and after the last, too.
        checkpoint_every: rounds between checkpoints; there is one at the end, and whenever training stops, too.
        on_nan: what to do about a client whose loss is not finite: "stop", or "skip_client" in the round's mean.
        clients_per_batch: how many clients train side by side, at most; None to measure what is fastest.
        compile: whether to compile the forward pass of local training.
        memory: bytes of clients' states that a process holds before it leaves the rest to the disk.
    """

    rand_seed: int
    batch_norm: str = "averaged"
    evaluate_every: int = 1
    checkpoint_every: int = 1
    on_nan: str = "stop"
    clients_per_batch: int | None = 1
    compile: bool = False
    memory: int = MEMORY

    @classmethod
    def of(cls, args: Namespace) -> SimulationSettings:
        """The settings of these arguments, `memory` apart."""
        names = {setting.name for setting in fields(cls)}
        return cls(**{name: value for name, value in vars(args).items() if name in names})


def add_local_settings(parser: Parser) -> None:
    """The arguments that `LocalSettings` are made of, and how clients train side by side."""
    group = parser.group("local training")
    add = group.add_argument
    add("--n_rounds", type=POSITIVE_INT, default=100, help="number of global rounds")
    add(
        "--sgd_per_epoch", type=number_or_auto, help="steps that a client takes in a local epoch; auto, the default: 50"
    )
    add("--epoch_per_round", type=number_or_auto, help="local epochs per round; auto, the default: 1")
    add("--local_epochs", type=number_or_auto,
        help="epochs over a client's own images per round, in place of these two; auto, the default: none")  # fmt: skip
    add("--batch_size", type=POSITIVE_INT, default=16, help="images per step")
    add("--init_lr", type=POSITIVE, default=1e-1, help="initial learning rate")
    add("--momentum", type=number(float, least=0, most=0.999), default=0.0,
        help="momentum of local SGD, within a round")  # fmt: skip
    add("--weight_decay", type=number(float, least=0), default=0.0, help="weight decay of the local optimiser")
    group.add_flag("--use_adam", False, "Adam as local optimiser instead of SGD, afresh each round")
    add_part(group)
    add_augment(group)
    add("--lr_schedule", choices=LR_SCHEDULES, default="plateau",
        help="how the learning rate falls; plateau is the published rule")  # fmt: skip
    add("--lr_decay_rate", type=number(float, above=0, most=1), default=0.999,
        help="decay per step on a plateau; step: per round")  # fmt: skip
    add("--no_improvement_tolerance", type=POSITIVE_INT, default=5,
        help="steps without improvement that make a plateau")  # fmt: skip
    add("--on_nan", choices=ON_NAN, default="stop", help="what to do where a client's loss is not finite")
    running = parser.group("running")
    running.add_argument("--clients_per_batch", type=number_or_auto, default=1,
                         help="clients trained at once; auto: as many as is fastest")  # fmt: skip
    running.add_flag("--compile", False, "compile the forward pass of local training")


def settle_local_work(args: Namespace) -> None:
    """Fill in how long clients train where that was not given; UserError where it was given in two ways."""
    steps = [f"--{name}" for name in _LOCAL_WORK if getattr(args, name) is not None]
    others = [f"--{name}" for name in ("virtual_client_size", "local_epochs") if getattr(args, name, None) is not None]
    if others and len(others) + len(steps) > 1:
        replaced = [*others[1:], *steps]
        raise UserError(
            f"{others[0]} takes the place of {' and '.join(replaced)}; omit one, "
            f"or give {' '.join(f'{name} auto' for name in replaced)} after an argument file"
        )
    for name, default in _LOCAL_WORK.items():
        setattr(args, name, getattr(args, name) or default)
