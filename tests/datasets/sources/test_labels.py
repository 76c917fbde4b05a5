"""Names of categories, and the class of a whole image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datasets.sources.labels import class_of_image, class_set, read_categories
from utils.errors import UserError


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("a.txt", "sky\n\ntraffic light\n", {0: "sky", 1: "traffic light"}),
        ("a.txt", "7: sky\n3: pole top\n", {3: "pole top", 7: "sky"}),
        ("a.txt", "\ufeff11 void\n0, sky\n", {0: "sky", 11: "void"}),
        ("a.txt", "3 men\nsky\n", {0: "3 men", 1: "sky"}),  # not all lines are numbered
        ("a.yaml", "path: .\nnames:\n  1: person\n  13: stop sign\n", {1: "person", 13: "stop sign"}),
        ("a.yml", "names: [cat, dog]\n", {0: "cat", 1: "dog"}),
        ("a.yaml", "classes:\n  0: unlabeled\n  2: tree\n", {0: "unlabeled", 2: "tree"}),
    ],
)
def test_names_are_read_in_every_usual_form(tmp_path: Path, name: str, text: str, expected: dict[int, str]) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_categories(tmp_path / name) == expected


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.txt", b""), ("a.txt", b"\xff\xfe"), ("a.yaml", b"names: 3"), ("a.yaml", b"{"), ("a.yaml", b"- 1"),
        ("a.yaml", b"names: {x: cat}"), ("a.yaml", b"!!python/object/apply:os.system ['false']"),
    ],
)  # fmt: skip
def test_broken_names_are_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=name) as caught:
        read_categories(tmp_path / name)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="missing"):
        read_categories(tmp_path / "missing.txt")


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
