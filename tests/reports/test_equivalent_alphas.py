"""Costs of finished runs beside the equivalent α of their partitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datasets.table import Table
from network.partition.assigning import Partition
from reports import equivalent_alphas
from reports.equivalent_alphas import by_split, costs, ranking
from reports.finished import Results
from tests.reports.finish import finish
from utils.errors import UserError


def finish_split(
    folder: Path,
    table: Table,
    kind: str,
    loss: float,
    client_of: np.ndarray,
    seed: int = 0,
    data: str = "one",
    **more: object,
) -> None:
    """A finished run of a partition of these clients, on this version of the data and with `more` arguments."""
    args = {"task": "class_scene", "method": "fedavg", "type": kind, "partition": "equal_size", "alpha": 0.5,
            "rand_seed": seed, "data_path": str(table.data_path),
            "assignment_files_path": f"clusters{seed}", **more}  # fmt: skip
    summary = {
        "last": {"train_loss_mean": loss, "test_loss": 2 * loss},
        "trivial": {"train": {"loss": 4.0}, "test": {"loss": 5.0}},
        "heterogeneity": {"target_variance_share": loss},
    }
    partition = Partition(client_of.astype(np.int32), np.zeros(len(table), np.int64), int(client_of.max()) + 1)
    partition.save(finish(folder, args, summary, environment={"data_version": data}))


def test_costs_are_over_the_iid_run_and_alphas_those_of_the_saved_clients(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = np.arange(len(table))
    clusters = {"clusters0": at // 2 % 2, "clusters1": table.labels}  # each run's own
    monkeypatch.setattr(equivalent_alphas, "read_assignments", lambda _task, _table, folder: clusters[str(folder)])
    for seed in (0, 1):
        finish_split(tmp_path, table, "iid", 1.0, at % 2, seed)
    finish_split(tmp_path, table, "class_based", 1.5, table.labels, 0)
    finish_split(tmp_path, table, "class_based", 1.2, table.labels, 1)
    finish_split(tmp_path, table, "class_based", 9.0, table.labels, 2)  # whose seed has no IID run
    found = costs(Results(tmp_path))
    assert found["type"].tolist() == ["class, α = 0.5"] * 2
    assert found["train_loss"].tolist() == found["test_loss"].tolist() == pytest.approx([50.0, 20.0])
    assert found["test_loss_iid"].tolist() == [2.0, 2.0] and found["test_loss_split"].tolist() == [3.0, 2.4]
    assert found["train_loss_constant"].tolist() == [4.0, 4.0]
    assert found["class"].tolist() == [0.0, 0.0] and found["cluster"][0] > 0.5 and found["cluster"][1] == 0
    assert found["target_variance_share"].tolist() == [1.5, 1.2]
    finish_split(tmp_path, table, "efficientnet_lite0_based", 1.4, table.labels, 0)  # clusters of these features
    finish_split(tmp_path, table, "building_based", 1.3, table.labels, 0)
    assert {*costs(Results(tmp_path))["type"]} == {"class, α = 0.5", "cluster, α = 0.5", "building, α = 0.5"}
    by_share = ranking(found).set_index("measure").loc["target share between clients"]
    assert by_share["rank correlation"] == "1.00" and by_share["runs"] == 2
    [row] = by_split(found).to_dict("records")
    assert row["seeds"] == 2 and row["target share between clients"] == "1.35"
    mean = 100 * (np.sqrt(1.5 * 1.2) - 1)  # of ratios, geometric
    assert [value.split(" [")[0] for name, value in row.items() if "over IID" in name] == [f"{mean:+.1f}"] * 2
    assert [value for name, value in row.items() if name.endswith("constant baseline")] == ["4.000", "5.000"]


def test_runs_are_paired_with_the_iid_run_of_their_settings_and_data(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = np.arange(len(table))
    monkeypatch.setattr(equivalent_alphas, "read_assignments", lambda *_: at // 2 % 2)
    for kind, client_of, factor in (("class_based", table.labels, 1.5), ("iid", at % 2, 1.0)):
        # The arguments of the partition differ, as the rule's do; a run without one that others have is a setting, too.
        own = {"partition": "iid", "alpha": 9} if kind == "iid" else {"clients_per_group": "1,1"}
        finish_split(tmp_path, table, kind, 1.0 * factor, client_of, init_lr=0.1, **own)
        finish_split(tmp_path, table, kind, 3.0 * factor, client_of, init_lr=0.01, **own)
        finish_split(tmp_path, table, kind, 7.0 * factor, client_of, n_clients=2, init_lr=0.1, **own)
        finish_split(tmp_path, table, kind, 5.0 * factor, client_of, data="another", seed=1, init_lr=0.1, **own)
    finish_split(tmp_path, table, "iid", 8.0, at % 2, data="one", seed=1, init_lr=0.1)  # newer, of other images
    assert costs(Results(tmp_path))["train_loss"].tolist() == pytest.approx([50.0] * 4)


def test_without_an_iid_run_nothing_can_be_compared(table: Table, tmp_path: Path) -> None:
    finish_split(tmp_path, table, "class_based", 1.5, table.labels)
    with pytest.raises(UserError, match="no finished run of a partition with an IID run of its seed"):
        costs(Results(tmp_path))
