"""Targets and predictions as pictures: classes in their colours, optical flow by direction and length.

Flow has the colour wheel of Baker et al. 2011 (A Database and Evaluation Methodology for Optical Flow, IJCV 92, section
3.3), whose hues change as fast as they are told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_rgb, to_rgba

from datasets.tasks import COLOUR_WHEEL
from utils.figures import palette

if TYPE_CHECKING:
    from datasets.classes import ClassSet
    from datasets.tasks import Task

NO_VALUE = to_rgba("#c8c8d8")
# From one colour to the next, and in how many steps.
_ARCS = (
    ((255, 0, 0), 15), ((255, 255, 0), 6), ((0, 255, 0), 4), ((0, 255, 255), 11), ((0, 0, 255), 13), ((255, 0, 255), 6),
)  # fmt: skip
_TOO_LONG = 0.75  # how bright a colour is beyond the longest vector
_LEGEND = 101  # pixels


def draw_target(axes: Any, task: Task, values: np.ndarray, valid: np.ndarray, limits: tuple[float, float]) -> Any:
    """Draw one target or prediction (C, H, W), or ids (H, W), on axes; pixels that do not count are grey-blue.

    Where the task shows none of these, they look as any others. Three channels are a picture, of two the first is
    shown, unless they are vectors that the colour wheel shows; `limits` are the values of the ends of the colours.
    """
    axes.set(xticks=[], yticks=[])
    if task.categorical:
        return axes.imshow(np.where(valid[..., None], colours_of(task)[values], NO_VALUE[:3]))
    low, high = limits
    if task.colormap == COLOUR_WHEEL:
        wheel = flow_colours(values, max(-low, high))
        return axes.imshow(np.where(valid[0][..., None], wheel, NO_VALUE[:3]))
    if len(values) == 3:
        picture = ((values.transpose(1, 2, 0) - low) / (high - low)).clip(0, 1)
        return axes.imshow(np.where(valid[0][..., None], picture, NO_VALUE[:3]))
    colours = colormaps[task.colormap].with_extremes(bad=NO_VALUE)
    shown = valid[0] | (not task.show_uncounted)
    return axes.imshow(np.where(shown, values[0], np.nan), cmap=colours, vmin=low, vmax=high)


def colours_of(task: Task) -> np.ndarray:
    """The colours of the classes of a task, (classes, 3) in [0, 1]."""
    return np.array([to_rgb(colour) for colour in classes_of(task).colours or palette(len(classes_of(task).names))])


def classes_of(task: Task) -> ClassSet:
    """The classes of a task that has some; ValueError for any other."""
    if task.classes is None:
        raise ValueError(f"{task.name} has no classes to draw; see Task.with_classes")
    return task.classes


def colour_wheel() -> np.ndarray:
    """The 55 hues, (55, 3) in [0, 1], from that of vectors to the right on, clockwise as pictures are seen."""
    ends = np.array([colour for colour, _ in _ARCS], float) / 255
    return np.concatenate(
        [
            np.linspace(start, end, steps, endpoint=False)
            for start, end, (_, steps) in zip(ends, np.roll(ends, -1, axis=0), _ARCS, strict=True)
        ]
    )


def flow_colours(flow: np.ndarray, longest: float) -> np.ndarray:
    """Colours (H, W, 3) in [0, 1] of a flow (2, H, W): white for 0, and the full hue for vectors as long as `longest`.

    Longer ones are darker.
    """
    x, y = np.where(np.isfinite(flow), flow, 0.0) / longest
    length = np.hypot(x, y)[..., None]
    wheel = colour_wheel()
    at = (np.arctan2(-y, -x) / np.pi + 1) / 2 * (len(wheel) - 1)
    low = np.floor(at).astype(int)
    share = (at - low)[..., None]
    hue = (1 - share) * wheel[low] + share * wheel[(low + 1) % len(wheel)]
    return np.where(length <= 1, 1 - length * (1 - hue), _TOO_LONG * hue)


def draw_flow_legend(axes: Any, longest: float, unit: str) -> None:
    """The colours of all vectors up to the longest on axes: each is drawn where it points."""
    steps = np.linspace(-1, 1, _LEGEND)
    ends = np.stack(np.meshgrid(steps, steps))
    outside = np.hypot(*ends) > 1
    axes.imshow(np.where(outside[..., None], 1.0, flow_colours(ends, 1.0)), extent=(-1, 1, 1, -1))
    axes.set_axis_off()
    axes.set_title(f"radius: {longest:.2g} {unit}", fontsize="small")
