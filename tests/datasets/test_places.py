"""Cells of the earth's surface, against s2cell's own parents and children."""

from __future__ import annotations

import numpy as np
import pytest
import s2cell

from datasets.places import adaptive_cells, leaf_ids
from tests.utils.calls import at_most
from utils.errors import UserError


def hot_spots(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Places around forty towns, one in fifty anywhere, one in a hundred unknown."""
    rng = np.random.default_rng(seed)
    towns = np.stack([rng.uniform(-60, 70, 40), rng.uniform(-179, 179, 40)], axis=1)
    places = towns[rng.integers(40, size=n)] + rng.normal(scale=0.8, size=(n, 2))
    anywhere = rng.random(n) < 0.02
    places[anywhere] = np.stack([rng.uniform(-90, 90, n), rng.uniform(-180, 180, n)], axis=1)[anywhere]
    places[:, 1] = (places[:, 1] + 180) % 360 - 180
    places[rng.random(n) < 0.01] = np.nan
    return places[:, 0], places[:, 1]


def level(identity: int) -> int:
    return s2cell.cell_id_to_level(identity)


@pytest.mark.parametrize("most, least", [(900, None), (100, 20)])
def test_many_places_agree_with_a_count_by_parents(most: int, least: float | None) -> None:
    latitude, longitude = hot_spots(30_000)
    with at_most(50 * len(latitude)):
        cells = adaptive_cells(latitude, longitude, most, least)
    located = np.flatnonzero(np.isfinite(latitude))
    leaves = np.zeros(len(latitude), np.uint64)
    leaves[located] = leaf_ids(latitude[located], longitude[located])
    least = 0.01 * most if least is None else least
    # Every image lies in the parent, by s2cell, of its leaf at its cell's level, and in no other cell.
    kept = np.flatnonzero(cells.cell >= 0)
    for image in np.random.default_rng(1).choice(kept, 1000):
        identity = int(cells.ids[cells.cell[image]])
        assert s2cell.cell_id_to_parent_cell_id(int(leaves[image]), level(identity)) == identity
    sizes = np.bincount(cells.cell[kept], minlength=len(cells.ids))
    assert (sizes >= least).all() and (sizes <= most).all()
    assert len(kept) + cells.dropped == len(located) and cells.homeless == len(latitude) - len(located)
    # Independently: at each level, the images of each parent, counted; a cell is kept if it has few enough images and
    # its parent too many.
    by_level: dict[int, dict[int, int]] = {}
    for depth in range(max(level(int(identity)) for identity in cells.ids) + 1):
        low = np.uint64(1 << 2 * (30 - depth))
        parents = (leaves[located] & (~low + np.uint64(1))) | low
        of_some = np.random.default_rng(depth).choice(len(located), 20)
        assert all(s2cell.cell_id_to_parent_cell_id(int(leaves[located[i]]), depth) == int(parents[i]) for i in of_some)
        by_level[depth] = dict(zip(*map(np.ndarray.tolist, np.unique(parents, return_counts=True)), strict=True))
    expected = set()
    for depth, counts in by_level.items():
        for identity, count in counts.items():
            parent = s2cell.cell_id_to_parent_cell_id(identity, depth - 1) if depth else None
            if least <= count <= most and (parent is None or by_level[depth - 1][parent] > most):
                expected.add(identity)
    assert expected == set(cells.ids.tolist())
    assert cells.tokens == [s2cell.cell_id_to_token(identity) for identity in cells.ids.tolist()]
    assert (np.diff(cells.ids.astype(object)) > 0).all()


def test_many_images_of_one_place_stay_together() -> None:
    latitude, longitude = np.r_[np.full(40, 46.5), 46.6], np.r_[np.full(40, 6.6), 6.6]
    cells = adaptive_cells(latitude, longitude, 10, 1)
    assert sorted(np.bincount(cells.cell)) == [1, 40]
    assert max(level(identity) for identity in cells.ids.tolist()) == 30


def test_few_images_are_assigned_by_the_faces_of_the_cube() -> None:
    # Off the coasts of Africa, in the Indian Ocean, at both poles; the date line from both sides.
    latitude, longitude = np.array([0.0, 1.0, 0.0, 90.0, -90.0, 0.0, 0.0]), np.array([0.0, 1.0, 90.0, 0, 0, 180, -180])
    cells = adaptive_cells(latitude, longitude, 100)
    assert cells.cell.tolist() == [0, 0, 1, 2, 4, 3, 3] and len(cells.ids) == 5
    assert leaf_ids(latitude[-2:], longitude[-2:])[0] != leaf_ids(latitude[-2:], longitude[-2:])[1]
    assert "5 cells; 0 images are in cells of too few and 0 have no place" in str(cells)


@pytest.mark.parametrize(
    "latitude, longitude, text",
    [
        ([10.0, 91.0], [0.0, 0.0], "image 1: latitude 91 is beyond 90 degrees"),
        ([10.0, -1.0], [-180.5, 0.0], "image 0: longitude -180.5 is beyond 180 degrees"),
        ([10.0, np.inf], [0.0, 0.0], "image 1: latitude inf is beyond 90 degrees"),
        ([-np.inf, 10.0], [0.0, 0.0], "image 0: latitude -inf is beyond 90 degrees"),
        ([10.0, 10.0], [np.nan, np.inf], "image 1: longitude inf is beyond 180 degrees"),
        ([np.nan, np.nan], [0.0, 0.0], "of 0 images with a place no cell has 1; lower --max_cell, of which"),
        ([1.0, 50.0], [0.0, 100.0], "of 2 images with a place no cell has 2; lower --min_cell"),
    ],
)
def test_places_that_are_none_are_refused(latitude: list, longitude: list, text: str) -> None:
    with pytest.raises(UserError, match=text):
        adaptive_cells(np.array(latitude), np.array(longitude), 100, 2 if "has 2" in text else None)
