"""The checks that compared ways compute the same let rounding through and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.agreement import check_values, check_weights

START = {"a": np.zeros(3, np.float32), "b": np.zeros((2, 2), np.float32)}
EXPECTED = {"a": np.ones(3, np.float32), "b": np.ones((2, 2), np.float32)}  # a way of sqrt(7) from the start


def test_a_model_may_be_off_by_a_share_of_the_way() -> None:
    off = EXPECTED | {"a": np.array([1.0, 1.0, 1.0 + 0.01 * np.sqrt(7)])}
    check_weights("rounded", off, EXPECTED, START, 0.011)
    with pytest.raises(AssertionError, match=r"wrong is off by 1\.0e-02 of the way"):
        check_weights("wrong", off, EXPECTED, START, 0.009)


def test_a_model_with_other_tensors_or_without_training_is_found() -> None:
    with pytest.raises(AssertionError, match=r"other tensors: \['b'\]"):
        check_weights("short", {"a": EXPECTED["a"]}, EXPECTED, START, 1.0)
    with pytest.raises(AssertionError, match="nothing was trained"):
        check_weights("idle", START, START, START, 1.0)
    with pytest.raises(AssertionError, match="idle is off by 1"):
        check_weights("idle", START, EXPECTED, START, 0.5)


def test_numbers_may_be_off_by_a_share_of_themselves() -> None:
    check_values("loss", -2.001, -2.0, 1e-3)
    with pytest.raises(AssertionError, match=r"loss: 2\.01 instead of 2"):
        check_values("loss", 2.01, 2.0, 1e-3)
    with pytest.raises(AssertionError, match="nan"):
        check_values("loss", float("nan"), 2.0, 1e-3)
