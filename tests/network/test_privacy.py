"""Bounds and noise against sums by hand, their moments, and the methods themselves."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from network.algorithms import ALGORITHMS
from network.algorithms.fedavg import FedAvg
from network.config import FederationConfig
from network.engine.client import ClientRound
from network.engine.simulation import Simulation
from network.engine.trainer import LOSS
from network.importance import FedIR, reweighting
from network.privacy import WITHIN, CentralPrivacy, NoPrivacy, privacy_of
from network.sampling import ClientSampling
from network.settings import PrivacySettings, SimulationSettings
from tests.network import quadratic as q
from tests.network.spread import Normed
from utils.errors import UserError

EQUAL = [np.arange(4), np.arange(4, 8)]
NOISELESS = PrivacySettings(clip_norm=math.inf, noise_multiplier=0.0)
PRIVATE = [
    "fedavg",
    "fedprox",
    "scaffold",
    "fedrep",
    "ditto",
    "fedavgm",
    "fedadam",
    "fedyogi",
    "fedadagrad",
    "fednova",
    "moon",
    "fedper",
    "fedrcl",
]


@pytest.fixture(autouse=True)
def package() -> None:
    pytest.importorskip("dp_accounting", reason="needs requirements-privacy.txt")


def private(folder: Path, privacy: PrivacySettings, algorithm: FedAvg | None = None, **more: object) -> Simulation:
    """A federation of the quadratics, before its first round."""
    return q.simulation(algorithm or q.method("fedavg"), folder, **{"clients": EQUAL, "privacy": privacy} | more)


def mechanism(n_clients: int = 4, **settings: object) -> CentralPrivacy:
    return made_private(PrivacySettings(**{"clip_norm": 1.0} | settings), n_clients)


def made_private(settings: PrivacySettings, n_clients: int, name: str = "fedavg", **more: object) -> NoPrivacy:
    """What the settings make of a method, with `more` of its own arguments, of the sampling's and of FedIR's."""
    algorithm, *parts = (kind.from_config(more) for kind in (ALGORITHMS[name], ClientSampling, FedIR))
    how = q.SETTINGS, SimulationSettings(0)
    return privacy_of(FederationConfig(algorithm, *how, *parts, privacy=settings), n_clients)


@pytest.mark.parametrize("name", PRIVATE)
def test_without_bound_and_noise_it_is_the_method_itself_to_the_bit(tmp_path: Path, name: str) -> None:
    settings = replace(q.SETTINGS, n_rounds=3, sgd_per_epoch=4, momentum=0.5)
    plain = q.simulation(q.method(name), tmp_path / "plain", settings, Normed(), clients=EQUAL)
    unbound = private(tmp_path / "private", NOISELESS, q.method(name), settings=settings, model=Normed())
    plain.train(), unbound.train()
    assert plain.server.keys() == unbound.server.keys()
    assert all(torch.equal(plain.server[key], unbound.server[key]) for key in plain.server)
    for one, other in zip(plain.rows, unbound.rows, strict=True):
        assert {k: v for k, v in one.items() if k != "seconds"}.items() <= other.items() or one["round"] == 0
    assert [row["clipped"] for row in unbound.rows[1:]] == [0.0] * 3
    assert unbound.rows[-1]["epsilon"] == math.inf


def test_every_client_counts_the_same_and_changes_by_the_norm_at_most(tmp_path: Path) -> None:
    # Clients of three and five images, followed in plain arrays.
    settings = replace(q.SETTINGS, n_rounds=3)
    run = private(tmp_path, PrivacySettings(clip_norm=0.7), clients=q.CLIENTS, settings=settings)
    run.train()
    x, clipped = q.START.astype(float), []
    for _ in range(3):
        changes = [q.descend(x, client) - x for client in range(2)]
        norms = [np.linalg.norm(change) for change in changes]
        clipped.append(np.mean([norm > 0.7 for norm in norms]))
        x = x + sum(change * min(1.0, 0.7 / norm) for change, norm in zip(changes, norms, strict=True)) / 2
    assert q.close(q.server_of(run), x)
    assert [row["clipped"] for row in run.rows[1:]] == clipped and np.mean(clipped) > 0


def test_the_norm_is_over_all_that_travels(tmp_path: Path) -> None:
    made, start = mechanism(clip_norm=2.5), {"a": torch.tensor([1.0, 1.0]), "b": torch.tensor([[2.0]])}
    upload = {"a": torch.tensor([4.0, 1.0]), "b": torch.tensor([[6.0]]), LOSS: torch.tensor(9.0)}  # 3 and 4 away
    found = made.limited(upload, start)
    assert found["a"].tolist() == [2.5, 1.0] and found["b"].tolist() == [[4.0]]
    assert found[LOSS] == 9.0 and found[WITHIN] == 0.0
    near = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[2.5]]), LOSS: torch.tensor(9.0)}
    kept = made.limited(near, start)
    assert kept[WITHIN] == 1.0 and all(torch.equal(kept[name], tensor) for name, tensor in near.items())


def test_counts_of_batches_are_no_part_of_the_vector_and_get_no_noise(tmp_path: Path) -> None:
    run = private(tmp_path, PrivacySettings(clip_norm=1e-3, noise_multiplier=1e-3), model=Normed())
    run.train()
    assert run.server["norm.num_batches_tracked"] == 0 and run.server["norm.num_batches_tracked"].dtype == torch.int64
    clipped = private(tmp_path / "clipped", PrivacySettings(clip_norm=1e-3), model=Normed())
    clipped.train()
    assert clipped.server["norm.num_batches_tracked"] == q.STEPS * 2


def test_noise_never_makes_a_variance_negative(tmp_path: Path) -> None:
    run = private(tmp_path, PrivacySettings(clip_norm=5.0, noise_multiplier=10.0), model=Normed())
    for round in range(4):
        run._train_round(round)
        run.states.finish_round()
        assert (run.server["norm.running_var"] > 0).all()


def test_scaffolds_control_variates_are_bounded_with_the_model(tmp_path: Path) -> None:
    run = private(tmp_path, PrivacySettings(clip_norm=0.5), q.method("scaffold"), clients=q.CLIENTS)
    run._train_round(0)
    # Option II, from c = c_i = 0: K steps of 0.2 along a mean gradient. Each client's part of c is a half of it.
    moved = [q.START.astype(float) - q.descend(q.START, client) for client in range(2)]
    controls = [way / (q.STEPS * q.LR) for way in moved]
    kept = [min(1.0, 0.5 / np.sqrt((a**2).sum() + (b**2).sum())) for a, b in zip(moved, controls, strict=True)]
    assert max(kept) < 1.0
    assert q.close(q.server_of(run), q.START - sum(k * way for k, way in zip(kept, moved, strict=True)) / 2)
    c = np.stack([run.server[f"control.{name}"].numpy() for name in ("weight", "decoder.head.shift")])
    assert q.close(c, sum(k * each for k, each in zip(kept, controls, strict=True)) / 2)


def released(made: CentralPrivacy, n: int, round: int, within: float = 1.0) -> tuple[dict, dict]:
    """What comes of two tensors of n numbers that did not change, from all clients."""
    zeros = {"a": torch.zeros(n), "b": torch.zeros(3, n // 3)}
    mean = {name: tensor.double() for name, tensor in zeros.items()}
    mean |= {LOSS: torch.tensor(1.0), WITHIN: torch.tensor(within, dtype=torch.float64)}
    return made.released(mean, zeros, 4.0, round)


def test_the_noise_has_the_norm_and_the_distribution_that_the_multiplier_says() -> None:
    made, n = mechanism(clip_norm=3.0, noise_multiplier=0.5), 30_000
    noise, told = released(made, n, 0)
    values = torch.cat([noise["a"], noise["b"].flatten()]).numpy()
    deviation = 0.5 * 3.0 / 4  # of the mean over four clients
    assert stats.kstest(values / deviation, "norm").pvalue > 1e-3
    # The squared norm is deviation^2 times chi-squared, of mean 2n and variance 4n.
    assert abs((values**2).sum() / deviation**2 - 2 * n) < 4 * math.sqrt(4 * n)
    assert abs(values.mean()) < 4 * deviation / math.sqrt(2 * n)
    assert noise[LOSS] == 1.0 and told == {"clip_norm": 3.0, "clipped": 0.0}
    assert not torch.equal(noise["a"], released(made, n, 1)[0]["a"])  # another round's
    assert torch.equal(noise["a"], released(made, n, 0)[0]["a"])


def test_an_adaptive_norm_follows_its_quantile() -> None:
    # Norms 1 to 100: the geometric steps stop where the asked share of them is within the norm.
    norms, made = np.arange(1, 101.0), mechanism(100, clip_norm=1.0, clip_quantile=0.3, clip_lr=0.2)
    for round in range(100):
        share, before = (norms <= made.clip_norm).mean(), made.clip_norm
        mean = {LOSS: torch.tensor(1.0), WITHIN: torch.tensor(share, dtype=torch.float64)}
        made.released(mean, {}, 100.0, round)
        assert made.clip_norm == pytest.approx(before * math.exp(-0.2 * (share - 0.3)))
    assert 28 < made.clip_norm < 33


def test_the_noise_of_what_is_summed_is_of_all_clients_and_that_of_a_mean_of_the_rounds() -> None:
    made = made_private(PrivacySettings(clip_norm=3.0, noise_multiplier=0.5), 8, "scaffold", clients_per_round=2)
    server = {name: torch.zeros(30_000) for name in ("w", "control.w")}
    mean = {name: tensor.double() for name, tensor in server.items()}
    mean |= {LOSS: torch.tensor(1.0), WITHIN: torch.tensor(1.0, dtype=torch.float64)}
    noise, _ = made.released(mean, server, 2.0, 0)
    assert float(noise["w"].std()) == pytest.approx(0.5 * 3.0 / 2, rel=0.02)
    assert float(noise["control.w"].std()) == pytest.approx(0.5 * 3.0 / 8, rel=0.02)


@pytest.mark.parametrize(("drawn", "within", "share"), [(6, 3, 0.5), (6, 6, 1.25), (2, 0, 0.25), (0, 0, 0.5)])
def test_under_poisson_sampling_only_the_clients_that_were_drawn_are_counted(
    drawn: int, within: int, share: float
) -> None:
    # Each of those drawn adds 1/2 or -1/2; the sum over the expected four, and 1/2, is the share (Andrew et al.).
    asked = PrivacySettings(clip_norm=1.0, clip_quantile=0.3, clip_lr=0.2)
    made = made_private(asked, 8, client_sampling="poisson", clients_per_round=4)
    mean = {LOSS: torch.tensor(1.0), WITHIN: torch.tensor(within / 4, dtype=torch.float64)}
    made.released(mean, {}, float(drawn), 0)
    assert made.clip_norm == pytest.approx(math.exp(-0.2 * (share - 0.3)))


def test_the_counts_noise_is_paid_for_by_more_on_the_sum() -> None:
    # Andrew et al. 2021: z^-2 = z_sum^-2 + (2 sigma_b)^-2. Four clients: sigma_b is z itself, not 4 / 20.
    made = mechanism(noise_multiplier=0.6, clip_quantile=0.5)
    values = released(made, 30_000, 0)[0]["a"].numpy()
    assert values.std() == pytest.approx(0.6 / math.sqrt(1 - 1 / 4) / 4, rel=0.02)
    steps = []
    for round in range(2000):
        before = made.clip_norm
        released(made, 3, round, within=0.5)
        steps.append(math.log(made.clip_norm / before) / -0.2)
    assert abs(np.mean(steps)) < 4 * 0.15 / math.sqrt(2000)  # half of the clients are what was asked for
    assert np.std(steps) == pytest.approx(0.6 / 4, rel=0.1)
    with pytest.raises(UserError, match=r"give more than 0\.3"):
        mechanism(noise_multiplier=0.6, clip_quantile=0.5, clip_count_noise=0.3)


def test_poisson_rounds_are_divided_by_the_expected_number(tmp_path: Path) -> None:
    run = private(tmp_path, NOISELESS, client_sampling="poisson", clients_per_round=1)
    sizes = set()
    for round in range(12):
        x, cohort = q.server_of(run), run.cohort(round)
        drawn = [client for client, each in cohort.items() if each.weight]
        row = run._train_round(round)
        run.states.finish_round()
        moved = sum((q.descend(x, EQUAL[client]) - x for client in drawn), np.zeros_like(x))
        assert q.close(q.server_of(run), x + moved / 1)  # of one client, on average
        assert math.isnan(row["local_loss"]) == (not drawn)
        sizes.add(len(drawn))
    assert sizes == {0, 1, 2}


def test_a_round_without_clients_has_noise_and_leaves_what_clients_keep(tmp_path: Path) -> None:
    asked = PrivacySettings(clip_norm=1.0, noise_multiplier=1.0)
    run = private(tmp_path, asked, q.method("moon"), client_sampling="poisson", clients_per_round=1)
    empty = next(round for round in range(100) if not any(each.weight for each in run.cohort(round).values()))
    before = q.server_of(run)
    run._train_round(empty)
    assert not q.close(q.server_of(run), before)
    assert 0 not in run.states


def test_a_client_that_is_left_out_leaves_the_divisor(tmp_path: Path) -> None:
    run = private(tmp_path, NOISELESS, q.spoilt("fedavg", 1, [0]), on_nan="skip_client")
    run._train_round(0)
    assert q.close(q.server_of(run), (q.descend(q.START, EQUAL[0]) + q.START) / 2)


def test_rounds_stop_before_epsilon_exceeds_its_bound_and_the_last_is_evaluated(tmp_path: Path) -> None:
    settings = replace(q.SETTINGS, n_rounds=30)
    asked = PrivacySettings(clip_norm=1.0, noise_multiplier=2.0, delta=1e-3, max_epsilon=8.0)
    run = private(tmp_path, asked, settings=settings, evaluate_every=7, checkpoint_every=7)
    rows = run.train()
    last = rows[-1]["round"]
    assert 1 < last < 30 and rows[-1]["epsilon"] <= 8.0 < run.privacy.account.epsilon(last + 1)
    assert "test_loss" in rows[-1] and run.run.has_checkpoint
    assert run.privacy.notes(last)[0].startswith(f"ε = {rows[-1]['epsilon']:.4g} at δ = 0.001 after {last} rounds")


def test_a_resumed_run_goes_on_with_its_norm(tmp_path: Path) -> None:
    settings = replace(q.SETTINGS, n_rounds=4)
    asked = PrivacySettings(clip_norm=0.1, noise_multiplier=0.5, clip_quantile=0.5)
    whole = private(tmp_path / "whole", asked, settings=settings)
    whole.train()
    first = private(tmp_path / "parts", asked, settings=replace(settings, n_rounds=2))
    first.train()
    second = private(tmp_path / "parts", asked, settings=settings)
    second.resume()
    second.train()
    assert all(torch.equal(second.server[key], whole.server[key]) for key in whole.server)
    assert second.rows[-1]["clip_norm"] == whole.rows[-1]["clip_norm"] != 0.1
    assert second.rows[-1]["epsilon"] == whole.rows[-1]["epsilon"]


def test_clients_side_by_side_are_bounded_alike(tmp_path: Path) -> None:
    asked = PrivacySettings(clip_norm=0.2, noise_multiplier=0.5)
    servers = []
    for at_once in (1, 2):
        run = private(tmp_path / str(at_once), asked, q.method("scaffold"), vectorised_clients=at_once)
        run.train()
        servers.append(run.server)
    for key, tensor in servers[0].items():
        assert torch.allclose(servers[1][key], tensor, rtol=1e-5, atol=1e-6), key


@pytest.mark.parametrize(
    "name, arguments, said",
    [
        ("feddisco", {}, "FedDisco weights clients"),
        ("fedproto", {}, "no norm suits them"),
        ("fedamp", {}, "mixture"),
        ("local", {}, "nothing is sent"),
        ("centralized", {}, "one worker"),
        ("feddifrc", {}, "basis of FedDifRC's vectors"),
        ("fedrcl", {"label_source": "cluster"}, "give --label_source class"),
        ("fedavg", {"importance_reweighting": "class"}, "--importance_target population"),
        (
            "fedavg",
            {"importance_reweighting": "class", "importance_target": "uniform", "importance_bound": 4.0},
            "tell which classes anybody has; omit the bound",
        ),
        ("fedavg", {"importance_reweighting": "cluster"}, "made from all clients' images"),
        ("fedavg", {"client_sampling": "size"}, "no account covers --client_sampling size"),
        ("fedavg", {"virtual_client_size": 8}, "no account covers --client_sampling systematic"),
    ],
)
def test_what_no_bound_protects_is_refused(name: str, arguments: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        made_private(PrivacySettings(clip_norm=1.0), 4, name, **arguments)
    assert type(made_private(PrivacySettings(), 4, name, **arguments)).__name__ == "NoPrivacy"


def test_without_a_bound_weights_towards_equal_shares_say_nothing_of_others() -> None:
    """They are in proportion to 1 / q_k within a client, whichever classes there are beside its own."""
    kinds, clients, none = np.array([0, 0, 0, 1, 2]), [np.arange(4), np.array([4])], np.zeros(0, np.int64)
    for bound, same in ((None, True), (4.0, False)):
        weights = [
            reweighting(kinds[:n], clients[:k], none, "uniform", bound).of_images(kinds[:n], clients[:k])[:4]
            for n, k in ((4, 1), (5, 2))
        ]
        assert np.allclose(*(each / each.mean() for each in weights)) == same
    assert not FedIR(importance_reweighting="class", importance_target="uniform").unprotected()


def test_every_method_is_either_private_or_refused() -> None:
    refused = {name for name in ALGORITHMS if ALGORITHMS[name]().unprotected()}
    assert refused.isdisjoint(PRIVATE) and refused | {*PRIVATE} == {*ALGORITHMS}


def test_poisson_sampling_needs_the_sums_that_allow_for_nobody() -> None:
    with pytest.raises(UserError, match=r"--client_sampling poisson .* give --clip_norm"):
        made_private(PrivacySettings(), 4, client_sampling="poisson")


def test_weights_and_portions_tell_nothing_of_sizes() -> None:
    made, images = mechanism(), np.arange(3)
    cohort = {0: ClientRound(images, 2, 30.0, 0.3), 2: ClientRound(images, 2, 0.0, 0.6)}
    counted = made.cohort(cohort)
    assert [(each.weight, each.client_fraction) for each in counted.values()] == [(1.0, 0.25), (0.0, 0.0)]


def test_types_stay_what_they_are() -> None:
    upload: dict[str, Tensor] = {"half": torch.ones(3, dtype=torch.bfloat16), LOSS: torch.tensor(1.0)}
    found = mechanism(clip_norm=0.1).limited(upload, {"half": torch.zeros(3, dtype=torch.bfloat16)})
    assert found["half"].dtype == torch.bfloat16
