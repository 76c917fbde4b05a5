"""The probe against features that hold the class or not, and on a run as a user leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from datasets.table import Table
from datasets.task_data import TaskData
from datasets.tasks import get_task
from models.networks.task_model import Outputs
from network.linear_probe import encoded_by, probe, probe_run
from utils.errors import UserError


class Telling(nn.Module):
    """Features by the images' mean colours, and nothing of their order."""

    def __init__(self, known: np.ndarray, means: torch.Tensor) -> None:
        super().__init__()
        self.known, self.means = torch.from_numpy(known), means

    def forward(self, images: torch.Tensor) -> Outputs:
        at = torch.cdist(images.mean((2, 3)), self.means).argmin(1)
        return Outputs(self.known[at], self.known[at], self.known[at])


def test_features_that_hold_the_class_are_found_out(table: Table) -> None:
    data = TaskData(table, table.bind(get_task("class_scene")), 32, torch.device("cpu"))
    means = data.batch(torch.arange(len(data))).images.mean((2, 3))
    rng, labels = np.random.default_rng(0), table.labels
    codes = rng.normal(size=(16, 6))
    seen = np.isin(labels[data.test], labels[data.train])
    telling = Telling(codes[labels].astype(np.float32), means)
    assert probe(telling, data, data.train, data.test, 1e3) == pytest.approx(seen.mean())
    blind = Telling(rng.normal(size=(len(data), 6)).astype(np.float32), means)
    assert probe(blind, data, data.train, data.test, 1.0) < 0.7 * seen.mean()
    np.testing.assert_array_equal(encoded_by(telling, data, data.test), codes[labels[data.test]].astype(np.float32))


def test_a_run_is_probed(own_copy: Path, run_here: Callable, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run_here(f"model_initialization.py --task class_scene --image_size 16 --data_path {own_copy}")
    run_here(
        f"test_fed.py --task class_scene --data_path {own_copy} --type class_based --n_clients 2 --test_mode True "
        "--use_accelerator False --plot_distribution False"
    )
    [summary] = tmp_path.rglob("test_federated/**/summary.json")
    run_here(f"linear_probe.py --run {summary.parent}")
    values = json.loads((summary.parent / "linear_probe.json").read_text())
    assert 0 <= values["untrained"] <= 1 and 0 <= values["accuracy"] <= 1 and values["n_test"] > 0
    assert "untrained" in capsys.readouterr().out
    assert probe_run(summary.parent, own_copy, 1.0) == values
    said = json.loads((summary.parent / "args.json").read_text())
    said.pop("bottleneck")  # as in runs that were made before models had it
    (summary.parent / "args.json").write_text(json.dumps(said))
    assert probe_run(summary.parent, own_copy, 1.0) == values
    with pytest.raises(UserError, match=r"args\.json is missing"):
        probe_run(tmp_path / "nowhere", None, 1.0)
