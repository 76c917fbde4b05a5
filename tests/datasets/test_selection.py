"""The selection: which classes and images are taken, how they are split, and what a broken file says."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from datasets.selection import (
    MISSING_FILE,
    SELECTION_FILE,
    Selection,
    available_tasks,
    needed_domains,
    read_selection,
    scene_classes,
    select,
    write_selection,
)
from datasets.taskonomy import View
from utils.errors import UserError


def make_building(data_path: Path, name: str, places: dict[tuple[int, int], int], domains: list[str]) -> None:
    """Empty images of the views (point, view), and a list of their Places classes."""
    for domain in [*domains, "class_scene"]:
        (data_path / domain / "taskonomy" / name).mkdir(parents=True)
    for point, view in places:
        for domain in domains:
            (data_path / View(name, point, view).path(domain)).touch()
    rows = [f"point_{point}_view_{view}_domain_class_places.npy,{place}\n" for (point, view), place in places.items()]
    listing = data_path / "class_scene" / "taskonomy" / name / "scene_classes.csv"
    listing.write_text("filepath,class_idx\n" + "".join(rows))


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two buildings of 60 points with one to four views each."""
    path = tmp_path_factory.mktemp("uneven")
    for building in range(2):
        views = np.random.default_rng(building).integers(1, 5, 60)
        places = {(point, view): point % 3 for point in range(60) for view in range(views[point])}
        make_building(path, f"b{building}", places, ["rgb"])
    return path


# Classes


def test_commonest_classes_are_kept_and_come_first(tmp_path: Path) -> None:
    # 18 classes: 300 has five images, 200 and 100 four each, the others (places 1 to 15) two each.
    counts = {300: 5, 200: 4, 100: 4, **dict.fromkeys(range(15, 0, -1), 2)}
    places = [place for place, count in counts.items() for _ in range(count)]
    make_building(tmp_path, "hanson", {(point, 0): place for point, place in enumerate(places)}, ["rgb"])
    table, missing = select(tmp_path, ["hanson"], ["class_scene"], 0.2, 0)
    # Of equally common classes the smaller Places id goes first, and so 14 and 15 are left out.
    order = [300, 100, 200, *range(1, 14)]
    assert dict(zip(table["class_idx"], table["label"], strict=True)) == {p: label for label, p in enumerate(order)}
    assert Counter(table["class_idx"]) == {place: counts[place] for place in order}
    assert missing == []


def test_classes_are_counted_over_all_buildings_and_images_that_are_there(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {(0, 0): 7, (1, 0): 7, (2, 0): 7, (3, 0): 8}, ["rgb"])
    make_building(tmp_path, "merom", {(0, 0): 8, (1, 0): 8, (2, 0): 7}, ["rgb"])
    for point in range(3):
        (tmp_path / View("hanson", point, 0).path("rgb")).unlink()
    table, missing = select(tmp_path, ["hanson", "merom"], ["class_scene"], 0.4, 0)
    assert table.groupby("label")["class_idx"].agg(["first", "size"]).values.tolist() == [[8, 3], [7, 1]]
    assert missing == [str(View("hanson", point, 0).path("rgb")) for point in range(3)]


def test_list_of_classes_goes_before_the_logits(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {(0, 0): 5}, ["rgb"])
    logits = np.zeros(365)
    logits[9] = 1
    for point in range(2):
        np.save(tmp_path / View("hanson", point, 0).path("class_scene"), logits)
    assert scene_classes(tmp_path, "hanson") == ({View("hanson", 0, 0): 5}, [])
    (tmp_path / "class_scene/taskonomy/hanson/scene_classes.csv").unlink()
    assert scene_classes(tmp_path, "hanson") == ({View("hanson", 0, 0): 9, View("hanson", 1, 0): 9}, [])


