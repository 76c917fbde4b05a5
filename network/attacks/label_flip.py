"""Training on false targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from datasets.false_targets import check_falsifiable
from network.attacks.attack import Attack

if TYPE_CHECKING:
    from datasets.tasks import Task


class LabelFlip(Attack):
    """Attackers follow the method, but train on the opposite of their targets: Fang et al. 2020 (arXiv 1911.11815).

    Class k of C becomes C - 1 - k; what that is for other tasks stands in `datasets/false_targets.py`. Only targets are
    false: scene classes and clusters by which methods weight or group images are the true ones.
    """

    version: ClassVar[int] = 2
    title = "label flip"
    false_targets = True
    sends: ClassVar[bool] = False

    def check(self, task: Task, n_clients: int) -> None:
        """There must be another class."""
        super().check(task, n_clients)
        check_falsifiable(task)
