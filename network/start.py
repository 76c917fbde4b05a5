"""The model that a federation starts from."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import torch

from models.precision import set_precision
from models.task_model import TaskModel, init_file, load_model
from models.training import central_model
from network.batch_norm import batch_norm_tensors, with_group_norm


def starting_model(args: Namespace, device: torch.device) -> tuple[TaskModel, Path]:
    """The initial or, with `--start_warm`, the central model as `test_fed.py`'s arguments want it, and its file.

    Raises UserError where there is none, it has no batch norm for `--batch_norm local`, or the device does not have its
    `--precision`.
    """
    if args.start_warm:
        model, path = central_model(args.trained_model_dir, args.task, args.use_cbam)
    else:
        path = init_file(args.init_model_dir, args.task, args.use_cbam)
        model = load_model(path, args.task, "model_initialization.py")
    if args.batch_norm == "local":
        batch_norm_tensors(model)  # which says so where there are none
    model = with_group_norm(model) if args.batch_norm == "group" else model
    set_precision(model, args.precision, device)
    return model, path
