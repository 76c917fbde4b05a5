"""What a federated run prints and leaves behind, from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

from datasets.table import TABLE_FILE, Table

RUN = "test_fed.py --task normal --type class_based --n_clients 3 --n_rounds 1 --sgd_per_epoch 2 --alpha 1"


@pytest.fixture(scope="module")
def run(
    rendered: Path, table: Table, run_anywhere: Callable, tmp_path_factory: pytest.TempPathFactory
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
        "--method ditto --lam 0.3 --batch_norm local --sgd_per_epoch auto --local_epochs 1 --use_adam True "
        "--init_lr 1e-3 --weight_decay 1e-4 --clients_per_round 2 --client_sampling size"
    )
    last = pd.read_csv(folder / "metrics.csv").iloc[-1]
    assert "train_loss_mean" not in last and np.isfinite(last["personal_local_test_loss_mean"])
    shown = {line[:34].strip(): float(line.split()[-6]) for line in printed.splitlines() if line.count(".") == 6}
    summary = json.loads((folder / "summary.json").read_text())
    assert shown == {
        "personal, client train": pytest.approx(last["personal_train_loss_mean"], abs=1e-4),
        "personal, client test": pytest.approx(last["personal_local_test_loss_mean"], abs=1e-4),
        "constant baseline, client train": pytest.approx(summary["trivial"]["train"]["loss"], abs=1e-4),
        "constant baseline, client test": pytest.approx(summary["trivial"]["local_test"]["loss"], abs=1e-4),
        "constant baseline, global test": pytest.approx(summary["trivial"]["test"]["loss"], abs=1e-4),
    }
    assert not (folder / "model.safetensors").exists()  # there is no global model
    args = json.loads((folder / "args.json").read_text())
    assert (args["lam"], args["personal_steps"]) == (0.3, None) and "mu" not in args


def test_what_a_method_notes_is_printed_and_kept(run: Callable) -> None:
    printed, folder = run("--method fedamp --sigma 10 --alpha_k 20 --n_rounds 2")
    metrics = pd.read_csv(folder / "metrics.csv")
    # All start from one model, so that in the first round each of the two others counts 20 / 10 for each of the three.
    assert metrics["clients_capped"][1] == metrics["clients_mixed"][1] == 3 and metrics["own_weight"][1] == 0
    notes = json.loads((folder / "summary.json").read_text())["notes"]
    own, capped = metrics["own_weight"][1:].mean(), metrics["clients_capped"].sum()
    assert f"a client's own model had a weight of {own:.2f}, on average" in notes[0]
    assert f"in {capped:.0f} of 6 client-rounds ({capped / 6:.0%})" in notes[1] and "lower --alpha_k" in notes[1]
    assert all(line in printed.splitlines() for line in notes)


def test_each_client_has_a_row_with_what_it_has_and_how_it_is_served(run: Callable, table: Table) -> None:
    _, folder = run("--method ditto")
    clients, last = pd.read_csv(folder / "clients.csv"), pd.read_csv(folder / "metrics.csv").iloc[-1]
    assigned = pd.read_csv(folder / "partition.csv")
    for client, images in assigned.groupby("user_id"):
        row, shares = clients.loc[client], images["cluster"].value_counts(normalize=True)
        assert (row["images"], row["share"]) == (len(images), pytest.approx(shares.max()))
        assert shares[table.class_names.index(row["group"])] == shares.max()
    for split in ("train", "local_test", "personal_train", "personal_local_test"):
        for metric in ("loss", "angle_mean"):
            assert clients[f"{split}_{metric}"].mean() == pytest.approx(last[f"{split}_{metric}_mean"])
            assert clients[f"{split}_{metric}"].max() == pytest.approx(last[f"{split}_{metric}_worst"])


def test_group_norm_can_replace_batch_norm(run: Callable) -> None:
    _, folder = run("--batch_norm group")
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["config"])["norm"] == "group"
        assert not any("running_mean" in name for name in file.keys())  # noqa: SIM118 - no mapping


def test_held_out_images_that_fall_to_nobody_are_said(run: Callable, own_copy: Path) -> None:
    rows = pd.read_csv(own_copy / TABLE_FILE)
    rows["part"] = np.where(rows["class"] == 0, "test", "train")  # of a class that no client trains on
    rows.to_csv(own_copy / TABLE_FILE, index=False)
    said = "no test image is in a group that clients train on: the values on client test are nan"
    printed, folder = run(f"--data_path {own_copy}")
    assert printed.count(said) == 1
    last = pd.read_csv(folder / "metrics.csv").iloc[-1]
    assert np.isnan(last["local_test_loss_mean"]) and np.isfinite(last["test_loss"])
    assert said not in run("")[0]


def test_a_model_without_batch_norm_has_none_to_keep(run: Callable) -> None:
    printed, _ = run("--batch_norm local", norm="group")
    assert printed.strip().startswith("error: --batch_norm local: the model has no batch norm")
