"""iNaturalist's metadata and splits, made up here in their formats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import s2cell

from tests.datasets.sources.finding import find, save_image, select
from utils.errors import UserError

CATEGORIES = [
    {"id": 10, "name": "Felis catus", "supercategory": "Mammalia"},
    {"id": 11, "name": "Canis lupus", "supercategory": "Mammalia"},
    {"id": 12, "name": "Turdus merula", "supercategory": "Aves"},
]


def cell(category: int, stem: str) -> str:
    of = CATEGORIES[category - 10]
    return f"train_val_images/{of['supercategory']}/{of['name']}/{stem}.jpg"


@pytest.fixture
def inaturalist(tmp_path: Path) -> Path:
    """Six photographs to train on and two to test with; the sixth is of another size and colour mode."""
    for name, images in (
        ("train", [(1, 12), (2, 10), (3, 10), (4, 11), (5, 12), (6, 10)]),
        ("val", [(7, 11), (8, 12)]),
    ):
        content = {
            "images": [{"id": i, "file_name": cell(c, f"photo{i}"), "width": 8, "height": 8} for i, c in images],
            "annotations": [{"id": 100 + i, "image_id": i, "category_id": c} for i, c in images],
            "categories": CATEGORIES,
        }
        (tmp_path / f"{name}2017.json").write_text(json.dumps(content))
        places = [{"id": i, "lat": 10.5 * i, "lon": -2.0, "user_id": i % 2} for i, _ in images]
        places[0] |= {"lat": None, "lon": None, "user_id": None}
        (tmp_path / f"{name}2017_locations.json").write_text(json.dumps(places[:-1]))
        for i, c in images:
            save_image(tmp_path / cell(c, f"photo{i}"), i, "CMYK" if i == 6 else None)
    return tmp_path


def test_metadata_gives_classes_users_and_places(inaturalist: Path) -> None:
    table = select("inaturalist", inaturalist)
    assert table.class_names == ("Canis lupus", "Felis catus", "Turdus merula")
    assert [table.class_names[label] for label in table.labels[:3]] == ["Turdus merula", "Felis catus", "Felis catus"]
    assert (table.train.tolist(), table.test.tolist()) == ([0, 1, 2, 3, 4, 5], [6, 7])
    assert table.groups["user_id"].tolist() == ["", "0", "1", "0", "1", "", "", ""]  # unknown, or not in the file
    assert table.groups["lat"].tolist()[:3] == ["", "21.0", "31.5"]
    assert table.groups["supercategory"].tolist()[:2] == ["Aves", "Mammalia"]


def test_without_locations_there_are_no_users(inaturalist: Path) -> None:
    for name in ("train", "val"):
        (inaturalist / f"{name}2017_locations.json").unlink()
    assert set(select("inaturalist", inaturalist).groups) == {"supercategory"}


def test_photographs_that_are_not_there_are_named(inaturalist: Path) -> None:
    (inaturalist / cell(10, "photo2")).unlink()
    table = select("inaturalist", inaturalist)
    assert len(table) == 7
    assert (inaturalist / "missing_files.txt").read_text() == f"{cell(10, 'photo2')}: there is no such photograph\n"


def test_ids_may_be_text_and_images_without_a_category_are_counted(
    inaturalist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = find("inaturalist", inaturalist).rows
    path = inaturalist / "train2017.json"
    content = json.loads(path.read_text())
    for each in content["annotations"]:
        each["image_id"] = str(each["image_id"])
    lost = content["annotations"].pop()
    path.write_text(json.dumps(content))
    rows = find("inaturalist", inaturalist).rows
    n = len(content["images"])
    assert f"left out 1 of {n} images of train2017.json without a category's annotation" in capsys.readouterr().out
    assert len(rows) == len(before) - 1 and lost["image_id"]
    assert set(rows["rgb"]) < set(before["rgb"])


def test_published_split_says_clients_and_classes(inaturalist: Path) -> None:
    (inaturalist / "users.csv").write_text(
        "user_id,image_id,class,label\n3,photo1,0,12\n3,photo2,1,10\n9,photo3,1,10\n"
    )
    (inaturalist / "test.csv").write_text("image_id,class,label\nphoto8,0,12\nphoto99,0,12\n")
    table = select("inaturalist", inaturalist, split_file="users.csv", test_file="test.csv")
    assert table.groups["user_id"].tolist() == ["3", "3", "9", ""]
    assert table.class_names == ("Turdus merula", "Felis catus") and table.labels.tolist() == [0, 1, 1, 0]
    assert (inaturalist / "missing_files.txt").read_text() == "missing: photo99: there is no such photograph\n"
    (inaturalist / "users.csv").write_text("user_id,image_id,class\n3,photo1,0\n3,photo2,0\n")
    with pytest.raises(UserError, match="of another data set or release"):
        select("inaturalist", inaturalist, split_file="users.csv", test_file="test.csv")


def test_classes_are_balanced_and_places_become_cells(inaturalist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = select("inaturalist", inaturalist, images_per_class=2, max_cell=[1, 100])
    # Of three cats two are drawn, of one wolf none, and of its test image neither.
    assert table.class_names == ("Felis catus", "Turdus merula")
    assert np.bincount(table.labels[table.train]).tolist() == [2, 2] and table.labels[table.test].tolist() == [1]
    drawn = {tuple(select("inaturalist", inaturalist, images_per_class=2, rand_seed=s).image_ids) for s in range(20)}
    assert len(drawn) == 3
    train = [i for i in table.train if table.groups["lat"][i]]  # the first and the last have no place
    for image in train:
        place = float(table.groups["lat"][image]), float(table.groups["lon"][image])
        token = table.groups["cell_1"][image]
        assert s2cell.lat_lon_to_token(*place, s2cell.token_to_level(token)) == token
        assert s2cell.token_to_level(table.groups["cell_100"][image]) == 0
    assert len({table.groups["cell_1"][i] for i in train}) == len(train)
    assert all(table.groups["cell_1"][i] == "" for i in {*range(len(table))} - {*train})
    assert f"cell_1: {len(train)} cells; 0 images are in cells of too few" in capsys.readouterr().err


def test_a_split_is_read_or_made(inaturalist: Path) -> None:
    with pytest.raises(UserError, match="where --split_file has one"):
        select("inaturalist", inaturalist, split_file="users.csv", max_cell=[10])
    with pytest.raises(UserError, match="--images_per_class 4: the largest class has 3 training images"):
        select("inaturalist", inaturalist, images_per_class=4)
    for name in ("train", "val"):
        (inaturalist / f"{name}2017_locations.json").unlink()
    with pytest.raises(UserError, match=r"no train2017_locations\.json, which --max_cell needs"):
        select("inaturalist", inaturalist, max_cell=[10])


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"images": [{"id": 1}], "annotations": [], "categories": []}'])
def test_broken_metadata_is_one_line(inaturalist: Path, content: str) -> None:
    (inaturalist / "train2017.json").write_text(content)
    with pytest.raises(UserError, match=r"train2017\.json"):
        select("inaturalist", inaturalist)
