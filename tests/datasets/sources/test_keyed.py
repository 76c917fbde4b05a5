"""Two records of one key in a file, of every source that keys them: refused in one line, or both kept and named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from datasets.sources.keyed import by_key
from datasets.sources.taskonomy import scene_classes
from tests.datasets.sources.finding import save_image, select
from tests.datasets.sources.test_inaturalist import inaturalist  # noqa: F401
from tests.datasets.sources.test_landmarks import IDS, landmarks  # noqa: F401
from utils.errors import UserError
from utils.files import json_of


def test_equal_records_are_one_and_others_are_refused() -> None:
    assert by_key([("a", 1), ("b", 2), ("a", 1)], "id") == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match=r"id a stands there twice: 1 and 3"):
        by_key([("a", 1), ("b", 2), ("a", 3)], "id")


@pytest.mark.parametrize("text", ['{"a": 1, "b": {"c": 1, "c": 1}}', '[{"c": [], "d": 0, "c": []}]'])
def test_a_name_twice_in_one_object_of_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="'c' stands there twice in one object"):
        json_of(text)


def write_coco(data_path: Path, images: list[tuple[object, str]], categories: list[tuple[int, str]]) -> None:
    for _, name in images:
        save_image(data_path / "images" / name)
    content = {
        "images": [{"id": identity, "file_name": name} for identity, name in images],
        "annotations": [
            {"image_id": identity, "category_id": categories[0][0], "bbox": [1, 1, 4, 4]} for identity, _ in images
        ],
        "categories": [{"id": identity, "name": name} for identity, name in categories],
    }
    (data_path / "boxes.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("images", "categories", "words"),
    [
        (
            [(1, "a.png"), (2, "b.png"), (1, "c.png")],
            [(1, "cat")],
            r"image id 1 stands there twice: a\.png.*and c\.png",
        ),
        ([(1, "a.png"), (2, "a.png")], [(1, "cat")], r"photograph a\.png stands there twice: '1' and '2'"),
        ([(1, "a.png"), (2, "b.png")], [(1, "cat"), (1, "dog")], "category 1 stands there twice: 'cat' and 'dog'"),
    ],
)
def test_ids_of_an_instances_file(
    tmp_path: Path, images: list[tuple[object, str]], categories: list[tuple[int, str]], words: str
) -> None:
    write_coco(tmp_path, images, categories)
    with pytest.raises(UserError, match=rf"boxes\.json.*{words}"):
        select("coco", tmp_path, image_folder="images", annotations="boxes.json")


def test_the_same_image_listed_again_is_one(tmp_path: Path) -> None:
    write_coco(tmp_path, [(1, "a.png"), (2, "b.png"), (1, "a.png"), (3, "c.png")], [(1, "cat"), (1, "cat")])
    table = select("coco", tmp_path, image_folder="images", annotations="boxes.json", test_fraction=0.4)
    assert table.image_ids == ("images/a.png", "images/b.png", "images/c.png")


def test_photographs_of_landmarks(landmarks: Path) -> None:  # noqa: F811
    path = landmarks / "train_attribution.csv"
    path.write_text(path.read_text() + f"{IDS[2]},http://x,z,CC-BY,t\n")
    with pytest.raises(UserError, match=rf"train_attribution\.csv: image {IDS[2]} stands there twice: 'b' and 'z'"):
        select("landmarks", landmarks)
    path = landmarks / "train_clean.csv"
    path.write_text(path.read_text() + f"5,{IDS[0]}\n")
    with pytest.raises(UserError, match=rf"train_clean\.csv: image {IDS[0]} stands there twice: '17' and '5'"):
        select("landmarks", landmarks)


def test_ids_of_inaturalist(inaturalist: Path) -> None:  # noqa: F811
    path = inaturalist / "train2017_locations.json"
    path.write_text(json.dumps([*json.loads(path.read_text()), {"id": 2, "lat": 1, "lon": 2, "user_id": 99}]))
    with pytest.raises(UserError, match=r"train2017_locations\.json: id 2 stands there twice"):
        select("inaturalist", inaturalist)
    path.unlink()
    path = inaturalist / "train2017.json"
    content = json.loads(path.read_text())
    content["categories"].append({"id": 10, "name": "Felis silvestris", "supercategory": "Mammalia"})
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"train2017\.json: not iNaturalist's metadata \(.*many-to-one"):
        select("inaturalist", inaturalist)


def test_a_split_whose_image_is_the_name_of_two_photographs(inaturalist: Path) -> None:  # noqa: F811
    save_image(inaturalist / "train_val_images" / "Aves" / "Turdus merula" / "photo2.jpg")
    (inaturalist / "users.csv").write_text("user_id,image_id,class\na,photo2,0\n")
    with pytest.raises(UserError, match="photograph photo2 stands there twice"):
        select("inaturalist", inaturalist, split_file="users.csv")


def test_a_view_of_two_scenes(tmp_path: Path) -> None:
    folder = tmp_path / "class_scene" / "taskonomy" / "hanson"
    folder.mkdir(parents=True)
    name = "point_1_view_2_domain_class_places.npy"
    (folder / "scene_classes.csv").write_text(f"filepath,class_idx\n{name},3\n{name},4\n")
    with pytest.raises(UserError, match=r"scene_classes\.csv: view .* stands there twice: 3 and 4"):
        scene_classes(tmp_path, "hanson")


def test_photographs_of_one_annotation_and_of_one_mask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.jpg", "a.png", "b.jpg", "c.jpg"):
        save_image(tmp_path / "JPEGImages" / name)
    for name in "abc":
        path = tmp_path / "Annotations" / f"{name}.xml"
        path.parent.mkdir(exist_ok=True)
        sides = "".join(f"<{s}>{v}</{s}>" for s, v in zip(("xmin", "ymin", "xmax", "ymax"), (1, 1, 4, 4), strict=True))
        path.write_text(f"<annotation><object><name>dog</name><bndbox>{sides}</bndbox></object></annotation>")
        save_image(tmp_path / "masks" / f"{name}.png", 1, "L")
    table = select("voc", tmp_path, test_fraction=0.4)
    assert table.image_ids == ("JPEGImages/a.jpg", "JPEGImages/b.jpg", "JPEGImages/c.jpg")
    assert (tmp_path / "missing_files.txt").read_text() == "JPEGImages/a.png: a.jpg has the same annotation\n"
    assert len(select("masks", tmp_path, image_folder="JPEGImages", mask_folder="masks")) == 4
    line = "1 file of mask for several photographs: masks/a.png for JPEGImages/a.jpg, JPEGImages/a.png"
    assert line in capsys.readouterr().out
