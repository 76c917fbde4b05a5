"""Groups of images by their commonest object, FedCV's rule on them, and how clients' boxes differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from datasets.classes import ClassSet
from datasets.tasks import CLASS
from network.partition.assigning import assign
from network.partition.description import described_by, shown_by
from network.partition.objects import (
    box_counts,
    claim_by_category,
    claimed,
    commonest_objects,
    names_of_groups,
    unevenness,
)
from network.partition.without_alpha import commonest_object
from tests.datasets.tables import table_of
from tests.datasets.test_boxes import table_of as table_with_boxes
from utils.errors import UserError


def in_the_papers_words(shows: np.ndarray, n_clients: int) -> list[set[int]]:
    """Count each category's images, give all of the commonest to one client, and go on; the last takes the rest."""
    left = set(range(len(shows)))
    clients: list[set[int]] = []
    while len(clients) < n_clients - 1:
        counts = [sum(bool(shows[image, category]) for image in left) for category in range(shows.shape[1])]
        own = {image for image in left if shows[image, counts.index(max(counts))]}
        clients.append(own)
        left -= own
    return [*clients, left]


@given(
    shows=st.tuples(st.integers(1, 25), st.integers(1, 5)).flatmap(lambda shape: arrays(bool, shape)),
    n_clients=st.integers(1, 5),
)
def test_rule_is_the_papers(shows: np.ndarray, n_clients: int) -> None:
    groups = claim_by_category(shows, np.ones(len(shows), bool))
    if len(np.unique(groups)) < n_clients:
        with pytest.raises(UserError):
            commonest_object(groups, n_clients, 1.0, np.random.default_rng(0))
        return
    client_of = commonest_object(groups, n_clients, 1.0, np.random.default_rng(0))
    assert [set(np.flatnonzero(client_of == k)) for k in range(n_clients)] == in_the_papers_words(shows, n_clients)


def test_first_group_has_every_image_of_the_commonest_category() -> None:
    shows = np.random.default_rng(0).random((200, 6)) < [0.1, 0.5, 0.2, 0.3, 0.05, 0.01]
    groups = claim_by_category(shows, np.ones(200, bool))
    assert np.array_equal(groups == 0, shows[:, 1])
    assert not (shows[groups == 1] & shows[groups == 0].any()).all() and not shows[groups == groups.max()].any()


def test_what_is_held_out_has_no_say_and_gets_a_group() -> None:
    shows = np.array([[0, 1, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]], bool)
    train = np.arange(8) < 3
    assert claim_by_category(shows, train).tolist() == [0, 0, 1, 0, 1, 1, 2, 3]


@given(shows=st.tuples(st.integers(1, 25), st.integers(1, 5)).flatmap(lambda shape: arrays(bool, shape)))
def test_a_group_has_all_that_is_left_of_the_category_that_it_is_named_by(shows: np.ndarray) -> None:
    groups = claim_by_category(shows, np.ones(len(shows), bool))
    left = np.ones(len(shows), bool)
    for group, category in enumerate(claimed(shows, groups)):
        of_group = left & (shows[:, category] if category >= 0 else ~shows.any(axis=1))
        assert np.array_equal(of_group, groups == group)
        left &= ~of_group
    assert not left.any() or (groups[left] == groups.max()).all()


def test_a_figure_of_objects_shows_what_is_assigned_and_not_the_classes(tmp_path: Path) -> None:
    dogs, cat = [(1, 0, 0, 32, 32)], [(0, 0, 0, 16, 16)]
    table = table_with_boxes(tmp_path, "pad", wide1=dogs, wide2=dogs + cat, wide3=dogs, wide4=cat, wide5=[])
    groups = commonest_objects(table, table.train)
    assert groups.tolist() == [0, 0, 0, 1, 2, 0] and names_of_groups(table, groups) == ["dog", "cat", "nothing"]
    classes = ClassSet(("day", "night"))
    table = replace(
        table,
        info=replace(table.info, classes={**table.info.classes, CLASS: classes}),
        labels=np.array([0, 1, 0, 1, 0, 1]),
    )
    partition = assign("equal_size", groups, 2, 1.0, 0)
    assert described_by(partition, "object_based", table)[1:] == (CLASS, classes.names)
    shown, _, names = shown_by(partition, "object_based", table)
    assert shown is partition.groups and names == ["dog", "cat", "nothing"]
    assert shown_by(partition, "class_based", table)[2] == classes.names


def test_boxes_of_a_table(tmp_path: Path) -> None:
    # Of a picture of 128 x 64: two of class 0 in one photograph, one of each in the next, none in the third.
    table = table_with_boxes(
        tmp_path,
        "pad",
        wide1=[(0, 0, 0, 32, 32), (0, 32, 32, 48, 48)],
        wide2=[(0, 0, 0, 16, 16), (1, 8, 8, 24, 24)],
        wide3=[],
    )
    assert box_counts(table).tolist() == [[2, 0], [1, 1], [0, 0], [0, 1]]
    assert commonest_objects(table, table.train).tolist() == [0, 0, 2, 1]
    client_of = np.array([0, 1, 1, -1])
    found = unevenness(table, client_of, 2)
    # Shares of boxes (1, 0) and (1/2, 1/2) of two each, and of all (3/4, 1/4): both 1/4 off in either category.
    assert found["box_emd"] == pytest.approx(0.5)
    # Of 2, 2 and 0 boxes the second client has 2 and 0: 2/3 of 8/3 lie between the two, and by chance half would.
    assert found["boxes_variance_share"] == pytest.approx((1 / 4 - 1 / 2) / (1 - 1 / 2))
    assert "box_size_variance_share" not in found  # an image a client has boxes


def test_table_without_boxes_is_refused(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    (tmp_path / "filtered_boxes.csv").write_text("")
    with pytest.raises(UserError, match="no boxes"):
        commonest_objects(table, table.train)
