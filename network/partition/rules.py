"""The rules by which images are dealt to clients.

A partitioner takes one group id an image (a cluster of embeddings, a scene class, a building; -1 for images that are
not dealt) and returns each image's client, int32, -1 for images that nobody gets. Holding the client of an image and
not the images of a client makes it impossible to deal an image twice. All have the signature of `dirichlet.paper`, are
bounded in time, give every client at least one image, and say which demand cannot be met. Time and memory grow with
images plus clients times groups.

>>> groups = np.repeat([0, 1, 2, 3], 100)
>>> client_of = equal_size(groups, n_clients=5, alpha=0.1, rng=np.random.default_rng(0))
>>> np.bincount(client_of).tolist()
[80, 80, 80, 80, 80]
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from network.partition.dirichlet import dirichlet_hsu, dirichlet_per_class, equal_size, paper, quantity_skew
from network.partition.without_alpha import commonest_object, iid, natural, one_group, shards, split_groups
from utils.registry import Registry

Partitioner = Callable[..., np.ndarray]
PARTITIONERS: Registry[Partitioner] = {
    "paper": paper, "equal_size": equal_size, "dirichlet_hsu": dirichlet_hsu,
    "dirichlet_per_class": dirichlet_per_class, "shards": shards, "natural": natural,
    "by_building": natural,  # its former name
    "quantity_skew": quantity_skew, "iid": iid, "one_group": one_group, "split_groups": split_groups,
    "commonest_object": commonest_object,
}  # fmt: skip
WITHOUT_ALPHA = {
    "shards",
    "natural",
    "by_building",
    "iid",
    "one_group",
    "split_groups",
    "commonest_object",
}  # the rules in which alpha has no part
