"""CIFAR's binary version in small, long-tailed sets, and files that are not what they are called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datasets.sources.cifar import Cifar10, Cifar100, long_tail
from tests.datasets.sources.finding import find, noise, pixels, select
from utils.errors import UserError

NAMES = {"batches.meta.txt": 10, "fine_label_names.txt": 100, "coarse_label_names.txt": 20}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty records a file, or for CIFAR-100 two hundred."""
    monkeypatch.setattr(Cifar10, "records", dict.fromkeys(Cifar10.records, 20))
    monkeypatch.setattr(Cifar100, "records", dict.fromkeys(Cifar100.records, 200))


def write(folder: Path, source: str) -> dict[str, np.ndarray]:
    """The files of a set, named as the original ones; returns each file's records."""
    folder.mkdir(parents=True, exist_ok=True)
    kind, ahead = (Cifar10, 1) if source == "cifar10" else (Cifar100, 2)
    written = {}
    for seed, (file, n) in enumerate(kind.records.items()):
        records = noise(seed, n, ahead + 3072)
        records[:, ahead - 1] = np.arange(n) % (10 if source == "cifar10" else 100)
        if ahead == 2:
            records[:, 0] = records[:, 1] // 5
        records.tofile(folder / file)
        written[file] = records
    for file in kind.names.values():
        (folder / file).write_text("".join(f"{file[:4]} {k}\n" for k in range(NAMES[file])) + "\n")
    return written


@pytest.mark.parametrize("folder", [".", "cifar-10-batches-bin"])
def test_cifar10(tmp_path: Path, folder: str) -> None:
    written = write(tmp_path / folder, "cifar10")
    table = select("cifar10", tmp_path)
    assert table.class_names == tuple(f"batc {k}" for k in range(10)) and not table.groups
    assert len(table.train) == 100 and len(table.test) == 20
    train, test = (np.concatenate([v for k, v in written.items() if k.startswith(part)]) for part in ("data", "test"))
    packed = pixels(table, 32)
    for positions, records in ((table.train, train), (table.test, test)):
        assert table.labels[positions].tolist() == records[:, 0].tolist()
        # A record is 1,024 red bytes, row by row, then the green and the blue ones.
        np.testing.assert_array_equal(packed[positions].reshape(-1, 3072), records[:, 1:])


def test_cifar100_has_its_coarse_classes_as_groups(tmp_path: Path) -> None:
    written = write(tmp_path / "cifar-100-binary", "cifar100")
    table = select("cifar100", tmp_path)
    records = np.concatenate(list(written.values()))
    assert [len(part) for part in (table.train, table.val, table.test)] == [200, 0, 200]
    assert table.labels.tolist() == records[:, 1].tolist()
    assert table.groups["coarse"].tolist() == [f"coar {k}" for k in records[:, 0]]
    np.testing.assert_array_equal(pixels(table, 32).reshape(-1, 3072), records[:, 2:])


# Sizes of the published sets with 5,000 and 500 images of each class: Cao et al. 2019 and those who use their code.
@pytest.mark.parametrize(
    "n_classes, rho, total", [(10, 10, 20431), (10, 100, 12406), (100, 10, 19573), (100, 100, 10847)]
)
def test_a_long_tail_has_the_published_size(n_classes: int, rho: float, total: int) -> None:
    assert len(long_tail(np.arange(50_000) % n_classes, rho, 0)) == total


def test_a_long_tail_follows_its_formula_and_the_seed() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
    first, again, other = (long_tail(labels, 50, seed) for seed in (1, 1, 2))
    counts = np.bincount(labels[first])
    assert counts.tolist() == [5000, 3237, 2096, 1357, 878, 568, 368, 238, 154, 100]  # 5000 · 50^(-c/9)
    assert (first == again).all() and (other != first).any() and (np.bincount(labels[other]) == counts).all()
    assert (np.diff(first) > 0).all()


