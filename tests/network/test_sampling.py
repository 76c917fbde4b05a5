"""Who takes part: chances, weights, and unbiased means."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from network.sampling import by_size, shuffled_epochs, systematic, uniform

SIZES = np.array([10, 20, 30, 40])


def test_all_take_part_with_their_sizes_as_weights() -> None:
    for n_chosen in (4, 9):
        assert uniform(SIZES, n_chosen, np.random.default_rng(0)) == {0: 10, 1: 20, 2: 30, 3: 40}


def test_uniform_draws_are_without_replacement_and_equally_likely() -> None:
    rng = np.random.default_rng(0)
    draws = [uniform(SIZES, 2, rng) for _ in range(2000)]
    assert all(len(chosen) == 2 and all(SIZES[i] == weight for i, weight in chosen.items()) for chosen in draws)
    for client in range(4):
        assert binomtest(sum(client in chosen for chosen in draws), 2000, 0.5).pvalue > 1e-3


def test_the_mean_over_draws_by_size_is_unbiased() -> None:
    rng, values = np.random.default_rng(1), np.array([1.0, -2.0, 5.0, 3.0])
    means = []
    for _ in range(4000):
        chosen = by_size(SIZES, 3, rng)
        assert sum(chosen.values()) == 3
        means.append(sum(weight * values[i] for i, weight in chosen.items()) / 3)
    # The weighted mean of all is (10 - 40 + 150 + 120) / 100 = 2.4; a draw of three has a variance of
    # (0.1 + 0.8 + 7.5 + 3.6 - 2.4^2) / 3 = 6.24 / 3.
    assert abs(np.mean(means) - 2.4) < 4 * np.sqrt(6.24 / 3 / 4000)


def test_systematic_draws_are_as_many_as_the_sizes_ask_for_on_average() -> None:
    sizes, rng = np.array([1, 1, 2, 3, 5, 8, 13, 40]), np.random.default_rng(2)
    expected = 4 * sizes / sizes.sum()
    values, draws, means = np.array([3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0, -6.0]), [], []
    for _ in range(4000):
        chosen = systematic(sizes, 4, rng)
        counts = np.zeros(8)
        counts[list(chosen)] = np.array(list(chosen.values())) * 4 / sum(sizes)
        assert counts.sum() == 4 and (np.abs(counts - expected) < 1).all()  # rounded up or down
        draws.append(counts)
        means.append(values @ counts / 4)
    # A count that is rounded up with chance f varies by f (1 - f).
    spread = np.sqrt((expected % 1) * (1 - expected % 1) / 4000)
    assert (np.abs(np.mean(draws, axis=0) - expected) < 4 * spread).all()
    # Independent draws: (the values' mean square - the square of their mean) / 4.
    shares = expected / 4
    independent = (shares @ values**2 - (shares @ values) ** 2) / 4
    assert abs(np.mean(means) - shares @ values) < 4 * np.sqrt(independent / 4000)
    assert np.var(means) < 0.6 * independent


def test_systematic_draws_of_equal_sizes_are_without_replacement() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 12):
        sizes = np.full(5, size)
        assert systematic(sizes, 5, rng) == uniform(sizes, 5, rng) == dict.fromkeys(range(5), float(size))
    pairs = [tuple(sorted(systematic(sizes, 2, rng))) for _ in range(2000)]
    assert all(len(pair) == 2 for pair in pairs)
    for pair in {*pairs}:  # all ten are as likely
        assert binomtest(pairs.count(pair), 2000, 0.1).pvalue > 1e-4
    assert len({*pairs}) == 10


def test_the_chosen_are_those_of_all_clients_written_out() -> None:
    # Draws as they are counted client by client, for every client.
    sizes = np.random.default_rng(5).integers(1, 40, 300)
    for n in (1, 7, 120):
        draws = np.random.default_rng(n).choice(300, n, p=sizes / sizes.sum()).tolist()
        assert by_size(sizes, n, np.random.default_rng(n)) == {i: draws.count(i) for i in range(300) if i in draws}
        rng = np.random.default_rng(n)
        order, first = rng.permutation(300), rng.integers(sizes.sum())
        owner = np.repeat(order, sizes[order] * n)  # of every n-th part of an image
        drawn = owner[first + sizes.sum() * np.arange(n)].tolist()
        expected = {i: drawn.count(i) * float(sizes.sum()) / n for i in range(300) if i in drawn}
        found = systematic(sizes, n, np.random.default_rng(n))
        assert found == expected and list(found) == sorted(found)


def test_a_hundred_thousand_clients_are_drawn_from_exactly() -> None:
    sizes = np.full(100_000, 13)
    chosen = systematic(sizes, 100_000, np.random.default_rng(4))
    assert len(chosen) == 100_000 and set(chosen.values()) == {13.0}


@pytest.mark.parametrize(
    "n_images, batch_size, n_steps", [(10, 4, 7), (3, 16, 4), (1, 8, 3), (8, 4, 2), (9, 4, 9), (3, 1, 6), (5, 4, 3)]
)
def test_batches_are_full_and_every_epoch_shows_every_image_once(n_images: int, batch_size: int, n_steps: int) -> None:
    batches = shuffled_epochs(n_images, batch_size, n_steps, np.random.default_rng(0))
    assert batches.shape == (n_steps, min(batch_size, n_images))
    seen = batches.ravel()
    for start in range(0, len(seen) - n_images + 1, n_images):
        assert sorted(seen[start : start + n_images]) == list(range(n_images))
    rest = seen[len(seen) - len(seen) % n_images :]
    assert len(set(rest)) == len(rest) and set(rest) <= set(range(n_images))


def test_epochs_differ() -> None:
    first, second = shuffled_epochs(50, 50, 2, np.random.default_rng(0))
    assert not np.array_equal(first, second)
