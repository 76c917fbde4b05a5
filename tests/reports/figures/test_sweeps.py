"""What figures of sweeps are drawn from, and that each is drawn: from made-up runs with known losses."""

from __future__ import annotations

import warnings
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

from network.algorithms import ALGORITHMS
from reports.curves import read_assigned, read_last, read_rounds
from reports.figures import sweeps
from reports.finished import Results
from tests.reports.figures.pictures import (
    band_at,
    bars_of,
    check_picture,
    legend_of,
    line_of,
)
from tests.reports.finish import finish
from utils.errors import UserError
from utils.figures import COLOURS

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a finished run whose loss starts at `loss` and falls by 0.1 a round; a personal one beside it if given."""

    def write_run(kind: str, loss: float, *, personal: bool = False, **args: object) -> Path:
        given = {"task": "normal", "method": "fedavg", "alpha": 0.1, "rand_seed": 0, "init_lr": 0.1} | args
        rounds = pd.DataFrame({"round": range(3), "test_loss": 9.0})
        for prefix, start in {"": loss, **({"personal_": loss - 1} if personal else {})}.items():
            rounds[f"{prefix}train_loss_mean"] = start - 0.1 * rounds["round"]
            rounds[f"{prefix}train_loss_std"] = 0.5
        summary = {"heterogeneity": {"target_variance_share": 0.75}, "trivial": {"train": {"loss": 3.0}}}
        path = finish(tmp_path, given | {"type": kind}, summary, metrics=rounds)
        np.save(path / "partition.npy", np.array([1, 0, 1, -1, 1]))
        np.save(path / "groups.npy", np.array([2, 0, 2, 1, 0]))
        return path

    return write_run


@pytest.mark.parametrize("read", [read_rounds, lambda *given: read_last(*given, "alpha")])
def test_tasks_whose_models_are_not_held_against_all_held_out_images_are_left_out(
    read: Callable[[Results, str], pd.DataFrame], write: Write, tmp_path: Path
) -> None:
    write("class_based", 5)
    without_global = write("class_based", 5, task="edge_texture", personal=True) / "metrics.csv"
    pd.read_csv(without_global).drop(columns="test_loss").to_csv(without_global, index=False)
    assert set(read(Results(tmp_path), "train")["task"]) == {"normal", "edge_texture"}
    assert set(read(Results(tmp_path), "test")["task"]) == {"normal"}
    with pytest.raises(UserError, match=r"no run has a loss on client test.*--data"):
        read(Results(tmp_path), "local_test")


def test_rounds_of_the_models_that_a_method_offers(tmp_path: Path, write: Write) -> None:
    write("iid", 2.0)
    write("iid", 2.0, method="ditto", personal=True)
    table = read_rounds(Results(tmp_path), "train")
    losses = {method: part["loss"].tolist() for method, part in table.groupby("method")}
    assert losses == {"fedavg": pytest.approx([2, 1.9, 1.8]), "ditto": pytest.approx([1, 0.9, 0.8])}
    assert set(table["measure"]) == {"L1 loss"} and set(table["trivial"]) == {3.0}
    held_out = read_rounds(Results(tmp_path), "test", ["fedavg"])
    assert held_out["loss"].tolist() == [9.0] * 3
    for methods in (["moon"], ["fedavg", "moon"]):
        with pytest.raises(UserError, match="no finished run of moon in"):
            read_rounds(Results(tmp_path), "train", methods)


def test_rounds_without_an_evaluation_are_left_out(tmp_path: Path, write: Write) -> None:
    path = write("iid", 2.0) / "metrics.csv"
    rows = pd.read_csv(path)
    rows.loc[1, [name for name in rows if name != "round"]] = np.nan
    rows.to_csv(path, index=False)
    table = read_rounds(Results(tmp_path), "train")
    assert table["round"].tolist() == [0, 2] and table["loss"].tolist() == pytest.approx([2, 1.8])


def test_runs_of_several_settings_are_not_put_into_one_line(tmp_path: Path, write: Write) -> None:
    for rate in (0.1, 0.2):
        write("iid", 2.0, init_lr=rate)
    with pytest.raises(UserError, match="differ in --init_lr as well"):
        read_rounds(Results(tmp_path), "train")
    table = read_last(Results(tmp_path), "train", "init_lr")
    columns = table[["init_lr", "loss", "trivial"]].sort_values("init_lr")
    assert columns.to_numpy().tolist() == [[0.1, 1.8, 3.0], [0.2, 1.8, 3.0]]
    with pytest.raises(UserError, match="no such argument"):
        read_last(Results(tmp_path), "train", "momentum")


def test_what_clients_have(tmp_path: Path, write: Write) -> None:
    write("class_based", 2.0)
    write("iid", 2.0)
    counts, share = read_assigned(Results(tmp_path))["normal"]["class_based"][0.1]
    # Client 0 has an image of group 0; client 1 one of group 0 and two of group 2; one image of group 1 is nobody's.
    assert counts.tolist() == [[1, 0, 0], [1, 0, 2]] and share == 0.75
    assert [*read_assigned(Results(tmp_path))["normal"]] == ["class_based"]


def test_random_splits_alone_have_no_distributions(tmp_path: Path, write: Write) -> None:
    write("iid", 2.0)
    with pytest.raises(UserError, match="are of --type iid; run"):
        read_assigned(Results(tmp_path))


def test_distributions_of_any_split(tmp_path: Path, write: Write, drawn: list[Figure]) -> None:
    write("class_based", 2.0, alpha=1.0)
    write("target_based", 2.0)
    write("user_id_based", 2.0, partition="natural")
    sweeps.distributions(read_assigned(Results(tmp_path))["normal"], "normal", Path())
    panels = np.array(drawn[0].axes).reshape(3, 3)
    labels = ["class-based partition", "target-based partition", "user-id-based partition"]
    assert [axis.get_ylabel() for axis in panels[:, 0]] == [f"{label}\nimages" for label in labels]
    titles = ["α = 0.1, target share 0.75", "α = 1, target share 0.75", "target share 0.75"]
    assert [[axis.get_title() for axis in row] for row in panels] == [
        ["", titles[1], ""],
        [titles[0], "", ""],
        ["", "", titles[2]],
    ]
    assert [row[-1].get_legend().get_title().get_text() for row in panels] == ["class", "target", "user id"]


def write_grid(write: Write, seeds: int, rates: tuple[float, ...] = (0.1,), kinds: tuple[str, ...] = ("iid",)) -> None:
    for seed in range(seeds):
        for task in ("normal", "reshading"):
            for rate in rates:
                for kind in kinds:
                    for alpha in (0.1,) if kind == "iid" else (0.1, 10.0):
                        write(kind, 2.0 + seed / 10, task=task, alpha=alpha, rand_seed=seed, init_lr=rate)


KINDS = ("iid", "class_based", "embedding_based")


@pytest.mark.parametrize("seeds, kinds", [(1, ("iid",)), (3, KINDS), (2, KINDS[1:])])
def test_figure_of_rounds(tmp_path: Path, write: Write, seeds: int, kinds: tuple[str, ...]) -> None:
    write_grid(write, seeds, kinds=kinds)
    path = sweeps.rounds(read_rounds(Results(tmp_path), "train"), "train", "fedavg", tmp_path / "figure.png")
    check(path)


def test_rounds_show_the_trivial_predictor_and_what_comes_after_the_untrained_model(
    tmp_path: Path, write: Write, drawn: list[Figure]
) -> None:
    write_grid(write, 2, kinds=KINDS)
    table = read_rounds(Results(tmp_path), "train")
    table.loc[table["round"] == 0, "loss"] = 50.0
    sweeps.rounds(table, "train", "fedavg", tmp_path / "figure.png")
    for axis in drawn[0].axes:
        levels = [list(line.get_ydata()) for line in axis.lines if line.get_label() == "constant baseline"]
        assert [3.0, 3.0] in levels
        low, high = axis.get_ylim()
        # From the better seed's 1.8 after the last round to the constant baseline's 3, and a little more.
        assert 1.7 < low < 1.8 and 3.0 < high < 3.1


@pytest.mark.parametrize("value", [3.0, 0.0])
def test_rounds_in_which_nothing_changes_have_room(
    tmp_path: Path, write: Write, drawn: list[Figure], value: float
) -> None:
    write("iid", 2.0)
    table = read_rounds(Results(tmp_path), "train")
    table[["loss", "trivial"]] = value
    with warnings.catch_warnings(action="error"):  # Matplotlib's, of limits that are equal
        sweeps.rounds(table, "train", "fedavg", tmp_path / "figure.png")
    low, high = drawn[0].axes[0].get_ylim()
    assert low < value < high


@pytest.mark.parametrize("seeds, rates", [(1, (0.1,)), (3, (0.001, 0.01, 0.1))])
def test_figure_of_sensitivity(tmp_path: Path, write: Write, seeds: int, rates: tuple[float, ...]) -> None:
    write_grid(write, seeds, rates, KINDS)
    table = read_last(Results(tmp_path), "train", "init_lr")
    check(sweeps.sensitivity(table, "train", "init_lr", tmp_path / "figure.png"))


def lines_of(figure: Figure, label: str) -> list[dict[float, float]]:
    """The points of a partition's lines, panel by panel."""
    found = []
    for axis in figure.axes:
        [line] = [each[0] for each in axis.containers if each.get_label() == label]
        found.append({round(x, 3): round(y, 3) for x, y in zip(*line.get_data(), strict=True)})
    return found


