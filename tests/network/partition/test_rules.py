"""What partitions promise for any input, whatever the rule."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from network.partition import dirichlet, rules, shares, without_alpha
from network.partition.rules import PARTITIONERS
from tests.utils.calls import at_most
from utils.errors import UserError

ALPHAS = st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 10.0, 1e6])
WHOLE = {
    "dirichlet_per_class",
    "shards",
    "natural",
    "commonest_object",
    "quantity_skew",
    "iid",
}  # rules that assign every image
WHOLE_GROUPS = {"natural", "commonest_object"}  # and those that never part a group


@st.composite
def groups_and_clients(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=8))
    left_out = draw(st.integers(0, 20))
    names = draw(st.permutations(range(10)))[: len(sizes)]  # ids need not be without gaps
    groups = np.concatenate([np.repeat(names, sizes), np.full(left_out, -1)])
    n_clients = draw(st.integers(1, min(6, sum(sizes))))
    return np.random.default_rng(0).permutation(groups), n_clients


@pytest.mark.parametrize("rule", PARTITIONERS)
@settings(max_examples=20, deadline=None)
@given(case=groups_and_clients(), alpha=ALPHAS, seed=st.integers(0, 5), min_size=st.sampled_from([None, 1, 5]))
def test_what_every_rule_promises(
    rule: str, case: tuple[np.ndarray, int], alpha: float, seed: int, min_size: int | None
) -> None:
    groups, n_clients = case

    def assign() -> np.ndarray:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(dirichlet, "_DRAWS", 50)  # what has no answer has none sooner
            return PARTITIONERS[rule](groups, n_clients, alpha, np.random.default_rng(seed), min_size)

    try:
        client_of = assign()
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
    assert (assign() == client_of).all()


@settings(max_examples=60, deadline=None)
@given(case=groups_and_clients(), alpha=ALPHAS, rule=st.sampled_from(["equal_size", "dirichlet_hsu", "iid"]))
def test_rules_of_equal_sizes_never_fail(case: tuple[np.ndarray, int], alpha: float, rule: str) -> None:
    PARTITIONERS[rule](*case, alpha, np.random.default_rng(0))


@pytest.mark.parametrize("rule", sorted(PARTITIONERS.keys() - {"commonest_object"}))  # in which nothing is drawn
def test_another_seed_deals_otherwise(rule: str) -> None:
    groups = np.random.default_rng(0).integers(0, 8, 800)
    first, other = (PARTITIONERS[rule](groups, 5, 1.0, np.random.default_rng(seed)) for seed in (1, 2))
    assert (first != other).any()


@pytest.mark.parametrize("module", [rules, dirichlet, without_alpha, shares])
def test_examples_in_docstrings(module: object) -> None:
    done = doctest.testmod(module)
    assert done.attempted > 0 and done.failed == 0


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
def test_an_impossible_demand_is_named_soon(
    rule: str, sizes: list[int], n_clients: int, alpha: float, min_size: int | None, text: str
) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    with at_most(500_000), pytest.raises(UserError, match=text):
        PARTITIONERS[rule](groups, n_clients, alpha, np.random.default_rng(0), min_size)


@pytest.mark.parametrize("rule", sorted(PARTITIONERS.keys() - {"quantity_skew", "dirichlet_per_class"}))
def test_ten_thousand_clients_over_a_million_images_take_few_calls(rule: str) -> None:
    groups = np.random.default_rng(0).integers(0, 10_000 if rule in WHOLE_GROUPS else 16, 1_000_000)
    with at_most(len(groups)):
        client_of = PARTITIONERS[rule](groups, 10_000, 1.0, np.random.default_rng(0), 10)
    assert len(np.unique(client_of[client_of >= 0])) == 10_000
