"""The paper's partition as published, by rejection, against `--partition paper`, which solves for the sizes.

    python -m benchmarks.published_partition          (about five minutes on one core)

The published rule draws q ~ Dirichlet(alpha * group ratios) for all clients, takes pinv(q^T) times the group sizes
for the client sizes, and draws everything again unless each client has the least size and no group is overdrawn.
Here it ends after 20,000 draws. Where it ends, two-sample Kolmogorov-Smirnov tests over many seeds compare the
client sizes (over the images of an equal share), the groups that a client has, and the share of the data that is used.
Client sizes and groups of one partition depend on each other, so that the tests take one client, the first, a seed.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.stats import ks_2samp

from benchmarks.tables import print_table
from network.partition.dirichlet import paper
from network.partition.heterogeneity import group_counts
from utils import progress
from utils.errors import UserError

SEEDS, MOST_DRAWS = 200, 20_000


@dataclass(frozen=True)
class Setting:
    """Images in groups, as even as integers are, and what clients there are to be."""

    n_images: int
    n_groups: int
    n_clients: int
    alpha: float
    min_size: int

    @property
    def groups(self) -> np.ndarray:
        """The group of each image."""
        return np.arange(self.n_images) % self.n_groups


SETTINGS = [Setting(6000, 10, 25, alpha, min_size) for min_size in (16, 64) for alpha in (0.1, 1.0, 10.0, 100.0)] + [
    Setting(641, 16, 10, alpha, 16) for alpha in (0.1, 10.0)
]


def published(setting: Setting, rng: np.random.Generator) -> tuple[np.ndarray | None, int]:
    """Counts (clients, groups) by rejection, or None if no draw was accepted, and how many draws it took."""
    capacity = np.bincount(setting.groups)
    for draw in range(1, MOST_DRAWS + 1):
        shares = rng.dirichlet(setting.alpha * capacity / setting.n_images, setting.n_clients)
        if not np.isfinite(shares).all():
            continue  # NumPy's quotient of underflowed gammas; the published code stops with an error here
        sizes = (np.linalg.pinv(shares.T) @ capacity).astype(int)
        large_enough = (sizes >= setting.min_size).all() and sizes.sum() <= setting.n_images
        if large_enough and (sizes @ shares <= capacity).all():
            return (sizes[:, None] * shares).astype(int), draw
    return None, MOST_DRAWS


def solved(setting: Setting, rng: np.random.Generator) -> np.ndarray | None:
    """Counts by `--partition paper`, or None where it has no answer."""
    try:
        client_of = paper(setting.groups, setting.n_clients, setting.alpha, rng, setting.min_size)
    except UserError:
        return None
    return group_counts(client_of, setting.groups, setting.n_clients)


def statistics(setting: Setting, counts: list[np.ndarray]) -> dict[str, np.ndarray]:
    """What is compared, a number per partition."""
    first = np.stack([counted[0] for counted in counts])
    return {
        "size": first.sum(axis=1) * setting.n_clients / setting.n_images,
        "groups": (first > 0).sum(axis=1),
        "used": np.array([counted.sum() for counted in counts]) / setting.n_images,
    }


def compare(setting: Setting) -> dict[str, object]:
    """A row of the table; the published rule gets no test where it ended on fewer than 20 seeds."""
    runs = [published(setting, np.random.default_rng(seed)) for seed in range(SEEDS)]
    accepted = [counts for counts, _ in runs if counts is not None]
    ours = [counts for seed in range(SEEDS) if (counts := solved(setting, np.random.default_rng(seed))) is not None]
    row: dict[str, object] = {
        "images / K / clients": f"{setting.n_images} / {setting.n_groups} / {setting.n_clients}",
        "least": setting.min_size,
        "alpha": setting.alpha,
        "published ends, %": 100 * len(accepted) / SEEDS,
        "median draws": int(np.median([draws for _, draws in runs])),
        "solved, %": 100 * len(ours) / SEEDS,
    }
    samples = [statistics(setting, counts) for counts in (accepted, ours) if counts]
    for name in ("size", "groups", "used"):
        texts = [f"{sample[name].mean():.2f} ± {sample[name].std():.2f}" for sample in samples]
        row[f"{name}: published, ours"] = ", ".join(texts if accepted else ["–", *texts])
        enough = len(accepted) >= 20 and len(ours) >= 20
        row[f"p ({name})"] = f"{ks_2samp(*(sample[name] for sample in samples)).pvalue:.2g}" if enough else "–"
    return row


def main() -> None:
    """Print the table."""
    warnings.filterwarnings("ignore", category=RuntimeWarning)  # of NumPy's Dirichlet at small alpha
    rows = [compare(setting) for setting in progress.bar(SETTINGS, unit="setting")]
    print_table(f"published, ours; mean ± standard deviation over {SEEDS} seeds", rows)


if __name__ == "__main__":
    main()
