"""What a federated run prints and leaves behind, from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

from datasets.selection import Selection

RUN = "test_fed.py --task normal --type class_based --n_clients 3 --n_rounds 1 --sgd_per_epoch 2 --alpha 1"


@pytest.fixture(scope="module")
def run(
    rendered: Path, selection: Selection, run_anywhere: Callable, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[str, Path]]:
    """Run `test_fed.py` with further arguments on initial models of both norms: what it printed, and its folder."""
    folder = tmp_path_factory.mktemp("runs")
    for norm in ("batch", "group"):
        command = f"model_initialization.py --task normal --image_size 32 --norm {norm} --init_model_dir {norm}"
        assert run_anywhere(folder, command).returncode == 0

    def start(more: str, norm: str = "batch") -> tuple[str, Path]:
        done = run_anywhere(folder, f"{RUN} --data_path {rendered} --init_model_dir {norm} {more}")
        method = more.split("--method ")[1].split()[0] if "--method" in more else "fedavg"
        results = folder / "results/test_federated" / method / "normal/class_based"
        newest = max(results.glob("*"), key=lambda path: path.stat().st_mtime_ns, default=results)
        return done.stdout + done.stderr, newest

    return start


def test_the_table_shows_what_the_metrics_say(run: Callable) -> None:
    printed, folder = run(
        "--method ditto --lam 0.3 --batch_norm local --local_epochs 1 --use_adam True --init_lr 1e-3 "
        "--weight_decay 1e-4 --clients_per_round 2 --client_sampling size"
    )
    last = pd.read_csv(folder / "metrics.csv").iloc[-1]
    assert "train_loss_mean" not in last and np.isfinite(last["personal_local_test_loss_mean"])
    shown = {line[:27].strip(): float(line.split()[-6]) for line in printed.splitlines() if line.count(".") == 6}
    summary = json.loads((folder / "summary.json").read_text())
    assert shown == {
        "personal, clients' own": pytest.approx(last["personal_train_loss_mean"], abs=1e-4),
        "personal, clients' held out": pytest.approx(last["personal_local_test_loss_mean"], abs=1e-4),
        "trivial, clients' own": pytest.approx(summary["trivial"]["train"]["loss"], abs=1e-4),
        "trivial, clients' held out": pytest.approx(summary["trivial"]["local_test"]["loss"], abs=1e-4),
        "trivial, held out": pytest.approx(summary["trivial"]["test"]["loss"], abs=1e-4),
    }
    assert not (folder / "model.safetensors").exists()  # there is no global model
    args = json.loads((folder / "args.json").read_text())
    assert (args["lam"], args["personal_steps"]) == (0.3, None) and "mu" not in args


def test_group_norm_can_replace_batch_norm(run: Callable) -> None:
    _, folder = run("--batch_norm group")
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["config"])["norm"] == "group"
        assert not any("running_mean" in name for name in file.keys())  # noqa: SIM118 - no mapping


def test_a_model_without_batch_norm_has_none_to_keep(run: Callable) -> None:
    printed, _ = run("--batch_norm local", norm="group")
    assert printed.strip().startswith("error: --batch_norm local: the model has no batch norm")
