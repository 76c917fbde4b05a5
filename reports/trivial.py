"""What runs have learnt beyond the constant baseline, as a table and in lines: tables and reports open with them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.compare import compare, labels, of_random
from reports.console import before
from reports.learnt import BY_HEART, NO, YES
from reports.statistics import Change, increase, level_with_interval, mean_text
from reports.tables import in_settings, in_words, telling


def learnt_table(runs: pd.DataFrame) -> pd.DataFrame:
    """The IID runs beside the constant baseline, as text: a row per task, method, other setting and part of the data.

    What has not been learnt comes first. Empty without IID runs.
    """
    iid = of_random(*in_settings(runs, ["task", "method"]))
    rows: list[dict[str, Any]] = []
    for row in compare(iid.runs, iid.alike, {"iid": iid}).to_dict("records"):
        if row["learnt"]:
            cells = labels(row) | {"seeds": len(row["seeds"]), "constant baseline": mean_text(row["trivial"], 4)}
            over = Change.of(increase(row["loss"], row["trivial"]))
            rows.append(cells | {"IID": level_with_interval(row["loss"], 4), "IID over baseline, %": str(over)})
    order = [NO, BY_HEART, YES].index
    return pd.DataFrame(sorted(rows, key=lambda row: order(row["learnt"])))


def not_learnt(table: pd.DataFrame) -> list[str]:
    """A line for each setting of `learnt_table` whose model has learnt nothing of some images, or only by heart."""
    if table.empty:
        return []
    named = telling(table, before(table, "model"))
    settings: dict[str, dict[str, list[str]]] = {}
    for row in table[table["learnt"] != YES].to_dict("records"):
        setting = in_words({name: row[name] for name in named})
        where = f"{row['data']} ({row['IID']}, constant baseline {row['constant baseline']})"
        settings.setdefault(setting, {}).setdefault(row["learnt"], []).append(where)
    lines = []
    for setting, words in settings.items():
        phrases = {
            NO: "under IID the loss is not clearly below the constant baseline's, and there is no verdict, on {}",
            BY_HEART: "learnt by heart: {}",
        }
        phrases_used = [phrase.format(", ".join(words[word])) for word, phrase in phrases.items() if word in words]
        lines.append(f"{setting}: {'; '.join(phrases_used)}")
    return lines


def central_not_learnt(central: pd.DataFrame) -> list[str]:
    """A line for each row of `reports.central.read_central` whose loss is not clearly below the constant baseline's."""
    reference = "constant baseline's loss"
    return [
        f"{row['task']}: the central model's loss on global test, {row['model loss']}, is not clearly below the "
        f"constant baseline's, {row[reference]}; clusters of its embeddings say little of the task"
        for row in central.to_dict("records")
        if row["learnt"] == NO
    ]
