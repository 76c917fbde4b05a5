"""The comparison in words, from losses whose answer is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from reports.tables import SKEW
from reports.verdicts import alpha_slopes, sentences, verdicts

VERDICT = "loss under the embedding split (margin ±2 %)"


def row(alpha: float, of_class: list[float], embedding: list[float], split: str = "train", **more: object) -> dict:
    """A row as `reports.tables.compare` makes them."""
    skew = {f"{kind}_{name}": 0.5 for kind in ("class", "embedding") for name in SKEW}
    losses = {"class": np.array(of_class), "embedding": np.array(embedding)}
    losses |= {"iid": np.ones(len(of_class)), "trivial": np.full(len(of_class), 4.0)}
    about = {"task": "normal", "method": "fedavg", "alpha": alpha, "seeds": list(range(len(of_class)))}
    return about | {"split": split, "model": "global"} | losses | skew | more


def test_paired_by_seed() -> None:
    of_class = [1.0, 2.0, 3.0, 4.0, 5.0]
    # Seeds differ much more than the splits do; seed by seed the embedding split's loss is 8 to 12 % higher.
    embedding = [loss * factor for loss, factor in zip(of_class, (1.08, 1.09, 1.10, 1.11, 1.12), strict=True)]
    table = pd.DataFrame([row(0.1, of_class, embedding), row(10, of_class, of_class[::-1])])
    higher, neither = verdicts(table).to_dict("records")
    # Mean 10, standard error sqrt(2.5 / 5): 10 ± 1.963.
    assert higher["embedding over class, %"] == "+10.0 [+8.0, +12.0]"
    assert (higher["seeds"], higher["seeds higher"]) == (5, 5)
    assert higher[VERDICT] == "higher"
    assert float(higher["p, adjusted"]) == pytest.approx(2 * 0.0001, abs=2e-4)
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
    # Seed by seed 10 and 30, and 20 and 40 %: 20 and 30; the mean is 25, the standard error 5, t(0.975; 1) = 12.71.
    assert (said[-1]["seeds"], said[-1]["alpha"]) == (2, 0.1)
    assert said[-1]["embedding over class, %"] == "+25.0 [-38.5, +88.5]"


def test_sentences_are_of_the_clients_own_data() -> None:
    table = pd.DataFrame(
        [row(0.1, [1.0] * 3, [1.1, 1.2, 1.3]), row(0.1, [1.0] * 3, [1.0] * 3, "test"), row(10, [1.0], [1.5])]
    )
    first, second = sentences(verdicts(table))
    open_question = "normal, fedavg, α = 0.1: which split costs more remains open (3 seeds)"
    assert first == f"{open_question}, +20.0 [-4.8, +44.8] %"  # 20 ± 4.303 * 5.774
    assert second == "normal, fedavg, α = 10: cannot be told from 1 seed, +50.0 %"


def test_sentences_say_what_the_interval_says() -> None:
    losses = [1.0] * 5
    for embedding, phrase in (
        ([1.1, 1.12, 1.1, 1.12, 1.1], "the embedding-based split costs more than the class-based one (5 seeds), +10.8"),
        ([0.9, 0.88, 0.9, 0.88, 0.9], "the embedding-based split costs less than the class-based one (5 seeds), -10.8"),
        ([1.0, 1.01, 0.99, 1.0, 1.0], "both splits cost the same (5 seeds), +0.0"),
    ):
        [sentence] = sentences(verdicts(pd.DataFrame([row(0.1, losses, embedding)])))
        assert phrase in sentence


def test_arguments_that_differ_are_named() -> None:
    rows = [row(0.1, [1.0], [1.5], sgd_per_epoch=steps) for steps in ("5", "20")]
    columns = list(pd.DataFrame(rows))
    assert columns.index("sgd_per_epoch") > columns.index("split")
    said = verdicts(pd.DataFrame(rows))
    assert said["sgd_per_epoch"].tolist() == ["5", "20"]
    named = [text.split(":")[0] for text in sentences(said)]
    assert named == ["normal, fedavg, α = 0.1, 5", "normal, fedavg, α = 0.1, 20"]


def test_slope_of_a_power_of_alpha_is_its_exponent() -> None:
    alphas, level = (0.01, 0.1, 10.0), np.array([1.0, 2.0, 3.0])
    exponents = np.array([0.01, 0.02, 0.03])  # of each seed, under the embedding split; none under the class split
    rows = [row(alpha, list(level), list(level * alpha**-exponents)) for alpha in alphas]
    [found] = alpha_slopes(pd.DataFrame(rows)).to_dict("records")
    # 100 ln(10^-k) = -230.26 k: -2.30, -4.61, -6.91; mean -4.61, standard error 1.329, t(0.975; 2) = 4.303.
    assert found["embedding, % per tenfold α"] == "-4.6 [-10.3, +1.1]"
    assert found["class, % per tenfold α"].endswith("[-0.0, +0.0]") or "0.0 [" in found["class, % per tenfold α"]
    assert (found["alphas"], found["seeds"]) == ("0.01 0.1 10", 3)


def test_slopes_take_the_seeds_that_all_alphas_have() -> None:
    rows = [row(0.1, [1.0, 1.0], [2.0, 4.0], seeds=[3, 5]), row(1.0, [1.0, 1.0], [1.0, 9.0], seeds=[3, 7])]
    [found] = alpha_slopes(pd.DataFrame(rows)).to_dict("records")
    assert found["seeds"] == 1 and found["embedding, % per tenfold α"] == "-69.3"  # 100 ln(1/2)
    assert alpha_slopes(pd.DataFrame(rows[:1])).empty
