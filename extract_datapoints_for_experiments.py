"""Stage 1: make the table of images, with their classes, natural groups and splits (train, val or test)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from utils.errors import UserError, run_script

if TYPE_CHECKING:
    from datasets.table import Listing


def main() -> None:
    """Find the images, and keep them as a table."""
    from stages.table import TableStage

    config = TableStage.from_args(__doc__).config
    keep(config, find(config))


def find(config: Mapping[str, Any]) -> Listing:
    """The images in the data folder; nothing is written."""
    from datasets.sources import find_images

    if not config["data_path"].is_dir():
        raise UserError(f"{config['data_path']}: no such folder; see --data_path")
    return find_images(config)


def keep(config: Mapping[str, Any], listing: Listing) -> None:
    """Write filtered_file_paths.csv and .json into the data folder, and the histogram of the classes."""
    from datasets.left_out import in_a_line
    from datasets.sources.summary import summary_lines
    from datasets.table import LEFT_OUT_FILE, write_table
    from datasets.tasks import CLASS
    from reports.console import wrapped
    from reports.figures.charts import class_histogram
    from utils.runs import Run, remember_data_path
    from utils.words import counted, span

    run = Run.create(config, "extract_datapoints", config["data_path"].resolve().name)
    rows, info = listing.rows, listing.info

    for line in summary_lines(config["data_path"], listing):
        print(wrapped(line))
    if CLASS in info.classes:
        names = info.classes[CLASS].names
        counts = rows[CLASS].value_counts().reindex(range(len(names)), fill_value=0).tolist()
        figure = class_histogram(counts, names, run.figures / "class_histogram.png")
        sizes = span(min(counts), max(counts), "image")
        print(wrapped(f"{counted(len(names), 'class')} of {sizes} each, drawn in {figure}"))
    if listing.errors:
        where = f"listed in {config['data_path'] / LEFT_OUT_FILE}: {in_a_line(listing.errors)}"
        print(wrapped(f"left out what has {counted(len(listing.errors), 'error')}, {where}"))
    print(f"wrote {write_table(config['data_path'], listing)}")  # last, so that a failure keeps the old table
    remember_data_path(config["data_path"], config["result_path"])


if __name__ == "__main__":
    run_script(main)
