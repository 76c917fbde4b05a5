"""The comparison in words, from losses whose answer is known."""

from __future__ import annotations

import numpy as np
import pandas as pd

from reports.tables import SKEW
from reports.verdicts import alpha_slopes, sentences, verdicts

VERDICT = "loss under the embedding split (margin ±2 %)"


def row(alpha: float, of_class: list[float], embedding: list[float], split: str = "train", **more: object) -> dict:
    """A row as `reports.tables.compare` makes them."""
    skew = {f"{kind}_{name}": 0.5 for kind in ("class", "embedding") for name in SKEW}
    losses = {"class": np.array(of_class), "embedding": np.array(embedding)}
    losses |= {"iid": np.ones(len(of_class)), "trivial": np.full(len(of_class), 4.0)}
    about = {"task": "normal", "method": "fedavg", "alpha": alpha, "seeds": list(range(len(of_class)))}
    return about | {"images": split, "model": "global"} | losses | skew | more


def test_paired_by_seed() -> None:
    of_class = [1.0, 2.0, 3.0, 4.0, 5.0]
    # Seeds differ much more than the splits do; seed by seed the embedding split's loss is 8 to 12 % higher.
    embedding = [loss * factor for loss, factor in zip(of_class, (1.08, 1.09, 1.10, 1.11, 1.12), strict=True)]
    table = pd.DataFrame([row(0.1, of_class, embedding), row(10, of_class, of_class[::-1])])
    higher, neither = verdicts(table).to_dict("records")
    # Logarithms with mean 9.524 and standard error 0.643: 9.524 ± 1.785, as percent.
    assert higher["embedding over class, %"] == "+10.0 [+8.0, +12.0]"
    assert (higher["seeds"], higher["seeds higher"]) == (5, 5)
    assert higher[VERDICT] == "higher"
    assert higher["p, adjusted"] == "< 0.001"  # 2 * 0.0001
    assert neither[VERDICT] == "inconclusive"  # 5, 2, 1, 1/2 and 1/5 of the other's loss


def test_dense_tasks_are_judged_together_by_the_seeds_that_all_have() -> None:
    rows = [
        row(0.1, [1.0, 1.0, 1.0], [1.1, 1.2, 9.0]),
        row(0.1, [2.0, 2.0], [2.6, 2.8], task="reshading"),
        row(0.1, [1.0, 1.0], [9.0, 9.0], task="class_scene"),
        row(10, [1.0], [2.0]),  # which no other task has
    ]
    said = verdicts(pd.DataFrame(rows), ["normal", "reshading"]).to_dict("records")
    assert [each["task"] for each in said] == ["normal", "reshading", "class_scene", "normal", "2 dense tasks"]
    # Seed by seed 1.1 and 1.3, and 1.2 and 1.4: the logarithms' means are 0.17884 and 0.25940, their mean 0.21912, the
    # standard error 0.04028, t(0.975; 1) = 12.706.
    assert (said[-1]["seeds"], said[-1]["alpha"]) == (2, 0.1)
    assert said[-1]["embedding over class, %"] == "+24.5 [-25.4, +107.7]"


def test_the_verdict_is_that_of_all_rows_and_the_interval_alone_stands_beside_it() -> None:
    of_class, noise = [1.0] * 5, np.random.default_rng(0).normal(0, 0.1, (11, 5))
    some = row(0.1, of_class, [1.01, 1.03, 1.05, 1.06, 1.10], task="some")
    rows = [some, *(row(0.1, of_class, list(np.exp(of)), task=f"none{n}") for n, of in enumerate(noise))]
    alone, first = verdicts(pd.DataFrame(rows[:1])), verdicts(pd.DataFrame(rows)).iloc[0]
    assert alone[VERDICT].tolist() == ["higher"] and float(alone["p, adjusted"].iloc[0]) < 0.05
    assert (first[VERDICT], first["unadjusted"]) == ("inconclusive", "higher")
    assert float(first["p, adjusted"]) > 0.05
    [sentence] = sentences(pd.DataFrame([first]))
    assert f"which split costs more remains open (5 seeds, adjusted p {first['p, adjusted']})" in sentence


def test_negative_losses_do_not_reverse_a_verdict() -> None:
    lower, higher = [-1.0, -2.0, -3.0, -4.0, -5.0], [-0.9, -1.8, -2.8, -3.7, -4.6]
    said = verdicts(pd.DataFrame([row(0.1, lower, higher), row(10, higher, lower)]))
    assert said[VERDICT].tolist() == ["higher", "lower"] and said["seeds higher"].tolist() == [5, 0]
    assert alpha_slopes(pd.DataFrame([row(0.1, lower, higher), row(10, higher, lower)]))["seeds"].tolist() == [0]


