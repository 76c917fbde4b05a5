"""Time and peak memory of every partitioner, as multiples of what any of them must at least do.

    python -m benchmarks.partition          (about eight minutes on one core)

Assigning N images at random needs a permutation of them, and assigning them by group a sort; the time of these two on
the same N is the unit of the table's times. Memory is NumPy's peak during the call, in bytes per image, without the
groups that go in. A dash stands where the rule has no answer at this size (its error goes below the table).
"""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.tables import print_table
from network.partition.rules import PARTITIONERS
from utils import progress
from utils.errors import UserError

IMAGES, CLIENTS, GROUPS, ALPHA = (10_000, 100_000, 1_000_000), (100, 1000, 10_000), (16, 1000), 1.0
REPEATS = 3


def least_work(groups: np.ndarray) -> None:
    """One stable sort by group and one permutation."""
    np.argsort(groups, kind="stable")
    np.random.default_rng(0).permutation(len(groups))


def shortest(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    """The shortest of some runs, in seconds of a clock of `time`."""
    times = []
    for _ in range(REPEATS):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def peak_bytes(call: Callable[[], Any]) -> int:
    """The most memory that the call held at once, beyond what was there."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def measure(rule: str, n_images: int, n_clients: int, n_groups: int) -> tuple[float, float, float]:
    """Seconds, these over `least_work`, and bytes per image; UserError where the rule has no answer."""
    # Natural groups are more numerous than clients, or there is nothing to choose.
    width = 2 * n_clients if rule == "natural" else n_groups
    groups = np.random.default_rng(0).integers(0, width, n_images)
    # At alpha 1, thousands of Dirichlet shares never all come to an image.
    alpha = 10.0 if rule == "quantity_skew" else ALPHA

    def call() -> np.ndarray:
        """Assign the groups once."""
        return PARTITIONERS[rule](groups, n_clients, alpha, np.random.default_rng(0), 1)

    call()
    taken = shortest(call, time.perf_counter)
    least = shortest(lambda: least_work(groups), time.perf_counter)
    return taken, taken / least, peak_bytes(call) / n_images


def main() -> None:
    """Print a table for each number of groups."""
    failures: dict[str, str] = {}
    for n_groups in GROUPS:
        rows = []
        cases = list(itertools.product(PARTITIONERS, CLIENTS, IMAGES))
        for rule, n_clients, n_images in progress.bar(cases, desc=f"{n_groups} groups", unit="case"):
            try:
                taken, ratio, size = measure(rule, n_images, n_clients, n_groups)
                text = f"{taken:.2f} s, x{ratio:.1f}, {size:.0f} B"
            except UserError as error:
                text = "–"
                failures[f"{rule}, {n_clients} clients, {n_images} images, {n_groups} groups"] = str(error)
            rows.append({"rule": rule, "clients": n_clients, "images": f"{n_images:,} images", "text": text})
        table = pd.DataFrame(rows).pivot(index=["rule", "clients"], columns="images", values="text")
        table = table[[f"{n_images:,} images" for n_images in IMAGES]].reset_index()
        print_table(f"{n_groups} groups, alpha {ALPHA:g}", table)
    for case, reason in failures.items():
        print(f"– {case}: {reason}")


if __name__ == "__main__":
    main()
