"""FedProx on quadratics: two rounds by hand, and FedAvg as its limit."""

from __future__ import annotations

from pathlib import Path

from network.algorithms.fedavg import FedAvg
from network.algorithms.fedprox import FedProx
from tests.network import quadratic as q


def test_two_rounds_by_hand(tmp_path: Path) -> None:
    x = q.START
    for _ in range(2):
        x = q.average([q.descend(x, client, more=lambda y, x=x: 0.7 * (y - x)) for client in range(2)])
    assert q.close(q.server_of(q.trained(q.method("fedprox", mu=0.7), tmp_path)), x)


def test_without_its_term_it_is_fedavg_to_the_last_bit(tmp_path: Path) -> None:
    plain, without = (
        q.server_of(q.trained(each, tmp_path / type(each).__name__)) for each in (FedAvg(), FedProx(mu=0.0))
    )
    assert (plain == without).all()
