"""Which figures `make_figures.py` draws, and where; what is read and drawn is tested beside that."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import create_autospec

import pytest

from reports import budgets, curves
from reports.figures import budgets as drawn_budgets
from reports.figures import sweeps
from reports.finished import Results
from reports.stages.figures import FIGURES, FigureSettings

OF = {
    "rounds": (curves, "read_rounds", sweeps, "rounds"),
    "sensitivity": (curves, "read_last", sweeps, "sensitivity"),
    "distributions": (curves, "read_assigned", sweeps, "distributions"),
    "progress": (budgets, "read_progress", drawn_budgets, "learning_curves"),
    "emd": (budgets, "read_progress", drawn_budgets, "against_emd"),
    "privacy": (curves, "read_private", sweeps, "privacy"),
}


@pytest.mark.parametrize(
    ("words", "read_with", "files"),
    [
        ("rounds", ("train", ()), ["rounds_fedavg_train", "rounds_moon_train"]),
        ("rounds --methods moon --data test", ("test", ["moon"]), ["rounds_moon_test"]),
        ("sensitivity --argument mu", ("train", "mu"), ["sensitivity_mu_train"]),
        ("distributions", (), ["distributions_method", "distributions_normal"]),
        ("progress --metric miou", ("miou",), ["progress_miou"]),
        ("emd", ("accuracy",), ["emd_accuracy"]),
        ("privacy --data test", ("test",), ["privacy_test"]),
    ],
)
def test_each_figure_is_drawn_of_what_is_asked_for_into_a_file_that_says_so(
    words: str, read_with: tuple, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, results = FigureSettings.from_args(None, words.split()), Results(tmp_path)
    table = {"method": ["fedavg", "moon", "fedavg"], "normal": []}
    reading, read, drawing, draw = OF[settings.figure]
    reader = create_autospec(getattr(reading, read), return_value=table)
    monkeypatch.setattr(reading, read, reader)
    monkeypatch.setattr(budgets, "relative", lambda progress: progress)
    drawer = create_autospec(getattr(drawing, draw), side_effect=lambda *given: given[-1])
    monkeypatch.setattr(drawing, draw, drawer)
    drawn = [*FIGURES[settings.figure](settings, results, tmp_path)]
    assert drawn == [tmp_path / f"{name}.png" for name in files]
    reader.assert_called_once_with(results, *read_with)
    assert OF.keys() == FIGURES.keys()
