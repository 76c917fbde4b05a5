"""The layouts of real data sets, made small, are read to the pixel with the arguments of docs/data_sources.md."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datasets.packed import load_packed
from datasets.sources import select_images
from datasets.table import Table, read_boxes, read_table
from datasets.tasks import MAPS, TASKS
from stages.table import TableStage
from tests.datasets.sources.finding import noise, save_image

SIZE = 8
PAGE = (Path(__file__).parents[3] / "docs" / "data_sources.md").read_text()
ROWS = re.findall(
    r"^\| ([^|]+) \| [^|]+ \| `(--source [^|]+)` \| [^|]+ \|$",
    PAGE[PAGE.index("## Layouts of data sets") :],
    re.MULTILINE,
)
NOTHING = -np.inf
Check = Callable[[Table], None]


def photo(path: Path, seed: int = 0) -> None:
    save_image(path, noise(seed, SIZE, SIZE, 3))


def write(path: Path, values: np.ndarray) -> None:
    """Values as a picture, or as what the name's ending says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".hdf5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file["dataset"] = values
    elif path.suffix == ".pfm":
        with path.open("wb") as file:
            file.write(f"Pf\n{SIZE} {SIZE}\n-1\n".encode() + values[::-1].astype("<f4").tobytes())
    else:
        Image.fromarray(values).save(path)


def ramp(first: float, dtype: str = "uint16") -> np.ndarray:
    """Values that rise from the first by one a pixel; the corner has 0."""
    values = first + np.arange(SIZE * SIZE).reshape(SIZE, SIZE)
    values[0, 0] = 0
    return values.astype(dtype)


def maps(domain: str, expected: np.ndarray, n: int, **groups: list[str]) -> Check:
    """That there are n images, the first with these values."""

    def check(table: Table) -> None:
        packed, unreadable = load_packed(table, MAPS[domain], SIZE)
        assert len(table) == n and not unreadable
        np.testing.assert_allclose(packed[0, 0], np.where(np.isnan(expected), NOTHING, expected), rtol=2e-3)
        assert {name: sorted(set(table.groups[name])) for name in groups} == groups

    return check


def in_metres(values: np.ndarray, unit: float) -> np.ndarray:
    return np.where(values == 0, np.nan, values * unit)


def bts(root: Path) -> Check:
    for k in range(4):
        scene = root / f"basement_0001{'ab'[k // 2]}"
        photo(scene / f"rgb_{k:05}.jpg")
        write(scene / f"sync_depth_{k:05}.png", ramp(1500))
    return maps("depth", in_metres(ramp(1500), 0.001), 4, scene=["basement_0001a", "basement_0001b"])


def virtual_kitti(root: Path) -> Check:
    depth = ramp(400)
    depth[0, 0] = 65535
    for k in range(4):
        frames = root / f"Scene0{1 + k // 2}" / "clone" / "frames"
        photo(frames / "rgb" / "Camera_0" / f"rgb_{k:05}.jpg")
        write(frames / "depth" / "Camera_0" / f"depth_{k:05}.png", depth)
    return maps("depth", np.where(depth == 65535, np.nan, depth * 0.01), 4, weather=["Scene01/clone", "Scene02/clone"])


def matterport(root: Path) -> Check:
    for k, view in enumerate(("0_0", "0_1", "1_0", "2_5")):
        house = root / f"{1 + k // 2}pX"
        photo(house / "undistorted_color_images" / f"0a1b_i{view}.jpg")
        write(house / "undistorted_depth_images" / f"0a1b_d{view}.png", ramp(8000 + 100 * k))
    return maps("depth", in_metres(ramp(8000), 0.00025), 4, house=["1pX", "2pX"])


def tum(root: Path) -> Check:
    for k in range(4):  # the depth of the next frame is nearer than that of this one
        sequence = root / ("desk" if k < 3 else "room")
        photo(sequence / "rgb" / f"{1305031102 + k * 0.033:.6f}.png")
        write(sequence / "depth" / f"{1305031102 - 0.015 + k * 0.033:.6f}.png", ramp(10000 + 100 * k))
    write(root / "desk" / "depth" / "1305031109.000000.png", ramp(1))
    return maps("depth", in_metres(ramp(10000), 0.0002), 4, sequence=["desk", "room"])


