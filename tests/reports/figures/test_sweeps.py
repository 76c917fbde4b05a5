"""What figures of sweeps are drawn from, and that each is drawn: from made-up runs with known losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy import stats

from reports.curves import read_dealings, read_last, read_rounds
from reports.figures import sweeps
from tests.reports.figures.pictures import check_figure, check_picture
from utils.errors import UserError

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a finished run whose loss starts at `loss` and falls by 0.1 a round; a personal one beside it if given."""

    def write_run(kind: str, loss: float, *, personal: bool = False, **args: object) -> Path:
        given = {"task": "normal", "method": "fedavg", "alpha": 0.1, "rand_seed": 0, "init_lr": 0.1} | args
        path = tmp_path / "test_federated" / "-".join(map(str, [kind, *given.values()]))
        path.mkdir(parents=True)
        rounds = pd.DataFrame({"round": range(3), "test_loss": 9.0})
        for prefix, start in {"": loss, **({"personal_": loss - 1} if personal else {})}.items():
            rounds[f"{prefix}train_loss_mean"] = start - 0.1 * rounds["round"]
            rounds[f"{prefix}train_loss_std"] = 0.5
        rounds.to_csv(path / "metrics.csv", index=False)
        np.save(path / "partition.npy", np.array([1, 0, 1, -1, 1]))
        np.save(path / "groups.npy", np.array([2, 0, 2, 1, 0]))
        (path / "args.json").write_text(json.dumps(given | {"type": kind}))
        (path / "summary.json").write_text(
            json.dumps({"heterogeneity": {"target_variance_share": 0.75}, "trivial": {"train": {"loss": 3.0}}})
        )
        return path

    return write_run


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn, in place of files."""
    figures: list[Figure] = []
    monkeypatch.setattr(sweeps, "save", lambda figure, path, **_: figures.append(figure) or path)
    return figures


def test_rounds_of_the_models_that_a_method_offers(tmp_path: Path, write: Write) -> None:
    write("iid", 2.0)
    write("iid", 2.0, method="ditto", personal=True)
    table = read_rounds(tmp_path, "train")
    losses = {method: part["loss"].tolist() for method, part in table.groupby("method")}
    assert losses == {"fedavg": pytest.approx([2, 1.9, 1.8]), "ditto": pytest.approx([1, 0.9, 0.8])}
    assert set(table["measure"]) == {"L1 loss"} and set(table["trivial"]) == {3.0}
    held_out = read_rounds(tmp_path, "test", ["fedavg"])
    assert held_out["loss"].tolist() == [9.0] * 3
    with pytest.raises(UserError, match="no finished run of moon"):
        read_rounds(tmp_path, "train", ["moon"])


def test_rounds_without_an_evaluation_are_left_out(tmp_path: Path, write: Write) -> None:
    path = write("iid", 2.0) / "metrics.csv"
    rows = pd.read_csv(path)
    rows.loc[1, [name for name in rows if name != "round"]] = np.nan
    rows.to_csv(path, index=False)
    table = read_rounds(tmp_path, "train")
    assert table["round"].tolist() == [0, 2] and table["loss"].tolist() == pytest.approx([2, 1.8])


def test_runs_of_several_settings_are_not_put_into_one_line(tmp_path: Path, write: Write) -> None:
    for rate in (0.1, 0.2):
        write("iid", 2.0, init_lr=rate)
    with pytest.raises(UserError, match="differ in --init_lr as well"):
        read_rounds(tmp_path, "train")
    table = read_last(tmp_path, "train", "init_lr")
    columns = table[["init_lr", "loss", "trivial"]].sort_values("init_lr")
    assert columns.to_numpy().tolist() == [[0.1, 1.8, 3.0], [0.2, 1.8, 3.0]]
    with pytest.raises(UserError, match="no such argument"):
        read_last(tmp_path, "train", "momentum")


def test_what_clients_have(tmp_path: Path, write: Write) -> None:
    write("class_based", 2.0)
    write("iid", 2.0)
    counts, share = read_dealings(tmp_path)["normal"]["class_based"][0.1]
    # Client 0 has an image of group 0; client 1 one of group 0 and two of group 2; one image of group 1 is nobody's.
    assert counts.tolist() == [[1, 0, 0], [1, 0, 2]] and share == 0.75
    assert not read_dealings(tmp_path)["normal"]["iid"]


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
    path = sweeps.rounds(read_rounds(tmp_path, "train"), "train", "fedavg", tmp_path / "figure.png")
    check(path)


def test_rounds_show_the_trivial_predictor_and_what_comes_after_the_untrained_model(
    tmp_path: Path, write: Write, drawn: list[Figure]
) -> None:
    write_grid(write, 2, kinds=KINDS)
    table = read_rounds(tmp_path, "train")
    table.loc[table["round"] == 0, "loss"] = 50.0
    sweeps.rounds(table, "train", "fedavg", tmp_path / "figure.png")
    for axis in drawn[0].axes:
        levels = [list(line.get_ydata()) for line in axis.lines if line.get_label() == "trivial predictor"]
        assert [3.0, 3.0] in levels
        low, high = axis.get_ylim()
        # From the better seed's 1.8 after the last round to the trivial predictor's 3, and a little more.
        assert 1.7 < low < 1.8 and 3.0 < high < 3.1


@pytest.mark.parametrize("seeds, rates", [(1, (0.1,)), (3, (0.001, 0.01, 0.1))])
def test_figure_of_sensitivity(tmp_path: Path, write: Write, seeds: int, rates: tuple[float, ...]) -> None:
    write_grid(write, seeds, rates, KINDS)
    table = read_last(tmp_path, "train", "init_lr")
    check(sweeps.sensitivity(table, "train", "init_lr", tmp_path / "figure.png"))


def lines_of(figure: Figure, label: str) -> list[dict[float, float]]:
    """The points of a split's lines, panel by panel."""
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
    sweeps.sensitivity(read_last(tmp_path, "train", "init_lr"), "train", "init_lr", tmp_path / "figure.png")
    [bars] = [each[2][0] for each in drawn[0].axes[0].containers if each.get_label() == "class-based split"]
    assert bars.get_segments()[0][:, 1].tolist() == pytest.approx([low, high])
    sweeps.rounds(read_rounds(tmp_path, "train"), "train", "fedavg", tmp_path / "figure.png")
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
    table = read_last(tmp_path, "train", "alpha")
    assert sorted(table["alpha"]) == [0.1] * 4 + [10.0] * 2
    sweeps.sensitivity(table, "train", "alpha", tmp_path / "figure.png")
    assert [axis.get_ylabel() for axis in drawn[0].axes] == ["FedAvg\nL1 loss", "FedProx\nL1 loss"]
    assert ticks_of(drawn[0]) == ["0.1", "10"] and drawn[0].axes[0].get_xscale() == "log"
    assert lines_of(drawn[0], "class-based split") == [{0.1: 2.8, 10: 3.8}] * 2
    assert lines_of(drawn[0], "IID") == [{0.097: 1.8, 9.7: 1.8}] * 2


