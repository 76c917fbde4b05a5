"""Arrays that are filled block by block: the values, and going on where a call was stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from utils import filling
from utils.filling import fill, is_filled, merge, note_of, remove

BLOCKS = [np.array([0, 1]), np.array([2]), np.array([4, 5]), np.array([7])]
EXPECTED = np.array([[1, 1], [2, 2], [3, 3], [0, 0], [5, 5], [6, 6], [0, 0], [8, 8]], np.float32)


class Work:
    """Fills in row + 1, and is stopped before its `stop`th block."""

    def __init__(self, stop: int = 99) -> None:
        self.stop, self.calls = stop, 0

    def __call__(self, array: np.ndarray, rows: np.ndarray) -> list[int]:
        if self.calls == self.stop:
            raise KeyboardInterrupt
        self.calls += 1
        array[rows] = rows[:, None] + 1
        return rows.tolist()


def filled(path: Path, work: Work, inputs: str = "a", blocks: list[np.ndarray] = BLOCKS) -> list[list[int]]:
    return fill(path, (8, 2), np.float32, inputs, blocks, work, "rows")


def test_rows_of_the_blocks_are_filled_and_the_others_are_zero(tmp_path: Path) -> None:
    answers = filled(tmp_path / "a.npy", Work())
    assert answers == [rows.tolist() for rows in BLOCKS]
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), EXPECTED)
    assert not (tmp_path / "a.part.npy").exists()


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_a_stopped_call_goes_on(tmp_path: Path, stop: int) -> None:
    path = tmp_path / "a.npy"
    with pytest.raises(KeyboardInterrupt):
        filled(path, Work(stop))
    assert not path.exists()
    again = Work()
    assert filled(path, again) == [rows.tolist() for rows in BLOCKS]
    assert again.calls == len(BLOCKS) - stop
    np.testing.assert_array_equal(np.load(path), EXPECTED)
    third = Work()
    filled(path, third)
    assert third.calls == 0  # all is there


def test_other_inputs_or_a_broken_file_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    for spoil in ("inputs", "array", "note", "shape"):
        with pytest.raises(KeyboardInterrupt):
            filled(path, Work(2), "b" if spoil == "inputs" else "a")
        if spoil == "array":
            path.with_suffix(".part.npy").write_bytes(b"")
        if spoil == "note":
            path.with_suffix(".filled.json").write_text("{")
        if spoil == "shape":
            np.save(path.with_suffix(".part.npy"), np.zeros((9, 2), np.float32))
        again = Work()
        filled(path, again)
        assert again.calls == len(BLOCKS)
        np.testing.assert_array_equal(np.load(path), EXPECTED)
        path.unlink()


def test_what_is_filled_is_noted_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed has no chance to note anything at the end."""
    clock = iter(range(0, 9000, 20))  # each look at it finds twenty seconds more
    monkeypatch.setattr(filling.time, "monotonic", lambda: next(clock))

    class Killed(BaseException):
        pass

    def work(array: np.ndarray, rows: np.ndarray) -> list[int]:
        if rows[0] == 4:
            raise Killed
        return Work()(array, rows)

    with pytest.raises(Killed):
        fill(tmp_path / "a.npy", (8, 2), np.float32, "a", BLOCKS, work, "rows")
    again = Work()
    filled(tmp_path / "a.npy", again)
    assert again.calls == 2  # of the two blocks before the kill, the second was noted
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), EXPECTED)


def test_a_note_says_nothing_of_an_array_that_was_begun_after_it(tmp_path: Path) -> None:
    """A process that is killed before it has noted anything leaves zeros, and not what an old note says is done."""
    path = tmp_path / "a.npy"
    filled(path, Work())
    path.unlink()  # the note stays

    class Killed(BaseException):
        pass

    def work(array: np.ndarray, rows: np.ndarray) -> None:
        raise Killed

    with pytest.raises(Killed):
        fill(path, (8, 2), np.float32, "a", BLOCKS, work, "rows")
    again = Work()
    filled(path, again)
    assert again.calls == len(BLOCKS)
    np.testing.assert_array_equal(np.load(path), EXPECTED)


def test_a_removal_that_is_cut_off_leaves_no_note_without_its_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.npy"
    filled(path, Work())
    removed: list[Path] = []
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda each, **how: (removed.append(each), unlink(each, **how)))
    remove(path)
    assert removed[0] == note_of(path)


def test_an_array_is_removed_with_its_note_filled_or_not(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    filled(path, Work())
    assert path.is_file() and note_of(path).is_file()
    remove(path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        filled(path, Work(1))
    assert not path.exists() and note_of(path).is_file()
    remove(path)
    assert not list(tmp_path.iterdir())


def test_parts_become_one_array_that_is_complete_and_of_its_inputs(tmp_path: Path) -> None:
    whole, parts = tmp_path / "a.npy", {tmp_path / "a_0.npy": np.array([0, 1, 4]), tmp_path / "a_1.npy": np.array([2])}
    for part, rows in parts.items():
        fill(part, (len(rows), 2), np.float32, "a", [np.arange(len(rows))], Work(), "rows")
    assert not is_filled(whole, "a")
    merge(whole, (5, 2), np.float32, "a", parts)
    np.testing.assert_array_equal(np.load(whole), [[1, 1], [2, 2], [1, 1], [0, 0], [3, 3]])
    assert is_filled(whole, "a") and not is_filled(whole, "b")
    assert {path.name for path in tmp_path.iterdir()} == {"a.npy", "a.filled.json"}


def test_an_array_is_filled_once_its_last_block_is(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    with pytest.raises(KeyboardInterrupt):
        filled(path, Work(3))
    assert not is_filled(path, "a")
    filled(path, Work())
    assert is_filled(path, "a") and not is_filled(path, "b")
    with pytest.raises(KeyboardInterrupt):
        filled(path, Work(1), "b")  # begun anew beside it
    assert not is_filled(path, "a") and not is_filled(path, "b")