def test_sentences_are_of_the_clients_own_data() -> None:
    table = pd.DataFrame(
        [row(0.1, [1.0] * 3, [1.1, 1.2, 1.3]), row(0.1, [1.0] * 3, [1.0] * 3, "test"), row(10, [1.0], [1.5])]
    )
    first, second = sentences(verdicts(table))
    open_question = "normal, fedavg, α = 0.1: which split costs more remains open (3 seeds, adjusted p 0.065)"
    # Logarithms 0.09531, 0.18232 and 0.26236: mean 0.18000, standard error 0.04824, times 4.303.
    assert first == f"{open_question}, +19.7 [-2.7, +47.3] %"
    assert second == "normal, fedavg, α = 10: cannot be told from 1 seed, +50.0 %"


def test_sentences_say_what_the_interval_says() -> None:
    losses = [1.0] * 5
    for embedding, phrase in (
        (
            [1.1, 1.12, 1.1, 1.12, 1.1],
            "the embedding-based split costs more than the class-based one (5 seeds, adjusted p 0.000), +10.8",
        ),
        (
            [0.9, 0.88, 0.9, 0.88, 0.9],
            "the embedding-based split costs less than the class-based one (5 seeds, adjusted p 0.000), -10.8",
        ),
        ([1.0, 1.01, 0.99, 1.0, 1.0], "the splits' costs differ by less than 2 % (5 seeds, adjusted p 0.995), -0.0"),
    ):
        [sentence] = sentences(verdicts(pd.DataFrame([row(0.1, losses, embedding)])))
        assert phrase in sentence


def test_arguments_that_differ_are_named() -> None:
    rows = [row(0.1, [1.0], [1.5], sgd_per_epoch=steps) for steps in ("5", "20", "")]
    columns = list(pd.DataFrame(rows))
    assert columns.index("sgd_per_epoch") > columns.index("images")
    said = verdicts(pd.DataFrame(rows))
    assert said["sgd_per_epoch"].tolist() == ["5", "20", ""]
    named = [text.split(":")[0] for text in sentences(said)]
    steps = ("", ", sgd_per_epoch 5", ", sgd_per_epoch 20")
    assert sorted(named) == [f"normal, fedavg, α = 0.1{said}" for said in sorted(steps)]


def test_arguments_that_do_not_tell_rows_apart_are_not_named() -> None:
    # Only scene types of one task were dealt by another rule, and that task has no row of this one.
    rows = [
        row(alpha, [1.0], [1.5], task=task, partition=rule, evaluate_clients=said)
        for task, rule, said in (("normal", "equal_size", ""), ("depth", "dirichlet", "5"))
        for alpha in (0.1, 1)
    ]
    named = [text.split(":")[0] for text in sentences(verdicts(pd.DataFrame(rows)))]
    assert set(named) == {
        "normal, fedavg, α = 0.1", "normal, fedavg, α = 1",
        # That not all clients were evaluated is always said.
        "depth, fedavg, α = 0.1, evaluate_clients 5", "depth, fedavg, α = 1, evaluate_clients 5",
    }  # fmt: skip


def test_slope_of_a_power_of_alpha_is_its_exponent() -> None:
    alphas, level = (0.01, 0.1, 10.0), np.array([1.0, 2.0, 3.0])
    exponents = np.array([0.01, 0.02, 0.03])  # of each seed, under the embedding split; none under the class split
    rows = [row(alpha, list(level), list(level * alpha**-exponents)) for alpha in alphas]
    [found] = alpha_slopes(pd.DataFrame(rows)).to_dict("records")
    # 100 ln(10^-k) = -230.26 k: -2.30, -4.61, -6.91; mean -4.61, standard error 1.329, t(0.975; 2) = 4.303: from -10.33
    # to 1.12, and as percent -4.5, from -9.8 to 1.1.
    assert found["embedding, % per tenfold α"] == "-4.5 [-9.8, +1.1]"
    assert found["class, % per tenfold α"].endswith("[-0.0, +0.0]") or "0.0 [" in found["class, % per tenfold α"]
    assert (found["alphas"], found["seeds"]) == ("0.01 0.1 10", 3)


def test_slopes_take_the_seeds_that_all_alphas_have() -> None:
    rows = [row(0.1, [1.0, 1.0], [2.0, 4.0], seeds=[3, 5]), row(1.0, [1.0, 1.0], [1.0, 9.0], seeds=[3, 7])]
    [found] = alpha_slopes(pd.DataFrame(rows)).to_dict("records")
    assert found["seeds"] == 1 and found["embedding, % per tenfold α"] == "-50.0"
    assert alpha_slopes(pd.DataFrame(rows[:1])).empty
