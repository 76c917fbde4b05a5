"""Which images are held out, and which rows cannot be a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.held_out import make_table
from datasets.table import DatasetInfo, Listing
from tests.datasets.tables import rows_with
from utils.errors import UserError


def found_with(about: DatasetInfo | None = None, **columns: object) -> Listing:
    groups = tuple(name for name in columns if name not in ("rgb", "part"))
    return Listing(
        rows_with(**columns), about or DatasetInfo("csv", ("rgb",), groups, together=groups[0] if groups else None)
    )


def parts_of(found: Listing, test_fraction: float = 0.5, seed: int = 0) -> list[str]:
    return make_table(found, test_fraction, seed)["part"].tolist()


def test_the_sources_own_parts_stay() -> None:
    assert parts_of(found_with(part=["train", "val", "test", "train"])) == ["train", "val", "test", "train"]


def test_validation_images_are_held_out_where_nothing_else_is() -> None:
    assert parts_of(found_with(part=["train", "val", "val", "train"])) == ["train", "test", "test", "train"]


def test_training_images_alone_are_assigned_like_those_of_no_part() -> None:
    users = [f"u{i // 3}" for i in range(60)]
    both = [parts_of(found_with(user=users, **more), 0.3, 5) for more in ({}, {"part": ["train"] * 60})]
    assert both[0] == both[1] and both[0].count("test") == 18


@settings(deadline=None)
@given(
    units=st.lists(st.integers(0, 12), min_size=2, max_size=80), fraction=st.floats(0.05, 0.9), seed=st.integers(0, 50)
)
def test_images_that_belong_together_are_held_out_together(units: list[int], fraction: float, seed: int) -> None:
    found = found_with(point=[f"p{unit}" for unit in units])
    largest = max(map(units.count, units))
    try:
        parts = np.array(parts_of(found, fraction, seed))
    except UserError:  # not one unit fits, or all do
        assert fraction * len(units) < largest or len(set(units)) == 1
        return
    held_out, trained = (set(np.array(units)[parts == part]) for part in ("test", "train"))
    assert held_out and trained and not held_out & trained
    # Not one more unit fits: the share asked for is missed by less than the largest.
    assert fraction * len(units) - largest < (parts == "test").sum() <= fraction * len(units)


def test_without_units_single_images_are_held_out() -> None:
    found = Listing(rows_with(rgb=[f"{i}.png" for i in range(1000)]), DatasetInfo("folder", ("rgb",)))
    assert parts_of(found, 0.237).count("test") == 237


def test_parts_follow_from_the_seed() -> None:
    found = found_with(point=[f"p{i // 2}" for i in range(80)])
    first, second, other = (parts_of(found, 0.2, seed) for seed in (1, 1, 2))
    assert first == second != other


@pytest.mark.parametrize(
    "columns, text",
    [
        ({"part": ["test", "test"]}, "0 training and 2 test images; give more images"),
        ({"part": ["val", "val"]}, "0 training and 2 test images"),
        ({"part": ["val", "test"]}, "0 training and 1 test images"),
        (
            {"point": ["a", "a", "a"]},
            "3 training and 0 test images, because the images of one point stay together, and there is 1; "
            "give more of point, or another --test_fraction",
        ),
        ({"point": ["a", "b"], "part": ["test", "test"]}, "0 training and 2 test images; give more images"),
        ({"rgb": ["a.png"]}, "1 training and 0 test images; give more images, or another --test_fraction$"),
    ],
)
def test_empty_parts_are_refused(columns: dict[str, list[str]], text: str) -> None:
    with pytest.raises(UserError, match=text):
        parts_of(found_with(**columns))


def test_too_few_images_name_what_was_left_out() -> None:
    few = replace(found_with(rgb=["a.png"]), errors=["b.png: too short"])
    with pytest.raises(UserError, match=r"another --test_fraction; the commonest error, 1 of 1: b\.png: too short"):
        parts_of(few)


def test_no_image_at_all_names_the_first_that_was_left_out() -> None:
    nothing = found_with(rgb=["a.png"])
    nothing = replace(nothing, rows=nothing.rows[:0])
    with pytest.raises(UserError, match=r"^no image is left$"):
        parts_of(nothing)
    with pytest.raises(UserError, match=r"no image is left; the commonest error, 1 of 2: b\.png: too short"):
        parts_of(replace(nothing, errors=["b.png: too short", "c.png"]))


@pytest.mark.parametrize(
    "columns, text",
    [
        ({"rgb": ["a.png", "b\\c.png"]}, r"'b\\\\c\.png' is not a path within the data folder"),
        ({"rgb": ["a.png", "b\nc.png"]}, "is not a path within the data folder"),
        ({"rgb": ["a.png", "../b.png"]}, "is not a path within the data folder"),
        ({"rgb": ["a.png", "a.png"]}, r"a\.png stands there twice"),
        ({"user": ["x", "y\nz"]}, "user 'y\\\\nz' has a line break"),
        ({"user": ["x", "y\r"]}, "has a line break"),
        ({"part": ["train", "validation"]}, "part 'validation' is not one of train, val, test"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(columns: dict[str, list[str]], text: str) -> None:
    with pytest.raises(UserError, match=text):
        parts_of(found_with(**columns))
