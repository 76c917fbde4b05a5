"""Partitions: what they promise for any input, and each rule against its paper."""

from __future__ import annotations

import doctest
import time
import tracemalloc
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, ks_2samp

from network.partition import rules, shares
from network.partition.heterogeneity import earth_movers_distance, group_counts
from network.partition.rules import (
    PARTITIONERS,
    dirichlet_hsu,
    dirichlet_per_class,
    equal_size,
    iid,
    natural,
    one_group,
    paper,
    quantity_skew,
    split_groups,
)
from network.partition.rules import shards as by_shards
from utils.errors import UserError

ALPHAS = st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 10.0, 1e6])
WHOLE = {
    "dirichlet_per_class",
    "shards",
    "natural",
    "by_building",
    "commonest_object",
    "quantity_skew",
    "iid",
}  # rules that deal every image
WHOLE_GROUPS = {"natural", "by_building", "commonest_object"}  # and those that never part a group


@st.composite
def groups_and_clients(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=8))
    left_out = draw(st.integers(0, 20))
    names = draw(st.permutations(range(10)))[: len(sizes)]  # ids need not be without gaps
    groups = np.concatenate([np.repeat(names, sizes), np.full(left_out, -1)])
    n_clients = draw(st.integers(1, min(6, sum(sizes))))
    return np.random.default_rng(0).permutation(groups), n_clients


