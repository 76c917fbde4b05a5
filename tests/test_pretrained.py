"""Weights from a file through the stages: every run says from which file its model and its features are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import timm
import torch

from utils.versions import file_digest


def test_a_file_of_weights_is_named_by_every_run(
    rendered: Path, tmp_path: Path, run_script: Callable[[str], CompletedProcess]
) -> None:
    shutil.copytree(rendered, tmp_path / "data")
    torch.manual_seed(4)
    torch.save({"state_dict": timm.create_model("test_vit").state_dict()}, tmp_path / "own.pth")
    about = {
        "file": "own.pth",
        "bytes": (tmp_path / "own.pth").stat().st_size,
        "sha256": file_digest(tmp_path / "own.pth"),
    }
    run_script("extract_datapoints_for_experiments.py --client_file_name rooms.csv --data_path data")
    network = "timm:test_vit --encoder_weights own.pth"
    made = run_script(f"model_initialization.py --task normal --image_size 32 --encoder {network}").stdout
    assert "tensors of the encoder are from own.pth" in made
    (tmp_path / "own.pth").rename(tmp_path / "moved.pth")  # later stages do not read it
    run_script("test_fed.py --task normal --n_rounds 1 --n_clients 2 --alpha 1 --type iid --test_mode True")
    network = "timm:test_vit --encoder_weights moved.pth"
    run_script(f"extract_embeddings.py --task normal --n_clusters 2 --keep_embeddings True --features {network}")
    run_script(f"extract_diffusion_features.py --diffusion_size 32 --features {network}")

    runs = sorted((tmp_path / "results").rglob("environment.json"))
    said = {run.relative_to(tmp_path / "results").parts[0]: json.loads(run.read_text()) for run in runs}
    assert said["test_federated"]["encoder_weights"] == said["extract_embeddings"]["encoder_weights"] == about
    for stage in ("extract_embeddings", "extract_diffusion_features"):
        assert said[stage]["inputs"]["../moved.pth"] == about["sha256"]
    teacher = json.loads((tmp_path / "guidance/guidance.json").read_text())["weights"]
    [noted] = (tmp_path / "results").rglob("embeddings.filled.json")
    assert teacher in noted.read_text() and len(teacher) == 64
    [found] = (tmp_path / "results").rglob("embeddings.npy")
    assert np.load(found).shape[1] == 64
