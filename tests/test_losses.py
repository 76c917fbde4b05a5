"""The losses against a loop in NumPy, on random input with random masks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from datasets.tasks import TASKS
from losses import LOSSES, return_task_loss
from utils.errors import UserError

B, C, S = 4, 3, 5


# Means over what counts. The losses of objects are no such means: `tests/models/detection/test_output.py` and
# `tests/models/instances/test_output.py` have their tests.
OF_ENTRIES = sorted(LOSSES.keys() - {"fcos", "panoptic_deeplab", "endpoint"})


def random_input(name: str, seed: int, share: float, masks: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Output, target and mask, about `share` of it True, in the shapes that the loss takes."""
    generator = torch.Generator().manual_seed(seed)
    output = 3 * torch.randn(B, C, S, S, generator=generator)
    if name == "cross_entropy":
        target = torch.randint(C, (B, S, S), generator=generator)
        return output, target, torch.rand(B, S, S, generator=generator) < share
    target = torch.randn(B, C, S, S, generator=generator)
    return output, target, torch.rand(B, masks, S, S, generator=generator) < share


def reference(name: str, output: Tensor, target: Tensor, valid: Tensor) -> list[float]:
    """Mean error of each example's counted entries, 0 where there are none."""
    losses = []
    for logits, wanted, counted in zip(output.double().numpy(), target.numpy(), valid.numpy(), strict=True):
        if name == "cross_entropy":
            logarithms = logits - np.log(np.exp(logits).sum(axis=0))
            errors = -np.take_along_axis(logarithms, wanted[None], axis=0)[0]
        else:
            errors = np.abs(logits - wanted) ** (1 if name == "l1" else 2)
            counted = np.broadcast_to(counted, errors.shape)
        losses.append(float(errors[counted].mean()) if counted.any() else 0.0)
    return losses


@pytest.mark.parametrize("masks", [1, C])
@pytest.mark.parametrize("name", OF_ENTRIES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.0, 0.05, 0.5, 1.0]))
def test_equals_the_mean_over_counted_entries(name: str, masks: int, seed: int, share: float) -> None:
    output, target, valid = random_input(name, seed, share, masks)
    loss = LOSSES[name](output, target, valid)
    assert loss.shape == (B,)
    np.testing.assert_allclose(loss.numpy(), reference(name, output, target, valid), rtol=1e-5, atol=1e-7)


def test_hand_calculation() -> None:
    output = torch.tensor([[[[1.0, 2.0], [3.0, 9.0]]]])
    target = torch.tensor([[[[0.0, 4.0], [2.0, 0.0]]]])
    valid = torch.tensor([[[[True, True], [True, False]]]])
    # Errors 1, -2 and 1; the fourth pixel does not count.
    assert LOSSES["l1"](output, target, valid).tolist() == pytest.approx([(1 + 2 + 1) / 3])
    assert LOSSES["mse"](output, target, valid).tolist() == pytest.approx([(1 + 4 + 1) / 3])
    # The softmax of (ln 3, 0) is (3/4, 1/4), and the two examples are of class 0 and 1.
    logits = torch.tensor([[math.log(3), 0.0]] * 2)
    loss = LOSSES["cross_entropy"](logits, torch.tensor([0, 1]), torch.ones(2, dtype=torch.bool))
    assert loss.tolist() == pytest.approx([math.log(4 / 3), math.log(4)])


@pytest.mark.parametrize("name", OF_ENTRIES)
def test_example_with_nothing_valid_costs_nothing(name: str) -> None:
    output, target, valid = random_input(name, 0, 0.7)
    valid[1] = False
    output.requires_grad_()
    loss = LOSSES[name](output, target, valid)
    loss.sum().backward()
    assert loss[1] == 0.0
    assert (output.grad[1] == 0.0).all()
    assert (output.grad[[0, 2, 3]] != 0.0).any()


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", OF_ENTRIES)
def test_value_of_what_does_not_count_does_not_leak(name: str, bad: float) -> None:
    output, target, valid = random_input(name, 1, 0.5)
    expected = reference(name, output, target, valid)
    hidden = ~(valid[:, None] if name == "cross_entropy" else valid).expand_as(output)
    loss = LOSSES[name](output.masked_fill(hidden, bad), target, valid)
    np.testing.assert_allclose(loss.numpy(), expected, rtol=1e-5)


def test_end_points_by_hand() -> None:
    output = torch.tensor([[[[3.0, 1.0, math.inf]], [[4.0, 1.0, 0.0]]]] * 2)
    target, valid = torch.zeros(2, 2, 1, 3), torch.tensor([[[[True, True, False]]], [[[False] * 3]]])
    # Vectors (3, 4) and (1, 1); what does not count may be anything.
    loss = LOSSES["endpoint"](output, target, valid)
    assert loss.tolist() == pytest.approx([(5 + math.sqrt(2)) / 2, 0.0], rel=1e-6)


def test_end_points_have_a_gradient_where_they_meet() -> None:
    output = torch.zeros(1, 2, 2, 2, requires_grad=True)
    LOSSES["endpoint"](output, torch.zeros(1, 2, 2, 2), torch.ones(1, 1, 2, 2, dtype=torch.bool)).sum().backward()
    assert (output.grad == 0).all()


@pytest.mark.parametrize("name", ["l1", "mse"])
def test_gradient_of_what_does_not_count_does_not_leak(name: str) -> None:
    output, target, valid = random_input(name, 1, 0.5)
    hidden = ~valid.expand_as(output)
    output = output.masked_fill(hidden, math.inf).requires_grad_()
    LOSSES[name](output, target, valid).sum().backward()
    assert (output.grad[hidden] == 0.0).all()


def test_pixels_that_do_not_count_have_no_gradient_of_the_cross_entropy() -> None:
    output, target, valid = random_input("cross_entropy", 1, 0.5)
    for order in (torch.contiguous_format, torch.channels_last):
        logits = output.clone(memory_format=order).requires_grad_()
        LOSSES["cross_entropy"](logits, target, valid).sum().backward()
        assert (logits.grad[~valid[:, None].expand_as(output)] == 0.0).all()
        # Of a mean over n pixels: (softmax - one hot) / n.
        wanted = (output.softmax(1) - torch.nn.functional.one_hot(target, C).movedim(-1, 1)) * valid[:, None]
        torch.testing.assert_close(logits.grad, wanted / valid.sum((1, 2)).view(B, 1, 1, 1))


@pytest.mark.parametrize(
    "task, loss",
    [
        ("depth_euclidean", "l1"), ("normal", "l1"), ("keypoints3d", "l1"), ("edge_texture", "l1"),
        ("reshading", "mse"), ("principal_curvature", "mse"), ("segment_semantic", "cross_entropy"),
        ("class_scene", "cross_entropy"),
    ],
)  # fmt: skip
def test_task_has_the_loss_of_the_paper(task: str, loss: str) -> None:
    assert return_task_loss(task) is LOSSES[loss]


def test_every_task_has_a_loss() -> None:
    assert all(callable(return_task_loss(task)) for task in TASKS)


def test_unknown_task_is_refused() -> None:
    with pytest.raises(UserError, match=r"unknown task 'depths'.*depth_euclidean"):
        return_task_loss("depths")
