"""Tables of what stages make before a federation: central models, and the clusters of their embeddings."""

from __future__ import annotations

import pandas as pd

from reports.finished import Results
from reports.learnt import NO, YES, beats_trivial
from reports.statistics import increase, with_spread
from reports.tables import by_setting


def read_central(results: Results) -> pd.DataFrame:
    """The central models' held-out loss and last metric beside the constant baseline's, as text.

    A row per task or, if a task's runs differ in more than their seed, per setting, with mean ± standard deviation over
    seeds. Empty without runs.
    """
    rows, runs = [], [(run.settings, run.summary) for run in results["train_centralized"]]
    for setting, summaries in by_setting(runs, ["task"]):
        model, trivial = (pd.DataFrame([of[name] for of in summaries]) for name in ("test", "trivial"))
        loss, reference, last = model["loss"].to_numpy(), trivial["loss"].to_numpy(), [*summaries[0]["test"]][-1]
        cells = {"seeds": len(summaries), "constant baseline's loss": with_spread(reference, 4)}
        cells |= {"model loss": with_spread(loss, 4), "learnt": YES if beats_trivial(loss, reference) else NO}
        cells |= {"lower by, %": with_spread(-increase(loss, reference), 1), "metric": last}
        of_metric = {"constant baseline": with_spread(trivial[last], 3), "model": with_spread(model[last], 3)}
        rows.append(setting | cells | of_metric)
    return pd.DataFrame(rows)


def read_clusters(results: Results) -> pd.DataFrame:
    """Shares of the target's variance that clusters, the table's classes and K-means on the target explain, as text.

    They come from runs of `extract_embeddings.py`. A row per task and features or, if such runs differ in more than
    their seed, per setting, with mean ± standard deviation over seeds. Empty without runs.
    """
    rows, runs = [], [(run.settings, run.summary["target_explained"]) for run in results["extract_embeddings"]]
    for setting, values in by_setting(runs, ["task", "features"]):
        explained = pd.DataFrame(values)
        shares = {name: with_spread(explained[name], 2) for name in explained}
        of_ceiling = with_spread(100.0 * explained["clusters"] / explained["ceiling"], 0)
        rows.append(setting | {"seeds": len(explained)} | shares | {"of the ceiling, %": of_ceiling})
    return pd.DataFrame(rows)
