"""That ways which are compared have computed the same thing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def check_weights(
    name: str,
    measured: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    start: Mapping[str, np.ndarray],
    tolerance: float,
) -> None:
    """AssertionError if a model is farther from the expected one than `tolerance` times the way from the start.

    `name` says whose model it is.
    """
    assert measured.keys() == expected.keys(), f"{name} has other tensors: {sorted(measured.keys() ^ expected.keys())}"
    off = share_off(measured, expected, start)
    assert off <= tolerance, f"{name} is off by {off:.1e} of the way from the start; allowed {tolerance:g}"


def share_off(
    measured: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], start: Mapping[str, np.ndarray]
) -> float:
    """How far a model is from the expected one, as a share of the way from the start to that.

    Distances are Euclidean, over all tensors together. AssertionError if there is no way.
    """
    off, way = (
        np.sqrt(sum(np.square(expected[key].astype(float) - other[key]).sum() for key in expected))
        for other in (measured, start)
    )
    assert way > 0, "nothing was trained"
    return float(off / way)


def check_values(name: str, measured: float, expected: float, tolerance: float) -> None:
    """AssertionError if a number is off by more than `tolerance` of the expected one."""
    off = abs(measured - expected) / abs(expected)
    assert off <= tolerance, f"{name}: {measured:.8g} instead of {expected:.8g}"
