"""FedAvg on quadratics: two rounds by hand, its known bias, and sampling of clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from network.algorithms.fedavg import FedAvg
from network.engine.client import ClientContext
from network.partition.client_images import ClientImages
from network.sampling import ClientSampling
from network.settings import resolve_local_work
from tests.network import quadratic as q
from utils.errors import UserError


def test_two_rounds_by_hand(tmp_path: Path) -> None:
    federation = q.trained(q.method("fedavg"), tmp_path)
    x = q.START
    for _ in range(2):
        x = q.average([q.descend(x, 0), q.descend(x, 1)])
    assert q.close(q.server_of(federation), x)
    row = federation.rows[-1]
    own = [q.loss(x, images) for images in q.CLIENTS]
    assert row["train_loss_mean"] == pytest.approx(np.mean(own), rel=1e-5)
    assert row["train_loss_std"] == pytest.approx(np.std(own), rel=1e-5)
    assert row["local_test_loss_worst"] == pytest.approx(max(q.loss(x, np.arange(8, 10)), q.loss(x, [10])), rel=1e-5)
    assert row["test_loss"] == pytest.approx(q.loss(x, np.arange(8, 11)), rel=1e-5)
    assert not any(name.startswith("personal") for name in row)


@pytest.mark.parametrize("momentum, decay", [(0.9, 0.0), (0.0, 0.1), (0.5, 0.05)])
def test_local_momentum_and_weight_decay(tmp_path: Path, momentum: float, decay: float) -> None:
    settings = replace(q.SETTINGS, momentum=momentum, weight_decay=decay)
    x = q.START
    for _ in range(2):
        ends = []
        for client in range(2):
            y, v = x, 0.0
            for _ in range(3):
                v = momentum * v + q.gradient(y, client) + decay * y
                y = y - q.LR * v
            ends.append(y)
        x = q.average(ends)
    assert q.close(q.server_of(q.trained(q.method("fedavg"), tmp_path, settings)), x)


def test_local_adam(tmp_path: Path) -> None:
    ends = []
    for client in range(2):
        y, m, v = q.START, 0.0, 0.0
        for step in range(1, 4):
            g = q.gradient(y, client)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            y = y - q.LR * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        ends.append(y)
    settings = replace(q.SETTINGS, use_adam=True, n_rounds=1)
    assert q.close(q.server_of(q.trained(q.method("fedavg"), tmp_path, settings)), q.average(ends), 1e-4)


def test_local_epochs_give_larger_clients_more_steps(tmp_path: Path) -> None:
    # Three epochs of n images in batches of 3 are n steps.
    settings = replace(q.SETTINGS, batch_size=3, local_epochs=3, sgd_per_epoch=99)
    assert [settings.steps(n) for n in (1, 3, 4, 5, 8)] == [3, 3, 4, 5, 8]
    taken: dict[int, int] = {}

    class Counting(FedAvg):
        def correct(self, gradients: list, local: ClientContext) -> None:
            taken[local.client] = taken.get(local.client, 0) + 1

    q.trained(Counting(), tmp_path, replace(settings, n_rounds=1))
    assert taken == {0: 3, 1: 5}


def test_virtual_clients_of_all_of_equal_clients_are_the_clients_to_the_bit(tmp_path: Path) -> None:
    settings = replace(q.SETTINGS, batch_size=2, local_epochs=1, n_rounds=4)
    more = {"clients": [np.array([0, 3, 5, 6]), np.array([1, 2, 4, 7])], "vectorised_clients": 2}
    plain = q.trained(q.method("fedavg"), tmp_path / "plain", settings, **more)
    more |= {"virtual_client_size": 4}
    virtual = q.trained(q.method("fedavg"), tmp_path / "virtual", replace(settings, local_epochs=None), **more)
    assert virtual.config.sampling.client_sampling == "systematic"
    assert (q.server_of(plain) == q.server_of(virtual)).all() and not (q.server_of(plain) == q.START).any()


def test_virtual_clients_are_subsets_or_draws_with_replacement_of_whole_batches() -> None:
    clients = ClientImages.of([np.arange(10, 70), np.arange(100, 103), np.arange(200, 208)])
    sampling = ClientSampling(virtual_client_size=8, clients_per_round=3)
    settings, drawn = replace(q.SETTINGS, batch_size=4, local_epochs=5, sgd_per_epoch=99), []
    for seed in range(200):
        cohort = sampling.cohort(clients, settings, np.random.default_rng(seed))
        assert {each.n_steps for each in cohort.values()} == {2} and {len(each.images) for each in cohort.values()} == {
            8
        }
        assert all(np.isin(each.images, clients[i]).all() for i, each in cohort.items())
        assert cohort[0].weight == 71 / 3 * (3 if len(cohort) == 1 else 2)
        assert cohort[0].client_fraction == 60 / 71 and len(set(cohort[0].images)) == 8
        drawn += cohort[0].images.tolist()
        if 2 in cohort:
            assert cohort[2].images.tolist() == clients[2].tolist()
    # Each of the sixty images with the same chance: 1600 / 60 = 26.7 times, with a variance a little below that.
    counts = np.bincount(drawn, minlength=70)[10:]
    assert len(counts) == 60 and ((counts - 1600 / 60) ** 2).mean() < 2 * 1600 / 60


def test_virtual_clients_have_whole_batches_and_no_other_local_work() -> None:
    with pytest.raises(UserError, match="--virtual_client_size 100 is not a multiple of --batch_size 64"):
        ClientSampling(virtual_client_size=100).check_batches(64)
    for given in ({"sgd_per_epoch": 5}, {"local_epochs": 1}):
        work = dict.fromkeys(("sgd_per_epoch", "epoch_per_round", "local_epochs")) | given
        with pytest.raises(UserError, match=f"--virtual_client_size takes the place of --{next(iter(given))}; omit"):
            resolve_local_work(work | {"virtual_client_size": 64})


def test_heterogeneous_clients_bias_the_fixed_point(tmp_path: Path) -> None:
    end = q.long_run(q.method("fedavg"), tmp_path, 100, replace(q.SETTINGS, sgd_per_epoch=5))
    # The fixed point of x = sum_i p_i (T_i^K x): each T_i is affine, so that it is found by solving for it.
    basis = np.eye(10).reshape(10, 2, 5)
    at_zero = q.average([q.descend(np.zeros((2, 5)), i, 5) for i in range(2)])
    matrix = np.stack([(q.average([q.descend(e, i, 5) for i in range(2)]) - at_zero).ravel() for e in basis], axis=1)
    fixed = np.linalg.solve(np.eye(10) - matrix, at_zero.ravel()).reshape(2, 5)
    assert q.close(end, fixed, 1e-3)
    assert np.abs(end - q.optimum()).max() > 0.05


def test_one_step_a_round_is_gradient_descent_to_the_optimum(tmp_path: Path) -> None:
    end = q.long_run(q.method("fedavg"), tmp_path, 100, replace(q.SETTINGS, sgd_per_epoch=1, init_lr=1.0))
    assert q.close(end, q.optimum(), 1e-3)


def test_sampling_by_size_is_an_unbiased_mean(tmp_path: Path) -> None:
    ends = np.stack([q.descend(q.START, 0), q.descend(q.START, 1)])
    settings = replace(q.SETTINGS, n_rounds=1)
    seen = []
    for seed in range(60):
        more = {"clients_per_round": 1, "client_sampling": "size", "rand_seed": seed}
        seen.append(q.server_of(q.trained(q.method("fedavg"), tmp_path / str(seed), settings, **more)))
        assert any(q.close(seen[-1], end) for end in ends)  # one client is the whole round
    first = np.mean([q.close(x, ends[0]) for x in seen])
    # A share of 3/8 in 60 draws has a standard deviation of sqrt(3/8 * 5/8 / 60) = 0.0625.
    assert abs(first - q.SHARES[0]) < 3 * 0.0625
