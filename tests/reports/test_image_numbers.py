"""Runs with fewer images than those of IID are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reports.image_numbers import fewer_images


def write(folder: Path, name: str, images: int | None, **args: Any) -> None:
    path = folder / "test_federated" / name
    path.mkdir(parents=True)
    (path / "args.json").write_text(json.dumps({"task": "normal", "method": "fedavg", "name": name, **args}))
    assigned = {} if images is None else {"images_dealt": images}
    (path / "summary.json").write_text(json.dumps({"heterogeneity": assigned}))


def test_a_rule_that_leaves_images_out_is_named_with_what_makes_runs_alike(tmp_path: Path) -> None:
    write(tmp_path, "iid", 800, type="iid", partition="paper")
    write(tmp_path, "class", 640, type="class_based", partition="paper")
    write(tmp_path, "embedding", 700, type="embedding_based")  # from before there were other rules
    write(tmp_path, "equal", 792, type="class_based", partition="equal_size")  # eight left over
    write(tmp_path, "other", 10, type="class_based", partition="paper", task="depth_euclidean")  # nothing to compare
    write(tmp_path, "old", None, type="class_based", partition="natural")
    [line] = fewer_images(tmp_path)
    assert line.startswith("normal: clients have 640 to 700 images in all by --partition paper, and 800 under IID")
    assert "with --n_images 640 all runs have equally many" in line
