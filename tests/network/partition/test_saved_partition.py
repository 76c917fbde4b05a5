"""A saved partition in other programs: the file is copied elsewhere, and used in a process started there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from network.partition import saved_partition
from network.partition.assigning import Partition, assign

needs_flower = pytest.mark.skipif(
    find_spec("flwr_datasets") is None, reason="flwr-datasets (requirements-flower.txt) is not installed"
)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with the file and a saved partition of 60 images, and nothing else."""
    shutil.copy(saved_partition.__file__, tmp_path)
    partition().save(tmp_path / "out")
    return tmp_path


def partition() -> Partition:
    return assign("equal_size", np.where(np.arange(60) < 50, np.arange(60) % 3, -1), 4, 0.5, seed=0)


def run(folder: Path, program: str) -> str:
    """What a program prints that is started in the folder."""
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_lists_and_column_need_only_numpy(elsewhere: Path) -> None:
    program = """
import sys
from saved_partition import client_column, clients
print([clients("out"), client_column("out").tolist()])
assert not {"datasets", "flwr_datasets", "network", "torch"} & set(sys.modules)
"""
    ours = partition()
    assert run(elsewhere, program) == str([[c.tolist() for c in ours.clients], ours.client_of.tolist()])


@needs_flower
def test_the_column_goes_into_a_hugging_face_data_set(elsewhere: Path) -> None:
    program = """
from datasets import Dataset
from saved_partition import client_column
dataset = Dataset.from_dict({"image": list(range(60))}).add_column("client", client_column("out"))
print([dataset.filter(lambda row: row["client"] == k)["image"][:] for k in range(4)])
"""
    assert run(elsewhere, program) == str([c.tolist() for c in partition().clients])


@needs_flower
def test_flower_hands_out_the_saved_partition(elsewhere: Path) -> None:
    program = """
from datasets import Dataset
from flwr_datasets.partitioner import Partitioner
from saved_partition import flower_partitioner
partitioner = flower_partitioner("out")
assert isinstance(partitioner, Partitioner)
partitioner.dataset = Dataset.from_dict({"image": list(range(60))})
print([partitioner.load_partition(k)["image"][:] for k in range(partitioner.num_partitions)])
for rows, client, text in ((60, 4, "no 4"), (60, -1, "no -1"), (59, 0, "the data set has 59")):
    partitioner = flower_partitioner("out")
    partitioner.dataset = Dataset.from_dict({"image": list(range(rows))})
    try:
        partitioner.load_partition(client)
    except ValueError as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
"""
    assert run(elsewhere, program) == str([c.tolist() for c in partition().clients])