def test_error_bars_are_the_t_interval_over_seeds(tmp_path: Path, write: Write, drawn: list[Figure]) -> None:
    losses = [2.0, 2.3, 2.9]
    for seed, loss in enumerate(losses):
        write("class_based", loss + 0.2, rand_seed=seed)
    low, high = stats.t.interval(0.95, len(losses) - 1, np.mean(losses), stats.sem(losses))
    sweeps.sensitivity(read_last(Results(tmp_path), "train", "init_lr"), "train", "init_lr", tmp_path / "figure.png")
    [bars] = [each[2][0] for each in drawn[0].axes[0].containers if each.get_label() == "class-based partition"]
    assert bars.get_segments()[0][:, 1].tolist() == pytest.approx([low, high])
    assert lines_of(drawn[0], "class-based partition") == [{0.1: round(np.mean(losses), 3)}]
    sweeps.rounds(read_rounds(Results(tmp_path), "train"), "train", "fedavg", tmp_path / "figure.png")
    [band] = drawn[1].axes[0].collections
    at_last = band.get_paths()[0].vertices
    assert sorted({round(y, 6) for x, y in at_last if x == 2}) == pytest.approx([low, high])
    texts = [text.get_text() for figure in drawn for text in figure.legends[0].get_texts()]
    assert texts.count("95 % t interval over seeds") == 2


