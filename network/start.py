"""The model that a federation starts from."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import torch

from models.central.training import central_model
from models.networks.lora import adapt
from models.networks.parts import TRAINS
from models.networks.precision import set_precision
from models.networks.task_model import TaskModel, init_file, load_model
from network.batch_norm import CHANGES, batch_norm_tensors


def starting_model(args: Namespace, device: torch.device) -> tuple[TaskModel, Path]:
    """The initial model or, with `--start_warm`, the central one, as the arguments of `test_fed.py` ask; and its file.

    With `--train lora` its encoder has adapters. Raises UserError if there is none, if it has no batch norm for
    `--batch_norm local` or no layers for adapters, or if the device does not support the `--precision`.
    """
    if args.start_warm:
        model, path = central_model(args.trained_model_dir, args.task, args.use_cbam)
    else:
        path = init_file(args.init_model_dir, args.task, args.use_cbam)
        model = load_model(path, args.task, "model_initialization.py")
    if args.batch_norm == "local":
        batch_norm_tensors(model)  # raises where there are none
    if args.batch_norm in CHANGES:
        model = CHANGES[args.batch_norm].changed(model, args.train)
    adapt(model.encoder, model.config, TRAINS[args.train].from_config(vars(args)), args.rand_seed)
    set_precision(model, args.precision, device)
    return model, path
