"""Images and labels in `.npz` files: MedMNIST's naming, `x` and `y` in `train.npz` and `test.npz`, and the like."""

from __future__ import annotations

from typing import ClassVar

from datasets.left_out import main_error
from datasets.sources.listing import number_classes
from datasets.sources.names import read_names
from datasets.sources.npz import find_in_arrays
from datasets.sources.source import Source
from datasets.table import PART, Listing
from datasets.tasks import CLASS, RGB
from utils.arguments import Argument
from utils.errors import UserError


class Arrays(Source):
    """Arrays of images and labels in the `.npz` files of the data folder, named `[<domain>_][<part>_]<what>`.

    `<what>` is x, image or images, and y, label or labels; a part may stand in the file's name instead. Any other array
    that has a value for each image of a part is a natural group.
    """

    arguments: ClassVar[dict[str, Argument]] = {
        "class_names": Argument(None, "file of the classes' names in the data folder: line k, from 0 on, names class k")
    }
    class_names: str | None

    def find(self) -> Listing:
        """All images, of which only the labels and groups are read."""
        rows, errors = find_in_arrays(self.data_path)
        if not len(rows):
            raise UserError(
                f"{self.data_path}: no .npz file with images (x, images) and labels (y, labels){main_error(errors)}"
            )
        names = read_names(self.data_path / self.class_names, "--class_names") if self.class_names else None
        labels, classes = number_classes(rows[CLASS].tolist(), names)
        groups = tuple(name for name in rows.columns if name not in (RGB.domain, CLASS, PART))
        info = self.dataset_info(domains=(RGB.domain,), groups=groups, classes=classes)
        return Listing(rows.assign(**{CLASS: labels}), info, errors)
