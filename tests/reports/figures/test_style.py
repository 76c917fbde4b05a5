"""What is common to figures: their files, and what is said of letters that the font lacks."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from reports.figures.style import save
from tests.conftest import IN_FULL
from tests.reports.figures.pictures import check_figure


def test_a_figure_is_drawn_for_the_screen_and_for_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "savefig", IN_FULL["savefig"])
    figure = Figure((2, 2))
    figure.subplots().plot([1, 2])
    path = tmp_path / "line.png"
    check_figure(path, save(figure, path))
    assert b"/MediaBox [ 0 0 144 144 ]" in path.with_suffix(".pdf").read_bytes()  # two inches, in points


def test_letters_that_the_font_lacks_are_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Figure, "savefig", IN_FULL["savefig"])
    figure = Figure((2, 2))
    figure.suptitle("\u5bb6 of \u72d7 and \u5bb6")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(figure, tmp_path / "pets.png")
    assert (
        capsys.readouterr().out == f"{tmp_path / 'pets.png'}: the font has no \u5bb6\u72d7; boxes are drawn instead\n"
    )
    figure.suptitle("dogs")
    save(figure, tmp_path / "pets.png")
    assert capsys.readouterr() == ("", "") and (tmp_path / "pets.pdf").is_file()


def test_other_warnings_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Figure, "savefig", lambda self, path, **_: warnings.warn("too small", UserWarning, stacklevel=1)
    )
    with pytest.warns(UserWarning, match="too small"):
        save(Figure(), tmp_path / "figure.png")
