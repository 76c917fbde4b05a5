"""Digits of several domains: arrays of different sizes, folders, MNIST's own files, and all of them together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.datasets.sources.finding import find, noise, pixels, rows_of, select, write_image
from utils.errors import UserError


def write_idx(folder: Path, part: str, images: np.ndarray, labels: list[int], dot: str = "-") -> None:
    """A pair of files in MNIST's format."""
    folder.mkdir(parents=True, exist_ok=True)
    head = np.array([2051, *images.shape], ">u4").tobytes()
    (folder / f"{part}-images{dot}idx3-ubyte").write_bytes(head + images.tobytes())
    head = np.array([2049, len(labels)], ">u4").tobytes()
    (folder / f"{part}-labels{dot}idx1-ubyte").write_bytes(head + bytes(labels))


def test_arrays_of_different_sizes(tmp_path: Path) -> None:
    sizes = {"usps": 16, "mnist": 28}
    arrays = {
        f"{domain}_{part}_x": np.full((3, size, size), size, np.uint8)
        for domain, size in sizes.items()
        for part in ("train", "test")
    }
    np.savez(tmp_path / "digits.npz", **arrays, **{f"{name[:-1]}y": np.array([9, 0, 4]) for name in arrays})
    table = select("digits", tmp_path)
    assert table.class_names == tuple("0123456789") and set(table.labels) == {9, 0, 4}
    assert len(table.train) == len(table.test) == 6
    means = pixels(table, 16).mean(axis=(1, 2, 3))
    assert means.tolist() == [sizes[domain] for domain in table.groups["domain"]]


def test_a_domain_without_a_part_has_images_of_all_held_out(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    x, y = noise(0, 10, 8, 8), np.arange(10)
    np.savez(
        tmp_path / "d.npz", usps_train_x=x, usps_train_y=y, usps_test_x=x, usps_test_y=y, mnist_t10k_x=x, mnist_t10k_y=y
    )
    table = select("digits", tmp_path, test_fraction=0.5)
    assert "mnist: not in two splits, so the test split is drawn at random from all domains" in capsys.readouterr().out
    assert len(table.test) == 15
    assert set(table.groups["domain"][table.train]) == set(table.groups["domain"][table.test]) == {"usps", "mnist"}


def test_arrays_folders_and_mnists_own_files_together(tmp_path: Path) -> None:
    for part in ("train", "test"):
        np.savez(tmp_path / f"svhn_{part}.npz", x=noise(0, 2, 32, 32, 3), y=np.array([3, 7]))
        write_image(tmp_path / f"SYN/{part}/5/a.png")
    images = noise(1, 3, 28, 28)
    write_idx(tmp_path / "MNIST/raw", "train", images, [1, 2, 0])
    write_idx(tmp_path / "MNIST/raw", "t10k", images[:1], [8], ".")
    assert rows_of(find("digits", tmp_path), "domain", "part") == {
        ("svhn_train.npz#x/0", "3", "svhn", "train"), ("svhn_train.npz#x/1", "7", "svhn", "train"),
        ("svhn_test.npz#x/0", "3", "svhn", "test"), ("svhn_test.npz#x/1", "7", "svhn", "test"),
        ("SYN/train/5/a.png", "5", "SYN", "train"), ("SYN/test/5/a.png", "5", "SYN", "test"),
        ("MNIST/raw/train-images-idx3-ubyte#16:28x28", "1", "MNIST", "train"),
        ("MNIST/raw/train-images-idx3-ubyte#800:28x28", "2", "MNIST", "train"),
        ("MNIST/raw/train-images-idx3-ubyte#1584:28x28", "0", "MNIST", "train"),
        ("MNIST/raw/t10k-images.idx3-ubyte#16:28x28", "8", "MNIST", "test"),
    }  # fmt: skip
    table = select("digits", tmp_path)
    packed = dict(zip(table.image_ids, pixels(table, 28), strict=True))
    np.testing.assert_array_equal(packed["MNIST/raw/train-images-idx3-ubyte#800:28x28"][2], images[1])


def test_folders_with_the_part_first(tmp_path: Path) -> None:
    for cell in ("train/mnist/3/a.png", "test/mnist/4/b.png"):
        write_image(tmp_path / cell)
    assert rows_of(find("digits", tmp_path), "domain", "part") == {
        ("train/mnist/3/a.png", "3", "mnist", "train"),
        ("test/mnist/4/b.png", "4", "mnist", "test"),
    }


@pytest.mark.parametrize("what", ["images", "labels", "header", "missing"])
def test_broken_files_of_mnist_are_named(tmp_path: Path, what: str) -> None:
    write_idx(tmp_path / "MNIST", "train", noise(0, 4, 28, 28), [0, 1, 2, 3])
    images, labels = (tmp_path / f"MNIST/train-{name}-ubyte" for name in ("images-idx3", "labels-idx1"))
    if what == "missing":
        labels.unlink()
    else:
        broken = labels if what == "labels" else images
        broken.write_bytes(broken.read_bytes()[: 9 if what == "header" else -1])
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte or its labels cannot be read .*download both anew"):
        find("digits", tmp_path)


def test_what_is_no_digit_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "svhn.npz", x=noise(0, 2, 32, 32), y=np.array([1, 10]))
    with pytest.raises(UserError, match=r"class '10' is not one of 0\.\.9"):
        find("digits", tmp_path)


def test_nothing_of_use_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no digits in \.npz files, in <domain>/<digit>/ or in"):
        find("digits", tmp_path)
    write_image(tmp_path / "3/a.png")
    with pytest.raises(UserError, match="folders of digits and none of domains"):
        find("digits", tmp_path)
