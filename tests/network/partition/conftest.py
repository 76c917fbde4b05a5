"""Images of normals, and clusters of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from datasets.table import TABLE_FILE, Table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from utils.files import write_json


@pytest.fixture(scope="session")
def data(table: Table) -> TaskData:
    return TaskData(table, table.bind(get_task("normal")), 16, torch.device("cpu"))


@pytest.fixture
def assignments(table: Table, tmp_path: Path) -> Path:
    """Clusters of normals, and a projection in another folder."""
    folder = tmp_path / "assignments"
    (tmp_path / "run").mkdir()
    np.save(tmp_path / "run" / "reduced.npy", np.ones((len(table), 3), np.float32))
    origin = {TABLE_FILE: table.fingerprint, "n_clusters": 5, "reduced": "../run/reduced.npy"}
    write_json(folder / "assignments_normal.json", origin)
    np.save(folder / "assignments_normal.npy", np.arange(len(table)) % 5)
    return folder
