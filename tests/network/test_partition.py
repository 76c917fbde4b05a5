"""Partitions: what they promise for any input, and the paper's rule against the published formula."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from datasets.selection import Selection
from network.partition import PARTITIONERS, deal, equal_size, iid, log_dirichlet, paper
from utils.errors import UserError

ALPHAS = st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 10.0, 1e6])


@st.composite
def groups_and_clients(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=8))
    left_out = draw(st.integers(0, 20))
    groups = np.concatenate([np.repeat(np.arange(len(sizes)), sizes), np.full(left_out, -1)])
    n_clients = draw(st.integers(1, min(6, sum(sizes))))
    return np.random.default_rng(0).permutation(groups), n_clients


@pytest.mark.parametrize("rule", PARTITIONERS)
@settings(max_examples=60, deadline=None)
@given(case=groups_and_clients(), alpha=ALPHAS, seed=st.integers(0, 5))
def test_no_image_is_dealt_twice_or_invented(rule: str, case: tuple[np.ndarray, int], alpha: float, seed: int) -> None:
    groups, n_clients = case
    try:
        clients = PARTITIONERS[rule](groups, n_clients, alpha, np.random.default_rng(seed), 1)
    except UserError:
        assert rule == "paper"  # only its sizes can be impossible here: each client has one image at least
        return
    dealt = np.concatenate(clients)
    assert len(clients) == n_clients
    assert len(dealt) == len(set(dealt.tolist()))
    assert (groups[dealt] >= 0).all()
    assert min(len(client) for client in clients) >= 1


@settings(max_examples=60, deadline=None)
@given(case=groups_and_clients(), alpha=ALPHAS)
def test_equal_size_gives_every_client_the_same_number(case: tuple[np.ndarray, int], alpha: float) -> None:
    groups, n_clients = case
    clients = equal_size(groups, n_clients, alpha, np.random.default_rng(0))
    assert {len(client) for client in clients} == {(groups >= 0).sum() // n_clients}


def test_iid_deals_everything_evenly() -> None:
    groups = np.repeat([0, 1, -1], [30, 41, 9])
    clients = iid(groups, 7, 1.0, np.random.default_rng(0))
    assert sorted(np.concatenate(clients)) == list(range(71))
    assert {len(client) for client in clients} == {10, 11}  # 71 = 6 * 10 + 11


@pytest.mark.parametrize("alpha", [0.001, 0.1, 10.0])
def test_dirichlet_has_the_mean_and_variance_of_the_formula(alpha: float) -> None:
    ratios = np.array([0.5, 0.3, 0.2])
    draws = np.exp(log_dirichlet(alpha * ratios, 100_000, np.random.default_rng(1)))
    assert np.allclose(draws.sum(axis=1), 1.0)
    # Var q_k = m_k (1 - m_k) / (alpha + 1); four standard errors of 100,000 draws are below 0.007.
    assert np.allclose(draws.mean(axis=0), ratios, atol=0.007)
    assert np.allclose(draws.var(axis=0), ratios * (1 - ratios) / (alpha + 1), atol=0.005)


@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 1e6])
def test_dirichlet_stays_finite_at_extreme_concentrations(alpha: float) -> None:
    logs = log_dirichlet(np.full(16, alpha / 16), 1000, np.random.default_rng(0))
    assert np.isfinite(logs).all()
    assert np.allclose(np.exp(logs).sum(axis=1), 1.0)


def test_paper_sizes_are_those_of_the_pseudo_inverse_where_it_is_feasible() -> None:
    groups = np.repeat(np.arange(3), [3000, 2000, 1000])
    found = 0
    for seed in range(60):
        # The published formula, from the same draw: sizes = pinv(q^T) @ group sizes.
        rng = np.random.default_rng(seed)
        for group in range(3):
            rng.permutation(np.flatnonzero(groups == group))
        shares = np.exp(log_dirichlet(20.0 * np.array([3, 2, 1]) / 6, 4, rng))
        published = np.linalg.pinv(shares.T) @ [3000, 2000, 1000]
        if published.min() < 100:
            continue
        found += 1
        clients = paper(groups, 4, 20.0, np.random.default_rng(seed), 100)
        assert np.allclose([len(client) for client in clients], published, atol=12)
        mixture = np.stack([np.bincount(groups[client], minlength=3) for client in clients])
        assert np.allclose(mixture, published[:, None] * shares, atol=14)
    assert found >= 5


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0, 100.0])
def test_paper_uses_nearly_all_the_data_that_any_sizes_could_use(alpha: float) -> None:
    groups = np.random.default_rng(0).integers(0, 16, 5000)
    clients = paper(groups, 25, alpha, np.random.default_rng(0), 20)
    assert min(map(len, clients)) >= 20
    # The same draw, and the most that sizes of at least 20 can use of it, by linear programming.
    rng = np.random.default_rng(0)
    capacity = np.array([len(rng.permutation(np.flatnonzero(groups == group))) for group in range(16)])
    while True:
        shares = np.exp(log_dirichlet(alpha * capacity / 5000, 25, rng))
        if (20 * shares.sum(axis=0) <= capacity).all():
            break
    most = -linprog(-np.ones(25), A_ub=shares.T, b_ub=capacity, bounds=(20, None)).fun
    assert 0.95 * most < sum(map(len, clients)) <= most + 1


@pytest.mark.parametrize(("n_images", "expected"), [(20_000, 128), (1000, 50)])
def test_the_default_least_size_is_the_published_one_or_half_of_an_equal_share(n_images: int, expected: int) -> None:
    groups = np.random.default_rng(0).integers(0, 4, n_images)
    sizes = [len(client) for client in paper(groups, 10, 5.0, np.random.default_rng(0))]
    assert min(sizes) == expected  # 1000 / 10 / 2


def test_the_default_least_size_gives_way_where_groups_are_small() -> None:
    groups = np.repeat(np.arange(16), 3)  # clients of one group each cannot have 48 / 4 / 2 = 6 images
    sizes = [len(client) for client in paper(groups, 4, 1e-4, np.random.default_rng(0))]
    assert 1 <= min(sizes) <= 3


def test_paper_mixtures_follow_the_draw_at_strong_skew() -> None:
    groups = np.random.default_rng(0).integers(0, 8, 4000)
    clients = paper(groups, 10, 1e-4, np.random.default_rng(0), 50)
    # q is one group and nothing else at this alpha, and sizes never force another one in.
    assert all(len(np.unique(groups[client])) == 1 for client in clients)


def test_a_small_alpha_gives_more_skew_than_a_large_one() -> None:
    groups = np.random.default_rng(0).integers(0, 10, 2000)

    def largest_share(alpha: float) -> float:
        clients = equal_size(groups, 10, alpha, np.random.default_rng(4))
        return np.mean([np.bincount(groups[client], minlength=10).max() / len(client) for client in clients])

    assert largest_share(0.1) > largest_share(10.0) + 0.1 > largest_share(1000.0) + 0.2


@pytest.mark.parametrize(
    ("rule", "sizes", "n_clients", "alpha", "min_size", "text"),
    [
        ("paper", [8, 1, 1], 11, 1.0, 1, "--n_clients"),
        ("paper", [8, 1, 1], 5, 1.0, 3, "--min_client_ds_len"),  # 5 * 3 > 10
        ("paper", [1] * 10, 4, 1e-6, 2, "group"),  # clients of one group each, and no group has two images
        ("equal_size", [8, 1, 1], 3, 1.0, 4, "--min_client_ds_len"),
        ("iid", [8, 1, 1], 3, 1.0, 4, "too few"),
        ("paper", [8, 1, 1], 2, 0.0, 1, "--alpha"),
        ("equal_size", [8, 1, 1], 2, float("nan"), 1, "--alpha"),
    ],
)
def test_an_impossible_demand_is_named_within_a_second(
    rule: str, sizes: list[int], n_clients: int, alpha: float, min_size: int, text: str
) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    start = time.perf_counter()
    with pytest.raises(UserError, match=text):
        PARTITIONERS[rule](groups, n_clients, alpha, np.random.default_rng(0), min_size)
    assert time.perf_counter() - start < 1.0


def test_a_saved_dealing_says_who_has_what(selection: Selection, tmp_path: Path) -> None:
    groups = np.where(np.isin(np.arange(len(selection)), selection.train), selection.labels, -1)
    dealing = deal("equal_size", groups, 4, 1.0, seed=2)
    dealing.save(tmp_path, selection, groups, {"type": "class_based"})
    table = pd.read_csv(tmp_path / "partition.csv")
    for client, images in enumerate(dealing.clients):
        part = table[table["user_id"] == client]
        assert part["image_id"].tolist() == [str(selection.views[image].path("rgb")) for image in images]
        assert part["class"].tolist() == selection.places[images].tolist()
    assert (np.load(tmp_path / "partition.npy") == dealing.client_of).all()
    sizes = json.loads((tmp_path / "partition.json").read_text())["client_sizes"]
    assert sizes == [len(images) for images in dealing.clients]


def test_the_same_seed_deals_the_same_and_another_does_not() -> None:
    groups = np.random.default_rng(0).integers(0, 6, 500)
    one, same, other = (deal("equal_size", groups, 5, 0.5, seed) for seed in (1, 1, 2))
    assert (one.client_of == same.client_of).all()
    assert (one.client_of != other.client_of).any()
