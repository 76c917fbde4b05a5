"""The model whose images are embedded, or whose settings say what is clustered."""

from __future__ import annotations

from pathlib import Path

from models.central.training import central_model
from models.embedding.features import MODEL
from models.embedding.settings import ClusterSettings
from models.networks.task_model import TaskModel, init_file, load_model
from models.settings import ModelName
from utils.errors import UserError
from utils.stage import StageSettings


def model_for(name: ModelName, settings: ClusterSettings, running: StageSettings) -> tuple[TaskModel, Path]:
    """The model that the settings of `extract_embeddings.py` ask for, and its file.

    That is the central model, or where something else is clustered the initial one, which has the image size and the
    target. UserError if there is none, or a model's performance is asked for that has not been trained.
    """
    if settings.features == MODEL:
        return central_model(running.load_model_dir, name.task, name.use_cbam, settings.from_checkpoint)
    if settings.observe_performance:
        raise UserError("--observe_performance measures the central model; give --features model")
    path = init_file(running.init_model_dir, name.task, name.use_cbam)
    return load_model(path, name.task, "model_initialization.py"), path
