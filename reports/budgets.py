"""What a federation reaches within a budget of rounds, or of consecutive batches at its largest client.

Tables 2 to 5 and figures 4 to 9 of Hsu, Qi and Brown 2020 (arXiv 2003.08082): accuracy at a round and at a batch,
rounds until a share of central training's accuracy is reached, and accuracy against the partition's earth mover's
distance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from network.partition.groups import partition_label
from network.partition.rules import uses_alpha
from reports.finished import Finished, Results
from reports.labels import in_order, method_label
from reports.statistics import with_spread
from reports.tables import NOT_IID, differing
from utils.errors import UserError

CENTRAL = "centralized"
SHARES = (0.1, 0.5, 0.9)  # of the central accuracy, as in the paper
_PARTS = (0.2, 0.5, 1.0)  # default budgets, as parts of the longest runs: the paper's are 1k, 2.5k and 5k of 5k
# Of the tables by their names; {} is the metric.
TITLES = {
    "acc_at_round": "{} on global test after so many rounds, %",
    "acc_at_batch": "{} on global test after so many batches at the largest client, %",
    "rounds_to": "rounds until {} reaches these shares of central training's",
}
_SETTING = ["task", "setting", "alpha"]
_RUN = [*_SETTING, "rand_seed"]


def read_progress(results: Results, metric: str = "accuracy") -> pd.DataFrame:
    """A metric (the larger the better) of the global model on the held-out images by round: one row per evaluation.

    Rows are sorted by task, setting, alpha, seed and round. Columns:

    - task, setting (the method and the arguments in which the runs differ, as text), line (the same without arguments
      of the partition), type (the partition's label), alpha (nan where it is not used), rand_seed;
    - round, batches (steps so far, counting in each round those of the client with the most), `before` (the round
      before, evaluated or not), `next_round` and `next_batches` (both numbers after the next round; nan without one);
    - `value`, `emd` (of the partition) and `central`: the best value of central training for this task and seed or,
      without such a run, for other seeds; nan without any.

    Runs of central training are those of `--method centralized`, with as many steps and the same settings, and those of
    `train_centralized_task_model.py`. Raises `UserError` if no run has the metric.
    """
    runs = [run for run in results["test_federated"] if f"test_{metric}" in run.summary["last"]]
    federated = [run for run in runs if run.args["method"] != CENTRAL]
    if not federated:
        raise UserError(f"no finished federated run in {results.path} has test_{metric} of a global model")
    found = [(run, run.summary["last"][f"test_{metric}"]) for run in runs if run.args["method"] == CENTRAL]
    found += [(run, of[metric]) for run in results["train_centralized"] if metric in (of := run.summary["test"])]
    values = {(run.args["task"], run.args["rand_seed"], value) for run, value in found}
    central = pd.DataFrame(sorted(values), columns=["task", "rand_seed", "value"])
    settings = zip(federated, _settings(federated), strict=True)
    progress = pd.concat([_progress(run, metric, of_run, central) for run, of_run in settings], ignore_index=True)
    # Runs come by their arguments, alpha before most others, so that those of one setting are not together yet.
    place = {task: rank for rank, task in enumerate(in_order(progress["task"]))}
    return progress.sort_values(
        [*_RUN, "round"], key=lambda column: column.map(place) if column.name == "task" else column, ignore_index=True
    )


def budget_tables(
    results: Results, metric: str, at_rounds: Sequence[int], at_batches: Sequence[int]
) -> dict[str, pd.DataFrame]:
    """The tables `acc_at_round`, `acc_at_batch` and `rounds_to`, without empty ones; none if no run has the metric."""
    try:
        progress = read_progress(results, metric)
    except UserError:
        return {}
    tables = {
        "acc_at_round": at_budgets(progress, "round", at_rounds),
        "acc_at_batch": at_budgets(progress, "batches", at_batches),
        "rounds_to": rounds_to(progress),
    }
    return {name: table for name, table in tables.items() if not table.empty}


def _settings(runs: list[Finished]) -> list[dict[str, str]]:
    """Each run's method, and those of its arguments (not alpha and seed) that vary within its task, method and alpha.

    All of them are its `setting`; its `line` leaves out those of the partition. A learning rate that was chosen at each
    alpha makes no setting of its own.
    """
    settings = pd.DataFrame([run.settings for run in runs])
    arguments = [name for name in settings if name not in {"task", "method", "alpha", "rand_seed"}]
    # On held-out images, nothing depends on whose images are evaluated besides.
    varying = differing(settings, arguments, ["task", "method", "alpha"], always=("attack",))
    named = []
    for args in (run.args for run in runs):
        texts = {name: f"{name} {args[name]}" for name in varying if args.get(name)}
        of_line = [text for name, text in texts.items() if name not in NOT_IID]
        label = method_label(args["method"])
        named.append({"setting": ", ".join([args["method"], *texts.values()]), "line": ", ".join([label, *of_line])})
    return named


def _progress(run: Finished, metric: str, of_run: Mapping[str, str], central: pd.DataFrame) -> pd.DataFrame:
    metrics = pd.read_csv(run.path / "metrics.csv")
    metrics = metrics.assign(batches=metrics["local_steps"].cumsum() if "local_steps" in metrics else np.nan)
    follows = {f"next_{unit}": metrics[unit].shift(-1) for unit in ("round", "batches")}
    metrics = metrics.assign(before=metrics["round"].shift(), **follows)
    metrics = metrics[metrics[f"test_{metric}"].notna()]  # the others were not evaluated
    of_task = central[central["task"] == run.args["task"]]
    same = of_task[of_task["rand_seed"] == run.args["rand_seed"]]
    return pd.DataFrame(
        {
            "task": run.args["task"],
            **of_run,
            "type": partition_label(run.args["type"]),
            "alpha": run.args["alpha"] if uses_alpha(run.args["type"], run.args.get("partition")) else np.nan,
            "rand_seed": run.args["rand_seed"],
            "round": metrics["round"],
            **metrics[["batches", "before", *follows]],
            "value": metrics[f"test_{metric}"],
            "emd": run.summary["heterogeneity"].get("emd", np.nan),
            "central": (of_task if same.empty else same)["value"].max(),
        }
    )


def at_budgets(progress: pd.DataFrame, unit: str, budgets: Sequence[int] = ()) -> pd.DataFrame:
    """The metric, in percent, at each budget of `unit` ("round" or "batches"), a row per task, setting and alpha.

    The cells are text: mean and standard deviation over seeds of the model after the last round that ends within the
    budget. They are empty where it was not evaluated in some seed's run, or the run ends before. The default budgets
    are the evaluations of the setting whose seeds all reach the most, nearest to a fifth, half and all of that. Central
    training's value is in a column of its own.
    """
    progress = progress[progress[unit].notna()]
    last = progress.groupby(_RUN, dropna=False)[unit].max().groupby(level=_SETTING, dropna=False).min()
    budgets = budgets or (_nearest(progress, unit, last) if len(last) else [])

    def cells(run: pd.DataFrame) -> dict[str, float]:
        """A run's value at each budget, in percent; nan if the model was not evaluated then."""
        values = {}
        for budget in budgets:
            # The last round may not be over at a larger budget.
            then = run[(run[unit] <= budget) & ((run[f"next_{unit}"] > budget) | (run[unit] == budget))]
            values[f"@{budget}"] = 100 * then["value"].iloc[-1] if len(then) else np.nan
        return values

    return _table(progress, cells, lambda values: with_spread(values, 1) if values.notna().all() else "")


def _nearest(progress: pd.DataFrame, unit: str, last: pd.Series) -> list[int]:
    """The default budgets: what every seed has spent at evaluations of the setting that reaches the most."""
    longest = dict(zip(_SETTING, last.idxmax(), strict=True))
    alike = (progress[[*longest]].isna() & pd.Series(longest).isna()) | (progress[[*longest]] == pd.Series(longest))
    # Seeds may differ in how many batches a round has.
    spent = progress[alike.all(axis=1)].groupby("round")[unit].max()
    spent = spent[(spent > 0) & (spent <= last.max())] if (spent > 0).any() else spent
    nearest = [spent.iloc[int((spent - part * last.max()).abs().argmin())] for part in _PARTS]
    return sorted({int(budget) for budget in nearest})


def rounds_to(progress: pd.DataFrame, shares: Sequence[float] = SHARES) -> pd.DataFrame:
    """The first evaluated round at which a share of the central accuracy is reached, as text.

    Mean and standard deviation over the seeds that reach it, and their number if not all do; `> N` if none does by the
    last round of its run, N, and `> N to M` if the runs end after N to M rounds. `≤` precedes rounds if those
    just before were not evaluated. Rows as in `at_budgets`. Empty without a central run.
    """

    def cells(run: pd.DataFrame) -> dict[str, tuple[float, int, bool]]:
        """A run's first round with each share, nan if it never reaches it, its last one, and if it may be earlier."""
        last, reached = int(run["round"].max()), {}
        skipped = run["before"].notna() & (run["before"] != run["round"].shift())
        for share in shares:
            above = run["value"] >= share * run["central"]
            first = above.idxmax() if above.any() else None
            reached[f"{share:.0%}"] = (
                (np.nan, last, False) if first is None else (run["round"][first], last, bool(skipped[first]))
            )
        return reached

    def text(cells: pd.Series) -> str:
        """Rounds over seeds, and how many seeds reached the share if not all did."""
        rounds, ends, skipped = np.array([*cells], float).T
        n = np.isfinite(rounds).sum()
        if not n:
            return f"> {ends.min():.0f}" + (f" to {ends.max():.0f}" if np.ptp(ends) else "")
        return (
            "≤ " * bool(skipped.any())
            + with_spread(rounds, 0)
            + (f" ({n} of {len(rounds)} seeds)" if n < len(rounds) else "")
        )

    return _table(progress[progress["central"].notna()], cells, text)


def _table(
    progress: pd.DataFrame, cells: Callable[[pd.DataFrame], Mapping[str, Any]], text: Callable[[pd.Series], str]
) -> pd.DataFrame:
    """A row per task, setting and alpha: `cells` of each seed's run, formatted by `text`."""
    rows = []
    for (task, setting, alpha), part in progress.groupby(_SETTING, sort=False, dropna=False):
        by_seed = pd.DataFrame([cells(run.sort_values("round")) for _, run in part.groupby("rand_seed")])
        row = {"task": task, "setting": setting, "α": "" if np.isnan(alpha) else f"{alpha:g}"}
        row |= {"seeds": len(by_seed), "EMD": f"{part['emd'].mean():.2f}"}
        row |= {name: text(by_seed[name]) for name in by_seed}
        rows.append(row | {"central": with_spread(100 * part.groupby("rand_seed")["central"].first(), 1)})
    return pd.DataFrame(rows)


def relative(progress: pd.DataFrame) -> pd.DataFrame:
    """Each run's metric after its last round: as it is (`value`) and divided by central training's (`relative`)."""
    last = progress.sort_values("round").groupby(_RUN, dropna=False, sort=False).last().reset_index()
    return last.assign(relative=last["value"] / last["central"])
