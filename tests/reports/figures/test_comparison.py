"""The figure of what partitions cost: from made-up losses whose increases and intervals are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from reports.figures.comparison import comparison
from reports.splits import increases
from reports.statistics import Change, increase
from tests.reports.figures.pictures import check_figure, interval_of, legend_of, points_of, words
from utils.figures import COLOURS
from utils.runs import MEASURED_ON

NAN = float("nan")


def row(split: str, loss: Sequence[float], iid: Sequence[float], **more: Any) -> dict[str, Any]:
    """A row as `reports.splits.splits_over_iid` makes them."""
    about = {"task": "normal", "method": "fedavg", "alpha": 0.1, "more": {}, "images": "train", "model": "global"}
    about |= {"type": split, "learnt": "yes", "loss": np.array(loss, float), "iid": np.array(iid, float)}
    about["over_iid"] = Change.of(increase(about["loss"], about["iid"]))
    return about | {name: np.ones(len(loss)) for name in ("trivial", "iid_trivial")} | more


def both(losses: Mapping[tuple[str, float, str], tuple[list[float], list[float], list[float]]]) -> pd.DataFrame:
    """Rows of class-based and embedding-based partitions: (task, alpha, images) -> class, embedding, IID."""
    return pd.DataFrame(
        row(split, loss, of[2], task=task, alpha=alpha, images=images)
        for (task, alpha, images), of in losses.items()
        for split, loss in zip(COLOURS, of, strict=False)
    )


@pytest.mark.parametrize("n_settings", [1, 30])
def test_many_methods_with_and_without_a_global_model(tmp_path: Path, n_settings: int) -> None:
    path = tmp_path / "figures" / "comparison.png"
    losses = 1 + np.random.default_rng(0).random((3, 2))
    rows = [
        row(split, losses[place], losses[2], method=f"method{i}", images=images)
        for i in range(n_settings)
        for images in ("train", "local_test", "test")[: 2 + i % 2]
        for place, split in enumerate(COLOURS)
    ]
    check_figure(path, comparison(pd.DataFrame(rows), path))


@pytest.mark.parametrize("n_seeds", [1, 3])
@pytest.mark.parametrize("with_iid", [True, False])
def test_tasks_and_alphas_with_and_without_iid_runs(tmp_path: Path, with_iid: bool, n_seeds: int) -> None:
    path = tmp_path / "figures" / "comparison.png"
    losses = 1 + np.random.default_rng(0).random((3, n_seeds))
    iid = losses[2] if with_iid else np.full(n_seeds, np.nan)
    rows = [
        row(split, losses[place], iid, task=task, alpha=alpha, images=images)
        for task, alpha, images in product(("normal", "reshading"), (0.01, 0.1, 10), ("train", "test"))
        for place, split in enumerate(COLOURS)
    ]
    check_figure(path, comparison(pd.DataFrame(rows), path))


def bars(axis: Axes) -> list[Any]:
    """The containers of a panel's bars, from above."""
    found = [container for container in axis.containers if hasattr(container, "errorbar")]
    return sorted(found, key=lambda bar: bar.patches[0].get_y())


def centre(bar: Any) -> float:
    return bar.patches[0].get_y() + bar.patches[0].get_height() / 2


def test_bars_and_their_ends_are_the_numbers_of_the_table(drawn: list[Figure]) -> None:
    table = both({
        ("normal", 0.1, "train"): ([3.0, 3.2, 3.1], [1.0, 1.2, 1.1], [2.0, 2.0, 2.2]),
        ("normal", 10.0, "train"): ([2.1, 2.5, 2.3], [2.2, 2.2, 2.4], [2.0, 2.1, 2.2]),
        ("reshading", 0.1, "train"): ([5.0, 5.5, 6.0], [4.0, 4.5, 5.0], [4.0, 4.0, 4.0]),
        ("reshading", 10.0, "train"): ([4.0, 4.5, 5.0], [4.2, 4.5, 4.0], [4.0, 4.0, 4.0]),
        ("normal", 0.1, "test"): ([3.0, 3.2, 3.4], [2.5, 2.6, 2.6], [2.0, 2.0, 2.0]),
    })  # fmt: skip
    comparison(table, Path())
    text = increases(table).set_index(["task", "type", "data"])
    panels = np.array(drawn[0].axes).reshape(2, 2)
    for (at, task), (column, images) in product(enumerate(("normal", "reshading")), enumerate(("train", "test"))):
        axis = panels[at, column]
        containers = iter(bars(axis))
        for alpha, split in product((0.1, 10.0), COLOURS):
            chosen = (table["task"] == task) & (table["alpha"] == alpha) & (table["images"] == images)
            for record in table[chosen & (table["type"] == split)].to_dict("records"):
                bar = next(containers)
                (low, _), (high, _) = interval_of(bar)[0]
                drawn_words = f"{bar.patches[0].get_width():+.1f} [{low:+.1f}, {high:+.1f}]"
                assert drawn_words == text.loc[(task, split, MEASURED_ON[images]), f"α = {alpha:g}, %"]
                assert to_hex(bar.patches[0].get_facecolor()) == COLOURS[split]
                dots = [points_of(line) for line in axis.lines if line.get_marker() == "."]
                seeds = np.round(100 * (record["loss"] - record["iid"]) / record["iid"], 9).tolist()
                assert [seeds, [pytest.approx(centre(bar))] * 3] in dots
        assert next(containers, None) is None
    assert words(panels[0, 0].get_yticklabels()) == ["FedAvg, α = 0.1", "FedAvg, α = 10"]
    assert panels[0, 0].yaxis.get_inverted()  # the first setting above
    assert [axis.get_title().replace("\n", " ") for axis in panels[0]] == [MEASURED_ON["train"], MEASURED_ON["test"]]
    assert [axis.get_ylabel() for axis in panels[:, 0]] == ["Surface normals", "Reshading"]
    named = {f"{kind}-based partition": colour for kind, colour in COLOURS.items()}
    assert list(legend_of(drawn[0]).items())[:2] == list(named.items())
    assert drawn[0].get_suptitle().endswith("mean over 3 seeds")


