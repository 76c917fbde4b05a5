"""The words of the HTML page: titles of tables, figures and stages, and what the terms in their headings mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from reports import learnt
from reports.labels import method_label, task_label
from reports.verdicts import WORDS

_GLOSSARY = Path(__file__).parents[1] / "docs/glossary.md"
_BASELINE = "The mean-prediction baseline's under IID, class and embedding, where these differ."

# Of each table, by the beginning of its file's name: its title and what it shows. Those of stage 5 come in this order.
TABLES: dict[str, tuple[str, str]] = {
    "learnt": (
        "Is the task learnt?",
        "The loss under IID beside the mean-prediction baseline's, with its 95 % interval over seeds "
        f"({learnt.WORDS}). Where it is not learnt, there is no verdict.",
    ),
    "methods": ("Loss by method", f"The loss of each method: mean ± standard deviation over seeds. {_BASELINE}"),
    "increases": ("Increase over IID", "Loss over IID's, in percent: mean over seeds with its 95 % interval."),
    "verdicts": (
        "Embedding-based over class-based",
        "Embedding-based over class-based partitions of the same seeds: mean increase with its 95 % t interval, "
        f"bootstrap interval, the verdict ({WORDS}), p adjusted to the false discovery rate over all rows, and the "
        "verdict that the interval alone would give.",
    ),
    "over": (
        "Over a baseline",
        "Each setting's loss over the baseline's that the table is named by, of the same partition and seeds: mean "
        "increase with its 95 % interval, and verdicts as above.",
    ),
    "alpha_slopes": (
        "Change of the loss with α",
        "Change of the loss when α grows tenfold, in percent: mean over seeds with its 95 % t interval, and verdicts "
        "on the difference.",
    ),
    "splits": (
        "Every partition type over IID",
        "Natural groups included: the loss, mean ± standard deviation over seeds, the mean increase over IID of the "
        "same seeds with its 95 % interval, and how skewed the partition is. The mean-prediction baseline's "
        "loss under IID and under the partition, where these differ.",
    ),
    "gaps": (
        "New images and non-participating clients",
        "Participants' loss on client train and on client test, the non-participating clients' on theirs, "
        "mean ± standard deviation over seeds, and the increase from each to the next (the out-of-sample and the "
        "participation gap) with its 95 % interval, also after steps of adaptation.",
    ),
    "gap_verdicts": (
        "Participation gap, embedding-based over class-based",
        "Of the same seeds, before and after steps of adaptation, with verdicts on the difference "
        f"({WORDS}).",
    ),
    "comparison": (
        "Class-based and embedding-based beside IID",
        "Losses, mean ± standard deviation over seeds, the mean increases with their 95 % intervals, and how skewed "
        f"the partitions are. {_BASELINE}",
    ),
    "central": (
        "Central models",
        "The central models on global test beside the mean-prediction baseline, mean ± standard deviation.",
    ),
    "metrics": ("Every metric", "Every metric of every model: mean ± standard deviation over seeds."),
    "task_similarity": (
        "Similarity of the tasks' clusters",
        "How similar the clusters of tasks are to each other and to the scene classes.",
    ),
}  # fmt: skip
_TITLES = {name: title for name, (title, _) in TABLES.items()} | {
    "acc_at_round": "Metric after a number of rounds",
    "acc_at_batch": "Metric after a number of local steps",
    "rounds_to": "Rounds to a share of central training",
    "clusters": "Explained variance of the target by clusters",
    "costs": "Parameters, bytes, time and memory",
    "equal_skew": "Cost at equal explained variance of the target",
    "predictors": "What predicts the cost",
    "task_similarity_ami": "Adjusted mutual information of the tasks' clusters",
    "task_similarity_transport": "Transport distance of the tasks' clusters",
}
STAGES = {
    "extract_datapoints": "Table of images",
    "train_centralized": "Central models",
    "extract_embeddings": "Embeddings and clusters",
    "test_federated": "Federated runs",
}
# Words of headings that the glossary has under others.
_ALSO = {
    "constant baseline": "mean-prediction baseline",
    "iid": "partition type",
    "class": "partition type",
    "embedding": "partition type",
    "type": "partition type",
    "target share": "explained variance of the target",
    "data": "global test",
    "clusters": "cluster",
}


def title_of(name: str) -> str:
    """The title of a table or figure, by the name of its file: words, and the task or method that it is of."""
    known = max((table for table in _TITLES if name == table or name.startswith(f"{table}_")), key=len, default="")
    rest = name.removeprefix(known).strip("_")
    label = task_label(rest) if task_label(rest) != rest else method_label(rest)
    label = label if label != rest else rest.replace("_", " ")
    return ": ".join(filter(None, (_TITLES.get(known, ""), label))).strip() if known else label[:1].upper() + label[1:]


def table_of(name: str) -> str | None:
    """Which of `TABLES` a file's name begins with; None for others."""
    return next((table for table in TABLES if name == table or name.startswith(f"{table}_")), None)


@cache
def glossary() -> Mapping[str, str]:
    """Each term of docs/glossary.md and its meaning, as plain text."""
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|[^|]*\| (.+) \|$", _GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    plain = {term: re.sub(r" \(\[[^\]]*\]\([^)]*\)\)|`", "", meaning) for term, meaning in rows}
    return {term: meaning for terms, meaning in plain.items() for term in terms.split(", ")}


def meaning_of(heading: str) -> str:
    """What the terms of a column's heading mean, a line each; empty where the glossary has none of them."""
    terms = {term.lower(): term for term in glossary()} | _ALSO
    matched = {terms[word]: None for word in terms if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", heading.lower())}
    return "\n".join(f"{term}: {glossary()[term]}" for term in matched)
