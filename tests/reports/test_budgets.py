"""Accuracy for a budget, from made-up runs whose accuracies and steps are known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy import stats

from reports.budgets import at_budgets, budget_tables, read_progress, relative, rounds_to
from reports.figures.budgets import against_emd, learning_curves
from reports.finished import Results
from reports.statistics import share_interval
from tests.reports.figures.pictures import band_at, check_picture, interval_of, legend_of, line_of, points_of, words
from tests.reports.finish import finish
from utils.errors import UserError
from utils.figures import palette

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a finished run of these accuracies, nan where a round was not evaluated, and local steps per round."""

    def write_run(accuracies: list[float], steps: int, emd: float = 1.0, **args: object) -> None:
        given = {"task": "classification", "method": "fedavg", "type": "class_based", "alpha": 0.1, "rand_seed": 0}
        given |= {"partition": "dirichlet_hsu"} | args
        rounds = np.arange(len(accuracies))
        table = {"round": rounds, "local_steps": steps * (rounds > 0), "test_accuracy": accuracies}
        summary = {"last": {"test_accuracy": accuracies[-1]}, "heterogeneity": {"emd": emd}}
        finish(tmp_path, given, summary, metrics=table)

    return write_run


NAN = float("nan")


@pytest.fixture
def runs(write: Write, tmp_path: Path) -> Path:
    """Two seeds without and with virtual clients, and the central run of one of them."""
    write([0.1, NAN, 0.2, NAN, 0.4], 10, virtual_client_size=None)
    write([0.1, NAN, 0.4, NAN, 0.6], 10, virtual_client_size=None, rand_seed=1)
    write([0.1, 0.3, 0.5], 4, virtual_client_size=64)
    write([0.1, 0.3, 0.7], 4, virtual_client_size=64, rand_seed=1)
    write([0.1, 0.8], 40, method="centralized", virtual_client_size=None, alpha=7.0)
    return tmp_path


def by_setting(table: pd.DataFrame) -> dict[str, dict[str, str]]:
    return {row.pop("setting"): row for row in table.to_dict("records")}


PLAIN, VIRTUAL = "fedavg", "fedavg, virtual_client_size 64"


def test_budgets_are_empty_where_nothing_was_evaluated(runs: Path) -> None:
    progress = read_progress(Results(runs))
    by_round = by_setting(at_budgets(progress, "round", [1, 2, 4]))
    # Of 0.2 and 0.4 the mean is 0.3, with a standard deviation of 0.1 * sqrt(2); rounds 1 and 3 were not evaluated.
    assert [by_round[PLAIN][name] for name in ("@1", "@2", "@4")] == ["", "30.0 ± 14.1", "50.0 ± 14.1"]
    assert [by_round[VIRTUAL][name] for name in ("@1", "@2", "@4")] == ["30.0 ± 0.0", "60.0 ± 14.1", ""]
    # 8 batches end before the first round of 10 does, 19 after it; from 20 to 29 the model is that of round 2.
    by_batch = by_setting(at_budgets(progress, "batches", [8, 19, 20, 29, 40]))
    assert [by_batch[PLAIN][f"@{n}"] for n in (8, 19, 20, 29, 40)] == [
        "10.0 ± 0.0",
        "",
        "30.0 ± 14.1",
        "30.0 ± 14.1",
        "50.0 ± 14.1",
    ]
    assert [by_batch[VIRTUAL][f"@{n}"] for n in (8, 19)] == ["60.0 ± 14.1", ""]
    assert by_batch[PLAIN] | {"α": "0.1", "seeds": 2, "EMD": "1.00", "central": "80.0 ± 0.0"} == by_batch[PLAIN]
    # By default, those evaluations of the longest runs that are nearest to a fifth, half and all of them.
    assert [name for name in at_budgets(progress, "round") if "@" in name] == ["@2", "@4"]


