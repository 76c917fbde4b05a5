"""The objects in images: groups of images by the commonest objects, and how clients differ in their boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from datasets.table import BOX_COLUMNS, BOXES, read_boxes
from datasets.tasks import CLASS
from network.partition.heterogeneity import beyond_chance, earth_movers_distance, variance_share

if TYPE_CHECKING:
    from datasets.table import Table


def commonest_objects(table: Table, train: np.ndarray) -> np.ndarray:
    """The group of every image by the objects in it, (N,) int64, as FedCV assigns detection data (arXiv 2111.11066).

    Group 0 has all images with the category that most of the images at `train` show, which need not have the most
    boxes. Group 1 has those of the rest with the category that most of the rest show, and so on. Of equally common
    categories, the first counts. Images without objects are the last group. UserError if the table has no boxes.
    """
    shows = box_counts(table) > 0
    return claim_by_category(shows, np.isin(np.arange(len(shows)), train))


def claim_by_category(shows: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The groups (N,) of `commonest_objects`, from the categories that images show (N, C) and the counted images (N,).

    >>> shows = np.array([[1, 0, 1], [0, 1, 1], [1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]], bool)
    >>> claim_by_category(shows, np.ones(6, bool)).tolist()
    [0, 1, 0, 0, 1, 2]
    """
    groups = np.full(len(shows), -1, np.int64)
    n_groups = 0
    while (shown := shows[groups < 0]).any():
        category = int(np.argmax(shows[(groups < 0) & counted].sum(axis=0)))
        if not shown[:, category].any():  # no counted image is left
            category = int(np.argmax(shown.sum(axis=0)))
        groups[(groups < 0) & shows[:, category]] = n_groups
        n_groups += 1
    groups[groups < 0] = n_groups
    return groups


def names_of_groups(table: Table, groups: np.ndarray) -> list[str]:
    """The category of each of `commonest_objects` (N,) by number, and "nothing" of the images without objects."""
    names = [*table.info.classes[BOXES].names, "nothing"]
    return [names[category] for category in claimed(box_counts(table) > 0, groups)]


def claimed(shows: np.ndarray, groups: np.ndarray) -> list[int]:
    """The category by which each group of `claim_by_category` was made; -1 for the last, which shows none.

    It is the first that all images of the group show, and no image of a later one.

    >>> shows = np.array([[1, 0, 1], [0, 1, 1], [1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]], bool)
    >>> claimed(shows, np.array([0, 1, 0, 0, 1, 2]))
    [0, 2, -1]
    """
    examples = []
    for group in range(groups.max() + 1):
        candidates = np.flatnonzero(shows[groups == group].all(axis=0) & ~shows[groups > group].any(axis=0))
        examples.append(int(candidates[0]) if len(candidates) and (groups == group).any() else -1)
    return examples


def box_counts(table: Table) -> np.ndarray:
    """The number of boxes of each category in each image, (N, C) int64; UserError where the table has no boxes."""
    boxes = read_boxes(table)
    counts = np.zeros((len(table), len(table.info.classes[BOXES].names)), np.int64)
    np.add.at(counts, (_rows(table, boxes["image"]), boxes[CLASS].to_numpy(np.int64)), 1)
    return counts


def unevenness(table: Table, client_of: np.ndarray, n_clients: int) -> dict[str, float]:
    """How clients differ in the categories of their boxes, in boxes per image, and in the boxes' sizes.

    The first is the earth mover's distance of `heterogeneity.py`, over shares of boxes. The others are shares of
    variance over images between clients, `beyond_chance`: of the number of boxes, and of the mean logarithm of the
    boxes' areas (for images with boxes).
    """
    boxes, counts = read_boxes(table), box_counts(table)
    sides = boxes[BOX_COLUMNS[2:]].to_numpy(np.float64)
    areas = np.log((sides[:, 2] - sides[:, 0]) * (sides[:, 3] - sides[:, 1]))
    n_boxes = counts.sum(axis=1)
    sizes = np.bincount(_rows(table, boxes["image"]), areas, len(table))
    sizes = np.divide(sizes, n_boxes, out=np.full(len(table), np.nan), where=n_boxes > 0)
    of_clients = np.zeros((n_clients, counts.shape[1]), np.int64)
    np.add.at(of_clients, client_of[client_of >= 0], counts[client_of >= 0])
    measures = {"box_emd": earth_movers_distance(of_clients[of_clients.any(axis=1)])} if of_clients.any() else {}
    for name, values in (("boxes_variance_share", n_boxes.astype(np.float64)), ("box_size_variance_share", sizes)):
        counted = np.where(np.isfinite(values), client_of, -1)
        share = variance_share(values[:, None], counted, n_clients)
        n_images, n_groups = (counted >= 0).sum(), len(np.unique(counted[counted >= 0]))
        if n_images > n_groups:
            measures[name] = beyond_chance(share, n_groups, n_images)
    return measures


def _rows(table: Table, images: np.ndarray) -> np.ndarray:
    position = {cell: row for row, cell in enumerate(table.image_ids)}
    return np.array([position[cell] for cell in images], np.int64)
