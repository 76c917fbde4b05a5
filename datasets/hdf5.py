"""Arrays in HDF5 files, such as Hypersim's, by h5py, which need not be there."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from utils.errors import UserError
from utils.words import some

ENDINGS = (".hdf5", ".h5")
_LARGEST = 1 << 28  # numbers of an array: a header may claim any, and what is not there is filled in
_USUAL = "dataset"  # the name of the array in Hypersim's files


def read_hdf5(path: Path) -> np.ndarray:
    """The array called `dataset`, or else the only one of a file.

    ValueError where there is none, or another number of them; UserError without h5py.
    """
    try:
        import h5py
    except ImportError as error:
        raise UserError(f"{path}: HDF5 is read by a package that is not there: pip install h5py") from error
    arrays: dict[str, h5py.Dataset] = {}
    try:
        with h5py.File(path) as file:
            file.visititems(lambda name, item: arrays.update({name: item}) if isinstance(item, h5py.Dataset) else None)
            array = arrays.get(_USUAL) or next(iter(arrays.values()), None)
            if array is None or (_USUAL not in arrays and len(arrays) > 1):
                has = some(list(arrays), 3) or "none"
                raise ValueError(f"its arrays are {has}, where one is to be there, or one called {_USUAL!r}")
            if array.size > _LARGEST:
                raise ValueError(f"an array of shape {array.shape} is no map")
            return np.asarray(array)
    except (OSError, RuntimeError, KeyError, TypeError) as error:
        raise ValueError(f"not a readable HDF5 file ({error})") from error