def test_round_0_stands_for_no_later_round(write: Write, tmp_path: Path) -> None:
    for seed in range(2):
        write([0.1, *[NAN] * 7, 0.6 + seed / 10, *[NAN] * 7, 0.8], 5 + seed, rand_seed=seed)
    write([0.8], 40, method="centralized", alpha=7.0)
    progress = read_progress(Results(tmp_path))
    [row] = at_budgets(progress, "round", [0, 2, 4, 8, 15, 16]).to_dict("records")
    assert [row[f"@{n}"] for n in (0, 2, 4, 8, 15, 16)] == ["10.0 ± 0.0", "", "", "65.0 ± 7.1", "", "80.0 ± 0.0"]
    assert [name for name in at_budgets(progress, "round") if "@" in name] == ["@8", "@16"]
    # After 8 rounds the seeds have made 40 and 48 steps: at 48, the first is in a round of which nothing is known.
    [row] = at_budgets(progress, "batches", [40, 44, 48]).to_dict("records")
    assert [row[f"@{n}"] for n in (40, 44, 48)] == ["", "", ""]
    assert (
        by_setting(rounds_to(progress, [0.1, 0.5, 0.99]))["fedavg"]
        | {"10%": "0 ± 0", "50%": "≤ 8 ± 0", "99%": "≤ 16 ± 0"}
        == by_setting(rounds_to(progress, [0.1, 0.5, 0.99]))["fedavg"]
    )


def test_a_metric_of_a_last_round_alone_is_shown_there_alone(write: Write, tmp_path: Path) -> None:
    write([NAN, NAN, 0.5], 10)
    [row] = at_budgets(read_progress(Results(tmp_path)), "round", [1, 2]).to_dict("records")
    assert (row["@1"], row["@2"]) == ("", "50.0")


def test_a_budget_is_one_that_every_seed_reaches(runs: Path, write: Write) -> None:
    for seed, n_rounds in enumerate((6, 9)):
        write([0.1] * n_rounds, 10, virtual_client_size=8, rand_seed=seed)
    progress = read_progress(Results(runs))
    table = at_budgets(progress, "round")
    assert [name for name in table if "@" in name] == ["@1", "@2", "@5"]  # rounds 0 to 5 and 0 to 8
    longer = by_setting(at_budgets(progress, "round", [5, 8]))["fedavg, virtual_client_size 8"]
    assert (longer["@5"], longer["@8"]) == ("10.0 ± 0.0", "")


def test_rounds_to_shares_of_the_central_accuracy(runs: Path) -> None:
    table = by_setting(rounds_to(read_progress(Results(runs)), [0.5, 0.74, 0.9]))
    # Half of 0.8 is reached after 4 and 2 rounds, three quarters in one seed, nine tenths in none.
    assert table[PLAIN] | {"50%": "≤ 3 ± 1", "74%": "≤ 4 (1 of 2 seeds)", "90%": "> 4"} == table[PLAIN]
    assert table[VIRTUAL] | {"50%": "2 ± 0", "74%": "2 (1 of 2 seeds)"} == table[VIRTUAL]


def test_a_share_that_is_not_reached_is_beyond_the_runs_own_last_round(runs: Path, write: Write) -> None:
    write([0.1] * 9, 10, virtual_client_size=8)
    write([0.1] * 4, 10, virtual_client_size=8, rand_seed=1)
    table = by_setting(rounds_to(read_progress(Results(runs)), [0.99]))
    assert [table[name]["99%"] for name in (PLAIN, VIRTUAL)] == ["> 4", "> 2"]
    assert table["fedavg, virtual_client_size 8"]["99%"] == "> 3 to 8"


def test_relative_accuracy_is_over_the_central_run_of_the_task(runs: Path, write: Write) -> None:
    write([0.1, 0.2], 1, task="other", emd=0.5)
    last = relative(read_progress(Results(runs)))
    of = last.set_index(["task", "setting", "rand_seed"])["relative"]["classification"]
    assert of[(PLAIN, 0)] == pytest.approx(0.5) and of[(VIRTUAL, 1)] == pytest.approx(0.875)
    assert np.isnan(last.loc[last["task"] == "other", "relative"]).all()
    assert set(rounds_to(read_progress(Results(runs)))["task"]) == {"classification"}


def test_a_split_in_which_alpha_has_no_part_has_none(write: Write, tmp_path: Path) -> None:
    write([0.1, 0.2], 1, type="user_id_based", partition="natural")
    write([0.1, 0.3], 1, type="iid")
    progress = read_progress(Results(tmp_path))
    assert progress["alpha"].isna().all() and set(at_budgets(progress, "round")["α"]) == {""}
    assert set(progress["setting"]) == {
        "fedavg, type user_id_based, partition natural",
        "fedavg, type iid, partition dirichlet_hsu",
    }
    assert "rounds_to" not in budget_tables(Results(tmp_path), "accuracy", [], [])  # without a central run


