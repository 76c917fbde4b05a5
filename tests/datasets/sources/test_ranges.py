"""What stage 1 says of the numbers in maps and photographs, counted by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datasets.cameras import Camera
from datasets.maps import in_units
from datasets.sources.ranges import lines_of, lines_of_levels, sample_of
from datasets.stored import read_photograph
from datasets.tasks import MAPS, Scale
from tests.datasets.sources.finding import find, noise, save_image, select
from tests.datasets.test_as_saved import save_png
from utils.errors import UserError

DEPTH = {"image_folder": "rgb", "target": ["depth"], "target_folder": ["depth"], "unit": [0.001], "invalid": [0.0]}
NORMALS = {"image_folder": "rgb", "target": ["normals"], "target_folder": ["normals"]}
FLAT = np.full((4, 4, 3), (0.0, 0.0, 1.0))


def save_maps(folder: Path, name: str, maps: list[np.ndarray]) -> Path:
    """Photographs with these maps, whole numbers as PNG and others as `.npy`."""
    (folder / name).mkdir()
    for number, values in enumerate(maps):
        save_image(folder / "rgb" / f"{number}.png", noise(number, *values.shape[:2], 3))
        if values.dtype.kind == "u":
            Image.fromarray(values).save(folder / name / f"{number}.png")
        else:
            np.save(folder / name / f"{number}.npy", values)
    return folder


def rotated(millimetres: np.ndarray) -> np.ndarray:
    return ((millimetres << 3) | (millimetres >> 13)).astype(np.uint16)


def test_median_and_range_of_depth_and_what_is_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # 1.000 to 2.900 m in steps of 0.1 m, and a fifth without: the quantiles lie between the values.
    values = np.concatenate([np.arange(1000, 3000, 100), np.zeros(5)]).astype(np.uint16).reshape(5, 5)
    find("maps", save_maps(tmp_path, "depth", [values] * 3), **DEPTH)
    said = capsys.readouterr().out.splitlines()
    assert said == ["depth: median 1.95 m, 5 to 95 %: 1.1 to 2.8 m, 20 % of the pixels without"]


def test_values_are_taken_evenly_over_a_map_and_counts_of_all() -> None:
    values = np.arange(10_000, dtype=np.float32).reshape(1, 100, 100)
    known = values[0] >= 5000
    sample = sample_of(values, known, 100)
    assert (len(sample.values), sample.n_pixels, sample.n_without) == (1, 10_000, 5000)
    assert sample.values.shape[1] == 100 and np.isclose(sample.values.mean(), 7475)
    assert list(lines_of(MAPS["regression"], Scale(), [])) == []


def test_rotated_bits_are_doubted_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    millimetres = np.linspace(800, 2400, 48).astype(np.uint16).reshape(6, 8)
    folder = save_maps(tmp_path, "depth", [rotated(millimetres)] * 4)
    find("maps", folder, **DEPTH)
    doubt = (
        "multiples of 8, as SUN RGB-D's are, whose bits are rotated: if these are so, too, --bits rotated reads them"
    )
    assert doubt in capsys.readouterr().out
    table = select("maps", folder, bits="rotated", **DEPTH)
    said = capsys.readouterr().out
    assert "depth: median 1.6 m" in said and "multiples of 8" not in said
    assert table.info.scales["depth"] == Scale(0.001, (0.0,), rotated=True)
    # Few values are multiples of 8 by chance, and others are not.
    for values in (np.full((6, 8), 1600, np.uint16), millimetres):
        lines = list(lines_of(MAPS["depth"], Scale(), [sample_of(values[None] / 1, values > 0, 99, values[None])]))
        assert len(lines) == 1
    with pytest.raises(UserError, match=r"--bits rotated: only of --target depth"):
        find("maps", folder, bits="rotated", **DEPTH | {"target": ["regression"]})


def test_all_that_is_too_far_as_its_bits_are_rotated_is_doubted_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    millimetres = np.linspace(2600, 4400, 48).astype(np.uint16).reshape(6, 8)
    with pytest.raises(UserError, match="none of 2 photographs has its maps"):
        find("maps", save_maps(tmp_path, "depth", [rotated(millimetres)] * 2), **DEPTH)
    assert "--bits rotated reads them, and the median is 3.5 m" in capsys.readouterr().out


def test_units_that_differ_between_maps_and_those_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metres, far = np.linspace(1, 3, 48).reshape(6, 8), np.linspace(1, 3, 48).reshape(6, 8)
    far[0, :4] = 1e10
    maps = [metres, metres, metres, metres / 1000, far]
    find("maps", save_maps(tmp_path, "depth", maps), **DEPTH | {"unit": [1.0], "invalid": []})
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == [
        "depth: 1 of 5 maps with a median such as 0.002 m, where that of all is 1.79 m: in another unit?",
        "depth: 1.7 % are the largest value, 1e+10 m, far behind the others: if nothing was measured there, "
        "--invalid 1e+10 says so",
    ]
    find("maps", tmp_path, **DEPTH | {"invalid": [1e10]})
    assert "nearer than cameras measure: in another unit? see --unit" in capsys.readouterr().out


def test_the_largest_value_is_named_as_it_is_stored() -> None:
    """With the offset taken off again; of depth along rays that became depth in z, no one number is."""
    stored = np.array([[[2000, 2100, 2200, 65535]]])

    def last_line(scale: Scale) -> str:
        values = in_units(stored, MAPS["depth"], scale)
        return [*lines_of(MAPS["depth"], scale, [sample_of(values, values[0] >= 0, 100)])][-1]

    assert last_line(Scale(0.001, offset=-1000.0)).endswith("--invalid 65535 says so")
    as_it_is, in_z = Camera("ray"), Camera("ray", (100.0, 100.0, 1.5, 0.0))
    assert last_line(Scale(0.001, camera=as_it_is)).endswith("--invalid 65535 says so")
    assert "--invalid" not in last_line(Scale(0.001, camera=in_z))


def test_normals_by_axis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = FLAT.copy()
    values[0] = (0.6, 0.0, 0.8)
    values[1] = 0  # no direction
    find("maps", save_maps(tmp_path, "normals", [values]), **NORMALS)
    said = capsys.readouterr().out.splitlines()
    assert said == ["normals: on average x 0.20, y 0.00, z 0.93, 25 % of the pixels without"]


def test_halved_normals_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    find("maps", save_maps(tmp_path, "normals", [(FLAT + 1) / 2, FLAT]), **NORMALS)
    assert "normals: 1 of 2 maps hold (n + 1) / 2 in floats, and are read so" in capsys.readouterr().out


def test_axes_of_the_world_and_channels_backwards_are_doubted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = FLAT.copy()
    values[:2, :, 2] = -1  # floor and ceiling
    folder = save_maps(tmp_path, "normals", [values] * 4)
    find("maps", folder, **NORMALS)
    assert "z points to both sides (50 % of the pixels to the rarer one)" in capsys.readouterr().out
    table = select("maps", folder, axes="world", **NORMALS)
    assert table.info.scales["normals"].world and "both sides" not in capsys.readouterr().out
    with pytest.raises(UserError, match="--axes world: only of --target normals"):
        find("maps", folder, axes="world", **DEPTH)


def test_channels_in_the_order_of_opencv_are_doubted() -> None:
    towards = np.array([[0.8, 0, 0.6], [0.8, 0, -0.6], [1, 0, 0], [0.8, 0.6, 0]]).T.reshape(3, 2, 2)
    samples = [sample_of(towards, np.ones((2, 2), bool), 99)]
    assert "z, y, x, as OpenCV writes colours?" in list(lines_of(MAPS["normals"], Scale(), samples))[1]
    assert len(list(lines_of(MAPS["normals"], Scale(), [sample_of(towards[::-1], np.ones((2, 2), bool), 99)]))) == 1


def test_columns_of_a_csv_file_in_metres(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        save_image(tmp_path / f"{number}.png", noise(number, 4, 4, 3))
        depth = np.full((4, 4), 1024, np.uint16)
        depth[0] = 65535
        Image.fromarray(depth).save(tmp_path / f"d{number}.png")
    lines = ["image,depth_euclidean", *[f"{i}.png,d{i}.png" for i in range(4)]]
    (tmp_path / "images.csv").write_text("\n".join(lines))
    find("csv", tmp_path)
    assert capsys.readouterr().out.splitlines()[0] == (
        "depth_euclidean: median 2 m, 5 to 95 %: 2 to 2 m, 25 % of the pixels without"
    )


def test_what_cannot_be_read_or_is_no_direction_in_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        save_image(tmp_path / f"{number}.png", noise(number, 4, 4, 3))
        save_image(tmp_path / f"d{number}.png", np.zeros((4, 4), np.uint8))
        save_image(tmp_path / f"n{number}.png", np.full((4, 4, 3), (0, 0, 0) if number else (128, 127, 255), np.uint8))
    lines = ["image,depth_euclidean,normal", *[f"{i}.png,d{i}.png,n{i}.png" for i in range(4)]]
    (tmp_path / "images.csv").write_text("\n".join(lines))
    find("csv", tmp_path)
    said = capsys.readouterr().out
    assert "4 of 4 files of depth_euclidean cannot be read; the commonest error, 4 of 4: d0.png: pixel format L" in said
    assert "normal: 75 % of the vectors are not about 1 long, and count: is what is not known black, in place" in said


def test_colour_png_of_16_bits_has_no_levels(tmp_path: Path) -> None:
    save_png(tmp_path / "a.png", np.full((2, 2, 3), 9 * 257), 16, 2)
    [line] = lines_of_levels(tmp_path, ["a.png"], None)
    assert "with values from 2304 to 2304" in line and line.endswith(
        "no more can be read: save with 8 bits, and bright"
    )
    first, _ = lines_of_levels(tmp_path, ["a.png"], (0.0, 4095.0))
    assert first == "--levels: 1 colour PNG of 16 bits cannot have them; save with 8: a.png"
    with pytest.raises(ValueError, match="8 are read and have no --levels"):
        read_photograph(tmp_path, "a.png", (0.0, 4095.0))


def test_photographs_of_16_bits_with_few_grey_levels(tmp_path: Path) -> None:
    for name, values in (("narrow", [0, 4095]), ("band", [22000, 22510]), ("full", [0, 65535])):
        Image.fromarray(np.array([values], np.uint16)).save(tmp_path / f"{name}.png")
    save_image(tmp_path / "eight.jpg")
    cells = ["narrow.png", "band.png", "eight.jpg"]
    [line] = lines_of_levels(tmp_path, cells, None)
    assert line.startswith("2 photographs of 16 bits, with values from 0 to 22510: 0 is black and 65535 white, so that")
    assert "has 9.5 of 256 grey levels; --levels BLACK WHITE" in line  # 16 and 3
    [line] = lines_of_levels(tmp_path, cells, (0.0, 4095.0))
    assert line.endswith("0 and less is black, 4095 and more is white")
    [line] = lines_of_levels(tmp_path, ["full.png"], None)
    assert line.endswith("256 of 256 grey levels")
    assert list(lines_of_levels(tmp_path, ["eight.jpg"], None)) == []
    assert list(lines_of_levels(tmp_path, ["eight.jpg"], (0.0, 1.0))) == ["--levels: there is no photograph of 16 bits"]


def test_photographs_of_16_bits_in_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(32, dtype=np.uint16).reshape(2, 4, 4))
    np.save(tmp_path / "b.npy", np.zeros((2, 4, 4), np.uint8))
    [line] = lines_of_levels(tmp_path, ["a.npy#0", "a.npy#1", "b.npy#0"], None)
    assert line.startswith("2 photographs of 16 bits, with values from 0 to 31:")


def test_levels_are_in_the_table(tmp_path: Path) -> None:
    for number in range(4):
        path = tmp_path / "a" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((8, 8), 1000 * number, np.uint16)).save(path)
    table = select("folder", tmp_path, levels=[0.0, 4000.0])
    assert table.info.levels == (0.0, 4000.0)
    for levels in ([4000.0, 0.0], [5.0, 5.0]):
        with pytest.raises(UserError, match="white is to be above black"):
            select("folder", tmp_path, levels=levels)
