"""Every row of the table of peers in docs/partitions.md: their partitions and the rule here that is theirs, by moments.

Outside the suite: `bash tests/peers/run.sh` installs the packages and counts what they give clients.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ks_2samp

from network.partition.heterogeneity import earth_movers_distances, group_counts
from network.partition.rules import PARTITIONERS
from tests.peers.counts_of_peers import ALPHA, CLASSES, CLIENTS, LABELS, SEEDS

FILE = os.environ.get("PEERS_COUNTS", "")
pytestmark = pytest.mark.skipif(not FILE, reason="needs the counts that tests/peers/run.sh makes")
EVEN = np.arange(len(LABELS)) % CLIENTS


@dataclass(frozen=True)
class Row:
    """A peer's partition and the rule here that is like it; `apart` is how far EMD and sizes' deviation may lie apart.

    Without `same`, there is no rule like it here, and the nearest one must be further away.
    """

    peer: str
    rule: str
    alpha: float = ALPHA
    options: dict[str, Any] = field(default_factory=dict)
    min_size: int = 1
    apart: float = 0.0
    same: bool = True


ROWS = [
    Row("flower", "dirichlet_per_class", options={"balanced": False}, min_size=10),
    Row("byzfl dirichlet_niid", "dirichlet_per_class", options={"balanced": False}),
    Row("nvflare", "dirichlet_per_class", options={"balanced": False}),
    Row("flower self_balancing", "dirichlet_per_class", min_size=10),
    Row("fedlab hetero_dir", "dirichlet_per_class", min_size=10),
    Row("pfl", "dirichlet_hsu", ALPHA * CLASSES, apart=0.03),  # it evens mixtures out where classes run out
    Row("fedlab unbalanced", "quantity_skew", ALPHA * 10),
    Row("fedlab shards", "shards", options={"shards_per_client": 2}),
    Row("byzfl extreme_niid", "shards", options={"shards_per_client": 1}),
    Row("fedlab inner dirichlet", "iid"),
    Row("flower inner", "dirichlet_hsu", ALPHA * CLASSES, same=False),
    Row("flower inner", "equal_size", ALPHA * CLASSES, same=False),
    Row("flower", "paper", same=False),
    Row("flower", "dirichlet_per_class", min_size=10, same=False),
]


def moments(counts: np.ndarray) -> tuple[float, float, float]:
    """EMD, standard deviation over mean of sizes, and classes per client, of counts (clients, classes)."""
    sizes = counts.sum(axis=1)
    emd = np.average(earth_movers_distances(counts), weights=sizes)
    return float(emd), float(sizes.std() / sizes.mean()), float((counts > 0).sum(axis=1).mean())


@pytest.fixture(scope="module")
def peers() -> dict[str, np.ndarray]:
    """The moments of each peer's partitions, (seeds, 3)."""
    with np.load(Path(FILE)) as file:
        return {name: np.array([moments(each) for each in file[name]]) for name in file}


def own(row: Row) -> Iterator[np.ndarray]:
    """The counts (clients, classes) of the rule here, by seed."""
    rule = PARTITIONERS[row.rule]
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        yield group_counts(rule(LABELS, CLIENTS, row.alpha, rng, row.min_size, **row.options), LABELS, CLIENTS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.peer} and {row.rule}")
def test_a_peers_partition_is_the_rule_of_the_table(row: Row, peers: dict[str, np.ndarray]) -> None:
    theirs, ours = peers[row.peer], np.array([moments(counts) for counts in own(row)])
    gap = theirs.mean(axis=0) - ours.mean(axis=0)
    error = np.sqrt(theirs.var(axis=0) / len(theirs) + ours.var(axis=0) / len(ours))
    print(
        f"\n{row.peer} ({len(theirs)}) {theirs.mean(axis=0).round(3)}, {row.rule} {ours.mean(axis=0).round(3)}, "
        f"errors {error.round(3)}"
    )
    # Classes per client differ by rounding: the last client of most peers has one image of nearly every class.
    near = np.abs(gap[:2]) < 3.5 * error[:2] + 0.01 + row.apart
    assert near.all() == row.same


def test_the_first_user_of_pfl_is_hsus() -> None:
    """For whom no class has run out: the distribution of the distance from all classes alike."""
    with np.load(Path(FILE)) as file:
        theirs = file["pfl"][:, 0]
    ours = np.stack([counts[0] for counts in own(Row("pfl", "dirichlet_hsu", ALPHA * CLASSES))])
    emd = [np.abs(counts / counts.sum(axis=1, keepdims=True) - 1 / CLASSES).sum(axis=1) for counts in (theirs, ours)]
    assert ks_2samp(*emd).pvalue > 1e-3