def test_without_the_metric_there_is_nothing(tmp_path: Path, runs: Path) -> None:
    with pytest.raises(UserError, match="has test_miou of a global model"):
        read_progress(Results(runs), "miou")
    assert budget_tables(Results(runs), "miou", [], []) == {}


def test_figures(runs: Path, write: Write) -> None:
    write([0.1, NAN, 0.7], 10, emd=0.2, alpha=10.0, virtual_client_size=None)
    progress = read_progress(Results(runs))
    check_picture(learning_curves(progress, "accuracy", runs / "figures" / "progress.png"))
    check_picture(against_emd(relative(progress), "accuracy", runs / "figures" / "emd.png"))


def t_interval(values: list[float]) -> list[float]:
    return list(stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values)))


def test_curves_go_through_the_means_over_seeds(runs: Path, drawn: list[Figure]) -> None:
    learning_curves(read_progress(Results(runs)), "accuracy", runs / "progress.png")
    by_round, by_batch = drawn[0].axes
    for name, rounds, steps, seeds in (
        (PLAIN, [0, 2, 4], 10, [[0.1] * 2, [0.2, 0.4], [0.4, 0.6]]),
        (VIRTUAL, [0, 1, 2], 4, [[0.1] * 2, [0.3] * 2, [0.5, 0.7]]),
    ):
        label = name.replace("fedavg", "FedAvg")
        means = pytest.approx([np.mean(of) for of in seeds])
        assert line_of(by_round, label) == [rounds, means]
        assert line_of(by_batch, label) == [[steps * at for at in rounds], means]
        for axes, at in ((by_round, rounds[-1]), (by_batch, steps * rounds[-1])):
            low, high = band_at(axes, name == VIRTUAL, at)
            assert [low, high] == pytest.approx(share_interval(seeds[-1])) and 0 < low < high < 1
            assert t_interval(seeds[-1])[0] < 0  # which it would have been drawn to
    assert [points_of(axes.lines[0])[1] for axes in (by_round, by_batch)] == [[0.8, 0.8]] * 2  # central training
    assert by_round.get_xlabel() == "round" and by_batch.get_xlabel().startswith("batches")
    lines = zip(("FedAvg", "FedAvg, virtual_client_size 64"), palette(2), strict=True)
    assert legend_of(drawn[0]) == {name: to_hex(of) for name, of in lines} | {"central training": "#555555"}


def test_curves_have_a_panel_a_split_and_a_line_a_method(write: Write, tmp_path: Path, drawn: list[Figure]) -> None:
    for method, seed in product(("fedavg", "fedprox"), (0, 1)):
        write([0.1, 0.3], 4, method=method, rand_seed=seed, type="iid")
        write([0.1, 0.4], 4, method=method, rand_seed=seed, type="user_id_based", partition="natural")
        for kind, alpha in product(("class_based", "embedding_based"), (0.1, 10.0)):
            write([0.1, 0.2 + alpha / 100], 4, method=method, rand_seed=seed, type=kind, alpha=alpha)
    learning_curves(read_progress(Results(tmp_path)), "accuracy", tmp_path / "progress.png")
    [figure] = drawn
    above, below = np.array(figure.axes).reshape(2, -1)
    assert [axis.get_title().replace("\n", ", ") for axis in above] == [
        "IID partition",
        "class-based partition, α = 0.1",
        "class-based partition, α = 10",
        "embedding-based partition, α = 0.1",
        "embedding-based partition, α = 10",
        "user-id-based partition",
    ]
    ends = {"IID partition": 0.3, "user-id-based partition": 0.4}
    for axis in (*above, *below):
        assert [line.get_label() for line in axis.lines][1:] == ["FedAvg", "FedProx"]
    for axis in above:
        end = ends.get(axis.get_title(), 0.3 if "10" in axis.get_title() else 0.201)
        assert line_of(axis, "FedProx") == [[0, 1], pytest.approx([0.1, end])]
    assert list(legend_of(figure)) == ["FedAvg", "FedProx"]  # none is of central training
    FigureCanvasAgg(figure).draw()
    for axis in (above[0], below[0]):
        label = axis.yaxis.label.get_window_extent()
        assert label.x0 >= 0 and label.y0 >= 0 and label.y1 <= figure.bbox.y1


