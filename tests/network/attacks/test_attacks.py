"""What attackers send, against NumPy, and the federation with them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from scipy.stats import norm

from network.aggregation.mean import Mean
from network.aggregation.weighted_sum import Surroundings
from network.algorithms.fedavg import FedAvg
from network.attacks import ATTACKS
from network.attacks.alie import z_max
from network.attacks.attackers import AttackedUploads
from network.engine.simulation import Simulation
from network.settings import PrivacySettings
from tests.network import quadratic as q
from tests.network.spread import FOUR, FOUR_HELD_OUT
from utils.errors import UserError

WEIGHTS = [1.0, 3.0, 2.0, 4.0]


def received(
    name: str,
    attackers: set[int],
    present: tuple[int, ...] = (0, 1, 2, 3),
    folder: Path = Path(),
    memory: int = 1 << 30,
    **arguments: object,
) -> np.ndarray:
    """What the server's model becomes, as its change (6,), where client i changes it by row i of `changes`."""
    within = Surroundings(Accelerator(cpu=True), buffers=("b",), reported=("loss",), folder=folder, memory=memory)
    attack = ATTACKS[name](**arguments)
    uploads = AttackedUploads(Mean().uploads(within), attack, attackers, within, seed=3)
    server = {"w": torch.full((6,), 2.0), "b": torch.ones(1)}
    uploads.clear(server, 5)
    for client in present:
        w = server["w"] + torch.from_numpy(changes()[client])
        uploads.add({"w": w, "b": torch.tensor([10.0]), "loss": torch.tensor(float(client))}, WEIGHTS[client], client)
    mean = uploads.mean(sum(WEIGHTS[client] for client in present))
    assert float(mean["b"]) == 10.0  # buffers pass
    honest = [client for client in present if client not in attackers] or list(present)
    assert float(mean["loss"]) == pytest.approx(np.average(honest, weights=[WEIGHTS[i] for i in honest]))
    return (mean["w"] - 2.0).numpy()


def changes() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)


def mean_with(sent: dict[int, np.ndarray]) -> np.ndarray:
    """The weighted mean where these clients send these changes, and the others their own."""
    return np.average([sent.get(i, changes()[i]) for i in range(4)], axis=0, weights=WEIGHTS)


def test_sign_flip_sends_the_opposite() -> None:
    for scale in (1.0, 4.0):
        found = received("sign_flip", {2}, attack_scale=scale)
        assert np.allclose(found, mean_with({2: -scale * changes()[2]}), atol=1e-6)


def test_noise_is_as_long_as_the_change_and_the_same_for_a_seed() -> None:
    found = received("gaussian", {1})
    sent = (found * sum(WEIGHTS) - sum(WEIGHTS[i] * changes()[i] for i in (0, 2, 3))) / WEIGHTS[1]
    assert np.linalg.norm(sent) == pytest.approx(np.linalg.norm(changes()[1]), rel=1e-4)
    assert abs(sent @ changes()[1]) < 0.99 * np.linalg.norm(sent) ** 2
    assert (received("gaussian", {1}) == found).all()


def test_alie_and_ipm_know_all_honest_uploads() -> None:
    honest = changes()[[0, 3]].astype(float)
    for z in (1.5, -0.5):
        sent = honest.mean(axis=0) - z * honest.std(axis=0)
        assert np.allclose(received("alie", {1, 2}, alie_z=z), mean_with({1: sent, 2: sent}), atol=1e-5)
    sent = -0.7 * honest.mean(axis=0)
    assert np.allclose(received("ipm", {1, 2}, ipm_epsilon=0.7), mean_with({1: sent, 2: sent}), atol=1e-5)


@pytest.mark.parametrize("name", ["alie", "ipm"])
def test_with_no_honest_client_in_a_round_there_is_nobody_to_hide_behind(name: str) -> None:
    found = received(name, {1, 2}, present=(1, 2))
    assert np.allclose(found, np.average(changes()[[1, 2]], axis=0, weights=[3.0, 2.0]), atol=1e-6)


@pytest.mark.parametrize("name", ["alie", "ipm"])
@pytest.mark.parametrize("present", [(0, 1, 2, 3), (1, 2)])
def test_uploads_that_wait_beyond_the_memory_come_from_the_disk_to_the_bit(
    tmp_path: Path, name: str, present: tuple[int, ...]
) -> None:
    plain = received(name, {1, 2}, present)
    for memory in (0, 8 * 4):  # no upload, or one of the six weights, a buffer and a loss
        assert (received(name, {1, 2}, present, tmp_path / "disk", memory) == plain).all()
        (tmp_path / "file").touch()
        with pytest.raises(UserError, match="cannot keep a round's uploads"):
            received(name, {1, 2}, present, tmp_path / "file" / "none", memory)


def test_z_is_the_papers() -> None:
    # n = 50, m = 24: s = 26 - 24 = 2 of 26 honest clients are needed, so z is the quantile 24 / 26.
    assert z_max(26, 24) == pytest.approx(norm.ppf(24 / 26))
    assert z_max(8, 2) == pytest.approx(0.0) and z_max(3, 7) == 0.0


def test_attackers_are_drawn_by_the_seed() -> None:
    drawn = [ATTACKS["ipm"](attackers=given).draw(10, seed) for given, seed in ((0.2, 1), (2.0, 1), (0.2, 2))]
    assert drawn[0] == drawn[1] != drawn[2] and len(drawn[0]) == 2 and drawn[0] < set(range(10))


@pytest.mark.parametrize("attackers", [0.0, 0.01, 4.0, 0.9])
def test_somebody_must_attack_and_somebody_be_honest(attackers: float) -> None:
    with pytest.raises(UserError, match=f"--attackers {attackers:g} of 4 clients: give a share or number"):
        ATTACKS["sign_flip"](attackers=attackers).check(q.QuadraticData.task, 4)


