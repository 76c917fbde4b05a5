"""Figures are looked at before they are files."""

from __future__ import annotations

import importlib

import pytest
from matplotlib.figure import Figure

_FIGURES = ("budgets", "charts", "comparison", "images", "method", "partitions", "predictors", "sweeps")
_MODULES = (*(f"reports.figures.{name}" for name in _FIGURES), "reports.costs")


@pytest.fixture(autouse=True)
def in_full(figures: None) -> None:
    """Figures are drawn, here alone."""


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn, in place of files."""
    figures: list[Figure] = []
    for name in _MODULES:
        monkeypatch.setattr(importlib.import_module(name), "save", lambda figure, path: figures.append(figure) or path)
    return figures
