"""FedDifRC's stages as a user runs them: a teacher's vectors, a federation that they guide, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

CPU = "--use_accelerator False"
FED = (
    "test_fed.py --task class_scene --type class_based --n_clients 3 --n_rounds 1 --sgd_per_epoch 2 --batch_size 4 "
    "--allow_unassigned 1 "
    f"--method feddifrc --plot_distribution False {CPU}"
)


@pytest.fixture
def ready(own_copy: Path, run_here: Callable, tmp_path: Path) -> Callable[[str], None]:
    """A working folder with an initial model; runs a script on its images."""
    run_here(f"model_initialization.py --task class_scene --image_size 16 --data_path {own_copy}")
    return lambda command: run_here(f"{command} --data_path {own_copy}")


def run_of(folder: Path) -> Path:
    return max(folder.rglob("test_federated/**/summary.json"), key=lambda path: path.stat().st_mtime_ns).parent


def test_a_diffusion_model_guides_with_and_without_condition(
    ready: Callable, tiny_diffusion: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    teach = f"extract_diffusion_features.py --diffusion_model {tiny_diffusion} --diffusion_size 32 {CPU}"
    ready(f"{teach} --n_negatives 2")
    assert "cosine of own and right text" in capsys.readouterr().out
    assert np.load(tmp_path / "guidance/features.npy").shape == (72, 4, 56)
    losses = []
    for more in ("", "--condition round", "--guidance shuffled"):
        ready(f"{FED} {more}")
        losses.append(pd.read_csv(run_of(tmp_path) / "metrics.csv")["train_loss_mean"].iloc[-1])
    assert np.isfinite(losses).all() and len(set(losses)) == 3
    ready(f"{teach} --prompts neutral --n_negatives 2 --guidance_path neutral")
    ready(f"{FED} --guidance_path neutral --task_weight 0")
    about = json.loads((tmp_path / "neutral/guidance.json").read_text())
    assert about["texts"][0] == "a photo of a similar object" and len(about["texts"]) == 4


def test_any_network_guides_by_class_means(ready: Callable, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    ready(f"extract_diffusion_features.py --features image --diffusion_size 16 {CPU}")
    ready(f"{FED} --contrast classes")
    ready(f"{FED} --contrast groups")
    with pytest.raises(SystemExit):
        ready(FED)
    assert "--contrast texts: guidance or the images have no texts" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        ready(f"extract_diffusion_features.py --features image --diffusion_size 32 {CPU}")
    assert "made with --diffusion_size 16; give another --guidance_path" in capsys.readouterr().err
    # A run does not go on with another teacher's vectors.
    shutil.rmtree(tmp_path / "guidance")
    ready(f"extract_diffusion_features.py --features image --diffusion_size 32 {CPU}")
    with pytest.raises(SystemExit):
        ready(f"{FED} --contrast groups --resume_training True")
    assert "another inputs" in capsys.readouterr().err