def arkit(root: Path) -> Check:
    confidence = np.full((SIZE, SIZE), 2, np.uint8)
    confidence[3] = 1
    for k in range(4):
        folder = root / ("Training" if k < 3 else "Validation") / "4106"
        photo(folder / "lowres_wide" / f"4106_{305.364 + k}.png")
        write(folder / "lowres_depth" / f"4106_{305.364 + k}.png", ramp(1500))
        write(folder / "confidence" / f"4106_{305.364 + k}.png", confidence)
    expected = in_metres(ramp(1500), 0.001)
    expected[3] = np.nan
    return maps("depth", expected, 4, video=["4106"])


def hypersim(root: Path) -> Check:
    for k in range(4):
        images = root / f"ai_001_00{1 + k // 2}" / "images"
        photo(images / "scene_cam_00_final_preview" / f"frame.{k:04}.tonemap.jpg")
        write(images / "scene_cam_00_geometry_hdf5" / f"frame.{k:04}.depth_meters.hdf5", np.full((SIZE, SIZE), 3, "f2"))
    v, u = np.mgrid[:SIZE, :SIZE]
    ray = np.stack([(u - 511.5) / 886.81, (v - 383.5) / 886.81, np.ones((SIZE, SIZE))])
    return maps("depth", 3 / np.linalg.norm(ray, axis=0), 4, scene=["ai_001_001", "ai_001_002"])


def diode(root: Path) -> Check:
    mask = np.ones((SIZE, SIZE), np.float32)
    mask[2, 5] = mask[0, 0] = 0
    for k in range(4):
        name = root / ("train" if k < 3 else "val") / "indoors" / "scene_00001" / "scan_00004" / f"0001_indoors_{k}"
        photo(name.with_suffix(".png"))
        write(name.with_name(f"{name.name}_depth.npy"), ramp(2, "float32")[..., None] / 16)
        write(name.with_name(f"{name.name}_depth_mask.npy"), mask)
    expected = ramp(2, "float64") / 16
    expected[2, 5] = expected[0, 0] = np.nan
    return maps("depth", expected, 4, scan=["indoors/scene_00001/scan_00004"])


def cityscapes(root: Path) -> Check:
    for k in range(4):
        place = Path("train" if k < 3 else "val", "aachen", f"aachen_{k:06}_000019")
        photo(root / "leftImg8bit" / f"{place}_leftImg8bit.png")
        write(root / "disparity" / f"{place}_disparity.png", ramp(10001))
    disparity = np.where(ramp(10001) == 0, np.nan, (ramp(10001).astype(float) - 1) / 256)
    return maps("depth", 2262.52 * 0.209313 / disparity, 4, city=["aachen"])


def middlebury(root: Path) -> Check:
    disparity = ramp(20, "float32")
    disparity[0, 0] = np.inf
    for scene in ("Adirondack-perfect", "Backpack-perfect", "Cable-perfect", "Couch-perfect"):
        photo(root / scene / "im0.png")
        photo(root / scene / "im1.png")
        write(root / scene / "disp0.pfm", disparity)
    expected = np.where(np.isinf(disparity), np.nan, disparity * 0.01)
    return maps("regression", expected, 4, scene=sorted(path.name for path in root.iterdir()))


def masks(ids: np.ndarray, names: tuple[str, ...], void: int) -> Check:
    """That packed masks are these ids, which are the numbers of these classes."""

    def check(table: Table) -> None:
        assert table.info.classes["mask"].names == names
        packed, unreadable = load_packed(table, TASKS["segmentation"].encoding, SIZE)
        assert not unreadable
        np.testing.assert_array_equal(packed[0, 0], np.where(ids == void, 255, ids))

    return check


IDS = np.arange(SIZE * SIZE).reshape(SIZE, SIZE) // 20  # 0 to 3
COLOURS = np.array([(0, 0, 0), (250, 50, 83), (51, 221, 255), (224, 224, 192)], np.uint8)


def cvat(root: Path) -> Check:
    for k in range(4):
        photo(root / "JPEGImages" / f"{k}.jpg")
        write(root / "SegmentationClass" / f"{k}.png", COLOURS[IDS])
        write(root / "SegmentationObject" / f"{k}.png", COLOURS[IDS])
    (root / "ImageSets" / "Segmentation").mkdir(parents=True)
    (root / "ImageSets" / "Segmentation" / "default.txt").write_text("0\n1\n2\n3\n")
    (root / "labelmap.txt").write_text(
        "# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:250,50,83::\ndog:51,221,255:head,tail:run\n"
    )
    return masks(IDS, ("background", "cat", "dog"), 3)


