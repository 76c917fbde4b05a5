"""The settings of a table of images, which are arguments of `extract_datapoints_for_experiments.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from datasets.table import FITS, MEAN, RESIZES
from utils.args import number
from utils.settings import Settings, setting


@dataclass(frozen=True)
class TableSettings(Settings):
    """How a table is made of any source's images."""

    heading: ClassVar[str] = "data"

    test_fraction: float = setting(
        0.2, "share of the images in the test split, if the source has none", number(float, above=0, most=0.9)
    )
    fit: str = setting("crop", "how images become square", choices=FITS)
    resize: str = setting(
        MEAN,
        "what a pixel of a smaller target is, unless it is an id: the mean of the pixels there, or the nearest",
        choices=RESIZES,
    )
    levels: tuple[float, float] | None = setting(
        None,
        "values of 16-bit photographs that become black and white, such as 0 4095; default: 0 65535",
        number(float, least=0),
        nargs=2,
        metavar=("BLACK", "WHITE"),
    )
