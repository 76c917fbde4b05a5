"""Images and labels in `.npz` files: how arrays are named, what belongs to which images, and what is refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.datasets.sources.finding import find, noise, pixels, rows_of, select
from utils.errors import UserError


def test_medmnist(tmp_path: Path) -> None:
    sizes = {"train": 6, "val": 2, "test": 3}
    images = {part: noise(n, n, 28, 28, 3) for part, n in sizes.items()}
    labels = {f"{part}_labels": np.arange(n, dtype=np.uint8)[:, None] % 4 for part, n in sizes.items()}
    np.savez_compressed(
        tmp_path / "dermamnist.npz", **{f"{part}_images": values for part, values in images.items()}, **labels
    )
    (tmp_path / "names.txt").write_text("a keratosis\nb\nc\nd\n")
    table = select("arrays", tmp_path, class_names="names.txt")
    assert table.class_names == ("a keratosis", "b", "c", "d")
    assert [len(part) for part in (table.train, table.val, table.test)] == [6, 2, 3]
    packed = pixels(table, 28)
    for part, positions in (("train", table.train), ("val", table.val), ("test", table.test)):
        np.testing.assert_array_equal(packed[positions], images[part].transpose(0, 3, 1, 2))
        assert table.labels[positions].tolist() == [i % 4 for i in range(len(positions))]


@pytest.mark.parametrize(
    "files",
    [
        {"train": ("x", "y"), "test": ("x", "y")},
        {"train": ("images", "labels"), "test": ("images", "labels")},
        {"cifar_train": ("image", "label"), "cifar_test": ("image", "label")},
        {"mnist": ("x_train", "y_train", "x_test", "y_test")},
        {"mnist": ("train_x", "train_y", "t10k_x", "t10k_y")},
    ],
)
def test_names_of_arrays_and_files(tmp_path: Path, files: dict[str, tuple[str, ...]]) -> None:
    arrays = {"x": noise(0, 5, 8, 8), "y": np.array([7, 3, 3, 7, 9])}
    for file, names in files.items():
        kinds = ("x", "y") * (len(names) // 2)
        np.savez(tmp_path / f"{file}.npz", **{name: arrays[kind] for name, kind in zip(names, kinds, strict=True)})
    found = find("arrays", tmp_path)
    assert found.info.classes["class"].names == ("3", "7", "9") and found.errors == []
    for part in ("train", "test"):
        assert found.rows["class"][found.rows["part"] == part].tolist() == [1, 0, 0, 1, 2]


def test_without_parts_images_are_held_out_at_random(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=noise(0, 8, 4, 4, 1), y=np.array(list("abababab")))
    table = select("arrays", tmp_path, test_fraction=0.25)
    assert table.class_names == ("a", "b") and len(table.train) == 6 and len(table.test) == 2


def test_arrays_of_the_same_length_are_natural_groups(tmp_path: Path) -> None:
    for part, n in (("train", 4), ("test", 3)):
        np.savez(
            tmp_path / f"{part}.npz",
            x=noise(0, n, 8, 8),
            y=np.zeros(n, int),
            user_id=np.arange(n) // 2,
            **({"site": np.array([b"rom", b"oslo", b"\xff", b""])} if part == "train" else {}),
            weight=np.array([1.5, 2, np.nan, 4])[:n],
            other=np.zeros(9),
            secret=np.array([None] * n, object),
        )
    found = find("arrays", tmp_path)
    assert found.info.groups == ("user_id", "weight", "site")
    assert {row[0]: row[2:] for row in rows_of(found, "user_id", "weight", "site")} == {
        "train.npz#x/0": ("0", "1.5", "rom"), "train.npz#x/1": ("0", "2", "oslo"), "train.npz#x/2": ("1", "", "�"),
        "train.npz#x/3": ("1", "4", ""), "test.npz#x/0": ("0", "1.5", ""), "test.npz#x/1": ("0", "2", ""),
        "test.npz#x/2": ("1", "", ""),
    }  # fmt: skip
    assert len(found.errors) == 4 and "test.npz: other has no value for each image" in found.errors
    assert any("secret" in fault and "nothing is unpickled" in fault for fault in found.errors)


def test_words_before_the_images_are_their_domain(tmp_path: Path) -> None:
    arrays = {
        f"{domain}_{part}_x": noise(0, 2, size, size)
        for domain, size in (("a_b", 16), ("c", 28))
        for part in ("train", "test")
    }
    np.savez(tmp_path / "d.npz", **arrays, **{name[:-1] + "y": np.arange(2) for name in arrays})
    found = find("arrays", tmp_path)
    assert found.info.groups == ("domain",)
    assert {(row[0], row[2]) for row in rows_of(found, "domain")} == {
        (f"d.npz#{name}/{i}", name.rsplit("_", 2)[0]) for name in arrays for i in range(2)
    }


X, Y = noise(0, 5, 8, 8), np.arange(5)


@pytest.mark.parametrize(
    "arrays, reason",
    [
        ({"a": X}, r"no \.npz file with images .*: train\.npz: a has no value"),
        ({"x": X}, r"train\.npz: the array x needs 5 labels"),
        ({"x": X, "y": Y[:4]}, "the array x needs 5 labels"),
        ({"x": X, "y": np.zeros((5, 14), int)}, "the array x needs 5 labels"),
        ({"x": X, "y": Y / 2}, "the array x needs 5 labels beside it .y or labels., whole numbers or names"),
        ({"x": X / 255, "y": Y}, r"the array x, \(5, 8, 8\) of float64, has no images"),
        ({"x": noise(0, 5, 8, 8, 8), "y": Y}, r"x, \(5, 8, 8, 8\) of uint8, has no images of 1, 3 or 4 channels"),
        ({"x": X, "y": np.array([None] * 5, object)}, r"has no readable array [xy] \(it is pickled"),
        ({"x": np.array([None] * 5, object), "y": Y}, r"has no readable array [xy] \(it is pickled"),
        ({"x": X, "y": Y, "val_x": X}, "the array val_x needs 5 labels"),
        ({"x": X, "y": Y, "place": np.array(["a\nb"] * 5)}, "place 'a.*b' has a line break"),
        ({"x": X, "y": Y, "x#": X, "bad#_x": X, "bad#_y": Y}, "a name that the table cannot hold"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray], reason: str) -> None:
    np.savez(tmp_path / "train.npz", allow_pickle=True, **arrays)
    with pytest.raises(UserError, match=reason) as caught:
        select("arrays", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_of_no_part_beside_others_is_refused(tmp_path: Path) -> None:
    for name in ("train", "test", "more"):
        np.savez(tmp_path / f"{name}.npz", x=X, y=Y)
    with pytest.raises(UserError, match=r"more\.npz: x names no split"):
        find("arrays", tmp_path)


def test_classes_without_a_name_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", x=X, y=Y)
    (tmp_path / "names.txt").write_text("a\nb\nc\n")
    with pytest.raises(UserError, match=r"class '3' is not one of 0\.\.2"):
        find("arrays", tmp_path, class_names="names.txt")
    (tmp_path / "names.txt").write_text("\n \n")
    with pytest.raises(UserError, match=r"names\.txt: .*it names nothing.*--class_names"):
        find("arrays", tmp_path, class_names="names.txt")
    with pytest.raises(UserError, match=r"none\.txt: cannot read the names"):
        find("arrays", tmp_path, class_names="none.txt")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, share: float) -> None:
    np.savez_compressed(tmp_path / "train.npz", x=noise(0, 50, 8, 8), y=np.arange(50))
    content = (tmp_path / "train.npz").read_bytes()
    (tmp_path / "train.npz").write_bytes(content[: int(share * len(content))])
    with pytest.raises(UserError, match=r"train\.npz: not a readable \.npz file"):
        find("arrays", tmp_path)


def test_labels_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", x=X, y=Y)
    with zipfile.ZipFile(tmp_path / "whole.npz") as whole, zipfile.ZipFile(tmp_path / "train.npz", "w") as broken:
        broken.writestr("x.npy", whole.read("x.npy"))
        broken.writestr("y.npy", whole.read("y.npy")[:-8])
    (tmp_path / "whole.npz").unlink()
    with pytest.raises(UserError, match=r"train\.npz: train\.npz has no readable array y"):
        find("arrays", tmp_path)
