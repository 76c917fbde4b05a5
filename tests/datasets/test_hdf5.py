"""Maps in HDF5 files."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path

import numpy as np
import pytest

from datasets.hdf5 import read_hdf5
from datasets.stored import read_values, values_size
from utils.errors import UserError

h5py = pytest.importorskip("h5py")


def write(path: Path, **arrays: np.ndarray) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name.replace("__", "/")] = array
    return path


def test_the_only_array_or_the_usual_one_is_read(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float16).reshape(3, 4)
    np.testing.assert_array_equal(read_hdf5(write(tmp_path / "a.hdf5", dataset=values, other=values + 1)), values)
    np.testing.assert_array_equal(read_hdf5(write(tmp_path / "b.h5", group__depth=values)), values)
    assert read_values(tmp_path, "b.h5", ()).shape == (1, 3, 4) and values_size(tmp_path, "b.h5") == (3, 4)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    values = np.zeros((3, 4))
    with pytest.raises(ValueError, match="its arrays are depth, rgb, where one is to be there"):
        read_hdf5(write(tmp_path / "a.h5", depth=values, rgb=values))
    with pytest.raises(ValueError, match="its arrays are none"):
        read_hdf5(write(tmp_path / "b.h5"))
    (tmp_path / "c.h5").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a readable HDF5 file"):
        read_hdf5(tmp_path / "c.h5")


def test_a_package_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.h5", depth=np.zeros((3, 4)))
    real = builtins.__import__

    def without(name: str, *more: object) -> object:
        if name == "h5py":
            raise ImportError
        return real(name, *more)  # type: ignore[arg-type]

    monkeypatch.delitem(sys.modules, "h5py")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match="pip install h5py"):
        read_hdf5(path)