@pytest.mark.parametrize("rule", PARTITIONERS)
@settings(max_examples=40, deadline=None)
@given(case=groups_and_clients(), alpha=ALPHAS, seed=st.integers(0, 5), min_size=st.sampled_from([None, 1, 5]))
def test_what_every_rule_promises(
    rule: str, case: tuple[np.ndarray, int], alpha: float, seed: int, min_size: int | None
) -> None:
    groups, n_clients = case

    def deal() -> np.ndarray:
        return PARTITIONERS[rule](groups, n_clients, alpha, np.random.default_rng(seed), min_size)

    try:
        client_of = deal()
    except UserError:
        assume(False)
    assert (client_of.shape, client_of.dtype) == (groups.shape, np.int32)
    assert (client_of[groups < 0] == -1).all()
    sizes = np.bincount(client_of[client_of >= 0], minlength=n_clients)
    assert len(sizes) == n_clients
    assert sizes.min() >= (min_size or 1)
    if rule in WHOLE:
        assert (client_of[groups >= 0] >= 0).all()
    if rule == "one_group":
        assert len(set(sizes)) == 1
    if rule in ("equal_size", "dirichlet_hsu"):
        assert set(sizes) == {(groups >= 0).sum() // n_clients}
    assert (deal() == client_of).all()


@settings(max_examples=60, deadline=None)
@given(case=groups_and_clients(), alpha=ALPHAS, rule=st.sampled_from(["equal_size", "dirichlet_hsu", "iid"]))
def test_rules_of_equal_sizes_never_fail(case: tuple[np.ndarray, int], alpha: float, rule: str) -> None:
    PARTITIONERS[rule](*case, alpha, np.random.default_rng(0))


@pytest.mark.parametrize("rule", sorted(PARTITIONERS.keys() - {"commonest_object"}))  # in which nothing is drawn
def test_another_seed_deals_otherwise(rule: str) -> None:
    groups = np.random.default_rng(0).integers(0, 8, 800)
    first, other = (PARTITIONERS[rule](groups, 5, 1.0, np.random.default_rng(seed)) for seed in (1, 2))
    assert (first != other).any()


@pytest.mark.parametrize("module", [rules, shares])
def test_examples_in_docstrings(module: object) -> None:
    done = doctest.testmod(module)
    assert done.attempted > 0 and done.failed == 0


# Skew


def skew(rule: str, groups: np.ndarray, n_clients: int, alpha: float) -> tuple[float, np.ndarray]:
    """EMD and the counts that it was taken of."""
    client_of = PARTITIONERS[rule](groups, n_clients, alpha, np.random.default_rng(4), 1)
    counts = group_counts(client_of, groups, n_clients)
    return earth_movers_distance(counts), counts


@pytest.mark.parametrize("rule", ["paper", "equal_size", "dirichlet_hsu"])
def test_skew_goes_from_nothing_to_its_bound(rule: str) -> None:
    groups = np.repeat(np.arange(8), 500)
    emd = [skew(rule, groups, 40, alpha)[0] for alpha in (1e6, 10.0, 1.0, 0.1)]
    # Multinomial counts of clients of 100 images differ by chance: E|x - 12.5| is about 2.6 of 100 in each of 8 groups.
    assert emd[0] < (0.25 if rule == "dirichlet_hsu" else 0.1)
    assert emd == sorted(emd)
    bound, counts = skew(rule, groups, 40, 1e-6)
    assert ((counts > 0).sum(axis=1) == 1).all()
    population = counts.sum(axis=0) / counts.sum()
    assert bound == pytest.approx(2 * (1 - np.square(population).sum()))


def test_skew_of_classes_over_clients_goes_from_nothing_to_whole_classes() -> None:
    groups = np.repeat(np.arange(40), 100)
    assert skew("dirichlet_per_class", groups, 8, 1e6)[0] < 0.1
    counts = skew("dirichlet_per_class", groups, 8, 1e-6)[1]
    assert ((counts > 0).sum(axis=0) == 1).all()


# Each rule against its paper


def test_the_paper_rule_deals_the_drawn_mixtures() -> None:
    groups = np.repeat(np.arange(3), [3000, 2000, 1000])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rng.permutation(len(groups))
        drawn = np.exp(shares.log_dirichlet(20.0 * np.array([3, 2, 1]) / 6, 4, rng))
        counts = group_counts(paper(groups, 4, 20.0, np.random.default_rng(seed), 100), groups, 4)
        # Rounding moves one image a cell, and what a full group could not give at the end a few more.
        assert np.abs(counts - counts.sum(axis=1, keepdims=True) * drawn).max() < 8


@pytest.mark.parametrize(("n_images", "expected"), [(20_000, 128), (1000, 50)])
def test_the_default_least_size_is_the_published_one_or_half_of_an_equal_share(n_images: int, expected: int) -> None:
    groups = np.random.default_rng(0).integers(0, 4, n_images)
    dealt = [paper(groups, 10, 1.0, np.random.default_rng(seed)) for seed in range(10)]
    smallest = [np.bincount(client_of[client_of >= 0]).min() for client_of in dealt]
    assert min(smallest) == expected  # 1000 / 10 / 2


def test_the_default_least_size_gives_way_where_groups_are_small() -> None:
    groups = np.repeat(np.arange(16), 3)  # clients of one group each cannot have 48 / 4 / 2 = 6 images
    client_of = paper(groups, 4, 1e-4, np.random.default_rng(0))
    assert 1 <= np.bincount(client_of[client_of >= 0]).min() <= 3


def test_per_class_shares_are_those_of_the_published_loop() -> None:
    """Sizes and groups a client as in NIID-Bench's loop over classes, written plainly here."""
    groups, n_clients, alpha, least = np.repeat(np.arange(6), [100, 80, 60, 60, 50, 50]), 5, 0.5, 10

    def published(rng: np.random.Generator) -> np.ndarray:
        while True:
            counts = np.zeros((n_clients, 6), int)
            for k, n in enumerate([100, 80, 60, 60, 50, 50]):
                p = rng.dirichlet(np.full(n_clients, alpha)) * (counts.sum(axis=1) < 400 / n_clients)
                cuts = (np.cumsum(p / p.sum()) * n).astype(int)[:-1]
                counts[:, k] = np.diff([0, *cuts, n])
            if counts.sum(axis=1).min() >= least:
                return counts

    rng = np.random.default_rng(0)
    expected = [published(rng) for _ in range(600)]
    found = [group_counts(dirichlet_per_class(groups, n_clients, alpha, rng, least), groups, 5) for _ in range(600)]
    for statistic in (lambda c: c.sum(axis=1).max(), lambda c: c.sum(axis=1).min(), lambda c: c.max()):
        assert ks_2samp([statistic(c) for c in expected], [statistic(c) for c in found]).pvalue > 1e-3


def test_sizes_under_quantity_skew_have_the_moments_of_the_dirichlet() -> None:
    groups, rng = np.zeros(10_000, int), np.random.default_rng(0)
    parts = np.stack([np.bincount(quantity_skew(groups, 4, 5.0, rng, 1)) for _ in range(1500)]) / 10_000
    assert parts.mean(axis=0) == pytest.approx([0.25] * 4, abs=0.01)
    # Var = (1/4) (3/4) / (4 * 5 + 1); the standard error of a variance of 1500 values is about 4 % of it.
    assert parts.var(axis=0) == pytest.approx([0.25 * 0.75 / 21] * 4, rel=0.15)


def test_quantity_skew_leaves_the_mixture_to_chance() -> None:
    groups = np.repeat([0, 1], [6000, 4000])
    counts = group_counts(quantity_skew(groups, 5, 1.0, np.random.default_rng(3), 500), groups, 5)
    assert counts[:, 0] / counts.sum(axis=1) == pytest.approx([0.6] * 5, abs=4 * np.sqrt(0.24 / 500))


def test_mcmahans_shards() -> None:
    # 60,000 digits in 200 shards of 300, two for each of 100 clients.
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000))
    client_of = by_shards(groups, 100, 1.0, np.random.default_rng(0))
    counts = group_counts(client_of, groups, 100)
    assert (counts.sum(axis=1) == 600).all()
    assert (counts > 0).sum(axis=1).max() == 2
    assert set(counts[counts > 0]) == {300, 600}
    four = group_counts(by_shards(groups, 100, 1.0, np.random.default_rng(0), shards_per_client=4), groups, 100)
    assert (four > 0).sum(axis=1).max() == 4 and set(four[four > 0]) <= {150, 300, 450, 600}