def test_points_over_emd_are_shares_of_central_training(runs: Path, write: Write, drawn: list[Figure]) -> None:
    for seed in (0, 1):
        write([0.1, NAN, 0.7 + seed / 10], 10, emd=0.2, alpha=10.0, virtual_client_size=None, rand_seed=seed)
    against_emd(relative(read_progress(Results(runs))), "accuracy", runs / "emd.png")
    [axes] = drawn[0].axes
    plain, virtual = axes.containers
    assert points_of(plain[0]) == [[0.2, 1.0], [0.9375, 0.625]]  # 0.75 and 0.5, of 0.8
    assert points_of(virtual[0]) == [[1.0], [0.75]]
    ends = [t_interval([0.7 / 0.8, 0.8 / 0.8]), t_interval([0.4 / 0.8, 0.6 / 0.8])]
    assert [[y for _, y in points] for points in interval_of(plain)] == [pytest.approx(of) for of in ends]
    assert [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--"] == [1.0]
    assert axes.get_ylabel() == "accuracy over central training's" and words(drawn[0].legends[0].get_texts()) == [
        PLAIN,
        VIRTUAL,
    ]
    cut = [(*line.get_xydata()[0], line.get_marker()) for line in axes.lines if line.get_label() == "_cut"]
    assert cut == [(1.0, 0.0, "v")] * 2  # both intervals at an EMD of 1 reach below 0


def test_a_rate_that_goes_with_alpha_makes_no_setting(write: Write, tmp_path: Path) -> None:
    for alpha, rate in ((0.1, 0.01), (1.0, 0.03)):
        write([0.1, 0.4], 10, alpha=alpha, init_lr=rate)
    assert set(read_progress(Results(tmp_path))["setting"]) == {PLAIN}
    write([0.1, 0.4], 10, alpha=1.0, init_lr=0.1)  # which does not, since there are two at this alpha
    assert set(read_progress(Results(tmp_path))["setting"]) == {
        f"{PLAIN}, init_lr {rate}" for rate in (0.01, 0.03, 0.1)
    }


def test_rows_and_lines_do_not_depend_on_which_run_ended_first(
    write: Write, tmp_path: Path, drawn: list[Figure]
) -> None:
    write([0.1, 0.2], 10, task="other", alpha=1.0)
    for method, alpha in (("fedavgm", 0.0), ("fedavg", 100.0), ("fedavg", 1.0), ("fedavg", 0.0)):
        for seed in (1, 0):
            write([0.1, 0.2], 10, task="class_scene", method=method, alpha=alpha, rand_seed=seed)
    progress = read_progress(Results(tmp_path))
    table = at_budgets(progress, "round")
    assert list(table["task"]) == ["class_scene"] * 4 + ["other"]
    assert list(zip(table["setting"], table["α"], strict=True)) == [
        ("fedavg", "0"), ("fedavg", "1"), ("fedavg", "100"), ("fedavgm", "0"), ("fedavg", "1")
    ]  # fmt: skip
    assert list(progress["rand_seed"]) == [0, 0, 1, 1] * 4 + [0, 0] and list(progress["round"]) == [0, 1] * 9
    learning_curves(progress, "accuracy", tmp_path / "progress.png")
    assert list(legend_of(drawn[0])) == ["FedAvg", "FedAvgM"]


def test_that_all_runs_evaluate_some_clients_alone_makes_no_setting_of_held_out_images(
    write: Write, tmp_path: Path
) -> None:
    write([0.1, 0.2], 10, evaluate_clients=1)
    write([0.1, 0.3], 10, evaluate_clients=1, rand_seed=1)
    assert set(read_progress(Results(tmp_path))["setting"]) == {"fedavg"}
    write([0.1, 0.2], 10, evaluate_clients=2)  # what else would count one run twice
    assert set(read_progress(Results(tmp_path))["setting"]) == {
        "fedavg, evaluate_clients 1",
        "fedavg, evaluate_clients 2",
    }


def test_the_legend_over_emd_names_the_settings_of_every_task(
    tmp_path: Path, write: Write, drawn: list[Figure]
) -> None:
    write([0.1, 0.5], 10, method="fedavg")
    write([0.1, 0.6], 10, task="class_scene", method="fedprox")
    against_emd(relative(read_progress(Results(tmp_path))), "accuracy", tmp_path / "emd.png")
    assert words(drawn[0].legends[0].get_texts()) == ["fedprox", "fedavg"]  # scene classes are the first task
