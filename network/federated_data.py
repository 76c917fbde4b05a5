"""The images, and which client has which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from datasets.task_data import TaskData


@dataclass(frozen=True)
class FederatedData:
    """The images of a federation.

    Attributes:
        images: all images, with their targets for the task.
        clients: each client's training images, as positions in `images`.
        held_out: each client's held-out images, among `images.test`.
        groups: (N,) the group of every image, for methods that use it.
    """

    images: TaskData
    clients: Sequence[np.ndarray]
    held_out: Sequence[np.ndarray]
    groups: np.ndarray