def ticks_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_xticklabels()]


def test_sensitivity_to_alpha_has_a_panel_a_method_and_a_level_line_of_iid(
    tmp_path: Path, write: Write, drawn: list[Figure]
) -> None:
    for method in ("fedavg", "fedprox"):
        write("iid", 2.0, method=method, alpha=0.1)
        for alpha, loss in ((0.1, 3.0), (10.0, 4.0)):
            write("class_based", loss, method=method, alpha=alpha)
    table = read_last(Results(tmp_path), "train", "alpha")
    assert sorted(table["alpha"]) == [0.1] * 4 + [10.0] * 2
    sweeps.sensitivity(table, "train", "alpha", tmp_path / "figure.png")
    assert [axis.get_title() for axis in drawn[0].axes] == ["FedAvg", "FedProx"]
    assert [axis.get_ylabel() for axis in drawn[0].axes] == ["Surface normals\nL1 loss", ""]
    assert ticks_of(drawn[0]) == ["0.1", "10"] and drawn[0].axes[0].get_xscale() == "log"
    assert lines_of(drawn[0], "class-based partition") == [{0.1: 2.8, 10: 3.8}] * 2
    assert lines_of(drawn[0], "IID") == [{0.097: 1.8, 9.7: 1.8}] * 2


@pytest.mark.parametrize(
    "argument, values",  # by the names under the axis, in their order there
    [
        ("partition", {"equal_size": "equal_size", "paper": "paper"}),
        ("use_adam", {"False": False, "True": True}),
        ("clients_per_round", {"5": 5, "10": 10, "None": None}),
        ("momentum", {"0": 0.0, "0.5": 0.5, "0.9": 0.9}),  # 0 has no logarithm
        ("mixed", {"0.5": 0.5, "auto": "auto"}),
        ("weight_decay", {"0": 0.0, "5e-4": 5e-4, "0.001": 1e-3}),
    ],
)
def test_values_without_a_logarithm_have_a_categorical_axis(
    tmp_path: Path, write: Write, drawn: list[Figure], argument: str, values: dict[str, object]
) -> None:
    for place, value in reversed([*enumerate(values.values())]):
        for kind in KINDS:
            write(kind, 2.2 + place, **{argument: value})
    sweeps.sensitivity(read_last(Results(tmp_path), "train", argument), "train", argument, tmp_path / "figure.png")
    assert ticks_of(drawn[0]) == list(values) and drawn[0].axes[0].get_xscale() == "linear"
    assert lines_of(drawn[0], "class-based partition") == [{place: 2.0 + place for place in range(len(values))}]