def test_views_with_unreadable_logits_are_left_out(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {}, ["rgb"])
    views = [View("hanson", point, 0) for point in range(3)]
    for view in views:
        (tmp_path / view.path("rgb")).touch()
        np.save(tmp_path / view.path("class_scene"), np.arange(365))
    broken = tmp_path / views[1].path("class_scene")
    broken.write_bytes(broken.read_bytes()[:300])
    (tmp_path / "class_scene/taskonomy/hanson/scene_classes.csv").unlink()
    table, missing = select(tmp_path, ["hanson"], ["class_scene"], 0.4, 0)
    assert table["filepath"].tolist() == [str(views[point].path("rgb")) for point in (0, 2)]
    assert len(missing) == 1 and missing[0].startswith(f"{views[1].path('class_scene')}: cannot be read")
    for view in views:
        (tmp_path / view.path("class_scene")).write_bytes(b"")
    with pytest.raises(UserError, match=r"'hanson' has no scene classes.*unreadable.*point_0_view_0.*cannot be read"):
        select(tmp_path, ["hanson"], ["class_scene"], 0.4, 0)


@pytest.mark.parametrize(
    "content",
    [
        "", "a,b\n1,2\n", "filepath,class_idx\npassword,3\n", "filepath,class_idx\npoint_0_view_0_domain_x.npy,\n",
        "filepath,class_idx\npoint_0_view_0_domain_x.npy,400\n",
        "filepath,class_idx\n,3\n",
    ],
)  # fmt: skip
def test_broken_list_of_classes_is_named(tmp_path: Path, content: str) -> None:
    make_building(tmp_path, "hanson", {}, ["rgb"])
    (tmp_path / "class_scene/taskonomy/hanson/scene_classes.csv").write_text(content)
    with pytest.raises(UserError, match=r"scene_classes\.csv"):
        scene_classes(tmp_path, "hanson")


def test_building_without_classes_is_named(uneven: Path) -> None:
    with pytest.raises(UserError, match="'merom' has no scene classes"):
        select(uneven, ["b0", "merom"], ["class_scene"], 0.2, 0)


def test_no_building_at_all_is_an_error(uneven: Path) -> None:
    with pytest.raises(UserError):
        select(uneven, [], ["class_scene"], 0.2, 0)


# The split


@pytest.mark.parametrize("fraction", [0.05, 0.2, 0.5])
def test_points_are_held_out_whole_and_in_the_share_asked_for(uneven: Path, fraction: float) -> None:
    for seed in range(5):
        table, _ = select(uneven, ["b0", "b1"], ["class_scene"], fraction, seed)
        views = [View.parse(name) for name in table["filepath"]]
        sides: dict[tuple[str, int], set[str]] = {}
        for view, split in zip(views, table["split"], strict=True):
            sides.setdefault((view.building, view.point), set()).add(split)
        assert all(len(side) == 1 for side in sides.values())
        held_out = (table["split"] == "test").sum()
        # A point has at most four views, so that not one more point fits.
        assert fraction * len(table) - 4 < held_out <= fraction * len(table)


def test_split_follows_from_the_seed(uneven: Path) -> None:
    splits = [select(uneven, ["b0", "b1"], ["class_scene"], 0.2, seed)[0]["split"].tolist() for seed in (1, 1, 2)]
    assert splits[0] == splits[1] != splits[2]


def test_same_point_number_of_two_buildings_are_two_points(uneven: Path) -> None:
    table, _ = select(uneven, ["b0", "b1"], ["class_scene"], 0.5, 0)
    points = [View.parse(name).point for name in table["filepath"][table["split"] == "test"]]
    both = [View.parse(name).point for name in table["filepath"][table["split"] == "train"]]
    assert set(points) & set(both)


# Files


def test_needed_domains() -> None:
    assert needed_domains(["class_scene"]) == ["rgb"]
    assert needed_domains(["reshading", "depth_euclidean"]) == ["rgb", "reshading", "depth_euclidean"]


def test_tasks_are_available_where_all_their_folders_are(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {}, ["rgb", "reshading", "normal"])
    assert available_tasks(tmp_path) == ["normal", "class_scene"]  # shading needs depth for its mask


