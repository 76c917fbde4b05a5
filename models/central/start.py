"""The model that a central training starts from."""

from __future__ import annotations

from pathlib import Path

import torch

from datasets.table import classes_for
from models.networks.config import ModelConfig
from models.networks.lora import adapt
from models.networks.precision import set_precision
from models.networks.task_model import TaskModel, init_file, load_model, make_initial_model
from models.settings import ModelName
from utils.settings import Configured
from utils.stage import StageSettings


def starting_model(
    name: ModelName, adapters: Configured, running: StageSettings, device: torch.device
) -> tuple[TaskModel, Path]:
    """The initial model that a central training starts from, and its file.

    Where there is no such file, the default model is made. With `--train lora` its encoder has adapters. Raises
    UserError if it has no layers for these, or if the device does not support the `--precision`.
    """
    path = init_file(running.init_model_dir, name.task, name.use_cbam)
    if not path.is_file():
        classes = classes_for(name.task, running.data_path, running.result_path)
        default = ModelConfig(name.task, use_cbam=name.use_cbam, classes=classes)
        made = make_initial_model(path, default, running.rand_seed)
        print(f"made the default initial model, because there was none: {made}")
    model = load_model(path, name.task, "model_initialization.py")
    adapt(model.encoder, model.config, adapters, running.rand_seed)
    set_precision(model, running.precision, device)
    return model, path
