"""Clients' states: memory, disk, checkpoints that a kill cannot mix up, and bounded memory for many clients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from network.engine.state import ClientStates, VersionLog, add_prefix, strip_prefix
from utils.errors import UserError

CPU = torch.device("cpu")
KILOBYTE = 256  # float32 values


def states(folder: Path, own: range | list[int] = range(8), memory: int = 1 << 20) -> ClientStates:
    return ClientStates(folder, own, 8, CPU, memory)


def state(value: float, size: int = KILOBYTE) -> dict[str, Tensor]:
    return {"own.weight": torch.full((size,), value), "lr": torch.tensor(value)}


def value_of(kept: ClientStates, client: int) -> float:
    loaded = kept.load(client)
    assert (loaded["own.weight"] == loaded["lr"]).all()
    return float(loaded["lr"])


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*")) if folder.is_dir() else []


def test_names_with_a_prefix() -> None:
    tensors = {"a.weight": torch.zeros(1), "b": torch.ones(1)}
    assert (
        strip_prefix("own", add_prefix("own", tensors) | {"other.b": torch.zeros(2), "ownb": torch.zeros(3)}) == tensors
    )


def test_a_client_without_state_costs_nothing(tmp_path: Path) -> None:
    kept = states(tmp_path / "clients")
    kept.save(3, {})
    assert 3 not in kept and kept.load(3) == {} and kept.checkpoint() == {} and not (tmp_path / "clients").exists()


def test_what_is_saved_is_a_copy(tmp_path: Path) -> None:
    kept, mine = states(tmp_path), state(1.0)
    kept.save(0, mine)
    mine["own.weight"].add_(5.0)
    assert value_of(kept, 0) == 1.0


def test_any_layout_comes_back_as_it_was(tmp_path: Path) -> None:
    image = torch.arange(48.0).view(1, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    kept = states(tmp_path)
    kept.save(0, {"map": image, "count": torch.tensor(7), "half": torch.ones(3, dtype=torch.bfloat16)})
    fresh = states(tmp_path)
    fresh.restore(kept.checkpoint())
    for name, tensor in kept.load(0).items():
        assert torch.equal(tensor, fresh.load(0)[name]) and tensor.dtype == fresh.load(0)[name].dtype
        assert tensor.stride() == fresh.load(0)[name].stride()  # so that a resumed run computes in the same order


def test_states_beyond_the_memory_lie_on_the_disk_and_come_back(tmp_path: Path) -> None:
    kept = states(tmp_path, memory=3 * 4 * KILOBYTE)
    for client in range(8):
        kept.save(client, state(client))
    assert len(files(tmp_path)) >= 5
    assert [value_of(kept, client) for client in range(8)] == list(range(8))
    kept.save(0, state(10.0))
    assert [value_of(kept, client) for client in (7, 0, 3)] == [7, 10, 3]


@given(
    st.lists(st.tuples(st.sampled_from(["save", "load", "checkpoint", "kill"]), st.integers(0, 7)), max_size=40),
    st.integers(1, 9),
)
@settings(deadline=None, max_examples=60)
def test_any_history_of_use_and_kills_goes_back_to_the_last_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, int]], n_held: int
) -> None:
    folder = tmp_path_factory.mktemp("states")
    kept = states(folder, memory=n_held * (4 * KILOBYTE + 4))
    truth: dict[int, float] = {}
    checkpoint: tuple[dict[int, int], dict[int, float]] = ({}, {})
    for moment, (what, client) in enumerate(history):
        if what == "save":
            truth[client] = float(moment)
            kept.save(client, state(moment))
        elif what == "load":
            assert (client in kept) == (client in truth)
            assert not kept.load(client) if client not in truth else value_of(kept, client) == truth[client]
        elif what == "checkpoint":
            checkpoint = (checkpoint[0] | kept.checkpoint(), dict(truth))
            if client % 2:  # killed after the checkpoint was written, before the old files were removed
                kept.forget_old()
        else:
            kept = states(folder, memory=n_held * (4 * KILOBYTE + 4))
            kept.restore(checkpoint[0])
            truth = dict(checkpoint[1])
            assert len(files(folder)) == len(truth)  # nothing of the interrupted round stays
    assert {client: value_of(kept, client) for client in range(8) if client in kept} == truth


def test_only_what_changed_is_written_and_old_files_go(tmp_path: Path) -> None:
    kept = states(tmp_path)
    for client in range(3):
        kept.save(client, state(client))
    assert kept.checkpoint() == {0: 0, 1: 0, 2: 0}
    kept.forget_old()
    kept.save(1, state(5.0))
    assert kept.checkpoint() == {1: 1}
    assert files(tmp_path) == [f"{name}.safetensors" for name in ("0-0", "1-0", "1-1", "2-0")]
    kept.forget_old()  # the checkpoint before the last still names it
    assert files(tmp_path) == [f"{name}.safetensors" for name in ("0-0", "1-0", "1-1", "2-0")]
    kept.checkpoint()
    kept.forget_old()
    assert files(tmp_path) == [f"{name}.safetensors" for name in ("0-0", "1-1", "2-0")]


def test_another_number_of_processes_takes_up_the_same_files(tmp_path: Path) -> None:
    halves = [states(tmp_path, own) for own in ([0, 1], [2, 3])]
    for kept in halves:
        for client in kept.of_process:
            kept.save(client, state(client))
    versions = halves[0].checkpoint() | halves[1].checkpoint()
    for name in ("3-9", ".3-9-k1ll3d"):
        (tmp_path / f"{name}.safetensors").write_bytes(b"left by a killed round")
    thirds = [states(tmp_path, own) for own in ([1], [0, 3], [2])]
    for kept in thirds:
        kept.restore(versions)
        assert [value_of(kept, client) for client in kept.of_process] == list(kept.of_process)
        assert all(other not in kept for other in set(range(4)) - set(kept.of_process))
    assert len(files(tmp_path)) == 4


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    kept = states(tmp_path)
    kept.save(5, state(1.0))
    versions = kept.checkpoint()
    (tmp_path / "5-0.safetensors").write_bytes(b"nonsense")
    fresh = states(tmp_path)
    fresh.restore(versions)
    with pytest.raises(UserError, match=r"5-0\.safetensors: cannot be read.*--resume_training"):
        fresh.load(5)
    (tmp_path / "5-0.safetensors").unlink()
    with pytest.raises(UserError, match=r"5-0\.safetensors: cannot be read"):
        states(tmp_path).check(versions)


@pytest.mark.parametrize("n_clients", [100, 400])
def test_memory_is_bounded_whatever_the_number_of_clients(tmp_path: Path, n_clients: int) -> None:
    bound = 20 * 4 * KILOBYTE
    kept = ClientStates(tmp_path, range(n_clients), n_clients, CPU, memory=bound)
    for client in range(n_clients):
        kept.save(client, state(client))
        assert sum(tensor.nbytes for held in kept._held.values() for tensor in held.values()) <= bound
    assert value_of(kept, 0) == 0.0


def test_a_round_costs_what_changed_in_it_whoever_has_a_state(tmp_path: Path) -> None:
    kept = ClientStates(tmp_path, range(400), 400, CPU)
    for client in range(200):
        kept.save(client, {"lr": torch.tensor(float(client))})
    assert len(kept.checkpoint()) == 200
    kept.forget_old()
    for round in range(1, 4):
        kept.save(round, {"lr": torch.tensor(-1.0)})
        kept.save(300 + round, {"lr": torch.tensor(-2.0)})
        kept.roll_back([300 + round])
        assert kept.checkpoint() == {round: round}
        kept.forget_old()
    assert len(files(tmp_path)) == 200 + 1  # the checkpoint before the last still names one that was replaced
    assert [value for value in range(1, 6) if kept.load(value)["lr"] == -1.0] == [1, 2, 3] and 301 not in kept


def test_old_files_of_a_resumed_run_go_in_time(tmp_path: Path) -> None:
    kept = states(tmp_path)
    kept.save(0, state(1.0))
    before = kept.checkpoint()
    kept.forget_old()
    kept.save(0, state(2.0))
    last = before | kept.checkpoint()
    fresh = states(tmp_path)
    fresh.restore(last, before)
    assert files(tmp_path) == ["0-0.safetensors", "0-1.safetensors"] and value_of(fresh, 0) == 2.0
    fresh.checkpoint()
    fresh.forget_old()
    assert files(tmp_path) == ["0-1.safetensors"]


def test_versions_are_noted_behind_those_of_the_checkpoint_before(tmp_path: Path) -> None:
    log = VersionLog(tmp_path / "checkpoint" / "clients.versions")
    assert log.add({}) == 0 and not log._path.exists() and log.read(0) == {}  # nobody keeps anything
    first, second = log.add({3: 0, 10**6: 0}), log.add({3: 1})
    assert (first, second) == (2, 3) and log._path.stat().st_size == 3 * 16
    assert log.read(first) == {3: 0, 10**6: 0} and log.read(second) == {3: 1, 10**6: 0}
    resumed = VersionLog(log._path)
    resumed.go_on(first)  # the second checkpoint was broken, or never written
    assert resumed.add({5: 1}) == 3 and resumed.read(3) == {3: 0, 10**6: 0, 5: 1}
    with pytest.raises(UserError, match=r"clients\.versions: is too short .*--resume_training"):
        resumed.read(4)
    log._path.unlink()
    with pytest.raises(UserError, match=r"clients\.versions: cannot be read"):
        resumed.read(3)


def test_a_checkpoint_that_has_the_versions_itself_is_taken_up(tmp_path: Path) -> None:
    log = VersionLog(tmp_path / "clients.versions")
    assert log.read({"4": 2, "7": 0}) == {4: 2, 7: 0}
    log.go_on({"4": 2, "7": 0})
    assert log.add({4: 3}) == 2 and log.read(2) == {4: 3, 7: 0}