def test_more_shards_than_images_are_refused_before_they_take_memory() -> None:
    tracemalloc.start()
    with pytest.raises(UserError, match="--shards_per_client"):
        by_shards(np.zeros(100, int), 10, 1.0, np.random.default_rng(0), shards_per_client=1_000_000)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=30), seed=st.integers(0, 5), data=st.data())
def test_natural_groups_stay_whole_and_loads_are_even(sizes: list[int], seed: int, data: st.DataObject) -> None:
    n_clients = data.draw(st.integers(1, len(sizes)))
    groups = np.repeat(np.arange(len(sizes)) * 7 + 3, sizes)
    counts = group_counts(natural(groups, n_clients, 1.0, np.random.default_rng(seed)), groups, n_clients)
    assert ((counts > 0).sum(axis=0) <= 1).all()
    loads = counts.sum(axis=1)
    # Whoever has most got their last group when they had least, so that no gap is wider than the largest group.
    assert loads.min() > 0 and loads.max() - loads.min() <= max(sizes)
    if n_clients == len(sizes):
        assert sorted(loads) == sorted(sizes)


def test_iid_deals_everything_evenly() -> None:
    client_of = iid(np.repeat([0, 1, -1], [30, 41, 9]), 7, 1.0, np.random.default_rng(0))
    assert np.bincount(client_of[:71]).tolist().count(10) == 6  # 71 = 6 * 10 + 11
    assert (client_of[71:] == -1).all()


