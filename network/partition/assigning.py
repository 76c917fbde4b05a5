"""Partitions: assigned, saved and read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from network.partition.client_images import ClientImages
from network.partition.hand_out import checked
from network.partition.nested import Natural, clients_of_groups
from network.partition.rules import PARTITIONERS
from network.partition.settings import AssignSettings
from network.partition.unassigned import check_unassigned, thinned
from utils.errors import UserError
from utils.files import locked, read_json, write_array, write_atomically, write_json
from utils.streams import generator
from utils.versions import ids_digest

PARTITION_FILE = "partition.json"
NON_PARTICIPATING = "unseen_clients"  # the number of these in the origin, by its name in saved partitions


@dataclass(frozen=True)
class Partition:
    """Which client has which images, of which groups, and how the partition was made.

    `client_of` (N,) int32 is each image's client, -1 for images that are not assigned; `groups` (N,) int64 is each
    image's group, assigned or not, -1 for none; `origin` has the arguments of the partition by their names on the
    command line, and SHA-256 sums of what it was made from. The last `n_non_participating` clients never train.
    """

    client_of: np.ndarray
    groups: np.ndarray
    n_clients: int
    origin: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def clients(self) -> ClientImages:
        """Each client's images, in increasing order."""
        return ClientImages.assigned(self.client_of, self.n_clients)

    @property
    def n_non_participating(self) -> int:
        """The number of clients that never train, see `network/partition/non_participating.py`."""
        return int(self.origin.get(NON_PARTICIPATING) or 0)

    @property
    def participants(self) -> Partition:
        """The same without the non-participating clients, whose images are assigned to nobody."""
        n_clients = self.n_clients - self.n_non_participating
        client_of = np.where(self.client_of < n_clients, self.client_of, -1).astype(np.int32)
        return replace(self, client_of=client_of, n_clients=n_clients)

    @property
    def sizes(self) -> np.ndarray:
        """Images of each client, (clients,)."""
        return np.bincount(self.client_of[self.client_of >= 0], minlength=self.n_clients)

    def save(self, folder: Path, image_ids: Sequence[str] | None = None, classes: np.ndarray | None = None) -> None:
        """Write the partition into a folder, for `read_partition` and `network.partition.saved_partition`.

        `partition.npy` holds `client_of`, `groups.npy` the groups, `clients.json` a list of images for each client, and
        `partition.json` the origin and the client sizes. `partition.csv` has a row per image that is assigned, with the
        columns of Google's federated vision data sets: user_id, image_id, class (if `classes` (N,) are given) and
        cluster. `image_ids` are the N names of the images; without them, images are named by number.
        """
        with locked(folder / ".partition.lock"):  # two processes that save here at once must not mix their files
            self._write(folder, image_ids, classes)

    def _write(self, folder: Path, image_ids: Sequence[str] | None, classes: np.ndarray | None) -> None:
        import pandas as pd

        for name, array in (("partition", self.client_of), ("groups", self.groups)):
            write_array(folder / f"{name}.npy", array)
        with write_atomically(folder / "clients.json") as temporary, temporary.open("w", encoding="utf-8") as file:
            for number, images in enumerate(self.clients):  # of a million clients, no list of all
                file.write(f"{', ' if number else '['}{json.dumps(images.tolist())}")
            file.write("]")
        assigned = np.flatnonzero(self.client_of >= 0)
        columns: dict[str, Any] = {"user_id": self.client_of[assigned]}
        columns["image_id"] = assigned if image_ids is None else [image_ids[int(i)] for i in assigned]
        if classes is not None:
            columns["class"] = classes[assigned]
        columns["cluster"] = self.groups[assigned]
        with write_atomically(folder / "partition.csv") as temporary:
            pd.DataFrame(columns).to_csv(temporary, index=False)
        # Last, because it marks the others as complete.
        sums = {"client_sizes": self.sizes.tolist(), "groups_sha256": ids_digest(self.groups)}
        sums["partition_sha256"] = ids_digest(self.client_of)
        write_json(folder / PARTITION_FILE, {**self.origin, "n_clients": self.n_clients, **sums})


def read_partition(path: Path) -> Partition:
    """The partition that `Partition.save` wrote; `path` is the folder or the `partition.json` in it.

    Raises `UserError` if it is missing, broken, or not what was saved.
    """
    made_by = "test_fed.py or make_partition.py"
    file = path / PARTITION_FILE if path.is_dir() else path
    origin = read_json(file, made_by)
    try:
        client_of, groups = (np.load(file.with_name(f"{n}.npy"), allow_pickle=False) for n in ("partition", "groups"))
        partition = Partition(client_of, groups, int(origin.pop("n_clients")), origin)
        sizes, *sums = (origin.pop(name) for name in ("client_sizes", "groups_sha256", "partition_sha256"))
        same = client_of.shape == groups.shape and partition.sizes.tolist() == sizes
        same = same and 0 <= partition.n_non_participating < max(1, partition.n_clients)
        same = same and sums == [ids_digest(groups), ids_digest(client_of)]
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: not a readable partition ({error}); make it again with {made_by}") from error
    if not same:
        raise UserError(f"{file} and the arrays beside it do not belong together; make it again with {made_by}")
    return partition


