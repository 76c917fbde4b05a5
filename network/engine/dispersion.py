"""How uneven a partition is for a task: how its targets and its model's gradients differ between clients."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from datasets.task_data import TaskData
from losses import LOSSES
from models.embedding.features import shrunk
from models.networks.task_model import load_model, made_as, versions_of
from network.aggregation.weighted_sum import sum_type
from network.importance import FedIR
from network.partition.assigning import Partition
from network.partition.assignments import read_projection
from network.partition.description import described_by
from network.partition.explained import share_between, target_share
from network.partition.groups import assigned_as
from network.partition.heterogeneity import report
from network.partition.objects import unevenness
from network.partition.settings import PartitionSettings
from utils import progress
from utils.errors import UserError
from utils.files import json_in, write_json
from utils.processes import from_main
from utils.versions import ENGINE, file_digest, ids_digest

if TYPE_CHECKING:
    pass

_CHUNK = 64


def gradient_dispersion(
    model: nn.Module, data: TaskData, clients: Sequence[np.ndarray], accelerator: Accelerator
) -> float:
    """V = sum_k p_k |g_k - g|^2 / |g|^2 from each client's mean gradient g_k of the task's loss at `model`.

    p_k are the clients' shares of the images, as in FedAvg, and g = sum_k p_k g_k is the gradient over all images.
    V + 1 is the square of the dissimilarity B of FedProx (arXiv 1812.06127, definition 3). The model is in eval mode:
    batch norm uses its running statistics, so that an image's gradient does not depend on the rest of its batch, and g
    is exact. Takes one pass over the clients' images, which are spread over the processes, and memory for one gradient
    in double precision. Few images per client make V larger by chance: compare with a random partition.

    Args:
        model: on the data's device.
        data: the task's images.
        clients: each client's images, as positions in `data`; none is empty.
        accelerator: the processes.
    """
    model.eval()
    loss_of = LOSSES[data.task.loss]
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    dtype = sum_type(data.device)
    mean = [torch.zeros_like(parameter, dtype=dtype) for parameter in parameters]
    square = torch.zeros(1, dtype=dtype, device=data.device)
    n_images = sum(map(len, clients))
    for images in clients[accelerator.process_index :: accelerator.num_processes]:
        model.zero_grad(set_to_none=True)
        for at in torch.from_numpy(images).split(_CHUNK):
            batch = data.batch(at)
            loss_of(model(batch.images).output, batch.target, batch.valid).sum().backward()
        for total, parameter in zip(mean, parameters, strict=True):
            if parameter.grad is not None:
                # p_k g_k is the sum of the client's gradients divided by the number of all images; so is p_k |g_k|^2.
                own = parameter.grad.to(dtype)
                total.add_(own, alpha=1 / n_images)
                square += own.square().sum() / (len(images) * n_images)
    model.zero_grad(set_to_none=True)
    flat = torch.cat([square, *(total.flatten() for total in mean)])
    if accelerator.num_processes > 1:
        flat = accelerator.reduce(flat, "sum")
    # sum_k p_k |g_k - g|^2 = sum_k p_k |g_k|^2 - |g|^2
    return max(0.0, float(flat[0] / flat[1:].square().sum() - 1))


def residual_share(model: nn.Module, data: TaskData, client_of: np.ndarray, n_clients: int) -> float:
    """Share of the variance of the loss's gradients at the output that lies between clients, `beyond_chance`.

    An image's gradient at the output is what `model` has yet to learn about it: the error for the squared loss, its
    sign for L1, the errors of the class probabilities for cross-entropy. Once a model has learnt what all images have
    in common, clients that differ in this gradient pull it in different directions. Maps are averaged in a grid of 8 by
    8 cells, as for `target_share`; pixels that do not count have no gradient. The share is between 0 and 1 for any
    task, whereas V divides by a gradient that is nearly 0 on a plateau. Takes one pass over the images, and memory for
    one sum per client.

    Args:
        model: on the data's device.
        data: the task's images; the model's output is a map or one number per class.
        client_of: (N,) each image's client, -1 for none.
        n_clients: number of clients.
    """
    model.eval()
    loss_of = LOSSES[data.task.loss]

    def rows(at: np.ndarray) -> np.ndarray:
        """The gradients at the output for these images, one row each."""
        parts = []
        for positions in torch.from_numpy(at).split(_CHUNK):
            batch = data.batch(positions)
            with torch.no_grad():
                output = model(batch.images).output
            output.requires_grad_()
            (gradient,) = torch.autograd.grad(loss_of(output, batch.target, batch.valid).sum(), output)
            parts.append(shrunk(gradient).cpu().numpy())
        return np.concatenate(parts)

    return share_between(rows, client_of, n_clients)


def measure(
    partition: Partition,
    split: PartitionSettings,
    data: TaskData,
    reweighting: FedIR,
    early: Path,
    accelerator: Accelerator,
) -> dict[str, float]:
    """All measures of a partition in a run of `test_fed.py`, except those for which something is missing.

    The Fréchet distance needs the embeddings beside the clusters in `split.assignment_files_path`; gradients need the
    central model's `early` checkpoint, made with the same image size and targets.
    """
    client_of, n_clients = partition.client_of, partition.n_clients
    projection = read_projection(data.task.name, data.table, split.assignment_files_path)
    groups, name, _ = described_by(partition, split.type, data.table)
    others = partition.groups if name != assigned_as(split.type, data.table) else None
    values = report(client_of, groups, n_clients, projection, others)
    values["target_variance_share"] = target_share(data, client_of, n_clients)
    if data.task.boxes:
        values |= unevenness(data.table, client_of, n_clients)
    values |= reweighting.measures(data, partition.clients, groups)
    if accelerator.is_main_process and (line := reweighting.without_effect()):
        progress.say(line)
    if early.is_file():
        values |= _of_gradients(partition, data, early, accelerator)
    return values


def _of_gradients(partition: Partition, data: TaskData, early: Path, accelerator: Accelerator) -> dict[str, float]:
    """What gradients at the central model's `early` checkpoint say of a partition; none if it is of other images.

    Beside the checkpoint lies what earlier runs have measured: it takes a pass over all images with the whole network,
    longer than all rounds where an encoder is frozen, and runs of a sweep that differ in their method share partitions.
    """
    versions = {"test_fed": ENGINE["test_fed"], "task": data.task.version, "data": data.version}
    versions |= versions_of(made_as(early)[0])
    made_with = versions | {"model": file_digest(early), "clients": ids_digest(partition.client_of)}
    key = hashlib.sha256(json.dumps(made_with | {"device": data.device.type}).encode()).hexdigest()
    file = early.with_suffix("") / f"{key}.json"
    if (stored := from_main(accelerator, lambda: _kept(file))) is not None:
        return stored
    values = {}
    model = load_model(early, data.task.name, "train_centralized_task_model.py")
    if (model.config.image_size, model.task) == (data.image_size, data.task):
        model = model.to(accelerator.device).to(memory_format=torch.channels_last)
        if not data.task.boxes:  # a detector's output is points of several levels
            values["residual_variance_share"] = residual_share(model, data, partition.client_of, partition.n_clients)
        values["gradient_dispersion"] = gradient_dispersion(model, data, partition.clients, accelerator)
    if accelerator.is_main_process:
        with suppress(OSError, UserError):  # models may lie where this account cannot write
            write_json(file, values)
    return values


def _kept(path: Path) -> dict[str, float] | None:
    """What earlier runs have measured; None where nobody has yet."""
    with suppress(OSError, ValueError):
        return json_in(path)
    return None
