"""The stages by the scripts that run them, which a sweep's commands begin with."""

from __future__ import annotations

from stages.central import CentralStage
from stages.clusters import ClusterStage
from stages.federated import FederatedStage
from stages.initial import InitialStage
from stages.table import TableStage
from stages.teacher import TeacherStage
from utils.stage import Stage

STAGE_OF: dict[str, type[Stage]] = {
    "extract_datapoints_for_experiments.py": TableStage,
    "model_initialization.py": InitialStage,
    "train_centralized_task_model.py": CentralStage,
    "extract_embeddings.py": ClusterStage,
    "extract_diffusion_features.py": TeacherStage,
    "test_fed.py": FederatedStage,
}