def test_natural_groups_have_bars_and_a_name_without_alpha(drawn: list[Figure]) -> None:
    rows = [row("class", [3.0, 3.1], [2.0, 2.0]), row("domain", [2.2, 2.3], [2.0, 2.0], alpha=NAN)]
    rows += [row("hospital_id", [2.4, 2.5], [2.0, 2.0], alpha=NAN)]
    comparison(pd.DataFrame(rows), Path())
    [axis] = drawn[0].axes
    assert words(axis.get_yticklabels()) == ["FedAvg, α = 0.1", "FedAvg"]
    assert [round(bar.patches[0].get_width(), 1) for bar in bars(axis)] == [52.5, 12.5, 22.5]
    shown = legend_of(drawn[0])
    assert list(shown)[:3] == ["class-based partition", "domain-based partition", "hospital-id-based partition"]
    assert len({shown[name] for name in list(shown)[:3]}) == 3
    assert [to_hex(bar.patches[0].get_facecolor()) for bar in bars(axis)] == [shown[name] for name in list(shown)[:3]]


def test_bars_of_what_has_not_been_learnt_are_pale(drawn: list[Figure]) -> None:
    rows = [row("class", [3.0, 3.1], [2.0, 2.0]), row("embedding", [2.2, 2.3], [2.0, 2.0], images="test", learnt="no")]
    comparison(pd.DataFrame(rows), Path())
    learnt, not_learnt = (bars(axis)[0].patches[0].get_alpha() for axis in drawn[0].axes)
    assert learnt == 1 and not_learnt < 0.5
    assert "pale: not learnt under IID, no verdict" in legend_of(drawn[0])


def test_settings_have_rows_of_their_own_where_there_are_iid_runs(drawn: list[Figure]) -> None:
    rows = [row("class", [1.0, 1.1], [1.0, 1.1], more={"aggregation": rule}) for rule in ("mean", "geometric_median")]
    rows += [row("class", [1.0, 1.1], [NAN, NAN], method="feddifrc", more={"aggregation": ""})]
    comparison(pd.DataFrame(rows), Path())
    names = [text.get_text().replace("\n", " ") for text in drawn[0].axes[0].get_yticklabels()]
    assert names == ["FedAvg, α = 0.1, aggregation mean", "FedAvg, α = 0.1, aggregation geometric_median"]
    assert len(bars(drawn[0].axes[0])) == 2


def test_one_task_has_room_for_title_and_legend(drawn: list[Figure]) -> None:
    rows = [row(split, [1.0, 1.1], [1.0, 1.1], task="classification") for split in ("class", "embedding", "domain")]
    comparison(pd.DataFrame(rows), Path())
    FigureCanvasAgg(drawn[0]).draw()
    for part in (*drawn[0].texts, *drawn[0].legends):
        assert part.get_window_extent().x0 >= 0 and part.get_window_extent().x1 <= drawn[0].bbox.x1


def test_each_panel_has_an_axis_as_long_as_its_own_seeds_need(drawn: list[Figure]) -> None:
    table = both(
        {
            ("normal", 0.1, "train"): ([22.0, 23.0], [20.0, 21.0], [2.0, 2.0]),  # 1,000 %
            ("normal", 0.1, "test"): ([2.6, 2.5], [2.5, 2.4], [2.0, 2.0]),  # 30 %
        }
    )
    comparison(table, Path())
    for axis, least, most in zip(drawn[0].axes, (0, 0), (1050, 30), strict=True):
        low, high = axis.get_xlim()
        assert low <= least and most <= high and high - low < 1.2 * (most - least)


def test_an_interval_that_leaves_the_axis_ends_in_an_arrow_head(drawn: list[Figure]) -> None:
    comparison(both({("normal", 0.1, "train"): ([2.0, 3.0], [2.2, 2.2], [2.0, 2.0])}), Path())  # 25 % ± 318
    [axis] = drawn[0].axes
    low, high = axis.get_xlim()
    assert (low, high) == pytest.approx((-3, 53))
    cuts = [(*line.get_xydata()[0], line.get_marker()) for line in axis.lines if line.get_label() == "_cut"]
    assert cuts == [(low, pytest.approx(centre(bars(axis)[0])), "<"), (high, pytest.approx(centre(bars(axis)[0])), ">")]
