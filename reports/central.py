"""Tables of what stages make before a federation: central models, and the clusters of their embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.finished import Finished, Results
from reports.learnt import NO, YES, beats_trivial
from reports.statistics import increase, with_spread
from reports.tables import by_setting


def read_central(results: Results) -> pd.DataFrame:
    """The central models' held-out loss and last metric beside the constant baseline's, as text.

    A row per task or, if a task's runs differ in more than their seed, per setting, with mean ± standard deviation over
    seeds. Empty without runs.
    """
    rows = []
    measured = "test", "trivial"
    for setting, part in by_setting(_measured(results["train_centralized"], *measured), ["task"], *measured):
        model, trivial = part["test"].tolist(), part["trivial"].tolist()
        last = list(model[0])[-1]
        loss, reference = (np.array([value["loss"] for value in of]) for of in (model, trivial))
        rows.append(
            setting
            | {
                "seeds": len(part),
                "constant baseline's loss": with_spread(reference, 4),
                "model loss": with_spread(loss, 4),
                "learnt": YES if beats_trivial(loss, reference) else NO,
                "lower by, %": with_spread(-increase(loss, reference), 1),
                "metric": last,
                "constant baseline": with_spread([value[last] for value in trivial], 3),
                "model": with_spread([value[last] for value in model], 3),
            }
        )
    return pd.DataFrame(rows)


def read_clusters(results: Results) -> pd.DataFrame:
    """Shares of the target's variance that clusters, the table's classes and K-means on the target explain, as text.

    They come from runs of `extract_embeddings.py`. A row per task and features or, if such runs differ in more than
    their seed, per setting, with mean ± standard deviation over seeds. Empty without runs.
    """
    rows = []
    runs = _measured(results["extract_embeddings"], "target_explained")
    for setting, part in by_setting(runs, ["task", "features"], "target_explained"):
        explained = pd.DataFrame(part["target_explained"].tolist())
        shares = {name: with_spread(explained[name], 2) for name in explained}
        of_ceiling = with_spread(100.0 * explained["clusters"] / explained["ceiling"], 0)
        rows.append(setting | {"seeds": len(part)} | shares | {"of the ceiling, %": of_ceiling})
    return pd.DataFrame(rows)


def _measured(runs: Sequence[Finished], *parts: str) -> list[dict[str, Any]]:
    """The runs' arguments, and these parts of their summaries."""
    return [run.settings | {part: run.summary[part] for part in parts} for run in runs]
