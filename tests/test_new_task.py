"""A new task is one new entry of the registry: all stages take it, and nothing else asks which task it has."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from datasets import tasks
from datasets.sources.taskonomy import View
from datasets.table import read_table
from datasets.tasks import TASKS
from tests.conftest import MODULES, ROOT

STAGES = """
extract_datapoints_for_experiments.py --client_file_name rooms.csv --data_path {data} --tasks edge_occlusion
model_initialization.py --task edge_occlusion --image_size 32
train_centralized_task_model.py --task edge_occlusion --n_epochs 1 --use_accelerator False
extract_embeddings.py --task edge_occlusion --n_clusters 4 --observe_performance True --use_accelerator False
test_fed.py --task edge_occlusion --n_clusters 4 --n_clients 3 --n_rounds 1 --sgd_per_epoch 2 --use_accelerator False
"""


def test_adding_a_task_touches_the_registry_only(
    own_copy: Path, monkeypatch: pytest.MonkeyPatch, run_here: Callable
) -> None:
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    [entry] = re.findall(r"```python\n(Task\(.*?)```", page, re.DOTALL)
    monkeypatch.setitem(TASKS, "edge_occlusion", eval(entry, vars(tasks)))
    rng = np.random.default_rng(0)
    for name in read_table(own_copy).image_ids:
        path = own_copy / View.parse(name).path("edge_occlusion")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 30000, (32, 32)).astype(np.uint16)).save(path)
    for command in STAGES.format(data=own_copy).strip().splitlines():
        run_here(command)
    [metrics] = Path("results/test_federated/fedavg/edge_occlusion").rglob("metrics.csv")
    last = pd.read_csv(metrics).iloc[-1]
    assert last[["train_edge_f1_mean", "test_edge_f1", "test_rmse"]].notna().all()
    assert list(Path("results/extract_embeddings/edge_occlusion").rglob("predictions.png"))


def branches_on_tasks(source: str) -> list[int]:
    """The lines of a module that compare something with, or match it against, a task's name."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        compared = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        compared += [node.value] if isinstance(node, ast.MatchValue) else []
        names = {leaf.value for part in compared for leaf in ast.walk(part) if isinstance(leaf, ast.Constant)}
        if names & TASKS.keys():
            lines.append(node.lineno)
    return lines


def test_search_for_branches_finds_them() -> None:
    code = 'if task == "normal":\n    x = 1\nif name in ("a", "class_scene"):\n    x = 2\ny = "normal"\n'
    assert branches_on_tasks(code) == [1, 3]
    assert branches_on_tasks('match task:\n    case "normal":\n        x = 1\n') == [2]


def test_nothing_branches_on_a_task() -> None:
    assert len(MODULES) > 60
    found = [f"{path.relative_to(ROOT)}:{line}" for path in MODULES for line in branches_on_tasks(path.read_text())]
    assert not found
