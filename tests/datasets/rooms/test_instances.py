"""Instances of things in rendered rooms: against segmentation and geometry, and the rule for hidden ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from datasets.classes import INSTANCES_OF_A_CLASS
from datasets.rooms.furniture import PIECES, Part, Piece
from datasets.rooms.kinds import Material
from datasets.rooms.rendering import LEAST_SEEN, LEAST_SIDE, Camera, RayCaster, render
from datasets.rooms.scenes import SceneBuilder
from datasets.sources.taskonomy import (
    SEGMENTS,
    THINGS,
    View,
    boxes_of_instances,
    list_views,
)
from datasets.table import Table, read_boxes
from datasets.task_data import TaskData
from datasets.tasks import INSTANCES, TASKS

pytest.importorskip("embreex", reason="needs embreex, which renders the rooms")
SIZE = 96
GREY = Material((0.5, 0.5, 0.5))
# Looks along +x with a picture as wide as what is 2 m ahead and 2 m wide.
CAMERA = Camera((0.0, 0.0, 0.0), 0.0, 0.0, np.pi / 2 - 2 * (np.pi / 4 - np.arctan(0.5)))
LABELS = {name: number for number, name in enumerate(SEGMENTS.names)}


def seen(*things: tuple[str, float, tuple[float, float, float, float]]) -> np.ndarray:
    """The instances of upright panels in front of a far wall: label, distance, and bounds to the left and up."""
    builder = SceneBuilder()
    builder.add("box", (50, 51, -99, 99, -99, 99), GREY)
    for label, distance, (y0, y1, z0, z1) in things:
        [thing] = builder.new_things(1)
        builder.add("box", (distance, distance + 0.01, y0, y1, z0, z1), GREY, label, thing=thing)
    capture = render(RayCaster(builder.build()), CAMERA, SIZE, np.random.default_rng(0))
    assert ((capture.things // INSTANCES_OF_A_CLASS == capture.semantic) | (capture.things == 0)).all()
    return capture.things


def box_of(values: np.ndarray, number: int) -> list[int]:
    rows, columns = np.nonzero(values == number)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_box_lies_where_geometry_says() -> None:
    # 2 m ahead a metre is half the picture; y points to the left.
    values = seen(("chair", 2.0, (-0.5, 0.25, 0.0, 0.5)), ("chair", 2.0, (0.5, 0.75, -0.5, -0.25)))
    chair = 1000 * LABELS["chair"]
    assert box_of(values, chair + 1) == [36, 24, 72, 48] and box_of(values, chair + 2) == [12, 60, 24, 72]
    assert set(np.unique(values)) == {0, chair + 1, chair + 2}


def test_what_is_mostly_hidden_is_no_instance() -> None:
    couch, screen = ("couch", 4.0, (-1.0, 1.0, -1.0, 1.0)), ("tv", 2.0, (-1.0, 1.0, -1.0, 1.0))
    assert 1000 * LABELS["couch"] + 1 in seen(couch)
    assert 1000 * LABELS["couch"] + 1 not in seen(couch, screen)  # 4 m ahead it is half as wide
    for share in (LEAST_SEEN - 0.05, LEAST_SEEN + 0.05):  # of the couch's width, of which the rest is hidden
        curtain = ("tv", 2.0, (-1.0, 0.5 - share, -1.0, 1.0))
        assert (1000 * LABELS["couch"] + 1 in seen(couch, curtain)) == (share > LEAST_SEEN)


def test_what_is_tiny_is_no_instance() -> None:
    for side in (0.8 * LEAST_SIDE, 1.3 * LEAST_SIDE):
        values = seen(("vase", 2.0, (0.0, 2 * side, 0.0, 1.0)))
        assert (values > 0).any() == (side > LEAST_SIDE)


def test_what_the_picture_cuts_off_is_measured_by_what_lies_in_it() -> None:
    values = seen(("bed", 2.0, (0.8, 9.0, -1.0, 1.0)))  # of 8.2 m it shows 20 cm, all that would fit
    assert box_of(values, 1000 * LABELS["bed"] + 1)[:1] == [0] and (values > 0).any(axis=0).sum() in (9, 10)


def test_parts_of_a_piece_are_the_things_that_one_would_count() -> None:
    assert set(PIECES["chair"].thing_of_part()) == {0}

    def box(y0: float, y1: float, label: str = "") -> Part:
        return Part("box", "any", (-0.5, 0.5, y0, y1, 0, 1), label)

    parts = (
        box(-0.5, -0.2, "book"),
        box(-0.19, 0.0, "book"),
        box(0.2, 0.3, "book"),
        box(0.3, 0.4, "bottle"),
        box(0, 1),
    )
    assert Piece(((1, 1),) * 3, parts).thing_of_part() == (0, 0, 1, 2, -1)
    assert Piece(((1, 1),) * 3, (box(-0.5, -0.4), box(0.4, 0.5)), label="couch").thing_of_part() == (0, 0)


def test_rooms_have_boxes_in_the_table(rendered: Path, table: Table) -> None:
    boxes = read_boxes(table)
    assert table.info.classes["boxes"] == THINGS and len(boxes) > 30
    for building in ("aspen", "birch"):
        for view in list_views(rendered, INSTANCES, building):
            assert np.asarray(Image.open(rendered / view.path(INSTANCES))).dtype == np.uint16
    # Each box holds pixels of its class, up to its borders.
    for cell, of_image in boxes.groupby("image"):
        view = View.parse(rendered / cell)
        semantic = np.asarray(Image.open(rendered / view.path("segment_semantic")))
        for label, *sides in of_image.iloc[:, 1:].to_numpy(float).tolist():
            left, top, right, bottom = (round(side * len(semantic)) for side in sides)
            shown = semantic[top:bottom, left:right] == label + 2
            assert shown[0].any() and shown[-1].any() and shown[:, 0].any() and shown[:, -1].any()


def test_detection_reads_the_rooms(table: Table) -> None:
    import torch

    data = TaskData(table, table.bind(TASKS["detection"]), 32, torch.device("cpu"))
    batch = data.batch(torch.arange(len(table)))
    assert int(batch.valid.sum()) == len(read_boxes(table))


def test_unreadable_mask_has_no_boxes(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 3001, np.uint16)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"nothing")
    boxes = boxes_of_instances(tmp_path, ["1", "2"], ["a.png", "b.png"])
    pd.testing.assert_frame_equal(
        boxes, pd.DataFrame([["1", 1, 0.0, 0.0, 1.0, 1.0]], columns=boxes.columns), check_dtype=False
    )


@pytest.mark.parametrize("label", ["uncertain", "background"])
def test_background_is_no_thing(label: str) -> None:
    assert label not in THINGS.names