def attacked(name: str, folder: Path, **more: object) -> Simulation:
    """Two rounds with one attacker of four."""
    attack = ATTACKS[name](attackers=1.0)
    return q.trained(q.method("fedavg"), folder, clients=FOUR, held_out=FOUR_HELD_OUT, attack=attack, **more)


def test_evaluation_is_over_honest_clients(tmp_path: Path) -> None:
    run = attacked("sign_flip", tmp_path)
    [attacker] = run.attackers
    honest = [client for client in range(4) if client != attacker]
    last, server = run.rows[-1], q.server_of(run)
    losses = [q.loss(server, FOUR[client]) for client in honest]
    assert last["train_loss_mean"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert last["train_loss_worst"] == pytest.approx(max(losses), rel=1e-5)
    assert last["test_loss"] == pytest.approx(q.loss(server, np.arange(8, 11)), rel=1e-5)  # all that nobody trains on
    assert run.label() == "FedAvg, 1 attacker (sign flip)"


def test_attackers_with_false_targets_descend_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step from the start: the server's model is the mean of steps on b, and, of the attacker, on 1 - b."""
    settings = replace(q.SETTINGS, sgd_per_epoch=1, n_rounds=1)
    run = q.simulation(
        q.method("fedavg"),
        tmp_path,
        settings,
        clients=FOUR,
        held_out=FOUR_HELD_OUT,
        attack=ATTACKS["label_flip"](attackers=1.0),
    )
    run.train()
    [attacker] = run.attackers
    honest = [q.descend(q.START, FOUR[i], 1) for i in range(4)]
    monkeypatch.setattr(q, "B", 1.0 - q.B)
    models = [q.descend(q.START, FOUR[i], 1) if i == attacker else honest[i] for i in range(4)]
    assert q.close(q.server_of(run), np.average(models, axis=0, weights=[len(images) for images in FOUR]))


def test_the_reported_loss_of_bounded_rounds_is_of_the_honest_clients_drawn(tmp_path: Path) -> None:
    """Poisson rounds of any number, whose sums are divided by two: the losses of one step are those of its start."""
    pytest.importorskip("dp_accounting", reason="needs requirements-privacy.txt")
    run = q.simulation(
        q.method("fedavg"),
        tmp_path,
        replace(q.SETTINGS, sgd_per_epoch=1),
        clients=FOUR,
        held_out=FOUR_HELD_OUT,
        client_sampling="poisson",
        clients_per_round=2,
        attack=ATTACKS["label_flip"](attackers=1.0),
        privacy=PrivacySettings(clip_norm=math.inf),
    )
    kinds = set()
    for round in range(10):
        drawn = {client for client, each in run.cohort(round).items() if each.weight}
        honest, x = drawn - run.attackers, q.server_of(run)
        found = run._train_round(round)["local_loss"]
        if honest:
            assert found == pytest.approx(np.mean([q.loss(x, FOUR[client]) for client in honest]), rel=1e-5)
        assert math.isnan(found) == (not drawn)
        kinds.add((bool(honest), len(drawn)))
    assert kinds >= {(False, 0), (False, 1), (True, 2), (True, 3)}


def of_three_attackers(method: FedAvg, folder: Path, **more: object) -> Simulation:
    """Four clients of whom one is honest and three send the opposite, before the first round."""
    attack = ATTACKS["sign_flip"](attackers=3.0)
    return q.simulation(method, folder, clients=FOUR, held_out=FOUR_HELD_OUT, attack=attack, **more)


def test_what_is_summed_is_a_change_as_it_is(tmp_path: Path) -> None:
    """One round of SCAFFOLD from some c and c_i = 0: c moves by the honest part of its change less the attackers'."""
    run = of_three_attackers(q.method("scaffold"), tmp_path)
    c, names = np.random.default_rng(2).normal(size=(2, q.DIM)), ("control.weight", "control.decoder.head.shift")
    run.server |= {name: torch.from_numpy(row.astype(np.float32)) for name, row in zip(names, c, strict=True)}
    run._train_round(0)
    change = 0.0
    for client, images in enumerate(FOUR):
        y = q.descend(q.START, images, more=lambda _: c)
        part = len(images) / 8 * ((q.START - y) / (q.STEPS * q.LR) - c)  # option II, of all images
        change = change + (-part if client in run.attackers else part)
    assert q.close(np.stack([run.server[name].numpy() for name in names]), c + change)


def test_a_round_of_attackers_goes_the_opposite_way_by_fednova_as_well(tmp_path: Path) -> None:
    """Their direction alone has another sign: with the reach's, the product of both had none."""
    run = of_three_attackers(q.method("fednova"), tmp_path, clients_per_round=1)
    round = next(each for each in range(20) if run.attackers.issuperset(run.cohort(each)))
    [attacker] = run.cohort(round)
    run._train_round(round)
    assert q.close(q.server_of(run), 2 * q.START - q.descend(q.START, FOUR[attacker]))


def test_counts_of_images_are_left_alone(tmp_path: Path) -> None:
    """FedProto's counts are those of a run without attackers; a negative one would give an attacker away."""
    run = of_three_attackers(q.method("fedproto"), tmp_path / "attacked")
    plain = q.simulation(q.method("fedproto"), tmp_path / "plain", clients=FOUR, held_out=FOUR_HELD_OUT)
    for each in (run, plain):
        each._train_round(0)
    assert run.server["prototypes.count"].tolist() == plain.server["prototypes.count"].tolist() == [8.0 * q.STEPS]
    assert not q.close(run.server["prototypes.sum"].numpy(), plain.server["prototypes.sum"].numpy())
