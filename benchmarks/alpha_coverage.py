"""How often the 95 % intervals of the equivalent α hold the α that clients were drawn with.

    python -m benchmarks.alpha_coverage          (a few minutes on one core)

Clients of equal sizes have mixtures ~ Dir(α p), with p ~ Dir(5, ..., 5) for every draw anew. Draws whose counts tell
nothing of α (all images of one group) have no interval and are counted apart. The bootstrap, which takes two hundred
estimates for each interval, is measured in one setting of few clients only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.tables import print_table
from network.partition.equivalent_alpha import Estimate, bootstrap, draw_counts, equivalent_alpha
from utils import progress
from utils.errors import UserError

ALPHAS, CLIENTS = (0.01, 0.1, 1.0, 10.0, 100.0), (5, 50, 1000)
SHAPES = (5, 10), (50, 2), (50, 10), (50, 100), (1000, 10)  # images of each client, and groups
DRAWS = 12  # of each setting
BOOTSTRAPPED = (5, 50, 10)  # clients, images and groups with a bootstrap as well
_EVEN = 5.0  # concentration of the population's mixture


def drawn(alpha: float, n_clients: int, n_images: int, n_groups: int, rng: np.random.Generator) -> np.ndarray:
    """Counts (clients, groups) of clients with mixtures ~ Dir(alpha p)."""
    population = rng.dirichlet(np.full(n_groups, _EVEN))
    truth = Estimate(alpha, alpha, alpha, population, n_clients, n_clients * n_images)
    return draw_counts(truth, np.full(n_clients, n_images), rng)


def intervals(cases: Sequence[tuple], draws: int) -> Iterator[dict[str, Any]]:
    """A row for each draw of each case (α, clients, images, groups): whether each interval holds α; NaN without one."""
    for case in progress.bar(cases, desc="coverage", unit="case"):
        alpha, n_clients, n_images, n_groups = case
        case_labels = dict(zip(("alpha", "clients", "images", "groups"), case, strict=True))
        rng = np.random.default_rng([round(alpha * 100), n_clients, n_images, n_groups])
        for seed in range(draws):
            row = case_labels | {"likelihood": np.nan, "bootstrap": np.nan}
            counts = drawn(alpha, n_clients, n_images, n_groups, rng)
            try:
                estimate = equivalent_alpha(counts)
            except UserError:
                yield row
                continue
            row["likelihood"] = estimate.low <= alpha <= estimate.high
            if case[1:] == BOOTSTRAPPED:
                low, high = bootstrap(counts, estimate, seed)
                row["bootstrap"] = low <= alpha <= high
            yield row


def coverage(rows: pd.DataFrame, by: list[str], interval: str = "likelihood") -> pd.DataFrame:
    """The share of intervals that hold α, in percent with its standard error, over a row's settings; a column per α."""
    known = rows.dropna(subset=[interval])
    share = known.groupby([*by, "alpha"])[interval].agg(["mean", "size"]).astype(float)
    error = np.sqrt(share["mean"] * (1 - share["mean"]) / share["size"])
    text = [f"{100 * p:.1f} ± {100 * e:.1f}" for p, e in zip(share["mean"], error, strict=True)]
    return pd.Series(text, share.index).unstack("alpha").rename(columns=lambda alpha: f"α = {alpha:g}").reset_index()


def main() -> None:
    """Print how often intervals hold α, by clients, images and groups, and where they do so least often."""
    cases = [(alpha, n, *shape) for alpha, n, shape in itertools.product(ALPHAS, CLIENTS, SHAPES)]
    rows = pd.DataFrame(intervals(cases, DRAWS))
    rows[["likelihood", "bootstrap"]] = rows[["likelihood", "bootstrap"]].astype(float)
    held = rows.dropna(subset=["likelihood"])
    print(f"{len(rows)} draws, {DRAWS} of each of {len(cases)} settings; {len(rows) - len(held)} tell nothing of α")
    print(f"intervals by likelihood hold α in {100 * held['likelihood'].mean():.1f} % of {len(held)} draws")
    for by in (["clients"], ["images", "groups"]):
        print_table(f"by {' and '.join(by)}, %", coverage(rows, by))
    print_table("by bootstrap over clients, %", coverage(rows, ["clients"], "bootstrap"))
    cells = held.groupby(["clients", "images", "groups", "alpha"])["likelihood"].agg(["mean", "size"]).reset_index()
    print_table("the settings with the lowest coverage", cells.sort_values("mean").head(8))


if __name__ == "__main__":
    main()
