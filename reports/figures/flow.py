"""Optical flow as colours: the direction as the hue, the length as how strong it is.

The colour wheel of Baker et al. 2011 (A Database and Evaluation Methodology for Optical Flow, IJCV 92, section 3.3),
whose hues change as fast as they are told apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# From one colour to the next, and in how many steps.
_ARCS = (
    ((255, 0, 0), 15), ((255, 255, 0), 6), ((0, 255, 0), 4), ((0, 255, 255), 11), ((0, 0, 255), 13), ((255, 0, 255), 6),
)  # fmt: skip
_TOO_LONG = 0.75  # how bright a colour is beyond the longest vector
_LEGEND = 101  # pixels


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
