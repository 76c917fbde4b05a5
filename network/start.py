"""The model that a federation starts from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from models.central.training import central_model
from models.networks.lora import adapt
from models.networks.parts import TRAINS
from models.networks.precision import set_precision
from models.networks.task_model import TaskModel, init_file, load_model
from network.engine.batch_norm import CHANGES, batch_norm_tensors


def starting_model(config: Mapping[str, Any], device: torch.device) -> tuple[TaskModel, Path]:
    """The initial model or, with `--start_warm`, the central one, as the arguments of `test_fed.py` ask; and its file.

    With `--train lora` its encoder has adapters. Raises UserError if there is none, if it has no batch norm for
    `--batch_norm local` or no layers for adapters, or if the device does not support the `--precision`.
    """
    if config["start_warm"]:
        model, path = central_model(config["trained_model_dir"], config["task"], config["use_cbam"])
    else:
        path = init_file(config["init_model_dir"], config["task"], config["use_cbam"])
        model = load_model(path, config["task"], "model_initialization.py")
    if config["batch_norm"] == "local":
        batch_norm_tensors(model)  # raises where there are none
    if config["batch_norm"] in CHANGES:
        model = CHANGES[config["batch_norm"]].changed(model, config["train"])
    adapt(model.encoder, model.config, TRAINS[config["train"]].from_config(config), config["rand_seed"])
    set_precision(model, config["precision"], device)
    return model, path