def camvid(root: Path) -> Check:
    for k in range(4):
        photo(root / "701_StillsRaw_full" / f"0001TP_{k}.png")
        write(root / "LabeledApproved_full" / f"0001TP_{k}_L.png", COLOURS[IDS])
    (root / "label_colors.txt").write_text("0 0 0\tVoid\n250 50 83\tCar\n51 221 255 \tRoad\n224 224 192\tSky\n")
    return masks(np.where(IDS == 0, 255, IDS - 1), ("Car", "Road", "Sky"), 255)


def boxes(n: int, names: tuple[str, ...], *first: float) -> Check:
    """That there are n boxes of these classes, the first one with these sides in pixels."""

    def check(table: Table) -> None:
        found = read_boxes(table)
        assert len(found) == n and table.info.classes["boxes"].names == names
        np.testing.assert_allclose(found.iloc[0, 2:].to_numpy(float) * SIZE, first)
        assert len(table) == n and len(table.test) in (1, 2)

    return check


def darknet(root: Path) -> Check:
    for k in range(4):
        folder = root / f"obj_{'train' if k < 3 else 'val'}_data"
        photo(folder / f"{k}.jpg")
        (folder / f"{k}.txt").write_text("1 0.5 0.5 0.25 0.5\n")
    (root / "obj.names").write_text("cat\ndog\n")
    return boxes(4, ("cat", "dog"), 3, 2, 5, 6)


def yolo(root: Path) -> Check:
    for k in range(4):
        place = Path("train" if k < 3 else "val", f"camera_{k % 2}", "day", f"{k}")
        photo(root / "images" / f"{place}.jpg")
        (root / "labels" / place).parent.mkdir(parents=True, exist_ok=True)
        (root / "labels" / f"{place}.txt").write_text("0 0.5 0.5 0.25 0.5\n")
        photo(root / "images" / place.parts[0] / "camera_9" / f"{k}.jpg")
    for k in range(4):  # with labels of their own
        place = Path("train" if k < 3 else "val", "camera_9", f"{k}.txt")
        (root / "labels" / place).parent.mkdir(parents=True, exist_ok=True)
        (root / "labels" / place).write_text("")
    (root / "data.yaml").write_text("names: [cat]\n")

    def check(table: Table) -> None:
        assert len(read_boxes(table)) == 4 and len(table) == 8

    return check


VOC_XML = (
    "<annotation><size><width>8</width><height>8</height></size><object><name>cat</name>"
    "<bndbox><xmin>{}</xmin><ymin>2</ymin><xmax>5</xmax><ymax>6</ymax></bndbox></object></annotation>"
)


def roboflow_voc(root: Path) -> Check:
    for k in range(4):
        folder = root / ("train" if k < 3 else "valid")
        photo(folder / f"{k}.jpg")
        (folder / f"{k}.xml").write_text(VOC_XML.format(1))
    return boxes(4, ("cat",), 0, 1, 5, 6)


def label_img(root: Path) -> Check:
    for k in range(4):
        photo(root / "photos" / f"{k}.jpg")
        (root / "photos" / f"{k}.xml").write_text(VOC_XML.format(1))
    return boxes(4, ("cat",), 0, 1, 5, 6)


def coco(root: Path, path: str, numbers: range, key: str = "file_name", name: str = "{}.jpg") -> None:
    """An instances file of photographs with one box each."""
    content = {
        "images": [{"id": k, key: name.format(k), "width": SIZE, "height": SIZE} for k in numbers],
        "categories": [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}],
        "annotations": [{"id": k, "image_id": k, "category_id": 7, "bbox": [1, 2, 4, 3]} for k in numbers],
    }
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(json.dumps(content))


def roboflow_coco(root: Path) -> Check:
    for part, numbers in (("train", range(3)), ("valid", range(3, 4))):
        coco(root, f"{part}/_annotations.coco.json", numbers)
        for k in numbers:
            photo(root / part / f"{k}.jpg")
    return boxes(4, ("cat", "dog"), 1, 2, 5, 5)


