"""Files of names, for every source that reads some."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datasets.sources.names import alike, read_names, read_names_of_masks
from tests.datasets.sources.finding import noise, save_image, select
from utils.errors import UserError


def read(folder: Path, text: str, name: str = "a.txt") -> dict[int, str]:
    (folder / name).write_text(text, encoding="utf-8")
    return read_names(folder / name, "--names")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", "sky\ntraffic light\n\n\n", {0: "sky", 1: "traffic light"}),
        ("a.txt", "sky\n\ntraffic light\n", {0: "sky", 2: "traffic light"}),
        ("a.txt", "7: sky\n\n3: pole top\n", {3: "pole top", 7: "sky"}),
        ("a.txt", "\ufeff11;void\n0, sky\n", {0: "sky", 11: "void"}),
        ("a.txt", "0 sky\n1 pole\n2 road\n", {0: "sky", 1: "pole", 2: "road"}),
        ("a.txt", "3 men\nsky\n", {0: "3 men", 1: "sky"}),
        ("a.txt", "4: sky\nroad\n", {0: "4: sky", 1: "road"}),
        ("a.txt", "# ids\nsky\nroad\n", {0: "sky", 1: "road"}),
        ("a.txt", "Idx\tRatio\tName\n1\t0.2\twall\n2\t0.1\tbuilding, edifice\n", {1: "wall", 2: "building, edifice"}),
        ("a.csv", "name,id,r\n\"road, wide\",7,1\ncar,26,2\n", {7: "road, wide", 26: "car"}),
        ("a.yaml", "path: .\nnames:\n  1: person\n  13: stop sign\n", {1: "person", 13: "stop sign"}),
        ("a.yml", "names: [cat, dog]\n", {0: "cat", 1: "dog"}),
        ("a.yaml", "classes:\n  0: unlabeled\n  2: tree\n", {0: "unlabeled", 2: "tree"}),
        ("a.yaml", "names: [off, no, on, Yes, 010, 1e3, true, 2024-01-01]", dict(enumerate(
            ["off", "no", "on", "Yes", "010", "1e3", "true", "2024-01-01"]))),
        ("a.yaml", "names: {010: ten, 0x10: sixteen, 0o7: seven, '8': eight}",
         {10: "ten", 16: "sixteen", 7: "seven", 8: "eight"}),
        ("a.yaml", "names: {0: 'null', 1: \"~\"}", {0: "null", 1: "~"}),
    ],
)  # fmt: skip
def test_names_are_read_in_every_usual_form(tmp_path: Path, name: str, text: str, expected: dict[int, str]) -> None:
    assert read(tmp_path, text, name) == expected


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", "1 euro\n2 euro\n5 euro\n", "write '1: euro' where it is the id, or '0: 1 euro' where it belongs"),
        ("a.txt", "101 dalmatians\n", "write '101: dalmatians' where it is the id"),
        ("a.txt", "1 void\n2, sky\n", "write '1: void'"),
        ("a.txt", "0: sky\n1:\n2: road\n", "id 1 has no name"),
        ("a.txt", "0: cat\n1: dog\n1: bird\n2: fish\n3: fish\n",
         "id 1 stands there twice: 'dog' and 'bird'; ids 2 and 3 are both called 'fish'"),
        ("a.txt", "\n\n", "it names nothing"),
        ("a.csv", "name,x,y\nroad,1,2\n", "its columns are name, x, y, of which none is idx or id or index"),
        ("a.csv", "id,name\n7,road\nx,car\n", "'x,car' has no id and name"),
        ("a.yaml", "names: 3", "no list or mapping 'names'"), ("a.yaml", "- 1", "no mapping"), ("a.yaml", "{", "."),
        ("a.yaml", "names: {x: cat}", "'x' is no id"), ("a.yaml", "names: {1.0: cat}", "'1.0' is no id"),
        ("a.yaml", "names: {0: cat, 0: dog}", "id 0 stands there twice: 'cat' and 'dog'"),
        ("a.yaml", "names: {8: cat, 0o10: dog}", "id 8 stands there twice"),
        ("a.yaml", "names: [a]\nnames: [b]", "'names' stands there twice"),
        ("a.yaml", "names: [cat, null, dog]", "id 1 has no name"), ("a.yaml", "names: [cat, [dog]]", "a list or map"),
        ("a.yaml", "!!python/object/apply:os.system ['false']", "no mapping"), ("a.yaml", "names: &a [*a]", "."),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_one_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, text, name)
    said = str(caught.value)
    assert (words in said or words == ".") and said.count("\n") == 0
    assert said.startswith(f"{tmp_path / name}: cannot read the names") and said.endswith("see --names")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"\xff"])
def test_what_is_no_text_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    for name in ("a.txt", "missing.txt", "."):
        with pytest.raises(UserError, match="cannot read the names"):
            read_names(tmp_path / name, "--names")


def test_names_that_are_alike_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert alike({0: "Straße", 4: "STRASSE", 5: "é", 6: "e\u0301", 7: "dog"}) == [
        "ids 0 and 4 are called 'Straße' and 'STRASSE'", "ids 5 and 6 are called 'é' and 'e\u0301'"
    ]  # fmt: skip
    read(tmp_path, "cat\nfish\nfish\nFish\n")
    assert "ids 1 and 2 and 3 are called 'fish' and 'Fish'; they are taken for different" in capsys.readouterr().out


MAPPING = (
    "names: [road, sidewalk, car]\nlabel_mapping: {-1: ignore_label, 0: ignore_label, 7: 0, 8: 1, 26: 2, 3: 255}\n"
)


def test_a_mapping_of_labels_gives_the_ids_of_masks_and_not_of_boxes(tmp_path: Path) -> None:
    assert read(tmp_path, MAPPING, "a.yaml") == {0: "road", 1: "sidewalk", 2: "car"}
    names, void = read_names_of_masks(tmp_path / "a.yaml", "--names")
    assert (names, void) == ({7: "road", 8: "sidewalk", 26: "car"}, {0, 3})
    read(tmp_path, MAPPING.replace("26: 2", "26: 1"), "a.yaml")
    with pytest.raises(UserError, match="label_mapping makes ids 8 and 26 both 'sidewalk'"):
        read_names_of_masks(tmp_path / "a.yaml", "--names")
    read(tmp_path, MAPPING.replace("26: 2", "26: 3"), "a.yaml")
    with pytest.raises(UserError, match="label_mapping makes id 26 class 3, which has no name"):
        read_names_of_masks(tmp_path / "a.yaml", "--names")
    read(tmp_path, "masks_dir: masks\nnames: [a, b]\n", "a.yaml")
    assert read_names_of_masks(tmp_path / "a.yaml", "--names") == ({0: "a", 1: "b"}, {255})


@pytest.mark.parametrize("source", ["masks", "csv", "coco"])
def test_every_source_of_masks_reads_them(tmp_path: Path, source: str) -> None:
    for number in range(4):
        save_image(tmp_path / "images" / f"{number}.png", noise(number, 8, 8, 3))
        save_image(tmp_path / "masks" / f"{number}.png", np.full((8, 8), 8, np.uint8))
        (tmp_path / "labels").mkdir(exist_ok=True)
        (tmp_path / "labels" / f"{number}.txt").write_text("1 0.5 0.5 0.5 0.5\n")
    (tmp_path / "a.yaml").write_text(MAPPING)
    lines = [f"images/{number}.png,masks/{number}.png" for number in range(4)]
    (tmp_path / "images.csv").write_text("\n".join(["image,mask", *lines]))
    more = {
        "masks": {"image_folder": "images", "mask_folder": "masks"},
        "csv": {},
        "coco": {"image_folder": "images", "mask_folder": "masks", "label_folder": "labels", "categories": "a.yaml"},
    }[source]
    table = select(source, tmp_path, mask_classes="a.yaml", **more)
    classes = table.info.classes["mask"]
    assert (classes.names, classes.ids) == (("road", "sidewalk", "car"), (7, 8, 26))
    if source != "csv":
        assert {table.class_names[label] for label in table.labels} == {"sidewalk"}


def test_names_of_arrays_may_have_gaps(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", x=np.zeros((3, 4, 4), np.uint8), y=[0, 2, 2])
    np.savez(tmp_path / "test.npz", x=np.zeros((1, 4, 4), np.uint8), y=[3])
    (tmp_path / "names.txt").write_text("cat\n\ndog\nbird\n")
    table = select("arrays", tmp_path, class_names="names.txt")
    assert [table.class_names[label] for label in table.labels] == ["bird", "cat", "dog", "dog"]
    (tmp_path / "names.txt").write_text("cat\n\ndog\n")
    with pytest.raises(UserError, match="class '3' is not one of 0, 2, which have names"):
        select("arrays", tmp_path, class_names="names.txt")


@pytest.mark.parametrize("unlabelled", [0, 255])
def test_the_list_of_coco_stuff_counts_from_1_and_newer_masks_from_0(tmp_path: Path, unlabelled: int) -> None:
    names = {0: "unlabeled", 1: "person", 2: "bicycle", 182: "wood"}
    (tmp_path / "labels.txt").write_text("".join(f"{k}: {names.get(k, f'thing {k}')}\n" for k in range(183)))
    for number in range(4):
        save_image(tmp_path / "rgb" / f"{number}.png", noise(number, 8, 8, 3))
        mask = np.full((8, 8), unlabelled, np.uint8)
        mask[:3] = 1
        save_image(tmp_path / "label" / f"{number}.png", mask)
    table = select(
        "masks", tmp_path, image_folder="rgb", mask_folder="label", mask_classes="labels.txt", void_ids=[unlabelled]
    )
    found = {table.class_names[label] for label in table.labels}
    assert found == ({"bicycle"} if unlabelled == 255 else {"person"})
    assert len(table.class_names) == 182