def test_missing_file_leaves_its_image_out_and_is_listed(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {(point, 0): 1 for point in range(5)}, ["rgb", "normal"])
    gone = tmp_path / View("hanson", 3, 0).path("normal")
    gone.unlink()
    table, missing = select(tmp_path, ["hanson"], ["normal"], 0.2, 0)
    write_selection(tmp_path, table, missing)
    assert (tmp_path / MISSING_FILE).read_text() == "normal/taskonomy/hanson/point_3_view_0_domain_normal.png\n"
    assert [view.point for view in read_selection(tmp_path).views] == [0, 1, 2, 4]
    gone.touch()
    write_selection(tmp_path, *select(tmp_path, ["hanson"], ["normal"], 0.2, 0))
    assert len(read_selection(tmp_path)) == 5
    assert not (tmp_path / MISSING_FILE).exists()


def test_no_complete_image_is_an_error(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {(0, 0): 1}, ["rgb"])
    with pytest.raises(UserError, match="no image has all of rgb, normal; the first missing file is normal/"):
        select(tmp_path, ["hanson"], ["normal"], 0.2, 0)


def test_selection_reads_as_it_was_written(uneven: Path) -> None:
    table, missing = select(uneven, ["b1", "b0"], ["class_scene"], 0.3, 4)
    path = write_selection(uneven, table, missing)
    read = read_selection(uneven)
    assert [str(view.path("rgb")) for view in read.views] == table["filepath"].tolist()
    assert read.labels.tolist() == table["label"].tolist()
    assert read.places.tolist() == table["class_idx"].tolist()
    assert read.train.tolist() == np.flatnonzero(table["split"] == "train").tolist()
    assert read.test.tolist() == np.flatnonzero(table["split"] == "test").tolist()
    assert read.fingerprint == hashlib.sha256(path.read_bytes()).hexdigest()


def test_missing_selection_names_the_stage(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run extract_datapoints_for_experiments\.py first"):
        read_selection(tmp_path)


def spoil(selection: Selection, target: Path, column: str, value: object) -> None:
    """Write the selection with another value in one field of its first row."""
    table = pd.read_csv(io.BytesIO((selection.data_path / SELECTION_FILE).read_bytes())).astype(object)
    table.loc[0, column] = value
    table.to_csv(target / SELECTION_FILE, index=False)


@pytest.mark.parametrize(
    "column, value",
    [
        ("filepath", "../../etc/passwd"), ("label", "x"), ("label", 16), ("label", -1), ("split", "val"),
        ("filepath", ""), ("class_idx", "x"), ("label", 2.5), ("class_idx", 0.5),
    ],
)  # fmt: skip
def test_broken_row_names_the_file(selection: Selection, tmp_path: Path, column: str, value: object) -> None:
    spoil(selection, tmp_path, column, value)
    with pytest.raises(UserError, match=SELECTION_FILE):
        read_selection(tmp_path)


def test_image_that_stands_there_twice_is_named(selection: Selection, tmp_path: Path) -> None:
    twice = str(selection.views[7].path("rgb"))
    spoil(selection, tmp_path, "filepath", twice)
    with pytest.raises(UserError, match=f"{twice} stands there twice"):
        read_selection(tmp_path)


@pytest.mark.parametrize("content", ["", "filepath,split\n", "\0\1"])
def test_file_without_the_columns_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / SELECTION_FILE).write_text(content)
    with pytest.raises(UserError, match=r"run extract_datapoints_for_experiments\.py again"):
        read_selection(tmp_path)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/point_1_view_2_domain_rgb.png",
        "rgb/../../../point_1_view_2_domain_rgb.png",
        "point_1_view_2_domain_rgb.png",
    ],
)
def test_row_cannot_leave_the_data_folder(selection: Selection, tmp_path: Path, path: str) -> None:
    spoil(selection, tmp_path, "filepath", path)
    try:
        view = read_selection(tmp_path).views[0]
    except UserError as error:
        assert "is no building name" in str(error)
        return
    for domain in ("rgb", "class_scene"):
        assert (tmp_path / view.path(domain)).resolve().is_relative_to(tmp_path.resolve())
