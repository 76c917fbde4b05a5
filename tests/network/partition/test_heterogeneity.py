"""Measures of skew against sums done by hand, SciPy and closed forms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon, pdist
from scipy.stats import entropy, f_oneway

from network.importance import reweighting
from network.partition.heterogeneity import (
    class_variance_share,
    earth_movers_distance,
    effective_groups,
    frechet_distances,
    group_counts,
    hellinger,
    jensen_shannon,
    jensen_shannon_distance,
    relative_frechet,
    report,
    report_text,
    size_imbalance,
    variance_share,
)


def test_emd_of_two_clients_by_hand() -> None:
    # Shares (1, 0) and (1/2, 1/2), sizes 2 and 4, population (4/6, 2/6).
    # 2/6 * (1/3 + 1/3) + 4/6 * (1/6 + 1/6) = 2/9 + 2/9
    assert earth_movers_distance(np.array([[2, 0], [2, 2]])) == pytest.approx(4 / 9)


def test_emd_of_three_clients_by_hand() -> None:
    # Shares (1, 0, 0), (0, 3/4, 1/4), (0, 0, 1), sizes 4, 4, 2, population (4, 3, 3) / 10.
    # 0.4 (0.6 + 0.3 + 0.3) + 0.4 (0.4 + 0.45 + 0.05) + 0.2 (0.4 + 0.3 + 0.7) = 0.48 + 0.36 + 0.28
    assert earth_movers_distance(np.array([[4, 0, 0], [0, 3, 1], [0, 0, 2]])) == pytest.approx(1.12)


def test_emd_is_zero_for_equal_clients_and_reaches_its_bound() -> None:
    assert earth_movers_distance(np.full((5, 3), 7)) == 0
    # K clients of one group each: 2 (1 - 1/K)
    assert earth_movers_distance(np.eye(4) * 9) == pytest.approx(1.5)


def test_jensen_shannon_is_scipys() -> None:
    counts = np.random.default_rng(0).integers(0, 9, (6, 5)) * np.array([1, 1, 0, 1, 2])
    population = counts.sum(axis=0)
    each = [jensenshannon(row, population, base=2) ** 2 for row in counts]
    assert jensen_shannon(counts) == pytest.approx(np.average(each, weights=counts.sum(axis=1)))
    assert jensen_shannon(np.full((3, 2), 4)) == pytest.approx(0)


def test_hellinger_of_two_clients_by_hand() -> None:
    # Shares (1, 0) and (1/4, 3/4): 1 - sqrt(1/4), whatever the sizes.
    assert hellinger(np.array([[7, 0], [1, 3]])) == pytest.approx(np.sqrt(0.5))


def test_hellinger_is_the_root_mean_square_over_pairs() -> None:
    counts = np.random.default_rng(0).integers(0, 9, (6, 5)) * np.array([1, 1, 0, 1, 2])
    roots = np.sqrt(counts / counts.sum(axis=1, keepdims=True))
    assert hellinger(counts) == pytest.approx(np.sqrt(np.mean(pdist(roots, "sqeuclidean") / 2)))


def test_jensen_shannon_distance_of_two_clients_is_scipys() -> None:
    first, second = np.array([5, 0, 3]), np.array([1, 8, 1])
    expected = jensenshannon(first, second, base=2)
    assert jensen_shannon_distance(np.stack([first, 10 * second])) == pytest.approx(expected)


def test_jensen_shannon_distance_of_many_clients_is_that_to_their_mean() -> None:
    counts = np.random.default_rng(1).integers(0, 9, (7, 4))
    shares = counts / counts.sum(axis=1, keepdims=True)
    # The mean divergence of each client's shares from their mean is the entropy of the mean less the mean entropy.
    divergence = np.mean([entropy(each, shares.mean(axis=0), base=7) for each in shares])
    assert jensen_shannon_distance(counts) == pytest.approx(np.sqrt(divergence))


@pytest.mark.parametrize("measure", [hellinger, jensen_shannon_distance])
def test_distances_between_clients_have_their_bounds_and_weight_clients_alike(measure: Callable) -> None:
    assert measure(np.full((5, 3), 7)) == pytest.approx(0, abs=1e-7)
    assert measure(np.diag([1, 20, 300, 4])) == pytest.approx(1)
    counts = np.array([[3, 1, 2], [0, 5, 1], [2, 2, 0]])
    assert measure(counts * np.array([[1], [10], [3]])) == pytest.approx(measure(counts))
    assert measure(np.vstack([counts, np.zeros((2, 3), int)])) == pytest.approx(measure(counts))  # without images
    assert measure(counts[:1]) == 0


def test_effective_groups_counts_even_shares() -> None:
    # One client has three groups evenly, the other one group: (3 + 1) / 2.
    assert effective_groups(np.array([[4, 4, 4], [9, 0, 0]])) == pytest.approx(2.0)


def test_size_imbalance_by_hand() -> None:
    # Sizes 2 and 6: mean 4, standard deviation 2.
    assert size_imbalance(np.array([[2, 0], [3, 3]])) == pytest.approx(0.5)


# Embeddings


def test_frechet_distance_is_that_of_the_formula() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4))
    client_of = rng.integers(-1, 3, 300)
    client_of[:2] = 3  # a client of two images, whose covariance is singular
    everything = points[client_of >= 0]
    covariance = np.cov(everything.T, bias=True)
    for client, found in enumerate(frechet_distances(points, client_of, 4)):
        own = points[client_of == client]
        own_covariance = np.cov(own.T, bias=True)
        means = np.square(own.mean(axis=0) - everything.mean(axis=0)).sum()
        # Square roots of the eigenvalues, and not SciPy's root of the matrix, which a singular one need not have.
        cross = np.sqrt(np.linalg.eigvals(own_covariance @ covariance).real.clip(0)).sum()
        assert found == pytest.approx(means + np.trace(own_covariance) + np.trace(covariance) - 2 * cross, rel=1e-5)


def test_frechet_distance_along_one_axis_by_hand() -> None:
    # Populations on a line: (mean - mean)^2 + (sd - sd)^2. All: mean 3, sd sqrt(5); clients 0, 2 and 4, 6: sd 1.
    points = np.array([[0.0], [2.0], [4.0], [6.0]])
    distances = frechet_distances(points, np.array([0, 0, 1, 1]), 2)
    assert distances == pytest.approx([4 + (np.sqrt(5) - 1) ** 2] * 2)


def test_relative_frechet_distance_is_two_for_clients_of_one_image_and_none_for_one_client() -> None:
    points = np.random.default_rng(0).normal(size=(40, 6)) * 100
    assert relative_frechet(points, np.arange(40), 40) == pytest.approx(2)
    assert relative_frechet(points, np.zeros(40, int), 1) == pytest.approx(0, abs=1e-9)
    assert relative_frechet(np.ones((4, 2)), np.array([0, 0, 1, 1]), 2) == 0


# Targets


def test_variance_share_follows_from_the_f_statistic() -> None:
    rng = np.random.default_rng(0)
    values, client_of = rng.normal(size=(60, 1)), rng.integers(0, 4, 60)
    values[client_of == 2] += 1
    statistic = f_oneway(*(values[client_of == client, 0] for client in range(4))).statistic
    # F = (eta^2 / 3) / ((1 - eta^2) / 56)
    assert variance_share(values, client_of, 4) == pytest.approx(3 * statistic / (3 * statistic + 56))


def test_variance_share_by_hand() -> None:
    # Two columns; client means (1, 0) and (3, 0), overall (2, 0): between 4 * 1; within 2 + 2 and 1 + 1 + 0 + 0.
    values = np.array([[0.0, 1.0], [2.0, -1.0], [2.0, 0.0], [4.0, 0.0], [np.nan, 0.0], [9.0, 9.0]])
    client_of = np.array([0, 0, 1, 1, 1, -1])  # the last two do not count
    assert variance_share(values, client_of, 2) == pytest.approx(4 / (4 + 4 + 2))


def test_variance_share_of_a_random_partition_is_the_one_by_chance() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(101, 3))
    found = [variance_share(values, rng.permutation(np.arange(101) % 11), 11) for _ in range(300)]
    assert np.mean(found) == pytest.approx(10 / 100, abs=0.005)


@settings(max_examples=40, deadline=None)
@given(
    ids=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=4, max_size=40),
)
def test_share_of_classes_is_that_of_one_hot_rows(ids: list[tuple[int, int]]) -> None:
    labels, client_of = np.array([*ids, (0, 0), (1, 1), (1, 2)]).T
    counts = group_counts(client_of, labels, 3)
    assert class_variance_share(counts) == pytest.approx(variance_share(np.eye(4)[labels], client_of, 3))


# The report


def test_counts_leave_out_images_without_a_group_or_a_client() -> None:
    groups, client_of = np.array([0, 1, 1, -1, 2]), np.array([0, 1, 1, 0, -1])
    assert group_counts(client_of, groups, 2).tolist() == [[1, 0, 0], [0, 2, 0]]


def test_the_distance_by_what_is_assigned_stands_beside_that_by_class() -> None:
    # Domains of 1/2, 1/4 and 1/4 of the images, one at each client, and classes that are alike in all of them.
    domains, classes = np.repeat([0, 0, 1, 2], 10), np.tile([0, 1], 20)
    values = report(domains, classes, 3, assigned=domains)
    assert values["emd"] == 0 and values["assigned_emd"] == pytest.approx(2 * (1 - 1 / 4 - 1 / 16 - 1 / 16))
    lines = report_text(values, "class", "domain").splitlines()
    assert [line.split() for line in lines if "mover" in line] == [
        [*["earth", "mover's", "distance", "to", "the", "population,", "by", "class", "0.000", "0", "to", "2"]],
        [*["earth", "mover's", "distance", "to", "the", "population,", "by", "domain", "1.250", "0", "to", "2"]],
    ]
    assert "assigned_emd" not in report(domains, classes, 3)


def test_report_has_what_it_is_given_and_says_it_in_a_line_each() -> None:
    client_of, groups = np.array([0, 0, 1, -1]), np.array([0, 1, 1, 1])
    plain = report(client_of, groups, 2)
    assert (plain["assigned_images"], plain["smallest_client"], plain["largest_client"]) == (3, 1, 2)
    assert "frechet" not in plain
    points = np.random.default_rng(0).normal(size=(4, 2))
    full = report(client_of, groups, 2, embeddings=points)
    # The part of the Fréchet distance that comes from the means is the share of variance between clients.
    assert full["frechet"] >= variance_share(points, client_of, 2) > 0
    lines = report_text(full).splitlines()
    assert len(lines) == len(report_text(plain).splitlines()) + 1
    assert lines[0] == "2 clients with 1 to 2 images each, 3 in all, of 2 groups"
    assert len({line.index(f"{full[name]:.3f}") for line, name in zip(lines[1:], list(full)[5:7], strict=False)}) == 1


def test_equal_sizes_are_one_number() -> None:
    client_of = np.repeat([0, 1, 2], 64)
    [line, *_] = report_text(report(client_of, np.zeros(192, int), 3), "class").splitlines()
    assert line == "3 clients with 64 images each, 192 in all, of 1 class"


def test_what_reweighting_can_achieve_is_said_where_images_are_reweighted() -> None:
    clients, groups = [np.array([0, 1]), np.array([2, 3])], np.array([0, 0, 0, 1])
    values = report(np.array([0, 0, 1, 1]), groups, 2)
    of_reweighting = reweighting(groups, clients, np.zeros(0, int), "population").measures()
    without, with_it = (report_text(values | of_reweighting, reweighted=said).splitlines() for said in (False, True))
    assert without == report_text(values).splitlines()
    assert len(with_it) == len(without) + 5 and sum("reweighted" in line for line in with_it) == 3
