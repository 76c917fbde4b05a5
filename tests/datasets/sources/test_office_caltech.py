"""Office-Caltech: names in any spelling, and images that are of none of the ten classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.datasets.sources.finding import find, rows_of, select, write_image
from utils.errors import UserError

CLASSES = (
    "backpack",
    "bike",
    "calculator",
    "headphones",
    "keyboard",
    "laptop",
    "monitor",
    "mouse",
    "mug",
    "projector",
)


def test_four_domains_share_ten_classes_however_they_are_spelled(tmp_path: Path) -> None:
    spelled = {name: [name, name.upper()] for name in CLASSES}
    spelled |= {
        "backpack": ["back_pack", "Backpack"],
        "laptop": ["laptop_computer", "laptop"],
        "headphones": ["headphone", "head_phones"],
    }
    for i, (folder, _) in enumerate([("caltech10", "Caltech"), ("AMAZON", ""), ("webcam", ""), ("dslr", "")]):
        for name in CLASSES:
            write_image(tmp_path / folder / spelled[name][i % 2] / "frame_0001.jpg")
    table = select("office_caltech", tmp_path)
    assert table.class_names == CLASSES and table.info.groups == ("domain",)
    seen = zip(table.groups["domain"], np.array(CLASSES)[table.labels], strict=True)
    assert sorted(seen) == sorted((d, name) for d in ("Caltech", "Amazon", "Webcam", "DSLR") for name in CLASSES)


def test_other_classes_and_domains_are_left_out_by_folder(tmp_path: Path) -> None:
    for cell in ("amazon/mug/1.jpg", "amazon/bottle/1.jpg", "amazon/bottle/2.jpg", "clipart/mug/1.jpg"):
        write_image(tmp_path / cell)
    (tmp_path / "amazon/mug/2.jpg").touch()
    found = find("office_caltech", tmp_path)
    assert rows_of(found, "domain") == {("amazon/mug/1.jpg", "mug", "Amazon")}
    assert found.errors == [
        "'amazon/mug/2.jpg': an empty file",
        "amazon/bottle/: 2 images of another class or domain",
        "clipart/mug/: 1 images of another class or domain",
    ]


@pytest.mark.parametrize(
    "cell, reason",
    [
        ("mug/1.jpg", "no folders of domains"),
        ("clipart/mug/1.jpg", "no images of backpack, .* of Caltech, Amazon, Webcam, DSLR"),
        ("amazon/bottle/1.jpg", "no images of backpack"),
        ("amazon/images/mug/1.jpg", "amazon/images/mug/1.jpg lies too deep"),
    ],
)
def test_other_layouts_are_refused(tmp_path: Path, cell: str, reason: str) -> None:
    write_image(tmp_path / cell)
    with pytest.raises(UserError, match=reason):
        find("office_caltech", tmp_path)
