"""Stage 1: choose the buildings and the 16 commonest scene classes, and hold out a part of the images."""

from argparse import Namespace
from pathlib import Path

from datasets.selection import MISSING_FILE, available_tasks, select, write_selection
from datasets.taskonomy import read_buildings, read_class_names
from datasets.tasks import get_task
from utils import plots
from utils.args import POSITIVE_INT, Parser, add_run, number
from utils.errors import UserError, run_script
from utils.runs import Run, remember_data_path


def parse_args() -> Namespace:
    """The command line."""
    parser = Parser(__doc__)
    parser.add_argument("--client_file_name", required=True, help="csv of the buildings, in the data folder")
    parser.add_argument("--data_path", type=Path, required=True, help="data folder, in Taskonomy's layout")
    parser.add_argument("--taskonomy_clients_to_include", type=POSITIVE_INT, default=3, help="the first n buildings")
    parser.add_argument("--scene_class_file_name", default="places_class_names.txt", help="the 365 class names")
    parser.add_argument("--tasks", nargs="+", help="tasks whose files each image must have; default: all found")
    parser.add_argument("--test_fraction", type=number(float, above=0, most=0.9), default=0.2, help="share held out")
    add_run(parser)
    return parser.parse_args()


def main() -> None:
    """Write filtered_file_paths.csv into the data folder, and the histogram of its classes."""
    args = parse_args()
    if not args.data_path.is_dir():
        raise UserError(f"{args.data_path}: no such folder; see --data_path")
    tasks = [get_task(name).name for name in args.tasks or available_tasks(args.data_path)]
    buildings = read_buildings(args.data_path / args.client_file_name)[: args.taskonomy_clients_to_include]
    names = read_class_names(args.data_path / args.scene_class_file_name)
    table, missing = select(args.data_path, buildings, tasks, args.test_fraction, args.rand_seed)

    path = write_selection(args.data_path, table, missing)
    remember_data_path(args.data_path, args.result_path)
    counts = table.groupby("label").size()
    places = table.groupby("label")["class_idx"].first()
    run = Run.create(args, "extract_datapoints", args.data_path.resolve().name)
    figure = plots.class_histogram(counts, [names[place] for place in places], run.figures / "class_histogram.png")

    held_out = int((table["split"] == "test").sum())
    print(f"{len(table)} images of {len(buildings)} buildings ({', '.join(buildings)}), {held_out} of them held out")
    print(f"{len(counts)} scene classes: " + ", ".join(f"{names[p]} {n}" for p, n in zip(places, counts, strict=True)))
    print(f"tasks: {', '.join(tasks)}")
    if missing:
        print(f"left out images for {len(missing)} missing or unreadable files, listed in {path.parent / MISSING_FILE}")
    print(f"wrote {path} and {figure}")


if __name__ == "__main__":
    run_script(main)