def test_a_long_tail_of_nothing_but_what_there_is() -> None:
    assert long_tail(np.array([0, 0, 0, 0, 1, 2]), 2, 0).tolist()[-2:] == [4, 5]
    assert long_tail(np.zeros(7, int), 50, 0).tolist() == list(range(7))
    assert long_tail(np.arange(100) % 10, 1, 0).tolist() == list(range(100))


def test_only_the_training_part_gets_a_tail(tmp_path: Path) -> None:
    write(tmp_path, "cifar10")
    table = select("cifar10", tmp_path, long_tail=5.0)
    assert np.bincount(table.labels[table.train]).tolist() == [10, 8, 6, 5, 4, 4, 3, 2, 2, 2]  # 10 · 5^(-c/9)
    assert np.bincount(table.labels[table.test]).tolist() == [2] * 10
    whole = dict(find("cifar10", tmp_path).rows[["rgb", "class"]].values.tolist())
    assert all(whole[cell] == label for cell, label in zip(table.image_ids, table.labels, strict=True))


def test_a_split_says_whose_the_training_images_are(tmp_path: Path) -> None:
    write(tmp_path, "cifar10")
    (tmp_path / "split.csv").write_text("user_id,image_id,class\n3,99,9\n0,0,0\n3,41,1\n")
    table = select("cifar10", tmp_path, split_file="split.csv")
    assert table.groups["user_id"].tolist() == ["3", "0", "3", *[""] * 20]
    assert table.labels[:3].tolist() == [9, 0, 1] and len(table.test) == 20
    assert [cell.split("#")[0] for cell in table.image_ids[:3]] == [f"data_batch_{n}.bin" for n in (5, 1, 3)]
    for row in ("3,100,0", "3,41,2", "3,x,1"):  # beyond the training images, of another class, no number
        (tmp_path / "split.csv").write_text(f"user_id,image_id,class\n0,0,0\n{row}\n")
        with pytest.raises(UserError, match=r"split\.csv: 1 images have another class here.*only v1\.1"):
            find("cifar10", tmp_path, split_file="split.csv")


@pytest.mark.parametrize("file", ["data_batch_3.bin", "test_batch.bin"])
@pytest.mark.parametrize("cut", [-1, -3073, 3073])
def test_a_file_of_another_size_is_refused_by_name(tmp_path: Path, file: str, cut: int) -> None:
    write(tmp_path, "cifar10")
    content = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(content[:cut] if cut < 0 else content + bytes(cut))
    with pytest.raises(UserError, match=rf"{file}: {20 * 3073 + cut} bytes where 20 records of 3073 make {20 * 3073}"):
        find("cifar10", tmp_path)


def test_what_is_missing_or_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"batches\.meta\.txt: cannot read the names"):
        find("cifar10", tmp_path)
    write(tmp_path, "cifar10")
    with pytest.raises(UserError, match=r"coarse_label_names\.txt: cannot read the names"):
        find("cifar100", tmp_path)
    (tmp_path / "batches.meta.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match=r"data_batch_1\.bin: class 9 has no name in batches\.meta\.txt"):
        find("cifar10", tmp_path)
    (tmp_path / "data_batch_2.bin").unlink()
    with pytest.raises(UserError, match=r"data_batch_\d\.bin: (cannot be read|class)"):
        find("cifar10", tmp_path)
    (tmp_path / "data_batch_1.bin").unlink()
    with pytest.raises(UserError, match=r"data_batch_1\.bin: cannot be read \(No such file or directory\)"):
        find("cifar10", tmp_path)


def test_the_real_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert {file: n * 3073 for file, n in Cifar10.records.items()} == {
        **{f"data_batch_{i}.bin": 30_730_000 for i in range(1, 6)},
        "test_batch.bin": 30_730_000,
    }
    assert {file: n * 3074 for file, n in Cifar100.records.items()} == {
        "train.bin": 153_700_000,
        "test.bin": 30_740_000,
    }
