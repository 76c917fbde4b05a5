"""Images that no client has: how many a rule leaves, when they are too many, and how runs get equally many.

>>> unassigned_lines(np.array([0, 0, 1, -1, -1, -1]), np.array([0, 0, 1, 1, 2, -1]))
['2 of 5 images (40 %) have no client, among them all of 1 of 3 groups: 2', '1 image in no group has no client']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from network.partition.client_images import ClientImages
from network.partition.shares import rounded
from utils.errors import UserError
from utils.words import counted, some

if TYPE_CHECKING:
    from network.partition.settings import AssignSettings

_NAMED = 8  # groups, at most, in a line


def unassigned_lines(
    client_of: np.ndarray, groups: np.ndarray, names: Sequence[str] = (), called: str = "group"
) -> list[str]:
    """How many images have no client, and which groups nobody has; no line where all have one.

    Args:
        client_of: (N,) each image's client, -1 for none.
        groups: (N,) each image's group, -1 for those in none.
        names: of the groups, by number; by default these.
        called: what one of the groups is called.
    """
    lines = []
    left = int(((client_of < 0) & (groups >= 0)).sum())
    if left:
        n = int((groups >= 0).sum())
        line = f"{left:,} of {n:,} images ({100 * left / n:.2g} %) {'have' if left > 1 else 'has'} no client"
        present, nobodys = _groups(client_of, groups)
        if len(nobodys):
            named = some([str(names[group]) if len(names) else str(group) for group in nobodys], _NAMED)
            line += f", among them all of {len(nobodys)} of {counted(len(present), called)}: {named}"
        lines.append(line)
    if apart := int(((client_of < 0) & (groups < 0)).sum()):
        lines.append(f"{counted(apart, 'image')} in no {called} {'have' if apart > 1 else 'has'} no client")
    return lines


def _groups(client_of: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of all groups, and of those that nobody has."""
    present = np.unique(groups[groups >= 0])
    return present, np.setdiff1d(present, groups[(client_of >= 0) & (groups >= 0)])


def check_unassigned(settings: AssignSettings, client_of: np.ndarray, groups: np.ndarray) -> None:
    """UserError if more images have no client than `--allow_unassigned` says; arguments as for `unassigned_lines`."""
    n = int((groups >= 0).sum())
    share = 1 - int((client_of >= 0).sum()) / n
    if share <= settings.allow_unassigned:
        return
    present, nobodys = _groups(client_of, groups)
    none = f", and nothing of {len(nobodys)} of {counted(len(present), 'group')}" if len(nobodys) else ""
    raise UserError(
        f"--partition {settings.partition} assigns {n - round(share * n):,} of {n:,} images to "
        f"{counted(int(client_of.max()) + 1, 'client')}{none}; give more --n_clients, --partition equal_size, which "
        f"assigns all but a remainder, or --allow_unassigned {np.ceil(100 * share) / 100:g}"
    )


def thinned(client_of: np.ndarray, n_images: int, rng: np.random.Generator) -> np.ndarray:
    """The same with images taken from each client at random, in proportion to its size, until so many are left.

    Args:
        client_of: (N,) each image's client, -1 for none.
        n_images: how many of them are to have a client.
        rng: source of all randomness.

    Raises:
        UserError: if fewer have one, or if one of the clients would have none.
    """
    clients = ClientImages.assigned(client_of, int(client_of.max()) + 1)
    if n_images > len(clients.images):
        raise UserError(
            f"--n_images {n_images:,} is more than the {len(clients.images):,} that are assigned; lower it, or give "
            "more --n_clients or another --partition"
        )
    sizes = rounded(n_images, clients.sizes / len(clients.images), rng)
    if not sizes.all():
        raise UserError(f"--n_images {n_images:,} leaves a client without images; raise it, or lower --n_clients")
    thinned = np.full_like(client_of, -1)
    for client, (images, size) in enumerate(zip(clients, sizes, strict=True)):
        thinned[rng.permutation(images)[:size]] = client
    return thinned