@pytest.mark.parametrize(
    "argument, values",  # by the names under the axis, in their order there
    [
        ("partition", {"equal_size": "equal_size", "paper": "paper"}),
        ("use_adam", {"False": False, "True": True}),
        ("clients_per_round", {"5": 5, "10": 10, "None": None}),
        ("momentum", {"0": 0.0, "0.5": 0.5, "0.9": 0.9}),  # 0 has no logarithm
        ("mixed", {"0.5": 0.5, "auto": "auto"}),
    ],
)
def test_values_without_a_logarithm_have_a_categorical_axis(
    tmp_path: Path, write: Write, drawn: list[Figure], argument: str, values: dict[str, object]
) -> None:
    for place, value in reversed([*enumerate(values.values())]):
        for kind in KINDS:
            write(kind, 2.2 + place, **{argument: value})
    sweeps.sensitivity(read_last(tmp_path, "train", argument), "train", argument, tmp_path / "figure.png")
    assert ticks_of(drawn[0]) == list(values) and drawn[0].axes[0].get_xscale() == "linear"
    assert lines_of(drawn[0], "class-based split") == [{place: 2.0 + place for place in range(len(values))}]


def test_sensitivity_to_the_method_has_a_panel_an_alpha(tmp_path: Path, write: Write, drawn: list[Figure]) -> None:
    for method, loss in (("scaffold", 3.0), ("fedavg", 2.0)):
        for kind, alpha in product(KINDS, (0.1, 10.0)):
            write(kind, loss, method=method, alpha=alpha)
    sweeps.sensitivity(read_last(tmp_path, "train", "method"), "train", "method", tmp_path / "figure.png")
    assert [axis.get_ylabel() for axis in drawn[0].axes] == ["α = 0.1\nL1 loss", "α = 10\nL1 loss"]
    assert ticks_of(drawn[0]) == ["FedAvg", "SCAFFOLD"]
    assert lines_of(drawn[0], "embedding-based split") == [{0.08: 1.8, 1.08: 2.8}] * 2


