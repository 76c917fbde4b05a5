"""Images of which the classes alone are known, counted and put behind those that are here."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from deploy.population import class_counts, with_counted

DATA = SimpleNamespace(
    labels=torch.tensor([0, -1, 1, 1]), device=torch.device("cpu"), table=SimpleNamespace(class_names=("a", "b"))
)


def test_images_without_a_class_are_counted_last() -> None:
    assert class_counts(DATA, np.array([1, 2, 3])).tolist() == [0, 2, 1]  # type: ignore[arg-type]


def test_counted_images_stand_behind_those_that_are_here() -> None:
    counts = [np.array([1, 0, 2]), np.array([0, 1, 0])]
    both, clients = with_counted(DATA, counts)  # type: ignore[arg-type]
    assert both.labels.tolist() == [0, -1, 1, 1, 0, -1, -1, 1] and DATA.labels.tolist() == [0, -1, 1, 1]
    assert [images.tolist() for images in clients] == [[4, 5, 6], [7]]
    assert [class_counts(both, images).tolist() for images in clients] == [each.tolist() for each in counts]
