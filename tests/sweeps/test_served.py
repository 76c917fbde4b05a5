"""Which tasks the two commands run on a user's own images."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from datasets.classes import ClassSet
from datasets.table import DatasetInfo, Listing, Table, read_table, write_table
from datasets.tasks import CLASS, MASK
from sweeps.served import served
from utils.errors import UserError

USUAL = ["depth_euclidean", "reshading", "class_scene"]


def table_of(folder: Path, *domains: str, **classes: ClassSet) -> Table:
    """Two images with further files, and classes by column."""
    rows = pd.DataFrame({name: ["1.png", "2.png"] for name in ("rgb", *domains)})
    rows = rows.assign(**{CLASS: 0 if classes else -1, "part": ["train", "test"]})
    write_table(folder, Listing(rows, DatasetInfo("csv", ("rgb", *domains), classes=classes)))
    return read_table(folder)


def test_tasks_of_a_table_are_the_usual_ones_or_those_of_its_own_labels(tmp_path: Path) -> None:
    animals, things = ClassSet(("cat", "dog")), ClassSet(("sky", "sea"), (0, 1))
    assert served(table_of(tmp_path, "depth_euclidean", **{CLASS: animals}), USUAL) == [
        "depth_euclidean",
        "class_scene",
    ]
    assert served(table_of(tmp_path, **{CLASS: animals}), USUAL) == ["classification"]
    assert served(table_of(tmp_path, MASK, **{CLASS: animals, MASK: things}), USUAL) == [
        "segmentation",
        "classification",
    ]


def test_without_labels_tasks_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither masks nor classes; name tasks"):
        served(table_of(tmp_path, "normal"), USUAL)
