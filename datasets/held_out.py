"""Which images are held out: of the parts that a source knows, or at random."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from datasets.left_out import main_error
from datasets.table import PART, Listing, check_rows
from utils.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


def make_table(listing: Listing, test_fraction: float, seed: int) -> pd.DataFrame:
    """The rows with a part for each: those that the source knows, or about `test_fraction` of the images held out.

    Where a source has a `val` part and no `test` part, the `val` part is held out. Images that belong together (see
    `DatasetInfo.together`) are held out together, or not at all. UserError where a part would be empty, or a row could
    not be read again.
    """
    rows = listing.rows.reset_index(drop=True)
    if not len(rows):
        raise UserError(f"no image is left{main_error(listing.errors)}")
    try:
        check_rows(rows, listing.info)
    except ValueError as error:
        raise UserError(f"{error}; rename it or leave it out") from error
    drawn = PART not in rows
    if drawn:
        units = rows[listing.info.together] if listing.info.together else rows.index.astype(str)
        rows = rows.assign(**{PART: _held_out(units, test_fraction, seed)})
    elif "test" not in set(rows[PART]):
        if "val" in set(rows[PART]):
            rows = rows.assign(**{PART: rows[PART].replace("val", "test")})
        else:
            rows = make_table(replace(listing, rows=rows.drop(columns=PART)), test_fraction, seed)
    counts = rows[PART].value_counts()
    if not counts.get("train", 0) or not counts.get("test", 0):
        column, why, more = listing.info.together, "", "images"
        if drawn and column is not None:
            n = rows[column].nunique()
            why, more = f", because the images of one {column} stay together, and there {_are(n)} {n}", f"of {column}"
        raise UserError(
            f"{counts.get('train', 0)} training and {counts.get('test', 0)} test images{why}; "
            f"give more {more}, or another --test_fraction{main_error(listing.errors)}"
        )
    return rows[listing.info.columns]


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def _held_out(units: pd.Series | pd.Index, test_fraction: float, seed: int) -> np.ndarray:
    """The part of each image, where those with the same unit stay together."""
    names, images = np.unique(units, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(names))
    assigned = np.cumsum(np.bincount(images)[order])
    held_out = order[assigned <= test_fraction * len(units)]
    return np.where(np.isin(images, held_out), "test", "train")