def assign(
    rule: str,
    groups: np.ndarray,
    n_clients: int,
    alpha: float,
    seed: int,
    min_size: int | None = None,
    **options: Any,
) -> Partition:
    """Partition by the rule of this name, reproducibly by seed; arguments and errors as for `dirichlet.paper`.

    `options` are values of the rule's own arguments; those that are not given have their defaults.
    """
    client_of = PARTITIONERS[rule](groups, n_clients, alpha, generator("partition", seed), min_size, **options)
    origin = {"rule": rule, "alpha": alpha, "min_client_ds_len": min_size, "rand_seed": seed, **options}
    return Partition(client_of, groups.astype(np.int64), n_clients, origin)


def assign_by_settings(settings: AssignSettings, groups: np.ndarray, natural: Natural | None = None) -> Partition:
    """`assign` by these settings, or `_assign_within` each of the `natural` groups; `n_images` of them, if given.

    UserError if the number of clients is neither given nor the rule's, if more images have no client than the settings
    allow where the rule is not chosen for leaving images out, and as for `thinned`.
    """
    if settings.n_clients is None and not PARTITIONERS[settings.partition].client_per_group:
        raise UserError(f"--n_clients auto is for --partition natural, not {settings.partition}; give a number")
    partition = _assign_all(settings, groups) if natural is None else _assign_within(settings, groups, natural)
    if not PARTITIONERS[settings.partition].by_choice:
        check_unassigned(settings, partition.client_of, groups)
    if settings.n_images is None:
        return partition
    client_of = thinned(partition.client_of, settings.n_images, generator("assigned", settings.rand_seed))
    checked(client_of, partition.n_clients, settings.min_client_ds_len)
    return replace(partition, client_of=client_of, origin={**partition.origin, **settings.thinning})


def _assign_all(settings: AssignSettings, groups: np.ndarray) -> Partition:
    n_clients = settings.n_clients or len(np.unique(groups[groups >= 0]))
    arguments = settings.alpha, settings.rand_seed, settings.min_client_ds_len
    return assign(settings.partition, groups, n_clients, *arguments, **settings.options)


def _assign_within(settings: AssignSettings, groups: np.ndarray, natural: Natural) -> Partition:
    """Assign each natural group's images by the rule, to clients of its own, numbered in the order of the groups.

    The draws depend on the natural group's name and not on the others. UserError where there are fewer clients than
    natural groups, and in the rule's words, with the group's name, where it cannot assign one of them.
    """
    members = list(natural.members(groups >= 0))
    sizes = np.array([len(images) for _, images in members])
    if settings.n_clients is None:
        shares = np.array([len(np.unique(groups[images])) for _, images in members])
    elif not len(members) <= settings.n_clients <= sizes.sum():
        raise UserError(
            f"--within {natural.column}: {len(members)} groups of {sizes.sum()} images cannot be assigned to "
            f"{settings.n_clients} clients, each of one group; give --n_clients {len(members)} to {sizes.sum()}"
        )
    else:
        shares = clients_of_groups(sizes, settings.n_clients)
    client_of = np.full(len(groups), -1, np.int32)
    for (name, images), n, first in zip(members, shares, np.cumsum(shares) - shares, strict=True):
        rng = generator("partition", settings.rand_seed, name)
        rule = partial(PARTITIONERS[settings.partition], groups[images], int(n), settings.alpha, rng)
        try:
            own = rule(settings.min_client_ds_len, **settings.options)
        except UserError as error:
            raise UserError(f"--within {natural.column}, {name}: {error}") from error
        client_of[images] = np.where(own >= 0, own + first, -1)
    origin = {"rule": settings.partition, "alpha": settings.alpha, "min_client_ds_len": settings.min_client_ds_len}
    origin |= {"rand_seed": settings.rand_seed, "within": natural.column, **settings.options}
    return Partition(client_of, groups.astype(np.int64), int(shares.sum()), origin)


def check_unchanged(partition: Partition, folder: Path) -> None:
    """Raise UserError if the partition saved in a run's folder is another one, so that it cannot be resumed."""
    if not np.array_equal(read_partition(folder).client_of, partition.client_of):
        raise UserError(
            f"{folder} was started with another partition: images or clusters have changed since; "
            "start without --resume_training True"
        )
