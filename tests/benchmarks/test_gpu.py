"""The measurements on a GPU, tried at a small size on the CPU: what is found is kept, whatever becomes of the rest."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pandas as pd
import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import PIECES, Piece, measures, run
from benchmarks.on_gpu import against_cpu, programs
from benchmarks.on_gpu.against_cpu import SMALL, Ends, losses_off, waits_for
from benchmarks.on_gpu.measures import Measure, NotHere, Result, Results, Setup
from benchmarks.on_gpu.waiting import nothing_waits
from benchmarks.processes import end, forked
from losses import LOSSES
from tests.conftest import ROOT
from utils.errors import UserError


def test_the_trial_of_the_command_passes_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, available = os.getpid(), torch.cuda.is_available

    def only_in_forks() -> bool:
        assert os.getpid() != parent, "a process that has used a GPU cannot be forked"
        return available()

    monkeypatch.setattr(torch.cuda, "is_available", only_in_forks)
    monkeypatch.setattr("sys.argv", f"gpu --minutes 60 --device cpu --small --output_path {tmp_path}".split())
    gpu.main()
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    tried = [name for name, piece in PIECES.items() if not piece.is_large]
    assert [line["piece"] for line in lines if line.get("outcome") == "done"] == tried
    assert lines[0]["machine"]["torch"] == torch.__version__
    found = {line["measure"]: line["value"] for line in lines if "measure" in line}
    # On the CPU both sides are the same; TF32, CUDA graphs and a GPU's memory there are none.
    assert found["tiny, single precision: losses off the CPU's"] == 0
    assert found["clip_vit_b32: a round repeated, deterministic"] == "equal to the bit"
    assert len(found) >= 30 and not [name for name in found if "TF32" in name or "graph" in name or "GiB" in name]
    table = (tmp_path / "rows.md").read_text().splitlines()[2:]
    assert [row.split(" | ")[0] for row in table] == [f"| {row.name}" for row in measures()]
    assert {row.split(" | ")[0][2:] for row in table if not row.endswith("| – |")} == found.keys()
    gpu.main()  # again: nothing is left
    again = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [*again[len(lines) :]] == [lines[0]]


def test_the_page_has_a_row_for_each_measurement() -> None:
    page = (ROOT / "docs/speed_and_many_machines.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[:2] for line in page.splitlines() if line.startswith("| ")]
    assert [row for row in rows if row[0][2:] in {each.name for each in measures()}] == [
        [f"| {each.name}", each.goal] for each in measures()
    ]


def found_then(end: Callable[[], None]) -> Callable[[Setup], Iterator[Result]]:
    """A piece that measures something, and then does that."""

    def piece(_: Setup) -> Iterator[Result]:
        yield Result("speed", 2.0)
        end()

    return piece


def fails() -> None:
    raise ValueError("no such kernel")


def not_here() -> None:
    raise NotHere("there is one GPU")


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (lambda: None, "done"),
        (fails, "failed: ValueError('no such kernel')"),
        (not_here, "left out: there is one GPU"),
        (lambda: os.kill(os.getpid(), 9), "failed: it ended with -9"),
    ],
)
def test_what_a_piece_has_measured_outlives_it(
    end: Callable[[], None], outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "PIECES", {"first": Piece(found_then(end)), "second": Piece(found_then(lambda: None))})
    results = Results(tmp_path, [Measure("speed", ".1f", least=3.0)])
    setup = Setup("cpu", True, tmp_path)
    assert run(["first"], setup, results, 1.0) == {"first": outcome}
    assert [line["value"] for line in results.lines() if "measure" in line] == [2.0]
    assert (tmp_path / "rows.md").read_text().splitlines()[-1] == "| speed | at least 3 | 2.0 (missed) |"
    assert run(["second"], setup, results, 1.0) == {"second": "done"}
    assert results.done() == {"second"} | ({"first"} if outcome == "done" else set())


def hangs(child: Path) -> None:
    """Never end, with a process of its own that says which it is."""
    if not os.fork():
        child.with_suffix(".tmp").write_text(str(os.getpid()))
        child.with_suffix(".tmp").rename(child)
    time.sleep(1e6)


def test_what_is_cut_off_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    process = forked(hangs, tmp_path / "child")
    while not (tmp_path / "child").exists():
        time.sleep(0.01)
    end(process)
    assert process.exitcode == -signal.SIGKILL
    stat = Path("/proc", (tmp_path / "child").read_text(), "stat")
    while stat.exists() and stat.read_text().split()[2] != "Z":  # killed, and gone in a moment
        time.sleep(0.01)


def test_a_piece_ends_with_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Piece(lambda _: time.sleep(1e6))
    monkeypatch.setattr(gpu, "PIECES", {"waits": waits, "next": waits})
    results = Results(tmp_path, [])
    outcomes = run(["waits", "next"], Setup("cpu", True, tmp_path), results, 0.002)
    assert outcomes == {"waits": "cut off: time was up", "next": "not begun: time was up"}
    assert [line["outcome"] for line in results.lines()] == ["cut off: time was up"] and not results.done()


def test_where_there_is_no_gpu_the_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu", "--output_path", str(tmp_path / "gpu")])
    with pytest.raises(UserError, match="no GPU here; try the command itself by --device cpu --small"):
        gpu.main()
    assert not (tmp_path / "gpu").exists()


def test_a_line_that_a_kill_has_cut_off_does_not_count(tmp_path: Path) -> None:
    results = Results(tmp_path, [Measure("speed", ".1f")])
    results.add("first", Result("speed", 2.0))
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"piece": "second", "meas')
    assert [line["value"] for line in results.lines()] == [2.0]
    assert results.table().endswith("| speed |  | 2.0 |")


# What a GPU computes otherwise is found


def test_other_losses_and_weights_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = against_cpu.a_round(SMALL["tiny"], "cpu")
    assert set(expected.losses) == {"local_loss", "train_loss_mean", "test_loss"}
    name = max(expected.weights, key=lambda key: abs(expected.weights[key] - expected.start[key]).sum())
    # Half of one tensor's way is missing.
    half = expected.weights | {name: (expected.weights[name] + expected.start[name]) / 2}
    losses = expected.losses | {"test_loss": expected.losses["test_loss"] * 1.25}
    other = Ends(losses, expected.start, half)
    assert losses_off(other, expected) == pytest.approx(0.25)
    monkeypatch.setattr(against_cpu, "elsewhere", lambda function, *about: expected)
    monkeypatch.setattr(against_cpu, "a_round", lambda *about: other)
    found = {each.name: each.value for each in islice(against_cpu.measure("tiny", Setup("cpu", True, tmp_path)), 2)}
    rows = {row.name: row for row in measures()}
    wrong = [name for name, value in found.items() if rows[name].met(value) is False]
    assert wrong == [
        "tiny, single precision: losses off the CPU's",
        "tiny, single precision: weights off, of the way",
    ]


def test_a_number_that_training_waits_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    of_examples = LOSSES["l1"]
    monkeypatch.setitem(LOSSES, "l1", lambda *maps: of_examples(*maps) / maps[0].abs().max().item())
    assert waits_for(SMALL["tiny"], torch.device("cpu")) == "_local_scalar_dense waits for the device"


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: torch.equal(x, x),
        lambda x: x.unique(),
    ],
)
def test_what_the_host_must_know_waits(wait: Callable[[torch.Tensor], object]) -> None:
    x = torch.arange(4.0)
    with nothing_waits(torch.device("cpu")):
        assert len(x.where(x > 0, 0).mul(2)[torch.tensor([1, 2])]) == 2  # this does not
        with pytest.raises(RuntimeError, match="waits for the device"):
            wait(x)


def test_verdicts_are_read_from_the_table_of_all() -> None:
    columns = ["task", "data", "embedding over class, %", "loss under the embedding partition (margin ±2 %)"]
    rows = [
        ["depth_euclidean", "global test", "+1.9 [-0.5, +4.4]", "inconclusive"],
        ["depth_euclidean", "client train", "+17.9 [+7.4, +29.5]", "higher"],
        ["class_scene", "client train", "+1.0 [-2.0, +4.0]", "inconclusive"],
        ["2 dense tasks", "client train", "+20.0 [+9.0, +31.0]", "higher"],
    ]
    found = {each.name: each.value for each in programs.of_table(pd.DataFrame(rows, columns=columns))}
    assert found == {
        "the comparison at 64 px, depth_euclidean": "higher, +17.9 [+7.4, +29.5] %",
        "the comparison at 64 px, class_scene": "inconclusive, +1.0 [-2.0, +4.0] %",
    }
    goals = {row.name: row for row in programs.comparison_measures()}
    assert [goals[name].met(value) for name, value in found.items()] == [True, False]
