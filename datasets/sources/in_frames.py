"""Targets are held against the frames of their photographs, whatever source has found them."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from datasets.frame import Frame
from datasets.sources.outlines import map_of
from datasets.stored import photograph_frame, photograph_size, values_size
from datasets.table import Listing
from datasets.tasks import RGB, RGB_NEXT
from utils import progress
from utils.words import counted, some


def in_frames(data_path: Path, listing: Listing) -> Listing:
    """Without the images that have a target which cannot be of its photograph; these are named.

    What is of the stored picture, before its EXIF entry turns it, is turned when it is packed. Files that cannot be
    read are left for that, too, but for the photographs of pairs.
    """
    domains = [domain for domain in listing.info.domains if domain != RGB.domain]
    if not domains:
        return listing
    rows = listing.rows[[RGB.domain, *domains]].to_dict("records")
    for domain in domains:
        if shared := [cell for cell, n in Counter(row[domain] for row in rows).items() if n > 1]:
            first = [row[RGB.domain] for row in rows if row[domain] == shared[0]]
            print(
                f"{counted(len(shared), 'file')} of {domain} for several photographs: {shared[0]} for {some(first, 3)}"
            )
    with ThreadPoolExecutor() as pool:
        answers = pool.map(lambda row: _held(data_path, row, domains), rows)
        held = list(progress.bar(answers, total=len(rows), desc="frames of photographs", unit="image"))
    for domain, n in Counter(domain for answer in held if not isinstance(answer, str) for domain in answer).items():
        print(
            f"{counted(n, 'photograph')} turned by an EXIF entry without another shape: {domain} is taken for that "
            "of the upright picture"
        )
    errors = [answer for answer in held if isinstance(answer, str)]
    valid_rows = listing.rows[[not isinstance(answer, str) for answer in held]].reset_index(drop=True)
    boxes = listing.boxes
    if boxes is not None:
        boxes = boxes[boxes["image"].isin(valid_rows[RGB.domain])].reset_index(drop=True)
    return replace(listing, rows=valid_rows, errors=[*listing.errors, *errors], boxes=boxes)


def _held(data_path: Path, row: dict[str, str], domains: list[str]) -> list[str] | str:
    """The domains of an image whose targets could be of the picture before its turn; or what is wrong with one."""
    try:
        frame = photograph_frame(data_path, row[RGB.domain])
    except ValueError as error:
        return f"{row[RGB.domain]}: {error}" if RGB_NEXT.domain in domains else []
    unclear = []
    for domain in domains:
        if domain == RGB_NEXT.domain:
            if problem := _not_next(data_path, row[domain], frame):
                return problem
            continue
        if row[domain] == map_of(row[RGB.domain]):  # written of the upright picture
            continue
        try:
            height, width = values_size(data_path, row[domain])
        except ValueError:
            continue
        try:
            frame.turn_of(width, height, domain)
        except ValueError as error:
            return f"{row[domain]}: {error}"
        unclear += [domain] * frame.leaves_open(width, height)
    return unclear


def _not_next(data_path: Path, cell: str, first: Frame) -> str | None:
    """Why a photograph cannot be the one after another of this frame; None where it can."""
    try:
        height, width = photograph_size(data_path, cell)
    except ValueError as error:
        return f"{cell}: {error}"
    if (height, width) != (first.height, first.width):
        return f"{cell}: {width} x {height} pixels, and the frame before it has {first.width} x {first.height}"
    return None
