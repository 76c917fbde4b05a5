"""Time and memory of stage 1 and of packing, for arrays and for a folder of files.

    python -m benchmarks.table          (minutes on two cores, most of them to write the files)

Images of 32 px are written as a compressed `.npz` and as PNG files in folders of classes, selected and packed, each way
in a process of its own. Memory is what a process holds beyond what it had after its imports, without the pages of files
that the system can take back at any time. Rows of the packed arrays must equal the images.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.tables import print_table
from datasets.packed import load_packed
from datasets.sources import select_images
from datasets.table import read_table
from datasets.tasks import RGB
from utils.args import POSITIVE_INT, Parser
from utils.errors import run_script

SOURCES = ("arrays", "folder")
N_CLASSES, SIZE = 100, 32
_CHECKED = 50  # images


class PeakMemory:
    """The largest anonymous memory of this process while the block runs, in bytes, over that at its start (Linux)."""

    def __enter__(self) -> PeakMemory:
        self._start = self._peak = self._now()
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watcher.join()
        self._peak = max(self._peak, self._now())

    @property
    def growth(self) -> int:
        """Bytes."""
        return self._peak - self._start

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self._peak = max(self._peak, self._now())

    def _now(self) -> int:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024


def image(number: int) -> np.ndarray:
    """The image of a number, (32, 32, 3) uint8: a colour that tells it from others, with noise."""
    return np.random.default_rng(number).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)


def write_images(source: str, folder: Path, n: int) -> None:
    """`n` images of 100 classes as the source reads them."""
    if source == "arrays":
        images = np.stack([image(number) for number in range(n)])
        np.savez_compressed(folder / "images.npz", x=images, y=np.arange(n) % N_CLASSES)
        return
    for label in range(N_CLASSES):
        (folder / str(label)).mkdir()
    for number in range(n):
        Image.fromarray(image(number)).save(folder / str(number % N_CLASSES) / f"{number}.png")


def measure(source: str, folder: Path) -> dict[str, float]:
    """Seconds of selecting and packing, and the memory of both, in this process."""
    with PeakMemory() as memory:
        times = [time.perf_counter()]
        select_images(folder, source, rand_seed=0)
        times.append(time.perf_counter())
        table = read_table(folder)
        packed, _ = load_packed(table, RGB, SIZE)
        times.append(time.perf_counter())
    for row in np.linspace(0, len(table) - 1, min(len(table), _CHECKED)).astype(int):
        number = int(table.image_ids[row].rpartition("/")[2].removesuffix(".png"))
        assert (packed[row] == image(number).transpose(2, 0, 1)).all(), f"{table.image_ids[row]} is another image"
    select, pack = np.diff(times)
    return {"select": select, "pack": pack, "memory": memory.growth, "images": len(table)}


def elsewhere(source: str, folder: Path) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.table", "--measure", source, str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parent.parent)
    return json.loads(done.stdout.splitlines()[-1])


def row(source: str, n: int) -> dict[str, object]:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        write_images(source, Path(folder), n)
        measured = elsewhere(source, Path(folder))
    decoded = n * SIZE * SIZE * 3
    return {
        "source": source,
        "images": f"{n:,}",
        "selected, s": f"{measured['select']:.1f}",
        "packed, s": f"{measured['pack']:.1f}",
        "images per second": f"{n / (measured['select'] + measured['pack']):,.0f}",
        "memory, MiB": f"{measured['memory'] / 2**20:.0f}",
        "pixels, MiB": f"{decoded / 2**20:.0f}",
        "memory / pixels": f"{measured['memory'] / decoded:.2f}",
    }


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__.split("\n")[0])
    parser.add_argument("--images", nargs="+", type=POSITIVE_INT, default=[10_000, 100_000], help="how many")
    parser.add_argument("--measure", nargs=2, metavar=("SOURCE", "FOLDER"), help="one way, as JSON")
    args = parser.parse_args()
    if args.measure:
        source, folder = args.measure
        print(json.dumps(measure(source, Path(folder))))
        return
    print_table(f"images of {SIZE} px, selected and packed", [row(s, n) for s in SOURCES for n in args.images])


if __name__ == "__main__":
    run_script(main)
