"""Files of optical flow, and what is wrong with some; `sources/test_motion.py` reads whole sets of them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import _optical_flow as of_torchvision

from datasets.flow_files import Pair, flo_size, read_flo, read_kitti_flow
from datasets.maps import read_map
from datasets.stored import values_size
from datasets.tasks import MAPS
from tests.datasets.flows import flow_of, write_flo, write_kitti

PAIR = Pair("a.npy", "b.npy", 0.5, (0.0,), (8.0, 8.0, 3.5, 2.5), tuple(map(tuple, np.eye(4).tolist())))


def test_flo_and_kitti_are_torchvisions(tmp_path: Path) -> None:
    flow = flow_of(3, 6, 8)
    write_flo(tmp_path / "a.flo", flow)
    write_kitti(tmp_path / "a.png", flow)
    theirs, known = of_torchvision._read_16bits_png_with_flow_and_valid_mask(str(tmp_path / "a.png"))
    np.testing.assert_array_equal(read_kitti_flow(tmp_path / "a.png"), np.where(known, theirs, np.nan))
    theirs = of_torchvision._read_flo(str(tmp_path / "a.flo"))
    np.testing.assert_array_equal(read_flo(tmp_path / "a.flo"), np.where(np.abs(theirs) < 1e9, theirs, np.nan))
    np.testing.assert_array_equal(read_flo(tmp_path / "a.flo"), flow)
    assert flo_size(tmp_path / "a.flo") == (6, 8)


@pytest.mark.parametrize(
    "content", [b"", b"PIEH", b"PIEH" + b"\0" * 8, b"PIEH" + b"\xff" * 8, b"PIEG" + b"\1\0\0\0" * 4]
)
def test_broken_headers_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.flo").write_bytes(content)
    with pytest.raises(ValueError, match=r"the tag 202021\.25|pixels in its header"):
        read_flo(tmp_path / "a.flo")


def test_a_pair_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Depth of 2 m everywhere in half metres, but for a pixel: a camera that stands still sees no flow."""
    depth = np.full((6, 8), 4.0, np.float32)
    depth[1, 2] = 0
    for name in (PAIR.depth, PAIR.depth_next):
        np.save(tmp_path / name, depth)
    PAIR.write(tmp_path, "motion/a.json")
    flow = read_map(tmp_path, "motion/a.json", MAPS["motion"])
    assert (flow[:, 1, 2] == -np.inf).all() and np.isfinite(flow).sum() == 2 * 47 and flow.max() == 0
    assert values_size(tmp_path, "motion/a.json") == (6, 8)
    np.save(tmp_path / PAIR.depth_next, depth[:, :4])
    with pytest.raises(ValueError, match=r"depth of \(6, 8\) and then of \(6, 4\) pixels"):
        read_map(tmp_path, "motion/a.json", MAPS["motion"])


@pytest.mark.parametrize(
    "change",
    [
        {"unit": "x"},
        {"unit": 0},
        {"intrinsics": [1, 2, 3]},
        {"motion": [[1]]},
        {"depth": 3},
        {"more": 1},
        {"invalid": 3},
    ],
)
def test_broken_pairs_are_refused(tmp_path: Path, change: dict) -> None:
    (tmp_path / "a.json").write_text(json.dumps(asdict(PAIR) | change))
    with pytest.raises(ValueError, match="no pair of depth maps"):
        read_map(tmp_path, "a.json", MAPS["motion"])


@pytest.mark.parametrize("name", ["depth", "depth_next"])
def test_a_pair_reads_nothing_outside_its_folder(tmp_path: Path, name: str) -> None:
    replace(PAIR, **{name: "../secret.npy"}).write(tmp_path, "a.json")
    for read in (lambda: read_map(tmp_path, "a.json", MAPS["motion"]), lambda: values_size(tmp_path, "a.json")):
        with pytest.raises(ValueError, match="is not a path within the data folder"):
            read()
