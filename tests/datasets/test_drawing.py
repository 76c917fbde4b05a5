"""Targets as pictures, and the colour wheel against the numbers of Baker et al.'s own table."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from datasets.drawing import colour_wheel, draw_flow_legend, draw_target, flow_colours
from datasets.tasks import get_task


@pytest.mark.parametrize(("task", "shown"), [("reshading", True), ("edge_texture", False)])
def test_where_zero_is_a_value_it_looks_like_one(task: str, shown: bool) -> None:
    values, valid = np.array([[[0.0, 0.5], [1.0, 0.0]]]), np.array([[[False, True], [True, False]]])
    axes = Figure().subplots()
    drawn = draw_target(axes, get_task(task), values, valid, (0.0, 1.0)).get_array()
    assert np.isnan(drawn.filled(np.nan)).any() == shown


def test_the_wheel_has_the_55_colours_of_the_benchmark() -> None:
    wheel = colour_wheel() * 255
    assert wheel.shape == (55, 3)
    # The first colour of each arc, and one in the middle of the first: 255 * 7 / 15.
    starts = {0: (255, 0, 0), 15: (255, 255, 0), 21: (0, 255, 0), 25: (0, 255, 255), 36: (0, 0, 255), 49: (255, 0, 255)}
    for at, colour in starts.items():
        assert wheel[at].tolist() == pytest.approx(colour)
    assert wheel[7].tolist() == pytest.approx((255, 119, 0)) and wheel[54].tolist() == pytest.approx((255, 0, 42.5))


def test_directions_are_hues_and_lengths_their_strength() -> None:
    flow = np.array([[[1.0, 0.5, 0.0, 2.0, -1.0]], [[0.0, 0.0, 0.0, 0.0, 0.0]]])
    right, half, nowhere, beyond, left = flow_colours(flow, 1.0)[0]
    np.testing.assert_allclose(right, colour_wheel()[0], atol=0.02)  # red
    np.testing.assert_allclose(half, (1 + right) / 2)
    np.testing.assert_allclose(nowhere, 1.0)
    np.testing.assert_allclose(beyond, 0.75 * right)
    assert left[0] == 0 and left[1] > 0.7 and left[2] == 1  # between cyan and blue
    down, up = flow_colours(np.array([[[0.0, 0.0]], [[1.0, -1.0]]]), 1.0)[0]
    assert down[0] == 1 and down[1] > 0.8 and down[2] == 0  # yellow, and violet
    assert up[2] == 1 and up[1] == 0 and up[0] > 0.3


def test_unknown_flow_is_white() -> None:
    with np.errstate(all="raise"):
        for unknown in (np.nan, -np.inf):  # as flow is computed, and as it is packed
            assert (flow_colours(np.full((2, 1, 1), unknown), 0.5) == 1).all()


def test_the_legend_says_how_long_its_radius_is() -> None:
    figure = Figure()
    axes = figure.subplots()
    draw_flow_legend(axes, 2.567, "px")
    assert axes.get_title() == "radius: 2.6 px"
    picture = axes.images[0].get_array()
    np.testing.assert_allclose(picture[50, 100], flow_colours(np.array([[[1.0]], [[0.0]]]), 1.0)[0, 0])
    np.testing.assert_allclose(picture[0, 0], 1.0)
