"""Batch norm in a federation: averaged, kept by each client, or replaced by group norm."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from utils.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from models.networks.task_model import TaskModel


def batch_norm_tensors(model: nn.Module) -> frozenset[str]:
    """The names of all parameters and buffers of batch norm layers, which stay with the client in FedBN.

    FedBN: Li et al. 2021 (arXiv 2102.07623). UserError if the model has no such layer.
    """
    from torch.nn.modules.batchnorm import _BatchNorm

    layers = {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}
    if not layers:
        raise UserError(
            "--batch_norm local: the model has no batch norm; "
            "make one with model_initialization.py --norm batch, or omit --batch_norm"
        )
    return frozenset(f"{layer}.{name}" for layer, module in layers.items() for name in module.state_dict())


def with_group_norm(model: TaskModel, train: str = "all") -> TaskModel:
    """The model with `--norm group` and the same weights; scales and shifts carry over from batch norm.

    Running statistics are dropped, and so is the layer at the decoder's embedding, which group norm leaves out. Only
    with `--train all` is the encoder changed: what it has learnt with the statistics of batch norm it would have to
    learn again without, and a frozen one has the same ones for all clients.
    """
    from models.networks.task_model import TaskModel

    if model.config.norm == "group":
        return model
    encoder_norm = None if train == "all" else model.config.norm
    new = TaskModel(replace(model.config, norm="group", encoder_norm=encoder_norm))
    weights = model.state_dict()
    new.load_state_dict({name: weights[name] for name in new.state_dict()})
    return new


class Change(NamedTuple):
    """How a model is changed before the first round: `changed(model, train)`, with what `--train` says.

    `version` is raised by one where numbers change.
    """

    changed: Callable[[TaskModel, str], TaskModel]
    version: int


CHANGES = {"group": Change(with_group_norm, version=2)}
