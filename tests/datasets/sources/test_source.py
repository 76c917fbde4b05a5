"""What a newcomer writes: the worked example of docs/extending.md is a source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from datasets import sources
from datasets.sources.source import Source
from tests.datasets.sources.finding import select, write_image

DOCS = Path(__file__).parents[3] / "docs"


def test_the_worked_example_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "extending.md").read_text()
    [example] = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "(Source)" in code]
    names: dict[str, type[Source]] = {}
    exec(compile(example, "docs/extending.md", "exec"), names)
    monkeypatch.setitem(sources.SOURCES, "named_files", names["NamedFiles"])
    for name in ("dog_1", "dog_2", "big_cat_1", "big_cat_2"):
        write_image(tmp_path / f"{name}.jpg")
    (tmp_path / "dog_3.jpg").touch()
    table = select("named_files", tmp_path)
    assert table.class_names == ("big_cat", "dog") and table.labels.tolist() == [0, 0, 1, 1]
    assert (tmp_path / "missing_files.txt").read_text() == "'dog_3.jpg': an empty file\n"


def test_the_page_has_a_line_for_each_source() -> None:
    listed = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", (DOCS / "data.md").read_text(), re.MULTILINE)))
    assert set(sources.SOURCES) <= set(listed)
