"""Tables and figure of how alike the tasks' clusters are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from reports.task_similarity import report_similarity


def test_tables_and_figure(tmp_path: Path) -> None:
    ids = np.arange(12)
    figure = report_similarity({"normal": ids % 3, "depth_euclidean": ids % 3, "classes": ids // 4}, tmp_path)
    tables = [pd.read_csv(tmp_path / f"task_similarity_{name}.csv", index_col=0) for name in ("ami", "transport")]
    information, transport = tables
    assert information.loc["normal", "depth_euclidean"] == 1.0 and transport.loc["normal", "depth_euclidean"] == 0.0
    # 12 images in a 3 by 3 table of ones and twos: no class tells a cluster.
    assert information.loc["normal", "classes"] < 0.1 and transport.loc["normal", "classes"] == pytest.approx(0.5)
    Image.open(figure).verify()