def test_sensitivity_to_the_method_has_a_panel_an_alpha(tmp_path: Path, write: Write, drawn: list[Figure]) -> None:
    for method, loss in (("scaffold", 3.0), ("fedavg", 2.0)):
        for kind, alpha in product(KINDS, (0.1, 10.0)):
            write(kind, loss, method=method, alpha=alpha)
    sweeps.sensitivity(read_last(Results(tmp_path), "train", "method"), "train", "method", tmp_path / "figure.png")
    assert [axis.get_title() for axis in drawn[0].axes] == ["α = 0.1", "α = 10"]
    assert ticks_of(drawn[0]) == ["FedAvg", "SCAFFOLD"]
    assert lines_of(drawn[0], "embedding-based partition") == [{0.08: 1.8, 1.08: 2.8}] * 2


def test_tasks_stand_in_columns_and_settings_of_one_task_side_by_side(
    tmp_path: Path, write: Write, drawn: list[Figure]
) -> None:
    alphas = (0.1, 0.5, 1.0, 2.0, 10.0)
    for task, alpha in product(("normal", "reshading"), alphas):
        write("class_based", 2.0, task=task, alpha=alpha)
    table = read_last(Results(tmp_path), "train", "init_lr")
    sweeps.sensitivity(table, "train", "init_lr", tmp_path / "figure.png")
    sweeps.sensitivity(table[table["task"] == "normal"], "train", "init_lr", tmp_path / "figure.png")
    both, one = ([*figure.axes] for figure in drawn)
    assert [axis.get_title() for axis in both] == ["Surface normals", "Reshading"] + [""] * 8
    assert [axis.get_ylabel() for axis in both[::2]] == [f"FedAvg, α = {alpha:g}\nL1 loss" for alpha in alphas]
    assert [axis.get_xlabel() for axis in both] == [""] * 8 + ["init_lr"] * 2
    assert [axis.get_title() for axis in one] == [f"FedAvg, α = {alpha:g}" for alpha in alphas]
    assert [axis.get_xlabel() for axis in one] == [""] + ["init_lr"] * 4  # below the others there is nothing


def test_many_methods_have_room_for_their_names(tmp_path: Path, write: Write, drawn: list[Figure]) -> None:
    for method, task in product(ALGORITHMS, ("normal", "reshading")):
        for seed in (0, 1):
            write("iid", 2.0, method=method, task=task, rand_seed=seed)
    sweeps.sensitivity(read_last(Results(tmp_path), "train", "method"), "train", "method", tmp_path / "figure.png")
    [figure] = drawn
    names = figure.axes[0].get_xticklabels()
    apart = np.diff([name.get_window_extent().x1 for name in names])
    assert len(names) == len(ALGORITHMS) and apart.min() > names[0].get_fontsize() * figure.dpi / 72


@pytest.mark.parametrize("n_tasks", [1, 2])
def test_legends_lie_within_the_figure(tmp_path: Path, write: Write, drawn: list[Figure], n_tasks: int) -> None:
    for kind, seed, task in product(KINDS, (0, 1), ("normal", "reshading")[:n_tasks]):
        write(kind, 2.0, task=task, rand_seed=seed)
    sweeps.sensitivity(read_last(Results(tmp_path), "train", "method"), "train", "method", tmp_path / "figure.png")
    [legend], page = drawn[0].legends, drawn[0].bbox
    extent = legend.get_window_extent()
    assert page.x0 <= extent.x0 and extent.x1 <= page.x1


@pytest.mark.parametrize("argument", ["alpha", "method", "type", "rand_seed", "task", "init_lr"])
@pytest.mark.parametrize("kinds", [KINDS, ("iid",), KINDS[1:]])
def test_every_argument_can_be_drawn(
    tmp_path: Path, write: Write, drawn: list[Figure], argument: str, kinds: tuple[str, ...]
) -> None:
    write_grid(write, 2, kinds=kinds)
    sweeps.sensitivity(read_last(Results(tmp_path), "train", argument), "train", argument, tmp_path / "figure.png")
    assert [axis.get_title() for axis in drawn[0].axes[:2]] == ["Surface normals", "Reshading"]
    shown = {name for line in drawn[0].axes[0].containers if len(line[0].get_xdata()) for name in [line.get_label()]}
    assert shown == {sweeps._LOOKS[kind][0] for kind in kinds}


def test_places_of_files_are_no_argument_to_compare(tmp_path: Path, write: Write) -> None:
    write("iid", 2.0, data_path="here")
    with pytest.raises(UserError, match="--argument data_path: the runs"):
        read_last(Results(tmp_path), "train", "data_path")


