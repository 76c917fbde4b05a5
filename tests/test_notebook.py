"""The notebook runs from its first cell to its last, on a folder of images."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.conftest import ROOT

NOTEBOOK = ROOT / "notebooks/partition_your_images.ipynb"
PARAMETERS = {
    "source": "folder", "data_path": "photos", "features": "image", "n_clusters": 3, "n_clients": 4, "alpha": 1.0,
    "n_rounds": 1,
}  # fmt: skip


def as_python(source: list[str]) -> str:
    """A cell with its commands to the shell, `!command {name}`, as calls, and without Jupyter's own commands."""
    lines = [re.sub(r"^(\s*)!(.*?)\s*$", r"\1shell(f'''\2''')\n", line) for line in source]
    return "".join(re.sub(r"^(\s*)%.*", r"\1pass", line) for line in lines)


def test_notebook(tmp_path: Path, run_here: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for name, colour in {"dog": 200, "cat": 120, "bird": 40}.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(16):
            noise = rng.integers(-30, 30, (32, 32, 3))
            Image.fromarray((noise + colour).astype(np.uint8)).save(tmp_path / "photos" / name / f"{i}.png")
    names: dict = {"shell": lambda command: run_here(command.removeprefix("python "))}
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            code = as_python(cell["source"])
            if "parameters" in cell["metadata"].get("tags", ()):
                exec(code, given := {})
                assert PARAMETERS.keys() == given.keys() - {"__builtins__"}
                names |= PARAMETERS
            else:
                exec(compile(code, NOTEBOOK.name, "exec"), names)
    assert list(names["comparison"].index) == ["class_based", "embedding_based", "iid"]
    assert names["comparison"]["train_loss_mean"].notna().all()
    table = names["table"]
    assert isinstance(table, pd.DataFrame) and set(table["client"]) == {-1, 0, 1, 2, 3}
    held_out = table["part"] == "test"
    assert held_out.any() and (table["client"][held_out] == -1).all()
    _flower_hands_out(tmp_path, table[~held_out].reset_index(drop=True))


def _flower_hands_out(folder: Path, train: pd.DataFrame) -> None:
    """Flower's partitioner, on a data set of the training images, gives each client the rows that the column names."""
    elsewhere = folder / "elsewhere"  # where no folder `datasets` hides Hugging Face's package
    elsewhere.mkdir()
    shutil.copy(ROOT / "network/partition/saved_partition.py", elsewhere)
    train.to_csv(elsewhere / "train.csv", index=False)
    program = (
        "import pandas as pd\nfrom datasets import Dataset\nfrom saved_partition import flower_partitioner\n"
        "train = pd.read_csv('train.csv')\npartitioner = flower_partitioner('../partition')\n"
        "partitioner.dataset = Dataset.from_pandas(train)\n"
        "for client in range(partitioner.num_partitions):\n"
        "    assert set(partitioner.load_partition(client)['client']) == {client}\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if find_spec("flwr_datasets") is None:
        return  # of requirements-flower.txt
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=elsewhere, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_notebook_is_saved_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
