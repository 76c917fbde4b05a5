"""Tests for the comparison of runs with a baseline."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reports.baselines import over_baseline, report_baselines


def run(method: str, loss: float, seed: int = 0, kind: str = "iid", **others: object) -> dict[str, object]:
    """A row of `read_runs`."""
    row = {"task": "normal", "method": method, "type": kind, "alpha": 0.1, "rand_seed": seed}
    for images in ("train", "local_test", "test", "unseen_train", "unseen_test"):
        row |= {
            f"{images}_loss": np.nan,
            f"{images}_trivial": 4.0,
            f"{images}_model": "global",
            f"{images}_metric": np.nan,
        }
    return row | {"metric": "", "train_loss": loss} | others


def test_losses_are_compared_seed_by_seed_within_a_split() -> None:
    runs = [run("fedavg", loss, seed) for seed, loss in enumerate((1.0, 2.0, 9.0))]
    runs += [run("fedprox", 2.6, 1), run("fedprox", 1.1, 0)]
    runs += [run(method, loss, kind="class_based") for method, loss in (("fedprox", 3.0), ("fedavg", 2.0))]
    of_class, iid = over_baseline(pd.DataFrame(runs), "method", "fedavg").sort_values("type").to_dict("records")
    # Ratios of 1.1 and 1.3, whose mean is the root of 1.43; seed 2 has no partner.
    assert iid["over fedavg, %"].startswith("+19.6 [") and iid["seeds"] == 2
    assert (iid["loss"], iid["method"], iid["alpha"]) == ("1.8500 ± 1.0607", "fedprox", "")
    assert (of_class["over fedavg, %"], of_class["fedavg"], of_class["alpha"]) == ("+50.0", "2.0000", "0.1")


def test_a_rate_of_each_methods_own_pairs_and_one_that_all_were_tried_with_does_by_value() -> None:
    own = pd.DataFrame([run("fedavg", 1.0, init_lr=0.1), run("fedprox", 1.5, init_lr=0.3)])
    assert over_baseline(own, "method", "fedavg")["over fedavg, %"].tolist() == ["+50.0"]
    both = pd.DataFrame(
        [
            run(method, loss, init_lr=lr)
            for method, lr, loss in (
                ("fedavg", 0.1, 1.0),
                ("fedavg", 0.3, 2.0),
                ("fedprox", 0.1, 1.2),
                ("fedprox", 0.3, 2.0),
            )
        ]
    )
    said = over_baseline(both, "method", "fedavg").set_index("init_lr")["over fedavg, %"]
    assert said.to_dict() == {"0.1": "+20.0", "0.3": "+0.0"}


def test_another_argument_compares_the_runs_of_a_method_that_has_it() -> None:
    runs = pd.DataFrame(
        [run("fedavg", 1.0)]
        + [
            run("feddifrc", loss, guidance=whose, guidance_path=teacher)
            for whose, teacher, loss in (
                ("own", "lite0", 1.1),
                ("shuffled", "lite0", 1.0),
                ("own", "random", 3.0),
                ("shuffled", "random", 2.0),
            )
        ]
    )
    said = over_baseline(runs, "guidance", "shuffled").set_index("guidance_path")
    assert said["over shuffled, %"].to_dict() == {"lite0": "+10.0", "random": "+50.0"}
    assert set(said["guidance"]) == {"own"}
    without = runs.drop(index=4)  # that teacher's shuffled vectors; another teacher's are no baseline for it
    assert over_baseline(without, "guidance", "shuffled")["guidance_path"].tolist() == ["lite0"]


def test_alpha_can_be_the_argument() -> None:
    runs = pd.DataFrame([run("fedavg", loss, kind="class_based", alpha=of) for of, loss in ((0.1, 2.0), (1.0, 1.5))])
    [row] = over_baseline(runs, "alpha", "0.1").to_dict("records")
    assert (row["alpha"], row["over 0.1, %"]) == ("1", "-25.0")


def test_arguments_that_only_one_of_two_runs_has_do_not_keep_them_apart() -> None:
    runs = pd.DataFrame(
        [run("fedavg", loss, aggregation=rule, trim_share=share, attack=attack) for rule, share, attack, loss in
         (("mean", None, "none", 1.0), ("mean", None, "ipm", 2.0), ("trimmed_mean", 0.1, "none", 1.1),
          ("trimmed_mean", 0.2, "none", 1.2), ("trimmed_mean", 0.1, "ipm", 2.0))]
    )  # fmt: skip
    said = over_baseline(runs, "aggregation", "mean").set_index(["attack", "trim_share"])["over mean, %"]
    assert said.to_dict() == {("none", "0.1"): "+10.0", ("none", "0.2"): "+20.0", ("ipm", "0.1"): "+0.0"}
    assert over_baseline(runs, "aggregation", "trimmed_mean")["attack"].tolist() == ["ipm"]  # none leaves a choice


def test_a_rate_of_its_own_does_not_stand_in_the_way() -> None:
    runs = [run("fedavg", 1.0, reweighting="none", init_lr=0.1), run("fedavg", 1.2, reweighting="class", init_lr=0.3)]
    [row] = over_baseline(pd.DataFrame(runs), "reweighting", "none").to_dict("records")
    assert (row["init_lr"], row["over none, %"]) == ("0.3", "+20.0")
    # Both were tried with this rate, and so it counts.
    runs += [run("fedavg", 3.0, reweighting="none", init_lr=0.3)]
    [row] = over_baseline(pd.DataFrame(runs), "reweighting", "none").to_dict("records")
    assert (row["init_lr"], row["over none, %"]) == ("0.3", "-60.0")
    tuned = [
        run(method, loss, kind="class_based", init_lr=rate) | {"alpha": alpha}
        for method, alpha, rate, loss in (
            ("fedavg", 0.1, 0.1, 1.0),
            ("fedavg", 1, 0.3, 2.0),
            ("fedavgm", 0.1, 0.03, 1.1),
            ("fedavgm", 1, 0.1, 3.0),
        )
    ]
    said = over_baseline(pd.DataFrame(tuned), "method", "fedavg").set_index("alpha")["over fedavg, %"]
    assert said.to_dict() == {"0.1": "+10.0", "1": "+50.0"}


def test_a_rate_that_was_chosen_for_each_setting_does_not_stand_in_the_way() -> None:
    runs = pd.DataFrame(
        [
            run("fedavgm", loss, reweighting=weights, local_epochs=epochs, init_lr=rate)
            for weights, epochs, rate, loss in (
                ("none", 1, 0.1, 1.0),
                ("class", 1, 0.3, 1.1),
                ("none", "auto", 0.3, 2.0),
                ("class", "auto", 0.3, 2.4),
            )
        ]
    )
    said = over_baseline(runs, "reweighting", "none").set_index("local_epochs")["over none, %"]
    assert said.to_dict() == {"1": "+10.0", "auto": "+20.0"}
    said = over_baseline(runs, "local_epochs", "1").set_index("reweighting")["over 1, %"]
    assert said.to_dict() == {"none": "+100.0", "class": "+118.2"}


def test_p_is_adjusted_over_the_table() -> None:
    rng = np.random.default_rng(0)
    runs = [run("fedavg", 1.0, seed) for seed in range(5)]
    runs += [run("fedprox", 1.1 + 0.01 * rng.normal(), seed) for seed in range(5)]
    runs += [run("scaffold", 1.0 + 0.2 * rng.normal(), seed) for seed in range(5)]
    prox, scaffold = over_baseline(pd.DataFrame(runs), "method", "fedavg").to_dict("records")
    assert prox["loss beside fedavg (margin ±2 %)"] == "higher"
    assert scaffold["loss beside fedavg (margin ±2 %)"] == "inconclusive"


def test_fedavg_is_the_baseline_where_there_are_other_methods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = pd.DataFrame(
        [run(method, loss, seed) for method, loss in (("fedavg", 1.0), ("fedprox", 1.1)) for seed in range(5)]
    )
    report_baselines(runs, [], tmp_path)
    assert "+10.0" in (tmp_path / "over_method_fedavg.csv").read_text()
    assert "loss compared with method fedavg, 1 row: 1 higher; see\n" in capsys.readouterr().out
    report_baselines(runs, [("method", "fedrep"), ("guidance", "own")], tmp_path)
    said = capsys.readouterr().out
    assert "--baseline method=fedrep: no two finished runs to compare; runs have fedavg, fedprox\n" in said
    assert "--baseline guidance=own: no two finished runs to compare\n" in said
    report_baselines(runs[runs["method"] == "fedavg"], [], tmp_path)
    of_other_seeds = runs["rand_seed"].where(runs["method"] == "fedavg", runs["rand_seed"] + 5)
    report_baselines(runs.assign(rand_seed=of_other_seeds), [], tmp_path)
    assert capsys.readouterr().out == ""  # nobody has given a baseline


def test_files_are_named_by_argument_and_value(tmp_path: Path) -> None:
    settings = product((0.1, 0.2), ("none", "a/b"), ("none", "ring"))
    runs = pd.DataFrame([run("fedavg", 1 + lr, init_lr=lr, attack=a, topology=of) for lr, a, of in settings])
    baselines = [("init_lr", "0.1"), ("attack", "none"), ("topology", "none"), ("attack", "a/b")]
    report_baselines(runs, baselines, tmp_path)
    named = {"over_init_lr_0.1", "over_attack_none", "over_topology_none", "over_attack_a_b"}
    assert {path.name for path in tmp_path.glob("*.md")} == {f"{name}.md" for name in named}
