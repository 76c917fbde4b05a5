"""Images a second that reach training: decoded at every step, as the published code does, and packed once.

    python -m benchmarks.packed_data

renders 24 rooms at Taskonomy's 512 pixels first (a minute, once), and takes another data folder, already selected
from, by `--data_path`. Each way gives batches of the same images in the same order, which are compared.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.tables import middle, print_table
from datasets.packed import pack_image
from datasets.rooms.make import make_sample_rooms
from datasets.sources import select_images
from datasets.table import read_table
from datasets.task_data import Batch, TaskData, as_tensor, decode_batch
from datasets.tasks import RGB, Task, get_task
from utils.args import POSITIVE_INT, Parser
from utils.errors import run_script

CPU = torch.device("cpu")


class Files(Dataset):
    """Image and target of one view, read from their files whenever they are asked for."""

    def __init__(self, data: TaskData) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Packed image and values of the view at `position`."""
        encodings = (RGB, self.data.task.encoding)
        both = (pack_image(self.data.table, position, encoding, self.data.image_size) for encoding in encodings)
        image, values = map(as_tensor, both)
        return image, values


def batches_from_files(data: TaskData, order: torch.Tensor, batch_size: int, workers: int) -> Iterator[Batch]:
    """Decode every image when its turn comes, in this process or in workers."""
    loader = DataLoader(Files(data), batch_size, sampler=order.tolist(), num_workers=workers)
    for images, values in loader:
        yield decode_batch(data.task, images, values)


def batches_from_packed(data: TaskData, order: torch.Tensor, batch_size: int) -> Iterator[Batch]:
    """Take the images from the memory-mapped arrays."""
    for at in order.split(batch_size):
        yield data.batch(at)


def images_a_second(batches: Callable[[], Iterator[Batch]], at_least: float = 0.0) -> tuple[float, list[Batch]]:
    """Speed over whole passes, as many as take `at_least` seconds, and the batches of the last one."""
    start, count = time.perf_counter(), 0
    while True:
        seen = list(batches())
        count += sum(len(batch.images) for batch in seen)
        if (seconds := time.perf_counter() - start) >= at_least:
            return count / seconds, seen


def measure(
    data_path: Path, task: Task, image_size: int, batch_size: int, images: int, workers: int, repeats: int
) -> dict[str, str]:
    """One row of the table."""
    shutil.rmtree(data_path / "packed" / str(image_size), ignore_errors=True)
    start = time.perf_counter()
    table = read_table(data_path)
    data = TaskData(table, table.bind(task), image_size, CPU)
    packing = time.perf_counter() - start
    rng = np.random.default_rng(0)
    speeds: dict[str, list[float]] = {"files": [], "workers": [], "packed": []}
    for _ in range(repeats):
        order = torch.from_numpy(rng.integers(len(data), size=images))
        ways = {
            "files": (lambda order=order: batches_from_files(data, order, batch_size, 0), 0.0),
            "workers": (lambda order=order: batches_from_files(data, order, batch_size, workers), 0.0),
            "packed": (lambda order=order: batches_from_packed(data, order, batch_size), 0.5),
        }
        seen = {}
        for name, (batches, at_least) in ways.items():
            speed, seen[name] = images_a_second(batches, at_least)
            speeds[name].append(speed)
        for ours, *theirs in zip(seen["packed"], seen["files"], seen["workers"], strict=True):
            for other in theirs:
                assert all(map(torch.equal, vars(ours).values(), vars(other).values())), "the ways differ"
    ratios = {name: [p / s for p, s in zip(speeds["packed"], speeds[name], strict=True)] for name in speeds}
    epoch = len(data) * (1 / np.median(speeds["files"]) - 1 / np.median(speeds["packed"]))
    return {
        "task": task.name,
        "decoded each step": middle(speeds["files"], 0),
        f"the same, {workers} workers": middle(speeds["workers"], 0),
        "packed": middle(speeds["packed"], 0),
        "packed / decoded": middle(ratios["files"], 0),
        "packed / workers": middle(ratios["workers"], 0),
        "packing pays after": f"{packing / epoch:.1f} epochs",
    }


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("--data_path", type=Path, help="a data folder that was selected from; default: rendered rooms")
    parser.add_argument("--tasks", nargs="+", default=["depth_euclidean", "normal", "segment_semantic"], help="which")
    parser.add_argument("--image_size", type=POSITIVE_INT, default=224, help="to which images are resized")
    parser.add_argument("--batch_size", type=POSITIVE_INT, default=16, help="images per step")
    parser.add_argument("--images", type=POSITIVE_INT, default=192, help="images a measurement")
    parser.add_argument("--workers", type=POSITIVE_INT, default=2, help="processes that decode")
    parser.add_argument("--repeats", type=POSITIVE_INT, default=5, help="measurements of each")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data_path = args.data_path or Path("data/benchmark_rooms")
    if args.data_path is None:
        make_sample_rooms(data_path, n_buildings=1, views_per_building=24, image_size=512)
        select_images(data_path, client_file_name="rooms.csv", taskonomy_clients_to_include=1, rand_seed=0)
    sizes = (args.image_size, args.batch_size, args.images, args.workers, args.repeats)
    rows = [measure(data_path, get_task(task), *sizes) for task in args.tasks]
    print_table(f"images per second at {args.image_size} px, median (min to max) of {args.repeats}", rows)


if __name__ == "__main__":
    run_script(main)
