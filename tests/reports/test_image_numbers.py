"""Runs with fewer images than those of IID are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reports.finished import Results
from reports.image_numbers import fewer_images
from tests.reports.finish import finish


def write(folder: Path, name: str, images: int | None, **args: Any) -> None:
    assigned = {} if images is None else {"assigned_images": images}
    finish(folder, {"task": "normal", "method": "fedavg", "name": name, **args}, {"heterogeneity": assigned})


def test_runs_of_before_have_the_number_by_another_name(tmp_path: Path) -> None:
    write(tmp_path, "iid", 800, type="iid")
    heterogeneity = {"heterogeneity": {"images_dealt": 600}}
    finish(tmp_path, {"task": "normal", "method": "fedavg", "name": "old", "type": "class_based"}, heterogeneity)
    [line] = fewer_images(Results(tmp_path))
    assert "clients have 600 images in all" in line


def test_a_rule_that_leaves_images_out_is_named_with_what_makes_runs_alike(tmp_path: Path) -> None:
    write(tmp_path, "iid", 800, type="iid", partition="paper")
    write(tmp_path, "class", 640, type="class_based", partition="paper")
    write(tmp_path, "embedding", 700, type="embedding_based")  # from before there were other rules
    write(tmp_path, "equal", 792, type="class_based", partition="equal_size")  # eight left over
    write(tmp_path, "other", 10, type="class_based", partition="paper", task="depth_euclidean")  # nothing to compare
    write(tmp_path, "old", None, type="class_based", partition="natural")
    [line] = fewer_images(Results(tmp_path))
    assert line.startswith("normal: clients have 640 to 700 images in all by --partition paper, and 800 under IID")
    assert "with --n_images 640 all runs have equally many" in line
