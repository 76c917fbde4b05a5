"""Whether models beat the constant baseline, from losses whose intervals are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from reports.learnt import beats_trivial, learnt

NAN = float("nan")


@pytest.mark.parametrize(
    ("loss", "trivial", "expected"),
    [
        # Ratios of e^-0.1 and e^-0.2: mean -0.15, standard error 0.05, t(0.975; 1) = 12.7: from -0.79 to +0.49.
        ([np.exp(-0.1), np.exp(-0.2)], [1.0, 1.0], False),
        # Mean -0.15, standard error 0.005, t(0.975; 2) = 4.30: from -0.17 to -0.13.
        ([np.exp(-0.14), np.exp(-0.15), np.exp(-0.16)], [1.0] * 3, True),
        # The same against a predictor that differs as they do, seed by seed.
        ([1.8, 3.6, 0.9], [2.0, 4.0, 1.0], True),
        # Surely below it, but by less than what counts as a difference.
        ([1.607, 1.608, 1.607], [1.618] * 3, False),
        ([0.676, 0.67, 0.68], [0.12] * 3, False),
        ([0.9], [1.0], True),
        ([0.99], [1.0], False),
        ([NAN, 0.9], [1.0, 1.0], True),
        ([NAN, NAN], [1.0, 1.0], None),
        ([-2.0, -2.1, -2.0], [-1.0] * 3, True),
    ],
)
def test_clearly_below_the_trivial_predictor(loss: list[float], trivial: list[float], expected: bool | None) -> None:
    assert beats_trivial(loss, trivial) is expected


def iid(own: float, held_out: float, of_clients: float, model: str = "global") -> pd.DataFrame:
    """IID runs of three seeds, as `read_runs` makes them; the constant baseline has 1 everywhere."""
    losses = {"train": own, "test": held_out, "local_test": of_clients, "unseen_train": NAN, "unseen_test": NAN}
    row = {f"{images}_loss": loss for images, loss in losses.items()}
    row |= {f"{images}_trivial": 1.0 for images in losses} | {"local_test_model": model}
    return pd.DataFrame([row] * 3)


def test_what_is_learnt_of_training_images_alone_is_learnt_by_heart() -> None:
    assert [learnt(iid(0.5, 0.6, 0.6), images) for images in ("train", "test", "local_test")] == ["yes"] * 3
    assert [learnt(iid(0.5, 1.6, 1.6), images) for images in ("train", "test", "local_test")] == [
        "by heart",
        "no",
        "no",
    ]
    assert learnt(iid(1.5, 1.6, 1.6), "train") == "no"
    # Personal models are held against what their clients hold out, and no global model's loss counts for them.
    assert learnt(iid(0.5, 1.6, 0.6, "personal"), "train") == "yes"
    assert learnt(iid(0.5, 0.6, 1.6, "personal"), "train") == "by heart"
    assert learnt(iid(0.5, NAN, NAN), "train") == "yes" and learnt(iid(0.5, NAN, NAN), "test") == ""
