"""The benchmark of memory, made small: every client has a state, and what does not fit is on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import memory
from benchmarks.memory import federation_of, measure, server_state_kept


@pytest.mark.parametrize("method", ["scaffold", "fedamp"])
def test_states_are_those_that_clients_keep(tmp_path: Path, method: str) -> None:
    simulation = federation_of(method, 20, 1, tmp_path)
    assert len(list(tmp_path.glob("checkpoint/clients/*"))) == 19  # all but the one held last
    before = simulation.states.load(3)
    simulation.train()
    assert {name: tensor.shape for name, tensor in simulation.states.load(3).items()} == {
        name: tensor.shape for name, tensor in before.items()
    }
    assert all(len(simulation.states.load(client)) == len(before) for client in range(20))


def test_what_is_held_does_not_change_the_result() -> None:
    tight, roomy = (measure("scaffold", 20, bound) for bound in (1, 1 << 30))
    assert tight["loss"] == roomy["loss"]
    assert tight["states"] == 20 * 4 * 4876 and tight["peak"] > 1e8


def test_fedavg_keeps_nothing() -> None:
    assert server_state_kept("fedavg", {}) == {}


def test_table_compares_with_the_fewest_clients(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    losses = {1 << 40: 2.0}

    def found(method: str, n_clients: int, bound: int = memory.BOUND) -> dict[str, float]:
        return {"peak": 2**30 + n_clients * 2**20, "states": 0, "seconds": 1.0, "loss": losses.get(bound, 2.0)}

    monkeypatch.setattr(memory, "elsewhere", found)
    monkeypatch.setattr("sys.argv", ["memory", "--methods", "scaffold", "--clients", "10", "100"])
    memory.main()
    row = capsys.readouterr().out.splitlines()[-1]
    assert "+90" in row and f"{1124 / 1034:.3f}" in row
    losses[1 << 40] = 2.1
    with pytest.raises(AssertionError, match="scaffold: loss"):
        memory.main()
