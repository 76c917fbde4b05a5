"""Boxes of objects, placed as their photographs are when these are packed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets.classes import MOST_BOXES
from datasets.stored import photograph_size
from datasets.table import BOX_COLUMNS, Table, read_boxes
from datasets.tasks import BOXES, CLASS

LEAST_LEFT = 0.25  # share of a box that must be within the square, else it is left out with the rest of the object
LEAST_SIDE = 1.0  # pixels: of what is narrower nothing can be seen
_NO_BOX = -1.0


class BoxPacker:
    """The boxes of a table's images at the packed size.

    An image has at most `MOST_BOXES`, the largest; `shape` is (M, 5), with M the most that an image has.
    """

    def __init__(self, table: Table, size: int) -> None:
        boxes = read_boxes(table)
        self._table, self._size = table, size
        values = boxes[[*BOX_COLUMNS[2:], CLASS]].to_numpy(np.float64)
        position = {cell: row for row, cell in enumerate(table.image_ids)}
        counts = np.bincount(boxes["image"].map(position).to_numpy(np.int64), minlength=len(table))
        self._of_image = np.split(values, np.cumsum(counts)[:-1])  # they come in the order of the images
        self.shape = (int(min(max(counts.max(), 1), MOST_BOXES)), 5)

    def pack(self, row: int) -> np.ndarray:
        """An image's boxes, (M, 5) float32: left, top, right, bottom in pixels and class; -1 where there is none.

        ValueError where the photograph's size cannot be read.
        """
        packed = np.full(self.shape, _NO_BOX, np.float32)
        boxes = self._shown(row)
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        largest = np.sort(np.argsort(-areas, kind="stable")[: len(packed)])
        packed[: len(largest)] = boxes[largest]
        return packed

    def left_out(self, packed: np.ndarray, unreadable: Sequence[int]) -> dict[str, int]:
        """How many boxes the readable images have, and how many of them the packed ones (N, M, 5) lack, by reason."""
        counts, n_stored = np.array([len(boxes) for boxes in self._of_image]), (packed[:, :, 4] != _NO_BOX).sum(axis=1)
        counts[unreadable] = n_stored[unreadable] = 0
        full = np.flatnonzero((n_stored == MOST_BOXES) & (counts > MOST_BOXES))
        beyond = sum(len(self._shown(row)) - MOST_BOXES for row in full.tolist())
        n_boxes, n_kept = int(counts.sum()), int(n_stored.sum())
        hidden = n_boxes - n_kept - beyond
        if hidden or beyond:
            print(
                f"left out {hidden + beyond} of {n_boxes} boxes at {self._size} px: {hidden} of which less than a "
                f"quarter or less than a pixel is shown, {beyond} beyond the {MOST_BOXES} largest of their image"
            )
        lost = self._say_unlearnable(packed)
        return {"boxes": n_boxes, "boxes_hidden": hidden, "boxes_beyond_most": beyond, "boxes_unlearnable": lost}

    def _say_unlearnable(self, packed: np.ndarray) -> int:
        """How many packed boxes lie between the points of the detector's pyramid; says of which classes they are."""
        import torch

        from datasets.pyramid import unlearnable

        names = self._table.info.classes[BOXES].names
        there, lost = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
        for image in packed:
            boxes = image[image[:, 4] != _NO_BOX]
            if len(boxes):
                is_lost = unlearnable(torch.from_numpy(boxes), self._size).numpy()
                there += np.bincount(boxes[:, 4].astype(int), minlength=len(names))
                lost += np.bincount(boxes[is_lost, 4].astype(int), minlength=len(names))
        if lost.any():
            of = ", ".join(f"{lost[k]} of {there[k]} {names[k]}" for k in np.argsort(-lost) if lost[k])
            print(
                f"at {self._size} px, {lost.sum()} of {there.sum()} boxes are never learnt ({of}): too small, or "
                "behind smaller ones, they have none of the detector's points; a larger --image_size has more"
            )
        return int(lost.sum())

    def _shown(self, row: int) -> np.ndarray:
        """All boxes (n, 5) of an image that the square shows."""
        boxes = self._of_image[row]
        if not len(boxes):
            return boxes
        height, width = photograph_size(self._table.data_path, self._table.image_ids[row])
        return place(boxes, height, width, self._table.info.fit, self._size)


def place(boxes: np.ndarray, height: int, width: int, fit: str, size: int) -> np.ndarray:
    """Boxes (n, 5) in shares of an image, with classes, as pixels of the square that `datasets.packed.square` makes.

    Cut at its border; without those of which it shows less than `LEAST_LEFT`, or that are less than `LEAST_SIDE` wide
    or high.

    >>> place(np.array([[0.0, 0.0, 0.5, 1.0, 7.0]]), height=50, width=100, fit="pad", size=64).tolist()
    [[0.0, 16.0, 32.0, 48.0, 7.0]]
    """
    lengths = np.array([width, height])
    side = {"crop": lengths.min(), "pad": lengths.max(), "stretch": lengths}[fit]
    moved = np.sign(side - lengths) * (np.abs(side - lengths) // 2)
    corners = boxes[:, :4].reshape(-1, 2, 2)
    placed = (corners * lengths + moved) * size / side
    cut = placed.clip(0, size)
    left = np.prod(cut[:, 1] - cut[:, 0], axis=1) / np.prod(placed[:, 1] - placed[:, 0], axis=1)
    shown = (left >= LEAST_LEFT) & (cut[:, 1] - cut[:, 0] >= LEAST_SIDE).all(axis=1)
    return np.concatenate([cut.reshape(-1, 4), boxes[:, 4:]], axis=1)[shown]
