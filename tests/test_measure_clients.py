"""`measure_clients.py` on files and on a saved partition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from network.partition.assigning import read_partition


def test_two_files_are_enough(run_here: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "clients.npy", np.repeat([f"hospital {i}" for i in range(10)], 50))
    mixtures = rng.dirichlet(np.full(4, 0.25), 10)
    np.save(tmp_path / "labels.npy", np.concatenate([rng.choice(4, 50, p=p) for p in mixtures]))
    np.save(tmp_path / "random.npy", rng.integers(0, 4, 500))
    run_here("measure_clients.py --clients clients.npy --groups class=labels.npy random.npy --output_path out")
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 120
    first, second, where = printed.strip().replace("\n  ", " ").splitlines()
    assert first.startswith("class: α = ") and second.startswith("random: ") and where == "tables and figure in out"
    table = pd.read_csv(tmp_path / "out" / "equivalent_alpha.csv").set_index("grouping")
    assert table.loc["class", "low"] < 1 < table.loc["class", "high"] < table.loc["random", "low"]
    assert (tmp_path / "out" / "equivalent_alpha.png").is_file()
    run_here("make_partition.py --labels labels.npy --partition equal_size --n_clients 5 --output_path saved")
    run_here("measure_clients.py --partition_file saved --output_path again --simulate True")
    again = pd.read_csv(tmp_path / "again" / "equivalent_alpha.csv")
    assert again["grouping"].tolist() == ["assigned groups"] and again["clients"].tolist() == [5]
    run_here("make_partition.py --labels labels.npy @again/simulate_assigned_groups.txt --output_path simulated")
    assert read_partition(tmp_path / "simulated").n_clients == 5
