"""Clusters are read back as they were saved, and refused where they do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datasets.table import TABLE_FILE, Table
from datasets.task_data import TaskData
from network.partition.assignments import read_assignments, read_projection, save_assignments
from utils.errors import UserError
from utils.files import write_json


def test_saved_assignments_are_read_back(data: TaskData, tmp_path: Path) -> None:
    clusters, centres = np.arange(len(data), dtype=np.int32) % 3 - 1, np.eye(3, dtype=np.float32)
    reduced = tmp_path / "run" / "reduced.npy"
    reduced.parent.mkdir()
    np.save(reduced, np.ones((len(data), 2), np.float32))
    files = save_assignments(tmp_path / "clusters", data, "model", clusters, centres, 3, reduced)
    (tmp_path / "clusters").rename(tmp_path / "moved")  # beside the run, as before
    assert (read_assignments("normal", data.table, tmp_path / "moved", 3) == clusters).all()
    projection = read_projection("normal", data.table, tmp_path / "moved")
    assert projection is not None and projection.shape == (len(data), 2)
    assert [path.name for path in files] == ["assignments_normal.npy", "centers_normal.npy"]
    assert (np.load(tmp_path / "moved" / "centers_normal.npy") == centres).all()


@pytest.mark.parametrize(
    ("origin", "array", "text"),
    [
        ({}, None, "another table"),
        ({"n_clusters": 6}, None, "--n_clusters 6"),
        ([], None, "not a JSON object"),
        ({"n_clusters": 5}, np.full(72, 5), "ids in -1..4"),
        ({"n_clusters": 5}, np.zeros(3, int), "needs 72 ids"),
    ],
)
def test_assignments_that_do_not_fit_are_refused(
    table: Table, assignments: Path, origin: object, array: np.ndarray | None, text: str
) -> None:
    if isinstance(origin, dict) and origin:
        origin = {TABLE_FILE: table.fingerprint, **origin}
    write_json(assignments / "assignments_normal.json", origin)
    if array is not None:
        np.save(assignments / "assignments_normal.npy", array)
    with pytest.raises(UserError, match=text):
        read_assignments("normal", table, assignments, 5)


def test_the_projection_is_found_where_it_was_noted_or_left_out(
    table: Table, assignments: Path, tmp_path: Path
) -> None:
    assert read_projection("normal", table, assignments).shape == (72, 3)
    assert read_projection("reshading", table, assignments) is None
    np.save(tmp_path / "run" / "reduced.npy", np.ones((5, 3)))
    assert read_projection("normal", table, assignments) is None
    (tmp_path / "run" / "reduced.npy").unlink()
    assert read_projection("normal", table, assignments) is None
    write_json(assignments / "assignments_normal.json", {TABLE_FILE: table.fingerprint, "n_clusters": 5})
    assert read_projection("normal", table, assignments) is None
