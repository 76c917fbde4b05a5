"""EXR files that the OpenEXR package writes, by the names of their channels."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.exr import chosen, exr_size, read_exr
from datasets.maps import read_map
from datasets.stored import values_size
from datasets.tasks import MAPS, NOTHING, Scale
from tests.datasets.sources.finding import noise, save_image, select
from utils.errors import UserError

BLENDER = [
    f"ViewLayer.{name}"
    for name in (
        "Combined.R",
        "Combined.G",
        "Combined.B",
        "Combined.A",
        "Depth.Z",
        "Mist.Z",
        "Normal.X",
        "Normal.Y",
        "Normal.Z",
    )
]
Z = np.arange(12, dtype=np.float32).reshape(3, 4) + 1


@pytest.fixture
def OpenEXR() -> Any:
    return pytest.importorskip("OpenEXR", reason="needs OpenEXR, of requirements-exr.txt")


def write(OpenEXR: Any, path: Path, channels: Mapping[str, np.ndarray], **header: object) -> Path:
    kind = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with OpenEXR.File(kind | header, dict(channels)) as file:
        file.write(str(path))
    return path


@pytest.mark.parametrize(
    "names, n_channels, expected",
    [
        (["anything"], 1, ["anything"]),
        (["A", "B", "G", "R", "Z"], 1, ["Z"]),
        (["B", "G", "R"], 1, ["R", "G", "B"]),  # of which all are to be equal
        (["Y", "A"], 1, ["Y"]),
        (["R", "G", "B", "depth.V"], 1, ["depth.V"]),
        (["normal.X", "normal.Y", "normal.Z", "Z"], 1, ["Z"]),
        (BLENDER, 1, ["ViewLayer.Depth.Z"]),
        (BLENDER, 3, ["ViewLayer.Normal.X", "ViewLayer.Normal.Y", "ViewLayer.Normal.Z"]),
        (["Z", "Y", "X"], 3, ["X", "Y", "Z"]),
        (["B", "G", "R", "A"], 3, ["R", "G", "B"]),
    ],
)
def test_channels_are_taken_by_name(names: list[str], n_channels: int, expected: list[str]) -> None:
    assert chosen(names, n_channels) == expected


@pytest.mark.parametrize(
    "names, n_channels, line",
    [
        (["U", "W"], 1, "channels U, W, of which none is Z, depth, V or Y"),
        (["a.Z", "b.Z"], 1, "several are Z, depth, V or Y"),
        (["Z"], 3, "channels Z, of which none is X, Y and Z, or R, G and B"),
        (["X", "Y", "Z"], 1, "none is Z, depth"),  # coordinates or a direction
        ([], 1, "none is"),
    ],
)
def test_channels_that_nobody_can_tell_are_named(names: list[str], n_channels: int, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        chosen(names, n_channels)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.uint32])
def test_depth_beside_colours(OpenEXR: Any, tmp_path: Path, dtype: type) -> None:
    colours = np.random.default_rng(0).random((3, 4, 3)).astype(np.float16)
    path = write(OpenEXR, tmp_path / "a.exr", {"RGBA": np.dstack([colours, colours[..., :1]]), "Z": Z.astype(dtype)})
    assert values_size(tmp_path, "a.exr") == exr_size(path) == (3, 4)
    np.testing.assert_array_equal(read_exr(path, 1), Z[None])
    np.testing.assert_array_equal(read_exr(path, 3), colours.transpose(2, 0, 1))
    values = read_map(tmp_path, "a.exr", MAPS["depth"], Scale(0.5, (1.0,)))
    assert values[0, 0].tolist() == [NOTHING, 1, 1.5, 2]


def test_normals_are_x_y_z_though_they_are_stored_by_name(OpenEXR: Any, tmp_path: Path) -> None:
    normals = np.full((3, 4, 3), (0.6, 0.0, 0.8), np.float32)
    write(
        OpenEXR,
        tmp_path / "n.exr",
        dict(zip(("N.Z", "N.X", "N.Y"), np.moveaxis(normals[..., [2, 0, 1]], -1, 0).copy(), strict=True)),
    )
    values = read_map(tmp_path, "n.exr", MAPS["normals"], Scale())
    np.testing.assert_array_equal(values, normals.transpose(2, 0, 1))


@pytest.mark.parametrize("left, top", [(2, 1), (-1, -1), (8, 6), (30, 0)])
def test_a_data_window_lies_in_the_display_window(OpenEXR: Any, tmp_path: Path, left: int, top: int) -> None:
    windows = {"displayWindow": ((0, 0), (9, 7)), "dataWindow": ((left, top), (left + 3, top + 2))}
    windows = {name: tuple(np.array(each, np.int32) for each in window) for name, window in windows.items()}
    path = write(OpenEXR, tmp_path / "w.exr", {"Z": Z}, **windows)
    expected = np.full((8, 10), np.nan)
    for y, x in np.ndindex(Z.shape):
        if 0 <= y + top < 8 and 0 <= x + left < 10:
            expected[y + top, x + left] = Z[y, x]
    np.testing.assert_array_equal(read_exr(path, 1)[0], expected)
    assert exr_size(path) == (8, 10)


def test_broken_files_and_others_are_named(OpenEXR: Any, tmp_path: Path) -> None:
    noisy = np.random.default_rng(0).random((100, 40)).astype(np.float32)  # of several chunks
    whole = write(OpenEXR, tmp_path / "a.exr", {"Z": noisy}).read_bytes()
    for content in (b"", b"no picture", whole[: len(whole) // 2], whole[:-1]):
        (tmp_path / "b.exr").write_bytes(content)
        with pytest.raises(ValueError, match="not a readable EXR file"):
            read_exr(tmp_path / "b.exr", 1)
    with pytest.raises(ValueError, match="not a readable EXR file"):
        exr_size(tmp_path / "none.exr")


def test_the_source_of_maps_reads_them(OpenEXR: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "depth").mkdir()
    for number in range(4):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, 3, 4, 3))
        write(OpenEXR, tmp_path / "depth" / f"{number}.exr", {"Z": Z, "R": Z, "G": Z, "B": Z})
    table = select("maps", tmp_path, image_folder="rgb", target=["depth"], target_folder=["depth"])
    assert table.files["depth"][1] == "depth/1.exr" and "depth: median 6.5 m" in capsys.readouterr().out


def test_without_the_package_a_line_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    with pytest.raises(UserError, match=r"a\.exr: EXR files need a package: .*-r requirements-exr\.txt"):
        read_exr(tmp_path / "a.exr", 1)
