"""FedRCL's terms of small batches by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from models.networks.task_model import Outputs
from network.engine.client import StepView
from tests.network import quadratic as q

# Of unit length, at these angles: two of the first kind, two of the second and one alone; the last is of no kind.
ANGLES = np.deg2rad([0, 30, 80, 200, 120, 10])
KINDS = [0, 0, 1, 1, 2, -1]


def loss_of(angles: np.ndarray, kinds: list[int], **arguments: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch's loss, of a task's loss of 0, and the features that it came of."""

    class Data(q.QuadraticData):
        labels = torch.tensor([*kinds, *[0] * (11 - len(kinds))])

    made = q.method("fedrcl", **arguments)
    made.prepare(Data(), np.zeros(11, np.int64), q.CLIENTS)
    n, local = len(kinds), q.local_of()
    features = torch.tensor(np.stack([np.cos(angles), np.sin(angles)], axis=1) * 3.0).requires_grad_()
    at = torch.arange(n)
    local.batch = StepView(slice(0, n), features, Outputs(features, features, features), at, Data.labels, at)
    return made.local_loss(torch.zeros(n, dtype=torch.float64), local), features


def by_hand(angles: np.ndarray, kinds: list[int], tau: float, threshold: float) -> float:
    total = 0.0
    for i, kind in enumerate(kinds):
        mates = [j for j, other in enumerate(kinds) if other == kind and j != i]
        if kind < 0 or not mates:
            continue
        cosine = [math.cos(angles[i] - angle) for angle in angles]
        least = min(cosine[j] for j in mates)
        worst = sorted((cosine[j] for j, other in enumerate(kinds) if other not in (kind, -1)), reverse=True)[:2]
        positive = math.exp(least / tau)
        total -= math.log(positive / (positive + sum(math.exp(s / tau) for s in worst)))
        if least > threshold:
            total -= math.log(math.exp(1 / tau) / (math.exp(1 / tau) + positive))
    return total / len(kinds)


@pytest.mark.parametrize("threshold", [0.7, 0.9])
def test_a_batch_by_hand(threshold: float) -> None:
    found, _ = loss_of(ANGLES, KINDS, temperature=0.5, relaxation_threshold=threshold)
    assert float(found.detach()) == pytest.approx(by_hand(ANGLES, KINDS, 0.5, threshold), rel=1e-9)
    off, _ = loss_of(ANGLES, KINDS, temperature=0.5, contrast_weight=0.0, relaxation_weight=0.0)
    assert float(off.detach()) == 0.0


@pytest.mark.parametrize("kinds", [[0, 1, 2, 3, 4, 5], [-1] * 6, [0] * 6, [0]])
def test_batches_without_pairs_or_negatives_have_finite_gradients(kinds: list[int]) -> None:
    loss, features = loss_of(ANGLES[: len(kinds)], kinds)
    loss.backward()
    assert loss.isfinite() and features.grad.isfinite().all()
    assert float(loss.detach()) == 0.0  # no pair, or nothing to tell it from and none too alike


def test_the_relaxation_pushes_apart_and_the_contrast_pulls_together() -> None:
    angles, kinds = np.deg2rad([0, 20, 90]), [0, 0, 1]
    for weights, sign in (((1.0, 0.0), -1), ((0.0, 1.0), 1)):
        loss, features = loss_of(
            angles, kinds, temperature=0.5, contrast_weight=weights[0], relaxation_weight=weights[1]
        )
        loss.backward()
        with torch.no_grad():
            moved = features - 1e-3 * features.grad
        cosine = torch.nn.functional.cosine_similarity(moved[0], moved[1], dim=0)
        assert sign * (math.cos(angles[1]) - float(cosine)) > 0
