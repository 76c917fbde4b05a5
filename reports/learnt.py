"""Whether models have learnt more than the constant baseline, which looks at no image.

If they have not, even under the IID partition, a comparison of partitions compares noise: tables mark its rows and give
no verdict.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from reports.statistics import MARGIN, Change, increase

YES, NO, BY_HEART = "yes", "no", "by heart"
WORDS = (
    f"learnt: {YES} where the IID loss is clearly below the constant baseline's (the whole 95 % interval over "
    f"seeds by more than {MARGIN:g} %), {NO} where it is not, and {BY_HEART} where it is on the images trained on alone"
)
_HELD_OUT = {"train": "test", "unseen_train": "unseen_test"}  # what is held out, by what models are trained on


def beats_trivial(loss: ArrayLike, trivial: ArrayLike) -> bool | None:
    """Whether losses, one for each seed, are clearly below the constant baseline's; None where there are none.

    The 95 % interval of their ratio's mean must be below 1 by more than `MARGIN` percent, as for a difference that
    counts. One seed has no interval: its own ratio must be.
    """
    change = Change.of(increase(np.asarray(loss, float), np.asarray(trivial, float)))
    return (change.mean if change.seeds == 1 else change.high) < -MARGIN if change.seeds else None


def learnt(iid: pd.DataFrame, images: str) -> str:
    """`YES`, `NO` or `BY_HEART` by the IID runs of a setting, from `read_runs`; empty where nothing says it."""
    word = {None: "", True: YES, False: NO}[_beats(iid, images)]
    if word == YES and images in _HELD_OUT:
        personal = images == "train" and (iid["local_test_model"] == "personal").any()
        held_out = "local_test" if personal else _HELD_OUT[images]
        word = BY_HEART if _beats(iid, held_out) is False else YES
    return word


def _beats(iid: pd.DataFrame, images: str) -> bool | None:
    return beats_trivial(iid[f"{images}_loss"], iid[f"{images}_trivial"])
