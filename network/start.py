"""The model that a federation starts from."""

from __future__ import annotations

from pathlib import Path

import torch

from models.central.training import central_model
from models.networks.lora import adapt
from models.networks.precision import set_precision
from models.networks.task_model import TaskModel, init_file, load_model
from models.settings import ModelName
from network.config import FederationConfig
from network.engine.batch_norm import CHANGES, batch_norm_tensors
from utils.settings import Configured
from utils.stage import StageSettings


def starting_model(
    name: ModelName, adapters: Configured, federation: FederationConfig, running: StageSettings, device: torch.device
) -> tuple[TaskModel, Path]:
    """The initial model or, with `--start_warm`, the central one, and its file.

    With `--train lora` its encoder has adapters. Raises UserError if there is none, if it has no batch norm for
    `--batch_norm local` or no layers for adapters, or if the device does not support the `--precision`.
    """
    if running.start_warm:
        model, path = central_model(running.trained_model_dir, name.task, name.use_cbam)
    else:
        path = init_file(running.init_model_dir, name.task, name.use_cbam)
        model = load_model(path, name.task, "model_initialization.py")
    batch_norm = federation.settings.batch_norm
    if batch_norm == "local":
        batch_norm_tensors(model)  # raises where there are none
    if batch_norm in CHANGES:
        model = CHANGES[batch_norm].changed(model, federation.local.train)
    adapt(model.encoder, model.config, adapters, running.rand_seed)
    set_precision(model, running.precision, device)
    return model, path
