"""Classes of masks, and the class of a whole image."""

from __future__ import annotations

import numpy as np
import pytest

from datasets.sources.labels import class_of_image, class_set
from utils.errors import UserError


def test_void_ids_are_no_classes() -> None:
    found = class_set({0: "sky", 4: "void", 9: "car"}, [4, 255])
    assert (found.names, found.ids, found.void) == (("sky", "car"), (0, 9), (4, 255))
    with pytest.raises(UserError, match="--void_ids"):
        class_set({0: "void"}, [0])
    with pytest.raises(UserError, match="256 classes"):
        class_set({i: str(i) for i in range(256)})


@pytest.mark.parametrize(
    "amounts, rule, expected",
    [
        ([0, 5, 3], "commonest", 1), ([0, 5, 3], "lowest", 1), ([0, 3, 5], "commonest", 2), ([0, 3, 5], "lowest", 1),
        ([9, 3, 5], "commonest", 2), ([9, 0, 0], "commonest", 0), ([9, 0, 0], "lowest", 0), ([9, 0, 1], "lowest", 2),
        ([0, 0, 0], "commonest", -1), ([0, 4, 4], "commonest", 1),
    ],
)  # fmt: skip
def test_class_of_an_image(amounts: list[int], rule: str, expected: int) -> None:
    assert class_of_image(np.array(amounts), ("background", "car", "dog"), rule) == expected
