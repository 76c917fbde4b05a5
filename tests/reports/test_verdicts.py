"""The comparison in words, from losses whose answer is known."""

from __future__ import annotations

import numpy as np
import pandas as pd

from reports.statistics import Change, increase
from reports.verdicts import alpha_slopes, headlines, verdicts

VERDICT = "loss under the embedding partition (margin ±2 %)"


def row(alpha: float, of_class: list[float], embedding: list[float], split: str = "train", **more: object) -> dict:
    """A row as `reports.splits.side_by_side` makes them; of `more`, what is none of its columns is an argument."""
    losses = {"class": np.array(of_class), "embedding": np.array(embedding)}
    losses |= {"iid": np.ones(len(of_class)), "trivial": np.full(len(of_class), 4.0)}
    losses |= {f"over_{name}": Change.of(increase(losses["embedding"], losses[name])) for name in ("class", "iid")}
    about = {"task": "normal", "method": "fedavg", "alpha": alpha, "seeds": list(range(len(of_class)))}
    about |= {"learnt": "yes", "metric": "within_30"}
    about |= {f"{kind}_value": value for kind, value in (("iid", 0.5), ("class", 0.4375), ("embedding", 0.25))}
    made = about | {"images": split, "model": "global"} | losses
    arguments = {name: value for name, value in more.items() if name not in made}
    return made | {name: value for name, value in more.items() if name in made} | {"more": arguments}


def sentences(said: pd.DataFrame) -> list[str]:
    """Those on the clients' own images."""
    return headlines(said, pd.DataFrame())["On client train"]


def test_paired_by_seed() -> None:
    of_class = [1.0, 2.0, 3.0, 4.0, 5.0]
    # Seeds differ much more than the partitions do; seed by seed the embedding partition's loss is 8 to 12 % higher.
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
    assert f"which partition costs more remains open (5 seeds, adjusted p {first['p, adjusted']})" in sentence


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
    open_question = "normal, fedavg, α = 0.1: which partition costs more remains open (3 seeds, adjusted p 0.065)"
    # Logarithms 0.09531, 0.18232 and 0.26236: mean 0.18000, standard error 0.04824, times 4.303.
    metric = "within_30 0.5 (IID), 0.438 (class), 0.25 (embedding)"
    assert first == f"{open_question}, +19.7 [-2.7, +47.3] %; {metric}"
    assert second == f"normal, fedavg, α = 10: cannot be judged from 1 seed, +50.0 %; {metric}"


def test_headlines_begin_with_one_row_on_held_out_images() -> None:
    losses = [1.0] * 3, [1.1, 1.2, 1.3]
    rows = [row(0.1, *losses, images, model=model, method=method) for images, model, method in (
        ("train", "global", "fedavg"), ("local_test", "global", "fedavg"), ("test", "global", "fedavg"),
        # Of personal models, what clients hold out counts, and not the common model on common images.
        ("train", "personal", "ditto"), ("local_test", "personal", "ditto"), ("test", "global", "ditto"),
        ("train", "personal", "local"), ("local_test", "personal", "local"),
    )]  # fmt: skip
    said = verdicts(pd.DataFrame(rows))
    kept = said.assign(seeds=said["data"] + ", " + said["model"])  # to see which row a sentence is of
    found = headlines(kept, pd.DataFrame())
    assert list(found) == ["On test images", "On client train"]
    of = [(line.split(",")[1].strip(), line.split("(")[1].split(" seeds")[0]) for line in found["On test images"]]
    assert of == [
        ("fedavg", "global test, global"),
        ("ditto", "client test, personal"),
        ("local", "client test, personal"),
    ]
    assert len(found["On client train"]) == 3


def test_no_verdict_where_the_iid_runs_have_not_learnt() -> None:
    higher = [1.0] * 5, [1.1, 1.12, 1.1, 1.12, 1.1]
    learnt, not_learnt = row(0.1, *higher), row(0.1, *higher, task="depth", learnt="no", trivial=np.full(5, 0.9))
    table = pd.DataFrame([learnt, not_learnt, row(0.1, *higher, task="edges", learnt="by heart")])
    said = verdicts(table, ["normal", "depth", "edges"])
    assert said[VERDICT].tolist() == ["higher", "withheld", "higher", "higher"]
    # It is no test, and so makes no other stricter: p is that of the two others and of both together.
    others = verdicts(table.iloc[[0, 2]], ["normal", "edges"])["p, adjusted"].tolist()
    assert said["p, adjusted"].tolist() == [others[0], "–", *others[1:]]
    assert said["task"].iloc[-1] == "2 dense tasks" and said["unadjusted"].iloc[1] == "withheld"
    first, second, third, _ = sentences(said)
    assert "costs more" in first and "by heart" not in first and "costs more" in third and "learnt by heart" in third
    assert second.startswith("depth, fedavg, α = 0.1: no verdict, since the task is not learnt")
    assert "under IID is 1.000, the constant baseline's 0.900" in second and "+10.8" not in second
    slopes = pd.DataFrame([not_learnt, row(10, *higher, task="depth", learnt="no")])
    assert alpha_slopes(slopes)["p, adjusted"].tolist() == ["–"]