@pytest.mark.parametrize("argument", ["alpha", "method", "type", "rand_seed", "task", "init_lr"])
@pytest.mark.parametrize("kinds", [KINDS, ("iid",), KINDS[1:]])
def test_every_argument_can_be_drawn(
    tmp_path: Path, write: Write, drawn: list[Figure], argument: str, kinds: tuple[str, ...]
) -> None:
    write_grid(write, 2, kinds=kinds)
    sweeps.sensitivity(read_last(tmp_path, "train", argument), "train", argument, tmp_path / "figure.png")
    assert [axis.get_title() for axis in drawn[0].axes[:2]] == ["Surface normals", "Reshading"]
    shown = {name for line in drawn[0].axes[0].containers if len(line[0].get_xdata()) for name in [line.get_label()]}
    assert shown == {sweeps._KINDS[kind][0] for kind in kinds}


def test_places_of_files_are_no_argument_to_compare(tmp_path: Path, write: Write) -> None:
    write("iid", 2.0, data_path="here")
    with pytest.raises(UserError, match="--argument data_path: the runs"):
        read_last(tmp_path, "train", "data_path")


@pytest.mark.parametrize("argument", ["init_lr", "no_improvement_tolerance"])
def test_title_fits_a_narrow_figure(tmp_path: Path, write: Write, drawn: list[Figure], argument: str) -> None:
    for value in (1, 2):
        write("iid", 2.0, **{argument: value})
        write("class_based", 2.0, **{argument: value})
    sweeps.sensitivity(read_last(tmp_path, "local_test", argument), "local_test", argument, tmp_path / "figure.png")
    FigureCanvasAgg(drawn[0]).draw()
    [title] = drawn[0].texts
    assert title.get_window_extent().x0 >= 0 and title.get_window_extent().x1 <= drawn[0].bbox.x1


def test_figure_of_distributions(tmp_path: Path, write: Write) -> None:
    write_grid(write, 1, kinds=KINDS)
    check(sweeps.distributions(read_dealings(tmp_path)["normal"], "normal", tmp_path / "figure.png"))


def check(path: Path) -> None:
    """A readable PNG with something on it, and a PDF for print beside it."""
    check_picture(path)
    assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("n_settings", [1, 30])
def test_comparison_of_many_methods_with_and_without_a_global_model(tmp_path: Path, n_settings: int) -> None:
    path = tmp_path / "figures" / "comparison.png"
    losses = 1 + np.random.default_rng(0).random((3, 2))
    rows = [
        {
            "task": "normal", "method": f"method{i}", "alpha": 0.1, "split": split, "class": losses[0],
            "embedding": losses[1], "iid": losses[2],
        }
        for i in range(n_settings) for split in ("train", "local_test", "test")[: 2 + i % 2]
    ]  # fmt: skip
    check_figure(path, sweeps.comparison(pd.DataFrame(rows), path))


@pytest.mark.parametrize("n_seeds", [1, 3])
@pytest.mark.parametrize("with_iid", [True, False])
@pytest.mark.parametrize("tasks, alphas", [(["normal"], [0.1]), (["normal", "reshading"], [0.01, 0.1, 10])])
def test_comparison(tmp_path: Path, tasks: list[str], alphas: list[float], with_iid: bool, n_seeds: int) -> None:
    path = tmp_path / "figures" / "comparison.png"
    losses = 1 + np.random.default_rng(0).random((3, n_seeds))
    rows = [
        {
            "task": task, "method": "fedavg", "alpha": alpha, "split": split, "class": losses[0],
            "embedding": losses[1], "iid": losses[2] if with_iid else np.full(n_seeds, np.nan),
        }
        for task in tasks for alpha in alphas for split in ("train", "test")
    ]  # fmt: skip
    check_figure(path, sweeps.comparison(pd.DataFrame(rows), path))


def test_comparison_of_one_task_has_room_for_its_title_and_legend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(sweeps, "save", lambda figure, path: drawn.append(figure) or path)
    losses = {name: np.array([1.0, 1.1]) for name in ("class", "embedding", "iid")}
    row = {"task": "classification", "method": "fedavg", "alpha": 0.1, "split": "train"} | losses
    sweeps.comparison(pd.DataFrame([row]), tmp_path / "comparison.png")
    FigureCanvasAgg(drawn[0]).draw()
    for part in (*drawn[0].texts, *drawn[0].legends):
        assert part.get_window_extent().x0 >= 0 and part.get_window_extent().x1 <= drawn[0].bbox.x1
