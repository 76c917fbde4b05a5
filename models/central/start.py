"""The model that a central training starts from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from datasets.table import classes_for
from models.networks.config import ModelConfig
from models.networks.lora import adapt
from models.networks.parts import TRAINS
from models.networks.precision import set_precision
from models.networks.task_model import TaskModel, init_file, load_model, make_initial_model


def starting_model(config: Mapping[str, Any], device: torch.device) -> tuple[TaskModel, Path]:
    """The initial model that the arguments of `train_centralized_task_model.py` ask for, and its file.

    Where there is no such file, the default model is made. With `--train lora` its encoder has adapters. Raises
    UserError if it has no layers for these, or if the device does not support the `--precision`.
    """
    path = init_file(config["init_model_dir"], config["task"], config["use_cbam"])
    if not path.is_file():
        classes = classes_for(config["task"], config["data_path"], config["result_path"])
        default = ModelConfig(config["task"], use_cbam=config["use_cbam"], classes=classes)
        made = make_initial_model(path, default, config["rand_seed"])
        print(f"made the default initial model, because there was none: {made}")
    model = load_model(path, config["task"], "model_initialization.py")
    adapt(model.encoder, model.config, TRAINS[config["train"]].from_config(config), config["rand_seed"])
    set_precision(model, config["precision"], device)
    return model, path