def test_splits_by_natural_groups_are_put_into_words_beside_iid() -> None:
    text = {"task": "normal", "method": "fedavg", "type": "domain", "alpha": "", "model": "global", "learnt": "yes",
            "constant baseline": "4.0", "IID": "1.0 ± 0.1", "over IID, %": "+20.0 [+10.0, +30.0]", "metric": "accuracy",
            "metric, IID": "0.5", "metric, partition": "0.375", "seeds": "5", "p, adjusted": "0.010",
            "loss over IID's (margin ±2 %)": "higher"}  # fmt: skip
    names = ["task", "method", "type", "alpha", "model", "data"]
    splits = pd.DataFrame(
        [
            text | {"data": "global test"},
            text | {"data": "client train", "learnt": "by heart"},
            text | {"data": "global test", "type": "class", "alpha": "0.1"},
        ]
    )
    splits = splits[[*names, *(name for name in splits if name not in names)]]
    phrase = "the partition costs more than a random one (5 seeds, adjusted p 0.010)"
    change = "+20.0 [+10.0, +30.0] %; accuracy 0.5 (IID), 0.375 (partition)"
    alone = headlines(pd.DataFrame(), splits)["On test images"]
    assert alone == [
        f"normal, fedavg, partition by domain: {phrase}, {change}",
        f"normal, fedavg, partition by class, α = 0.1: {phrase}, {change}",
    ]
    found = headlines(verdicts(pd.DataFrame([row(0.1, [1.0] * 3, [1.1, 1.2, 1.3], "test")])), splits)
    assert len(found["On test images"]) == 2 and found["On test images"][1] == alone[0]
    assert found["On client train"] == [f"normal, fedavg, partition by domain: {phrase}, learnt by heart, {change}"]


def test_sentences_say_what_the_interval_says() -> None:
    losses = [1.0] * 5
    for embedding, phrase in (
        (
            [1.1, 1.12, 1.1, 1.12, 1.1],
            "the embedding-based partition costs more than the class-based one (5 seeds, adjusted p < 0.001), +10.8",
        ),
        (
            [0.9, 0.88, 0.9, 0.88, 0.9],
            "the embedding-based partition costs less than the class-based one (5 seeds, adjusted p < 0.001), -10.8",
        ),
        (
            [1.0, 1.01, 0.99, 1.0, 1.0],
            "the partitions' costs differ by less than 2 % (5 seeds, adjusted p 0.995), -0.0",
        ),
    ):
        [sentence] = sentences(verdicts(pd.DataFrame([row(0.1, losses, embedding)])))
        assert phrase in sentence


def test_arguments_that_differ_are_named() -> None:
    rows = [row(0.1, [1.0], [1.5], sgd_per_epoch=steps) for steps in ("5", "20", "")]
    said = verdicts(pd.DataFrame(rows))
    assert said["sgd_per_epoch"].tolist() == ["5", "20", ""]
    named = [text.split(":")[0] for text in sentences(said)]
    steps = ("", ", sgd_per_epoch 5", ", sgd_per_epoch 20")
    assert sorted(named) == [f"normal, fedavg, α = 0.1{said}" for said in sorted(steps)]


def test_arguments_that_do_not_tell_rows_apart_are_not_named() -> None:
    # Only scene types of one task were assigned by another rule, and that task has no row of this one.
    rows = [
        row(alpha, [1.0], [1.5], task=task, partition=rule, evaluate_clients=said)
        for task, rule, said in (("normal", "equal_size", ""), ("depth", "dirichlet", "5"))
        for alpha in (0.1, 1)
    ]
    named = [text.split(":")[0] for text in sentences(verdicts(pd.DataFrame(rows)))]
    assert set(named) == {
        "normal, fedavg, α = 0.1",
        "normal, fedavg, α = 1",
        # That not all clients were evaluated is always said.
        "depth, fedavg, α = 0.1, evaluate_clients 5",
        "depth, fedavg, α = 1, evaluate_clients 5",
    }


def test_slope_of_a_power_of_alpha_is_its_exponent() -> None:
    alphas, level = (0.01, 0.1, 10.0), np.array([1.0, 2.0, 3.0])
    exponents = np.array(
        [0.01, 0.02, 0.03]
    )  # of each seed, under the embedding partition; none under the class partition
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
