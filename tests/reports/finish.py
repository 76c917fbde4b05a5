"""Finished runs for tests, in the files that the stages write."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

_NEWER = count(1000)


def finish(
    results: Path,
    args: Mapping[str, Any],
    summary: Mapping[str, Any],
    *,
    stage: str = "test_federated",
    environment: Mapping[str, Any] | None = None,
    metrics: Any = None,
) -> Path:
    """Write a finished run, newer than those before; returns its directory. `metrics` are rows of `metrics.csv`."""
    number = next(_NEWER)
    path = results / stage / f"run{number}"
    path.mkdir(parents=True)
    for name, content in {"args": args, "summary": summary, "environment": environment}.items():
        if content is not None:
            (path / f"{name}.json").write_text(json.dumps(content))
    os.utime(path / "summary.json", (number, number))
    if metrics is not None:
        pd.DataFrame(metrics).to_csv(path / "metrics.csv", index=False)
    return path
