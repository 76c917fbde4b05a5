"""Office-Caltech (Gong et al. 2012): the ten classes that Office shares with Caltech-256, a folder per domain."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from datasets.classes import ClassSet
from datasets.sources.folder import Folder
from datasets.sources.listing import DOMAIN
from datasets.table import Listing
from datasets.tasks import CLASS
from utils.errors import UserError

_DOMAINS = {"caltech": "Caltech", "amazon": "Amazon", "webcam": "Webcam", "dslr": "DSLR"}
_CLASSES = (
    "backpack",
    "bike",
    "calculator",
    "headphones",
    "keyboard",
    "laptop",
    "monitor",
    "mouse",
    "mug",
    "projector",
)
_ALIASES = {"laptopcomputer": "laptop", "headphone": "headphones"}


class OfficeCaltech(Folder):
    """Images in `<domain>/<class>/`, whatever the case of the names (`caltech10`, `back_pack`, `laptop_computer`).

    Images of other classes, such as Office's other 21, are left out, a line for each folder.
    """

    def find(self) -> Listing:
        """The images of the ten classes; UserError where there is no folder of a known domain."""
        listing = super().find()
        if DOMAIN not in listing.rows:
            raise UserError(f"{self.data_path}: no folders of domains; the layout is <domain>/<class>/")
        rows, names = listing.rows, listing.info.classes[CLASS].names
        domains = rows[DOMAIN].map(lambda name: _DOMAINS.get(_letters(name)))
        classes = rows[CLASS].map({label: _class_number(name) for label, name in enumerate(names)})
        known = domains.notna() & (classes >= 0)
        if not known.any():
            raise UserError(f"{self.data_path}: no images of {', '.join(_CLASSES)} of {', '.join(_DOMAINS.values())}")
        others = rows[~known].groupby([rows[DOMAIN], np.array(names)[rows[CLASS]][~known]]).size()
        errors = [f"{domain}/{name}/: {n} images of another class or domain" for (domain, name), n in others.items()]
        rows = rows.assign(**{DOMAIN: domains, CLASS: classes})[known]
        info = replace(listing.info, classes={CLASS: ClassSet(_CLASSES)})
        return Listing(rows, info, [*listing.errors, *errors])


def _class_number(name: str) -> int:
    letters = _letters(name)
    letters = _ALIASES.get(letters, letters)
    return _CLASSES.index(letters) if letters in _CLASSES else -1


def _letters(name: str) -> str:
    return re.sub("[^a-z]", "", name.lower())
