"""Rules that draw from a Dirichlet distribution, each against its paper."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, ks_2samp

from network.partition import shares
from network.partition.dirichlet import dirichlet_hsu, dirichlet_per_class, equal_size, paper, quantity_skew
from network.partition.heterogeneity import earth_movers_distance, group_counts
from network.partition.rules import PARTITIONERS
from utils.errors import UserError


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


def test_without_balancing_shares_of_classes_are_the_drawn_ones() -> None:
    sizes, n, alpha = np.array([600, 400, 200]), 5, 0.5
    groups, rng = np.repeat(np.arange(3), sizes), np.random.default_rng(0)
    rule = PARTITIONERS["dirichlet_per_class"]
    counts = np.array([group_counts(rule(groups, n, alpha, rng, 1, balanced=False), groups, n) for _ in range(400)])
    # Each client's share of a class has the Beta distribution's variance; errors of 2,000 of them are about 4 %.
    share = counts / sizes
    assert share.mean(axis=(0, 1)) == pytest.approx([1 / n] * 3, abs=1e-12)
    assert share.var(axis=(0, 1)) == pytest.approx([(n - 1) / n**2 / (n * alpha + 1)] * 3, rel=0.15)
    assert np.corrcoef(share.reshape(-1, 3).T) == pytest.approx(np.eye(3), abs=0.1)  # classes are independent
    of_size = np.square(counts.sum(axis=2).std(axis=1) / (sizes.sum() / n)).mean()
    assert of_size == pytest.approx((n - 1) * np.square(sizes / 1200).sum() / (n * alpha + 1), rel=0.12)
    balanced = np.array([group_counts(rule(groups, n, alpha, rng, 1), groups, n) for _ in range(100)])
    assert np.square(balanced.sum(axis=2).std(axis=1) / (sizes.sum() / n)).mean() < 0.7 * of_size


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
    assigned = [paper(groups, 10, 1.0, np.random.default_rng(seed)) for seed in range(10)]
    smallest = [np.bincount(client_of[client_of >= 0]).min() for client_of in assigned]
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
    found = [
        group_counts(dirichlet_per_class(groups, n_clients, alpha, rng, least, balanced=True), groups, 5)
        for _ in range(600)
    ]
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


@pytest.mark.parametrize("alpha", [0.3, 3.0, 100.0])
def test_equal_sizes_give_every_client_the_mixture_of_the_dirichlet_wherever_it_stands(alpha: float) -> None:
    ratios, n_clients, n_draws = np.array([0.3, 0.25, 0.2, 0.15, 0.1]), 40, 150
    groups, rng = np.repeat(np.arange(5), (ratios * 20_000).astype(int)), np.random.default_rng(0)
    assigned = [group_counts(equal_size(groups, n_clients, alpha, rng), groups, n_clients) for _ in range(n_draws)]
    mixtures = np.stack(assigned) / 500
    drawn = np.exp(shares.log_dirichlet(alpha * ratios, 20_000, rng))
    variance = (ratios * (1 - ratios)).sum() / (alpha + 1)
    expected = {"emd": np.abs(drawn - ratios).sum(axis=1).mean(), "variance": variance}
    found = {"emd": np.abs(mixtures - ratios).sum(axis=2), "variance": np.square(mixtures - ratios).sum(axis=2)}
    for name, of_client in found.items():
        # That groups are used up takes about 1 / clients of the variance away, and more towards alpha 0.
        assert of_client.mean() == pytest.approx(expected[name], rel=0.08), name
        error = of_client.std() / np.sqrt(n_draws)
        assert np.abs(of_client.mean(axis=0) - of_client.mean()).max() < 4 * error, name


def test_the_first_client_of_hsus_rule_has_the_counts_of_a_polya_distribution() -> None:
    ratios, alpha, n = np.array([0.4, 0.3, 0.2, 0.1]), 1.0, 100
    groups, rng = np.repeat(np.arange(4), (ratios * 1000).astype(int)), np.random.default_rng(0)
    first = np.stack([np.bincount(groups[dirichlet_hsu(groups, 10, alpha, rng) == 0], minlength=4) for _ in range(500)])
    # Nothing runs out for it. A variance of 500 values has a standard error of 6 %, and less of bounded ones.
    variance = n * ratios * (1 - ratios) * (n + alpha) / (1 + alpha)
    assert (np.abs(first.mean(axis=0) - n * ratios) < 4 * np.sqrt(variance / 500)).all()
    assert first.var(axis=0) == pytest.approx(variance, rel=0.2)


def test_the_last_client_of_hsus_rule_gets_the_rest() -> None:
    groups, rng = np.repeat(np.arange(8), 500), np.random.default_rng(0)
    assigned = [group_counts(dirichlet_hsu(groups, 40, 100.0, rng), groups, 40) / 100 for _ in range(40)]
    emd = np.abs(np.stack(assigned) - 1 / 8).sum(axis=2).mean(axis=0)
    assert emd[-1] > 2 * emd[:20].mean()


def test_the_images_that_equal_sizes_leave_out_are_any() -> None:
    groups, rng = np.repeat(np.arange(3), [500, 300, 200]), np.random.default_rng(0)
    left = np.stack([np.bincount(groups[equal_size(groups, 143, 0.1, rng) < 0], minlength=3) for _ in range(300)])
    assert (left.sum(axis=1) == 1000 % 143).all()
    # 142 of 1000 images: a hypergeometric count of variance 142 p (1 - p) 858 / 999 a group.
    p = np.array([0.5, 0.3, 0.2])
    assert (np.abs(left.mean(axis=0) - 142 * p) < 4 * np.sqrt(142 * p * (1 - p) * 858 / 999 / 300)).all()


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
    with pytest.raises(UserError, match="0 is for --partition dirichlet_hsu only"):
        equal_size(uneven, 10, 0.0, np.random.default_rng(0))