@pytest.mark.parametrize("alpha", [0.3, 3.0, 100.0])
def test_equal_sizes_give_every_client_the_mixture_of_the_dirichlet_wherever_it_stands(alpha: float) -> None:
    ratios, n_clients, n_deals = np.array([0.3, 0.25, 0.2, 0.15, 0.1]), 40, 150
    groups, rng = np.repeat(np.arange(5), (ratios * 20_000).astype(int)), np.random.default_rng(0)
    dealt = [group_counts(equal_size(groups, n_clients, alpha, rng), groups, n_clients) for _ in range(n_deals)]
    mixtures = np.stack(dealt) / 500
    drawn = np.exp(shares.log_dirichlet(alpha * ratios, 20_000, rng))
    variance = (ratios * (1 - ratios)).sum() / (alpha + 1)
    expected = {"emd": np.abs(drawn - ratios).sum(axis=1).mean(), "variance": variance}
    found = {"emd": np.abs(mixtures - ratios).sum(axis=2), "variance": np.square(mixtures - ratios).sum(axis=2)}
    for name, of_client in found.items():
        # That groups are used up takes about 1 / clients of the variance away, and more towards alpha 0.
        assert of_client.mean() == pytest.approx(expected[name], rel=0.08), name
        error = of_client.std() / np.sqrt(n_deals)
        assert np.abs(of_client.mean(axis=0) - of_client.mean()).max() < 4 * error, name


def test_the_last_client_of_hsus_rule_gets_the_rest() -> None:
    groups, rng = np.repeat(np.arange(8), 500), np.random.default_rng(0)
    dealt = [group_counts(dirichlet_hsu(groups, 40, 100.0, rng), groups, 40) / 100 for _ in range(40)]
    emd = np.abs(np.stack(dealt) - 1 / 8).sum(axis=2).mean(axis=0)
    assert emd[-1] > 2 * emd[:20].mean()


def test_the_images_that_equal_sizes_leave_out_are_any() -> None:
    groups, rng = np.repeat(np.arange(3), [500, 300, 200]), np.random.default_rng(0)
    left = np.stack([np.bincount(groups[equal_size(groups, 143, 0.1, rng) < 0], minlength=3) for _ in range(300)])
    assert (left.sum(axis=1) == 1000 % 143).all()
    # 142 of 1000 images: a hypergeometric count of variance 142 p (1 - p) 858 / 999 a group.
    p = np.array([0.5, 0.3, 0.2])
    assert (np.abs(left.mean(axis=0) - 142 * p) < 4 * np.sqrt(142 * p * (1 - p) * 858 / 999 / 300)).all()


# Demands that cannot be met, and size


@pytest.mark.parametrize(
    ("rule", "sizes", "n_clients", "alpha", "min_size", "text"),
    [
        *[(rule, [8, 1, 1], 11, 1.0, 1, "--n_clients") for rule in PARTITIONERS],
        *[(rule, [8, 1, 1], 3, 1.0, 4, "--min_client_ds_len") for rule in PARTITIONERS],
        ("paper", [1] * 10, 4, 1e-6, 2, "group"),  # clients of one group each, and no group has two images
        ("paper", [5000] * 16, 5000, 1e-6, 16, "--alpha"),
        ("dirichlet_per_class", [5000] * 16, 500, 1e-6, 1, "--alpha"),  # 16 classes whole make 16 clients at most
        ("dirichlet_per_class", [500] * 100, 5000, 1e-3, 1, "--alpha"),
        ("quantity_skew", [50_000], 100, 1e-3, 10, "--alpha"),
        ("natural", [8, 1, 1], 4, 1.0, None, "--n_clients 3"),
        ("commonest_object", [8, 1, 1], 4, 1.0, None, "--n_clients 3"),
        ("shards", [8, 1, 1], 6, 1.0, None, "--shards_per_client"),
        *[(rule, [8, 1, 1], 2, 0.0, 1, "--alpha") for rule in ("paper", "dirichlet_per_class", "quantity_skew")],
        ("equal_size", [8, 1, 1], 2, float("nan"), 1, "--alpha"),
    ],
)
def test_an_impossible_demand_is_named_within_a_second(
    rule: str, sizes: list[int], n_clients: int, alpha: float, min_size: int | None, text: str
) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    start = time.process_time()
    with pytest.raises(UserError, match=text):
        PARTITIONERS[rule](groups, n_clients, alpha, np.random.default_rng(0), min_size)
    assert time.process_time() - start < 1.0


