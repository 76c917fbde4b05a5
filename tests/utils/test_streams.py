"""That every random choice has a stream of its own."""

from __future__ import annotations

from itertools import product
from typing import get_args

import numpy as np
import pytest

from utils.streams import Purpose, derived_seed, generator

PURPOSES = get_args(Purpose)


def first_draw(*key: object) -> int:
    return int(generator(*key).integers(2**63))  # type: ignore[arg-type]


def test_no_two_purposes_seeds_and_numbers_share_a_stream() -> None:
    keys = [
        (purpose, *numbers)
        for purpose in PURPOSES
        for length in (1, 2, 3, 4)
        for numbers in product(range(4), repeat=length)
    ]
    # Zeros at the end, numbers of several machine words, and texts beside the numbers that they show.
    keys += [("batches", 1, 2, 0, name) for name in ("", "0", "head", "personal")]
    keys += [("batches", 2**32, 0), ("batches", 2**32), ("batches", 0, 1, 0), ("batches", 2**64 + 1), ("batches", -1)]
    draws = {first_draw(*key) for key in set(keys)}
    assert len(draws) == len(set(keys)) > len(PURPOSES) * 300


def test_the_same_key_gives_the_same_stream() -> None:
    one, same = generator("clients", 7, 3), generator("clients", np.int64(7), np.int32(3))
    assert (one.random(5) == same.random(5)).all()
    # A number of the stream as it is now: whoever changes it changes every run.
    assert first_draw("batches", 42, 0, 0, "") == 2089556519704322858


def test_streams_are_uniform_and_uncorrelated() -> None:
    # Of neighbouring rounds, clients and purposes; the standard error of a correlation over n draws is 1 / sqrt(n).
    n = 4000
    streams = [generator("batches", 0, round, client).random(n) for round in range(5) for client in range(5)]
    streams += [generator(purpose, 0).random(n) for purpose in PURPOSES]
    off = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(off).max() < 5 / np.sqrt(n)
    assert np.abs(np.mean(streams, axis=1) - 0.5).max() < 5 / np.sqrt(12 * n)


@pytest.mark.parametrize("seed", [0, 2**40, 10**30])
def test_derived_seeds_fit_other_libraries(seed: int) -> None:
    seeds = [derived_seed("kmeans", seed, number) for number in range(20)]
    assert len(set(seeds)) == 20 and all(0 <= number < 2**32 for number in seeds)
    assert seeds == [derived_seed("kmeans", seed, number) for number in range(20)]