def one_folder(root: Path) -> Check:
    for part, numbers in (("train", range(3)), ("val", range(3, 4))):
        coco(root, f"annotations/{part}.json", numbers)
        for k in numbers:
            photo(root / "images" / f"{k}.jpg")
    return boxes(4, ("cat", "dog"), 1, 2, 5, 5)


def lvis(root: Path) -> Check:
    for part, numbers in (("train", range(3)), ("val", range(3, 4))):
        coco(root, f"lvis_v1_{part}.json", numbers, "coco_url", "http://images.cocodataset.org/train2017/{:012}.jpg")
        for k in numbers:
            photo(root / "train2017" / f"{k:012}.jpg")
    return boxes(4, ("cat", "dog"), 1, 2, 5, 5)


def panoptic(root: Path) -> Check:
    """A sky above two cats, of which one is a crowd, and a pixel of nothing."""
    segments = np.zeros((SIZE, SIZE), np.int64)
    segments[:4], segments[4:, :3], segments[4:, 3:] = 70000, 300, 5
    segments[7, 7] = 0
    picture = np.stack([segments & 255, segments >> 8 & 255, segments >> 16], axis=-1).astype(np.uint8)
    for part, numbers in (("train2017", range(3)), ("val2017", range(3, 4))):
        for k in numbers:
            photo(root / part / f"{k:012}.jpg")
            write(root / "annotations" / f"panoptic_{part}" / f"{k:012}.png", picture)
        info = [
            {"id": 70000, "category_id": 187, "iscrowd": 0},
            {"id": 300, "category_id": 17, "iscrowd": 0},
            {"id": 5, "category_id": 17, "iscrowd": 1},
        ]
        content = {
            "images": [{"id": k, "file_name": f"{k:012}.jpg", "width": SIZE, "height": SIZE} for k in numbers],
            "annotations": [{"image_id": k, "file_name": f"{k:012}.png", "segments_info": info} for k in numbers],
            "categories": [{"id": 187, "name": "sky", "isthing": 0}, {"id": 17, "name": "cat", "isthing": 1}],
        }
        (root / "annotations" / f"panoptic_{part}.json").write_text(json.dumps(content))

    def check(table: Table) -> None:
        boxes(4, ("cat",), 0, 4, 3, 8)(table)
        expected = np.where(segments == 70000, 1, np.where(segments == 0, 255, 0))
        masks(expected, ("cat", "sky"), 255)(table)
        instances, _ = load_packed(table, TASKS["instances"].encoding, SIZE)
        np.testing.assert_array_equal(instances[0, 0] == 1, segments == 300)  # the one thing
        np.testing.assert_array_equal(instances[0, 0] == 255, (segments == 5) | (segments == 0))

    return check


LAYOUTS: dict[str, Callable[[Path], Check]] = {
    "NYUv2, as BTS has it": bts, "Virtual KITTI 2": virtual_kitti, "Matterport3D": matterport, "TUM RGB-D": tum,
    "ARKitScenes, raw": arkit, "Hypersim": hypersim, "DIODE": diode, "Cityscapes, disparity": cityscapes,
    "Middlebury 2014": middlebury, "CVAT, datumaro: segmentation mask": cvat, "CamVid, in colours": camvid,
    "Darknet": darknet, "YOLO, with sub-folders": yolo, "Roboflow, Pascal VOC": roboflow_voc, "labelImg": label_img,
    "Roboflow, COCO": roboflow_coco, "COCO, one folder": one_folder, "LVIS v1": lvis, "COCO panoptic": panoptic,
}  # fmt: skip


def test_every_row_of_the_table_has_a_layout() -> None:
    assert sorted(name for name, _ in ROWS) == sorted(LAYOUTS)


@pytest.mark.parametrize(("name", "arguments"), ROWS, ids=[name for name, _ in ROWS])
def test_a_layout_is_read_with_the_arguments_of_the_page(
    name: str, arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = LAYOUTS[name](tmp_path)
    monkeypatch.setattr(
        "sys.argv", ["stage 1", "--data_path", str(tmp_path), "--test_fraction", "0.5", *shlex.split(arguments)]
    )
    select_images(**TableStage.from_args(None).config)
    check(read_table(tmp_path))
