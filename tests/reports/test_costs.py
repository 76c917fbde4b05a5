"""The table of costs and the figure of memory, from made-up run directories with known values."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from matplotlib.figure import Figure

from reports.costs import costs_table, memory_by_batch, read_costs
from reports.finished import Results
from tests.reports.figures.pictures import line_of
from tests.reports.finish import finish

SEEDS = count()


def write(folder: Path, stage: str, args: dict, costs: dict | None) -> None:
    about = {"task": "normal", "rand_seed": next(SEEDS), "encoder": "tiny", "decoder": "taskonomy", "image_size": 32}
    about |= {"batch_size": 16, "train": "all"} | args
    finish(folder, about, {"costs": costs} if costs else {}, stage=stage)


def costs(device: str = "cpu", memory: int = 300, **more: float) -> dict:
    base = {"parameters": 2_000_000, "parameters_trained": 500_000, "forward_macs": 7_500_000}
    return {**base, "peak_memory": memory * 2**20, "device": device, "seconds": 2.0, **more}


def test_means_over_runs_of_a_setting(tmp_path: Path) -> None:
    write(tmp_path, "train_centralized", {}, costs())
    for seconds in (1.0, 3.0):
        traffic = {"parameters_sent": 250_000, "bytes_up": 1_000_000, "bytes_down": 2_000_000, "seconds": seconds}
        write(tmp_path, "test_federated", {"method": "scaffold", "type": "iid"}, costs(**traffic))
    write(tmp_path, "test_federated", {"method": "fedavg", "type": "iid"}, None)  # made before costs were noted
    table = costs_table(read_costs(Results(tmp_path)))
    assert list(table["method"]) == ["central", "scaffold"] and list(table["runs"]) == [1, 2]
    assert "device" not in table
    central, federated = table.to_dict("records")
    assert central["sent, 10⁶"] == central["MB up per client and round"] == ""
    assert central["s per round or epoch"] == federated["s per round or epoch"] == "2"  # of 1 and 3
    assert [federated[name] for name in ("parameters, 10⁶", "trained, 10⁶", "sent, 10⁶")] == ["2", "0.5", "0.25"]
    assert (federated["MB up per client and round"], federated["MB down"]) == ("1", "2")
    assert (federated["forward MACs per image, 10⁶"], federated["peak memory, MiB"]) == ("7.5", "300")


def test_other_networks_and_workloads_stand_apart(tmp_path: Path) -> None:
    for rank, sent in ((4, 100_000), (8, 200_000)):
        for split in ("iid", "class_based"):
            args = {"method": "fedavg", "type": split, "lora_rank": rank, "train": "lora"}
            write(tmp_path, "test_federated", args, costs(parameters_sent=sent))
    table = costs_table(read_costs(Results(tmp_path)))
    assert table[["lora_rank", "runs", "sent, 10⁶"]].to_numpy().tolist() == [["4", 2, "0.1"], ["8", 2, "0.2"]]
    assert "type" not in table


def test_memory_is_drawn_where_a_gpu_had_several_batch_sizes(tmp_path: Path) -> None:
    for size, memory in ((16, 400), (32, 700)):
        write(tmp_path, "test_federated", {"method": "fedavg", "batch_size": size}, costs("cpu", memory))
    assert memory_by_batch(read_costs(Results(tmp_path)), tmp_path / "memory.png") is None
    for size, memory in ((16, 400), (32, 700), (64, 1300)):
        write(tmp_path, "test_federated", {"method": "fedavg", "batch_size": size}, costs("NVIDIA H200", memory))
    table = read_costs(Results(tmp_path))
    assert len(costs_table(table)) == 5 and "device" in costs_table(table)
    assert memory_by_batch(table, tmp_path / "memory.png") == tmp_path / "memory.png"
    assert (tmp_path / "memory.png").stat().st_size > 1000


def test_memory_is_the_mean_over_the_runs_of_a_size(tmp_path: Path, drawn: list[Figure]) -> None:
    for size, memory in ((32, 700), (16, 400), (16, 600)):
        write(tmp_path, "test_federated", {"method": "fedavg", "batch_size": size}, costs("NVIDIA H200", memory))
    memory_by_batch(read_costs(Results(tmp_path)), tmp_path / "memory.png")
    [axes] = drawn[0].axes
    assert line_of(axes, "Surface normals, FedAvg: tiny, taskonomy, 32 px") == [[16, 32], [500, 700]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("batch size", "peak memory, MiB")


def test_nothing_without_runs(tmp_path: Path) -> None:
    assert read_costs(Results(tmp_path)).empty