@pytest.mark.parametrize("argument", ["init_lr", "no_improvement_tolerance"])
def test_title_fits_a_narrow_figure(tmp_path: Path, write: Write, drawn: list[Figure], argument: str) -> None:
    for value in (1, 2):
        write("iid", 2.0, **{argument: value})
        write("class_based", 2.0, **{argument: value})
    sweeps.sensitivity(read_last(Results(tmp_path), "train", argument), "local_test", argument, tmp_path / "figure.png")
    FigureCanvasAgg(drawn[0]).draw()
    [title] = drawn[0].texts
    assert title.get_window_extent().x0 >= 0 and title.get_window_extent().x1 <= drawn[0].bbox.x1


def test_figure_of_distributions(tmp_path: Path, write: Write) -> None:
    write_grid(write, 1, kinds=KINDS)
    check(sweeps.distributions(read_assigned(Results(tmp_path))["normal"], "normal", tmp_path / "figure.png"))


def check(path: Path) -> None:
    """A readable PNG with something on it, and a PDF for print beside it."""
    check_picture(path)
    assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


# What is drawn


def test_rounds_have_a_row_a_task_and_a_column_an_alpha(tmp_path: Path, write: Write, drawn: list[Figure]) -> None:
    for (row, task), seed in product(enumerate(("normal", "reshading")), (0, 1)):
        loss = 2 + row / 10 + seed / 5
        write("iid", loss, task=task, rand_seed=seed)
        for alpha, kind in product((0.1, 10.0), KINDS[1:]):
            write(kind, loss + (alpha == 10) / 2 + (kind == KINDS[2]) / 4, task=task, alpha=alpha, rand_seed=seed)
    table = read_rounds(Results(tmp_path), "train")
    sweeps.rounds(table, "train", "fedavg", tmp_path / "figure.png")
    panels = np.array(drawn[0].axes).reshape(2, 2)
    for (row, task), (column, alpha) in product(enumerate(("normal", "reshading")), enumerate((0.1, 10.0))):
        of_task = table[table["task"] == task]
        for number, kind in enumerate(KINDS):
            part = of_task[(of_task["type"] == kind) & ((kind == "iid") | (of_task["alpha"] == alpha))]
            means = part.groupby("round")["loss"].mean()
            assert line_of(panels[row, column], sweeps._LOOKS[kind][0]) == [[0, 1, 2], pytest.approx(means.tolist())]
            at_last = part.loc[part["round"] == 2, "loss"]
            low, high = stats.t.interval(0.95, 1, at_last.mean(), stats.sem(at_last))
            assert band_at(panels[row, column], number, 2) == pytest.approx([low, high])
    assert [axis.get_title() for axis in panels[0]] == ["α = 0.1", "α = 10"]
    assert [axis.get_ylabel() for axis in panels[:, 0]] == ["Surface normals\nL1 loss", "Reshading\nmean squared error"]
    assert drawn[0].get_suptitle() == "FedAvg: loss by round\nclient train, mean over 2 seeds"
    for label, colour in list(legend_of(drawn[0]).items())[:4]:
        [line] = [line for line in panels[0, 0].lines if line.get_label() == label]
        assert to_hex(line.get_color()) == colour


def test_distributions_are_what_was_assigned(drawn: list[Figure]) -> None:
    assigned = {
        "class_based": {0.1: (np.array([[3, 1], [0, 2]]), 0.75), 10.0: (np.array([[2, 1], [1, 2]]), 0.25)},
        "embedding_based": {10.0: (np.array([[1, 0, 4], [0, 5, 0]]), 0.5)},
    }
    sweeps.distributions(assigned, "normal", Path())
    panels = np.array(drawn[0].axes).reshape(2, 2)
    assert [[axis.get_title() for axis in row] for row in panels] == [
        ["α = 0.1, target share 0.75", "α = 10, target share 0.25"],
        ["", "α = 10, target share 0.50"],
    ]
    for axis, (counts, _) in zip(
        panels.flat[[0, 1, 3]], [*assigned["class_based"].values(), *assigned["embedding_based"].values()], strict=True
    ):
        heights = [[bar[3] for bar in of] for of in bars_of(axis).values()]
        assert heights == counts.T.tolist()
        legend = legend_of(panels[0 if counts.shape[1] == 2 else 1, 1])
        assert list(legend.items()) == [(str(group), colour) for group, colour in enumerate(bars_of(axis))]
    assert [axis.get_ylabel() for axis in panels[:, 0]] == [f"{name}-based partition\nimages" for name in COLOURS]
