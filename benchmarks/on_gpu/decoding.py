"""Batches decoded on the device against on the host, and whether they keep up with a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from benchmarks.generated import NoiseData
from benchmarks.on_gpu.measures import Measure, Result, Setup
from benchmarks.on_gpu.rates import in_turns
from datasets.task_data import decode_batch
from datasets.tasks import get_task

TASK, BATCH = "depth_euclidean", 16
SIZES = (64, 224)
_WAYS = ("packed and decoded there", "packed on the host, decoded there", "decoded on the host")


def measures() -> list[Measure]:
    """The rows of all sizes."""
    rows = []
    for size in SIZES:
        rows += [Measure(f"images of {size} px, {way}: a second", ",.0f") for way in _WAYS]
        rows.append(Measure(f"images of {size} px: decoding there over on the host", ".1f", least=1.0))
    return rows


def measure(setup: Setup) -> Iterator[Result]:
    """Images a second that reach the device as batches, in each way."""
    device, n = torch.device(setup.device), 64 if setup.small else 1600
    for size in SIZES:
        data = NoiseData(get_task(TASK), n, 1, 16 if setup.small else size, device)
        plan = list(np.random.default_rng(0).permutation(n).reshape(-1, BATCH))
        seconds = in_turns(ways(data, plan), device, 1 if setup.small else 5)
        for way, taken in seconds.items():
            yield Result(f"images of {size} px, {way}: a second", n / taken)
        there, on_host = (n / seconds[way] for way in _WAYS[1:])
        yield Result(f"images of {size} px: decoding there over on the host", there / on_host)


def ways(data: NoiseData, plan: Sequence[np.ndarray]) -> dict[str, Callable[[], None]]:
    """All batches of a plan, each in every way."""
    device, task = data.device, data.task
    at_home = NoiseData(task, len(data.train), len(data.test), data.image_size, torch.device("cpu"))
    away = NoiseData(task, len(data.train), len(data.test), data.image_size, torch.device("cpu"))
    away.device, away._resident, away._decoded = device, False, None

    def there(source: NoiseData) -> None:
        """As local training takes them."""
        for _ in source.batches(plan):
            pass

    def on_host() -> None:
        """Decoded by the processor, as floats to the device."""
        for at in plan:
            batch = decode_batch(task, *at_home._read(torch.from_numpy(at)))
            for tensor in (batch.images, batch.target, batch.valid):
                tensor.to(device, non_blocking=True)

    data._decoded = None  # else a CPU would decode its images once and for all
    return dict(zip(_WAYS, (lambda: there(data), lambda: there(away), on_host), strict=True))
