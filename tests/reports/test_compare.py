"""Runs beside the reference runs of their seeds, from frames whose pairs are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from reports.compare import SETTING, Reference, by_seed, compare, of_random, settings_of
from reports.tables import in_settings
from tests.reports.test_baselines import run


def test_of_two_runs_of_a_seed_the_last_counts_and_seeds_are_in_order() -> None:
    runs = pd.DataFrame({"rand_seed": [2, 1, 2], "train_loss": [5.0, 3.0, 4.0]})
    assert by_seed(runs)["train_loss"].to_dict() == {1: 3.0, 2: 4.0} and list(by_seed(runs).index) == [1, 2]


def test_each_run_has_a_partner_of_its_seed_in_every_reference() -> None:
    frame = [run("fedavg", loss, seed, alpha=7.0) for seed, loss in ((1, 2.0), (0, 1.0), (3, 1.5))]
    frame += [
        run("fedavg", loss, seed, "class_based", emd=emd) for seed, loss, emd in ((2, 8.0, 5), (0, 1.5, 1), (1, 2.4, 3))
    ]
    frame += [run("fedprox", loss, seed, "class_based", emd=1) for seed, loss in ((1, 3.0), (0, 3.0))]
    runs, keys = in_settings(pd.DataFrame(frame), SETTING)
    fedavg = Reference(runs[runs["method"] == "fedavg"], ["task", "type", "alpha"])
    assigned = runs[runs["type"] == "class_based"]
    first, second = compare(assigned, keys, {"iid": of_random(runs, keys), "fedavg": fedavg}).to_dict("records")
    # The IID runs serve whatever their alpha; seed 2 has none, and FedProx none at all.
    assert (first["method"], first["type"], first["seeds"]) == ("fedavg", "class", [0, 1, 2])
    assert first["loss"].tolist() == [1.5, 2.4, 8.0] and first["fedavg"].tolist() == first["loss"].tolist()
    assert first["over_iid"].values == pytest.approx([50.0, 20.0, np.nan], nan_ok=True)
    assert (first["means"]["emd"], first["fedavg_means"]["emd"], first["learnt"]) == (3.0, 3.0, "yes")
    assert np.isnan(second["iid"]).all() and second["learnt"] == ""
    assert second["over_fedavg"].values == pytest.approx([100.0, 25.0]) and second["fedavg_means"]["emd"] == 2.0


def test_what_only_one_of_two_runs_has_keeps_them_apart_unless_they_are_paired_loosely() -> None:
    runs = pd.DataFrame([run("fedavg", 1.0, teacher=""), run("feddifrc", 1.5, teacher="lite0")])
    alike = ["task", "type", "teacher"]
    for loosely, expected in ((False, np.nan), (True, 50.0)):
        reference = Reference(runs[:1], alike, loosely)
        [row] = compare(runs[1:], [*SETTING, "teacher"], {"fedavg": reference}).to_dict("records")
        assert row["over_fedavg"].values == pytest.approx([expected], nan_ok=True) and row["more"] == {
            "teacher": "lite0"
        }
    two = pd.concat([runs[:1], runs[:1].assign(teacher="lite0", train_loss=3.0)])  # either could be the partner
    [row] = compare(runs[1:], list(SETTING), {"fedavg": Reference(two, ["task", "type"], True)}).to_dict("records")
    assert np.isnan(row["over_fedavg"].values).all()


def test_settings_come_in_order_of_their_values_or_of_their_runs() -> None:
    runs = pd.DataFrame([run("fedprox", 1.0), run("fedavg", 1.0, alpha=2.0), run("fedavg", 1.0, alpha=10.0)])
    orders = {order: settings_of(compare(runs, SETTING, {}, in_order=order)) for order in (True, False)}
    assert orders[True][["method", "alpha"]].to_numpy().tolist() == [["fedavg", 2], ["fedavg", 10], ["fedprox", 0.1]]
    assert orders[False]["method"].tolist() == ["fedprox", "fedavg", "fedavg"]
