"""What a source of images is: something that finds a data set's files, classes and natural groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from datasets.table import DatasetInfo, Listing
from utils.arguments import Argument, arguments_of
from utils.errors import UserError


class Source(ABC):
    """One kind of data set, in the folder `data_path`.

    `arguments` are the source's own; each becomes an attribute. To add a source, write a module with a subclass and
    name it in `datasets/sources/__init__.py`. Targets that are rendered with their photographs, or cut with them, lie
    in their frames: they are held against these when they are packed, and not before.
    """

    arguments: ClassVar[dict[str, Argument]] = {}
    is_rendered: ClassVar[bool] = False

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.data_path: Path = config["data_path"]
        self.rand_seed: int = config["rand_seed"]
        self._fit: str = config["fit"]
        self._name: str = config["source"]
        vars(self).update(arguments_of(self, config))

    @abstractmethod
    def find(self) -> Listing:
        """The images; files that are missing or broken are left out and named, `UserError` where nothing is left."""

    def dataset_info(self, **what: Any) -> DatasetInfo:
        """`DatasetInfo` with what stage 1 is told for every source; UserError where no table can be like that."""
        try:
            return DatasetInfo(source=self._name, fit=self._fit, **what)
        except ValueError as error:
            raise UserError(f"--source {self._name}: {error}") from error
