"""What is dealt, and which partition the arguments of a federated run ask for."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from datasets.selection import SELECTION_FILE, Selection, read_selection
from datasets.task_data import TaskData
from datasets.tasks import get_task
from network.groups import GROUP_NAMES, dealing_of, groups_of, read_assignments, read_projection, within
from utils.errors import UserError
from utils.files import write_json


@pytest.fixture(scope="module")
def data(selection: Selection) -> TaskData:
    return TaskData(selection, get_task("normal"), 16, torch.device("cpu"))


@pytest.fixture
def assignments(selection: Selection, tmp_path: Path) -> Path:
    """Clusters of normals, and a projection in another folder."""
    folder = tmp_path / "assignments"
    (tmp_path / "run").mkdir()
    np.save(tmp_path / "run" / "reduced.npy", np.ones((len(selection), 3), np.float32))
    origin = {SELECTION_FILE: selection.fingerprint, "n_clusters": 5, "reduced": "../run/reduced.npy"}
    write_json(folder / "assignments_normal.json", origin)
    np.save(folder / "assignments_normal.npy", np.arange(len(selection)) % 5)
    return folder


def arguments(assignments: Path, **changes: object) -> Namespace:
    """Those of `test_fed.py` that bear on the partition."""
    given = {
        "type": "embedding_based", "task": "normal", "partition": "equal_size", "alpha": 0.5, "n_clients": 4,
        "n_clusters": 5, "min_client_ds_len": None, "shards_per_client": 2, "rand_seed": 1, "partition_file": None,
        "assignment_files_path": assignments,
    }  # fmt: skip
    return Namespace(**given | changes)


def test_groups_are_clusters_classes_or_buildings(data: TaskData, assignments: Path) -> None:
    groups = {kind: groups_of(kind, data, assignments, 5) for kind in GROUP_NAMES}
    assert (groups["embedding_based"] == np.arange(len(data)) % 5).all()
    assert (groups["class_based"] == data.selection.labels).all()
    assert (groups["iid"] == groups["class_based"]).all()
    buildings = sorted({view.building for view in data.selection.views})
    for group, view in zip(groups["building_based"], data.selection.views, strict=True):
        assert buildings[group] == view.building


def test_unreadable_images_have_no_group(own_copy: Path, tmp_path: Path) -> None:
    chosen = read_selection(own_copy)
    (own_copy / chosen.views[3].path("rgb")).write_text("no picture")
    data = TaskData(chosen, get_task("normal"), 16, torch.device("cpu"))
    groups = groups_of("building_based", data, tmp_path, 5)
    assert np.flatnonzero(groups < 0).tolist() == [3]


def test_groups_within_a_part() -> None:
    assert within(np.array([4, 0, 2, -1]), np.array([2, 0, 3])).tolist() == [4, -1, 2, -1]


@pytest.mark.parametrize("kind", GROUP_NAMES)
def test_a_partition_says_where_it_comes_from(data: TaskData, assignments: Path, kind: str) -> None:
    dealing = dealing_of(arguments(assignments, type=kind), data)
    assert dealing.origin["rule"] == ("iid" if kind == "iid" else "equal_size")
    assert (dealing.origin["type"], dealing.origin["partition"]) == (kind, "equal_size")
    assert dealing.origin["selection_sha256"] == data.selection.fingerprint
    assert (dealing.client_of[data.test] == -1).all()
    assert (dealing.groups >= 0).all()  # those of held-out images, too


def test_whole_buildings(data: TaskData, assignments: Path) -> None:
    dealing = dealing_of(arguments(assignments, type="building_based", partition="by_building", n_clients=2), data)
    for images in dealing.clients:
        assert len({data.selection.views[image].building for image in images}) == 1
    with pytest.raises(UserError, match="--n_clients 2"):
        dealing_of(arguments(assignments, type="building_based", partition="by_building"), data)


def test_a_saved_partition_takes_the_place_of_the_arguments(data: TaskData, assignments: Path, tmp_path: Path) -> None:
    first = arguments(assignments, alpha=3.0, n_clients=5)
    made = dealing_of(first, data)
    made.save(tmp_path / "run")
    # Without the assignments, with another seed and other arguments.
    args = arguments(tmp_path, partition_file=tmp_path / "run", rand_seed=9, type="class_based", partition="paper")
    again = dealing_of(args, data)
    assert (again.client_of == made.client_of).all() and (again.groups == made.groups).all()
    names = ("type", "partition", "alpha", "n_clients", "n_clusters", "min_client_ds_len")
    assert [getattr(args, name) for name in names] == [getattr(first, name) for name in names]
    assert args.rand_seed == 9
    assert again.origin == {**made.origin, "partition_file": str(tmp_path / "run")}


def test_a_partition_of_other_images_is_refused(data: TaskData, assignments: Path, tmp_path: Path) -> None:
    made = dealing_of(arguments(assignments), data)
    replace(made, origin={**made.origin, "selection_sha256": "0"}).save(tmp_path / "other")
    with pytest.raises(UserError, match="another selection"):
        dealing_of(arguments(assignments, partition_file=tmp_path / "other"), data)
    held_out = made.client_of.copy()
    held_out[data.test[:3]] = 0
    replace(made, client_of=held_out).save(tmp_path / "held_out")
    with pytest.raises(UserError, match="deals 3 images"):
        dealing_of(arguments(assignments, partition_file=tmp_path / "held_out"), data)


@pytest.mark.parametrize(
    ("origin", "array", "text"),
    [
        ({}, None, "another selection"),
        ({"n_clusters": 6}, None, "--n_clusters 6"),
        ([], None, "no object"),
        ({"n_clusters": 5}, np.full(72, 5), "ids in -1..4"),
        ({"n_clusters": 5}, np.zeros(3, int), "needs 72 ids"),
    ],
)
def test_assignments_that_do_not_fit_are_refused(
    selection: Selection, assignments: Path, origin: object, array: np.ndarray | None, text: str
) -> None:
    if isinstance(origin, dict) and origin:
        origin = {SELECTION_FILE: selection.fingerprint, **origin}
    write_json(assignments / "assignments_normal.json", origin)
    if array is not None:
        np.save(assignments / "assignments_normal.npy", array)
    with pytest.raises(UserError, match=text):
        read_assignments("normal", selection, assignments, 5)


def test_the_projection_is_found_where_it_was_noted_or_left_out(
    selection: Selection, assignments: Path, tmp_path: Path
) -> None:
    assert read_projection("normal", selection, assignments).shape == (72, 3)
    assert read_projection("reshading", selection, assignments) is None
    np.save(tmp_path / "run" / "reduced.npy", np.ones((5, 3)))
    assert read_projection("normal", selection, assignments) is None
    (tmp_path / "run" / "reduced.npy").unlink()
    assert read_projection("normal", selection, assignments) is None
    write_json(assignments / "assignments_normal.json", {SELECTION_FILE: selection.fingerprint, "n_clusters": 5})
    assert read_projection("normal", selection, assignments) is None
