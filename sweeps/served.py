"""Which tasks to run on a user's own images.

Its own labels are the tasks of a folder that has none of the usual dense ones: masks for segmentation, classes for
classification.
"""

from __future__ import annotations

from collections.abc import Sequence

from datasets.table import TABLE_FILE, Table
from datasets.tasks import TASKS
from utils.errors import UserError

OWN = ("segmentation", "classification")


def served(table: Table, usual: Sequence[str]) -> list[str]:
    """The usual tasks whose targets a table has, or the tasks of its own labels; UserError where it has neither."""
    found = [task for task in usual if table.serves(TASKS[task])]
    if any(TASKS[task].dense for task in found):
        return found
    own = [task for task in OWN if table.serves(TASKS[task])]
    if not own:
        raise UserError(f"{table.data_path / TABLE_FILE} has neither masks nor classes; name tasks, see docs/data.md")
    return own
