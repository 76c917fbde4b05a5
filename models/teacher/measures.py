"""Whether a teacher's vectors know what they should, before anything is trained with them."""

from __future__ import annotations

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from datasets.task_data import evenly
from models.teacher.basis import Basis, Photographs
from models.teacher.teachers import Teacher

JUDGED, NEIGHBOURS = 2000, 5  # training and held-out images at most, and neighbours that decide


def cosines(features: np.ndarray, positive: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosines of images' own vectors with that of their positive text, (n,), and with those of all others."""
    rows = rows[positive[rows] >= 0]
    vectors = features[rows].astype(np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=2, keepdims=True), 1e-12)
    similarity = np.einsum("npd,nd->np", vectors[:, :-1], vectors[:, -1])
    right = np.arange(similarity.shape[1]) == positive[rows, None]
    return similarity[right], similarity[~right]


def neighbours(
    features: np.ndarray, basis: Basis, teacher: Teacher, photographs: Photographs
) -> dict[str, dict[str, float]]:
    """How often the nearest training images name a held-out image's class, by kind of vector and layer.

    An image's own vector may have been made with the text of its class, and then contains the answer; the vector with
    the first text, where that is the same for all images, tells what the teacher sees in the image itself.
    """
    labels = photographs.table.labels
    train, test = _judged(photographs)
    if not len(train) or not len(test):
        return {}
    vectors = {"own": teacher.columns - 1}
    if teacher.columns > 1 and teacher.same_texts:
        vectors = {"one text for all": 0, **vectors}
    ends = np.cumsum(basis.sizes)
    parts = {name: slice(end - n, end) for name, end, n in zip(teacher.layers, ends, basis.sizes, strict=True)}
    if len(parts) > 1:
        parts["all"] = slice(None)
    scores: dict[str, dict[str, float]] = {}
    for name, column in vectors.items():
        fitted, tested = (np.asarray(features[rows, column], np.float32) for rows in (train, test))
        scores[name] = {}
        for layer, part in parts.items():
            model = KNeighborsClassifier(min(NEIGHBOURS, len(train)), metric="cosine", algorithm="brute")
            model.fit(fitted[:, part], labels[train])
            scores[name][layer] = float(model.score(tested[:, part], labels[test]))
    return scores


def commonest_class(photographs: Photographs) -> float:
    """How often a held-out image is of the commonest class of the training images that `neighbours` takes.

    nan without such images.
    """
    train, test = (photographs.table.labels[rows] for rows in _judged(photographs))
    return float((test == np.bincount(train).argmax()).mean()) if len(train) and len(test) else float("nan")


def _judged(photographs: Photographs) -> tuple[np.ndarray, np.ndarray]:
    """The training and the held-out images with a class that are taken, evenly spaced where there are many."""
    labels = photographs.table.labels
    train, test = (evenly(part[labels[part] >= 0], JUDGED) for part in (photographs.train, photographs.test))
    return train, test
