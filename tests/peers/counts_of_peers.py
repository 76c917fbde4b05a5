"""What the partitions of real packages give clients: images of each client and class, for `test_peers.py`.

Runs in the environment that `run.sh` makes: `python counts_of_peers.py FILE.npz`. An array for each row of the table
in docs/partitions.md, (seeds, clients, classes). Draws that a package refuses are left out.
"""

from __future__ import annotations

import contextlib
import importlib.util
import random
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

CLASSES, CLIENTS, EACH, ALPHA, SEEDS = 10, 10, 200, 0.1, 200
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(CLASSES), EACH))
Clients = Sequence[Sequence[int]]


def file_of(package: str, *parts: str) -> ModuleType:
    """One file of an installed package, without what the package imports."""
    [folder] = importlib.util.find_spec(package).submodule_search_locations
    spec = importlib.util.spec_from_file_location(parts[-1].removesuffix(".py"), Path(folder, *parts))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flower(name: str, *arguments: Any, **more: Any) -> Callable[[int], Clients]:
    """A partitioner of flwr-datasets."""
    from flwr_datasets import partitioner

    import datasets

    images = datasets.Dataset.from_dict({"label": LABELS.tolist()})

    def partition(seed: int) -> Clients:
        made = getattr(partitioner, name)(*arguments, partition_by="label", alpha=ALPHA, seed=seed, **more)
        made.dataset = images
        made.load_partition(0)
        return [made._partition_id_to_indices[client] for client in range(CLIENTS)]

    return partition


def seeded(partition: Callable[[], Clients]) -> Callable[[int], Clients]:
    """A partition that draws from NumPy's and Python's global generators."""

    def with_seed(seed: int) -> Clients:
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        return partition()

    return with_seed


def fedlab() -> dict[str, Callable[[int], Clients]]:
    """FedLab's functions."""
    f = file_of("fedlab", "utils", "dataset", "functional.py")
    each = CLASSES * EACH // CLIENTS  # with a small alpha, it draws without end where classes run out

    def of(clients: dict[int, np.ndarray]) -> Clients:
        return [clients[client] for client in range(CLIENTS)]

    def by_size() -> Clients:
        return of(f.homo_partition(f.dirichlet_unbalance_split(CLIENTS, len(LABELS), ALPHA * 10), len(LABELS)))

    return {
        "fedlab hetero_dir": seeded(lambda: of(f.hetero_dir_partition(LABELS, CLIENTS, CLASSES, ALPHA))),
        "fedlab inner dirichlet": seeded(
            lambda: of(
                f.client_inner_dirichlet_partition(
                    LABELS, CLIENTS, CLASSES, 100 * ALPHA, np.full(CLIENTS, each), verbose=False
                )
            )
        ),
        "fedlab shards": seeded(lambda: of(f.shards_partition(LABELS, CLIENTS, 2 * CLIENTS))),
        "fedlab unbalanced": seeded(by_size),
    }


def byzfl() -> dict[str, Callable[[int], Clients]]:
    """ByzFL's distributor of data."""
    import torch

    made = file_of("byzfl", "fed_framework", "data_distributor.py").DataDistributor.__new__
    distributor = made(file_of("byzfl", "fed_framework", "data_distributor.py").DataDistributor)
    distributor.distribution_parameter, distributor.nb_honest = ALPHA, CLIENTS
    targets, every = torch.from_numpy(LABELS), list(range(len(LABELS)))
    return {
        "byzfl dirichlet_niid": seeded(lambda: distributor.dirichlet_niid_idx(targets, every)),
        "byzfl extreme_niid": seeded(lambda: distributor.extreme_niid_idx(targets, every)),
    }


def nvflare() -> Callable[[int], Clients]:
    """NVFlare's splits for the election of features."""
    import pandas as pd

    module = file_of("nvflare", "app_opt", "feature_election", "feature_election.py")
    table = pd.DataFrame({"image": np.arange(len(LABELS)), "label": LABELS})
    split = module.FeatureElection.prepare_data_splits

    def partition(seed: int) -> Clients:
        made = split(None, table, "label", CLIENTS, "non_iid", random_state=seed, dirichlet_alpha=ALPHA)
        return [images["image"].to_numpy() for images, _ in made]

    return partition


def pfl(seed: int) -> Clients:
    """pfl's function; the last users have what is left."""
    from pfl.data.partition import partition_by_dirichlet_class_distribution

    np.random.seed(seed)  # noqa: NPY002
    return partition_by_dirichlet_class_distribution(LABELS, ALPHA, lambda: len(LABELS) // CLIENTS)


def main() -> None:
    """Count what each partition gives each client, and save it."""
    each = [CLASSES * EACH // CLIENTS] * CLIENTS
    rows = {
        "flower": flower("DirichletPartitioner", CLIENTS),
        "flower self_balancing": flower("DirichletPartitioner", CLIENTS, self_balancing=True),
        "flower inner": flower("InnerDirichletPartitioner", each),
        "pfl": pfl, "nvflare": nvflare(), **fedlab(), **byzfl(),
    }  # fmt: skip
    counts = {}
    for name, partition in rows.items():
        found = []
        for seed in range(SEEDS):
            with contextlib.suppress(ValueError):  # which packages raise where no draw suits them
                clients = partition(seed)
                found.append([np.bincount(LABELS[np.asarray(own, int)], minlength=CLASSES) for own in clients])
        counts[name] = np.array(found)
        np.savez(sys.argv[1], **counts)
        print(f"{name}: {len(found)} seeds", flush=True)
    print(", ".join(f"{p} {version(p)}" for p in ("flwr-datasets", "fedlab", "pfl", "byzfl", "nvflare")))


if __name__ == "__main__":
    main()
