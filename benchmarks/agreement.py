"""That ways which are compared have computed the same thing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def check_weights(
    name: str,
    found: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    start: Mapping[str, np.ndarray],
    tolerance: float,
) -> None:
    """AssertionError if a model is farther from the expected one than `tolerance` times the way from the start.

    Distances are Euclidean, over all tensors together; `name` says whose model it is.
    """
    assert found.keys() == expected.keys(), f"{name} has other tensors: {sorted(found.keys() ^ expected.keys())}"
    off, way = (
        np.sqrt(sum(np.square(expected[key].astype(float) - other[key]).sum() for key in expected))
        for other in (found, start)
    )
    assert way > 0, "nothing was trained"
    assert off <= tolerance * way, f"{name} is off by {off / way:.1e} of the way from the start; allowed {tolerance:g}"


def check_values(name: str, found: float, expected: float, tolerance: float) -> None:
    """AssertionError if a number is off by more than `tolerance` of the expected one."""
    off = abs(found - expected) / abs(expected)
    assert off <= tolerance, f"{name}: {found:.8g} instead of {expected:.8g}"
