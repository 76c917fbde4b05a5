"""Linear probe: how well a linear classifier tells classes from a frozen encoder's vectors of images."""

from __future__ import annotations

import warnings
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from datasets.table import read_table
from datasets.task_data import TaskData
from models.networks.config import ModelConfig
from models.networks.lora import merged
from models.networks.task_model import TaskModel
from network.engine.state import strip_prefix
from utils.errors import UserError
from utils.files import read_json
from utils.renamed import with_present_names
from utils.runs import Run, load_checkpoint

_BATCH, _ITERATIONS = 64, 1000


def probe_run(folder: Path, data_path: Path | None, inverse_penalty: float) -> dict[str, float]:
    """The accuracy of a probe of a finished run's global model, and of one of the same network untrained.

    Args:
        folder: a run of `test_fed.py`.
        data_path: the folder of its images; by default the one that it used.
        inverse_penalty: the C of scikit-learn's logistic regression.

    Returns:
        The accuracies on the `n_test` held-out images: `accuracy` of the probe, `untrained`, and `trivial`, that of
        always the commonest class.

    Raises:
        UserError: if there is no such run, it has no global model, or its images have no classes.
    """
    args = with_present_names(read_json(folder / "args.json", "test_fed.py"))
    try:
        settings = [field.name for field in fields(ModelConfig) if field.name != "weights"]  # where it began
        config = ModelConfig.of({name: args[name] for name in settings if name in args})
        table = read_table(data_path or Path(args["data_path"]))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder}: not a run of test_fed.py ({error})") from error
    torch.manual_seed(0)
    model = TaskModel(config)
    data = TaskData(table, model.task, config.image_size, torch.device("cpu"))
    labels = table.labels
    train, test = (images[labels[images] >= 0] for images in (data.train, data.test))
    if len(np.unique(labels[train])) < 2 or not len(test):
        raise UserError(f"{folder}: a probe needs training images of two classes, and test images with a class")
    untrained = probe(model, data, train, test, inverse_penalty)
    tensors = merged(strip_prefix("server", load_checkpoint(Run(folder).checkpoint, "give another --run")[0]))
    try:
        model.load_state_dict({name: tensors[name] for name in model.state_dict()})
    except (KeyError, RuntimeError) as error:
        raise UserError(f"{folder}: the run has no global model to probe; give another --run") from error
    commonest = np.bincount(labels[train]).argmax()
    return {
        "accuracy": probe(model, data, train, test, inverse_penalty),
        "untrained": untrained,
        "trivial": float((labels[test] == commonest).mean()),
        "n_test": len(test),
    }


def probe(model: TaskModel, data: TaskData, train: np.ndarray, test: np.ndarray, inverse_penalty: float) -> float:
    """The accuracy on `test` of a logistic regression on the encoder's standardised vectors of `train`."""
    labels = data.table.labels
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=inverse_penalty, max_iter=_ITERATIONS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the result after so many iterations will do
        classifier.fit(encoded_by(model, data, train), labels[train])
    return float(classifier.score(encoded_by(model, data, test), labels[test]))


@torch.no_grad()
def encoded_by(model: TaskModel, data: TaskData, positions: np.ndarray) -> np.ndarray:
    """The encoder's vectors (n, F) of these images, in eval mode."""
    model.eval()
    chunks = torch.from_numpy(positions).split(_BATCH)
    return torch.cat([model(data.batch(chunk).images).encoded for chunk in chunks]).numpy()