def test_alpha_zero_gives_each_client_one_group_drawn_by_its_size() -> None:
    # 20 clients of 50 images fill four groups of 250 exactly; of unequal ones the first client's are by size.
    for seed in range(5):
        groups = np.repeat(np.arange(4), 250)
        counts = group_counts(dirichlet_hsu(groups, 20, 0.0, np.random.default_rng(seed)), groups, 20)
        assert ((counts > 0).sum(axis=1) == 1).all() and (counts.sum(axis=1) == 50).all()
    uneven, n = np.repeat([0, 1], [900, 100]), 300
    first = [uneven[dirichlet_hsu(uneven, 10, 0.0, np.random.default_rng(seed)) == 0] for seed in range(n)]
    assert all(len(set(images)) == 1 for images in first)
    assert binomtest(sum(int(images[0]) for images in first), n, 0.1).pvalue > 1e-3
    with pytest.raises(UserError, match="0 is for --partition dirichlet_hsu alone"):
        equal_size(uneven, 10, 0.0, np.random.default_rng(0))


def test_clients_of_one_group_and_one_of_all() -> None:
    groups = np.repeat(np.arange(3), [60, 120, 20])
    for seed in range(5):
        counts = group_counts(one_group(groups, 3, 1.0, np.random.default_rng(seed)), groups, 3)
        held = (counts[:2] > 0).argmax(axis=1)
        assert ((counts[:2] > 0).sum(axis=1) == 1).all() and held[0] != held[1]
        # n and n times the group's share is what a group gives at most.
        size = min(capacity / ((g in held) + capacity / 200) for g, capacity in enumerate([60, 120, 20]))
        assert (counts.sum(axis=1) == int(size)).all()
        assert (np.abs(counts[2] - counts[2].sum() * np.array([0.3, 0.6, 0.1])) <= 1).all()
    # As many clients as there are, and each group as often as any other, up to once.
    groups = np.repeat(np.arange(3), 90)
    counts = group_counts(one_group(groups, 8, 1.0, np.random.default_rng(0)), groups, 8)
    assert sorted((counts[:7] > 0).sum(axis=0)) == [2, 2, 3]


def test_parts_of_groups_by_hand() -> None:
    groups = np.random.default_rng(0).permutation(np.repeat([3, 5, 9, 11], [100, 50, 40, 30]))
    deal = partial(split_groups, groups, 10, 1.0, np.random.default_rng(1), None)
    counts = group_counts(deal([3, 2, 2, 3], 0.2), groups, 10)[:, [3, 5, 9, 11]]
    assert counts.sum(axis=0).tolist() == [60, 20, 16, 18]
    assert counts.max(axis=1).tolist() == [20] * 3 + [10] * 2 + [8] * 2 + [6] * 3
    assert ((counts > 0).sum(axis=1) == 1).all()
    whole = group_counts(deal([1, 4, 0, 5], 1.0), groups, 10)  # shares that are too much are equal ones
    assert whole.sum(axis=0)[[3, 5, 9, 11]].tolist() == [100, 48, 0, 30]
    assert sorted(group_counts(deal(), groups, 10).astype(bool).sum(axis=0)[[3, 5, 9, 11]]) == [2, 2, 3, 3]
    with pytest.raises(UserError, match="--clients_per_group 1,2 is not 10 clients in 4 groups"):
        deal([1, 2])


def test_as_many_clients_as_natural_groups_stand_in_their_order() -> None:
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(7), np.arange(1, 8)))
    assert natural(groups, 7, 1.0, np.random.default_rng(0)).tolist() == groups.tolist()


@pytest.mark.parametrize("rule", sorted(PARTITIONERS.keys() - {"quantity_skew", "dirichlet_per_class"}))
def test_ten_thousand_clients_over_a_million_images_take_seconds(rule: str) -> None:
    groups = np.random.default_rng(0).integers(0, 10_000 if rule in WHOLE_GROUPS else 16, 1_000_000)
    start = time.process_time()
    client_of = PARTITIONERS[rule](groups, 10_000, 1.0, np.random.default_rng(0), 10)
    assert time.process_time() - start < 10.0
    assert len(np.unique(client_of[client_of >= 0])) == 10_000
