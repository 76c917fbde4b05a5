"""Measuring a model on images, and the constant baseline that it has to beat."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from datasets.targets import countable
from datasets.task_data import Batch, TaskData
from losses import LOSSES
from models.central.metrics import image_statistics, summarise, widths
from models.detection.output import mean_detections
from models.instances.output import mean_output
from models.networks.parts import set_eval
from utils.errors import UserError

_CHUNK = 64


def evaluate(model: nn.Module, data: TaskData, positions: np.ndarray, accelerator: Accelerator | None) -> Tensor:
    """Statistics (len(positions), k) of the model's loss and metrics per image, in eval mode.

    The images are taken in fixed chunks, which are spread over the processes, so that the numbers do not depend on how
    many processes there are. With None for an accelerator this process takes all, for a model that the others lack.
    """
    set_eval(model)
    return _statistics(data, positions, lambda batch: model(batch.images).output, accelerator)


def trivial_output(data: TaskData) -> Tensor:
    """An output (1, C, …) that ignores the image: the mean target of the training images.

    For classes it is the logarithm of their shares, per pixel where the target is a map: its largest entry is the
    commonest class. For boxes see `models.detection.output.mean_detections`, for instances
    `models.instances.output.mean_output`.
    """
    chunks = torch.from_numpy(data.train).split(_CHUNK)
    if data.task.boxes:
        batches = map(data.batch, chunks)
        boxes = ((batch.target, batch.valid) for batch in batches)
        return mean_detections(boxes, data.task.out_channels, data.image_size).to(data.device)
    if data.task.instances:
        return mean_output(map(data.batch, chunks), data.task).to(data.device)
    total = count = torch.zeros(1, dtype=torch.float64)
    for chunk in chunks:
        values, valid = countable(data.task, data.batch(chunk))
        total = total + (values * valid).cpu().sum(0, keepdim=True, dtype=torch.float64)
        count = count + valid.expand_as(values).cpu().sum(0, keepdim=True)
    if data.task.categorical:
        # One observation shared among all classes keeps the loss of absent ones finite.
        smooth = 1.0 / data.task.out_channels
        return torch.log((total + smooth) / (count + 1.0)).float().to(data.device)
    overall = total.sum((0, 2, 3), keepdim=True) / count.sum((0, 2, 3), keepdim=True).clamp(min=1)
    return torch.where(count > 0, total / count.clamp(min=1), overall).float().to(data.device)


def evaluate_trivial(data: TaskData, *parts: np.ndarray, accelerator: Accelerator) -> list[dict[str, float]]:
    """Loss and metrics of the constant baseline on each part, given as positions in `data`."""
    output = trivial_output(data)

    def predict(batch: Batch) -> Tensor:
        """The same output for every image."""
        return output.expand(len(batch.images), *output.shape[1:])

    return [mean_values(data, _statistics(data, part, predict, accelerator)) for part in parts]


def evaluate_zero(data: TaskData, positions: np.ndarray) -> dict[str, dict[str, float]]:
    """Loss and metrics of a prediction of zeros, by what the task calls it; empty where it has no name for one."""
    if not data.task.zero:
        return {}
    return {data.task.zero: mean_values(data, _statistics(data, positions, lambda batch: 0 * batch.target, None))}


def measure_trivial(
    data: TaskData, parts: Mapping[str, np.ndarray], accelerator: Accelerator
) -> list[dict[str, float]]:
    """Loss and metrics of the constant baseline on parts of the images; UserError where nothing counts in one of them.

    Every loss would be nan there, and no model better than another.
    """
    values = evaluate_trivial(data, *parts.values(), accelerator=accelerator)
    for (name, positions), of_part in zip(parts.items(), values, strict=True):
        if np.isnan(of_part["loss"]):
            raise UserError(
                f"{data.task.name}: the constant baseline's loss is nan, because nothing counts in the {len(positions)}"
                f" {name} images; look into the files of {data.task.labelled_by}, or select other images"
            )
    return values


def held_out_values(
    model: nn.Module, data: TaskData, accelerator: Accelerator
) -> tuple[dict[str, float], dict[str, float]]:
    """Loss and metrics on the held-out images: of a model, and of the constant baseline (`measure_trivial`)."""
    [trivial] = measure_trivial(data, {"global test": data.test}, accelerator)
    return mean_values(data, evaluate(model, data, data.test, accelerator)), trivial


def mean_values(data: TaskData, statistics: Tensor) -> dict[str, float]:
    """Loss and metrics over all rows of `statistics`."""
    values = summarise(data.task, statistics, [np.arange(len(statistics))])
    return {name: float(value[0]) for name, value in values.items()}


@torch.no_grad()
def _statistics(
    data: TaskData, positions: np.ndarray, predict: Callable[[Batch], Tensor], accelerator: Accelerator | None
) -> Tensor:
    loss_of = LOSSES[data.task.loss]
    index, n_processes = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
    rows = torch.zeros(len(positions), sum(widths(data.task)), device=data.device)
    starts = range(0, len(positions), _CHUNK)[index::n_processes]
    for start, (_, batch) in zip(starts, data.batches([positions[i : i + _CHUNK] for i in starts]), strict=True):
        output = predict(batch)
        loss = loss_of(output, batch.target, batch.valid)
        rows[start : start + _CHUNK] = image_statistics(data.task, loss, output, batch.target, batch.valid)
    return accelerator.reduce(rows, "sum") if accelerator and n_processes > 1 else rows
