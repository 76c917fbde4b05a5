"""Words that earlier versions had are used no more: docs/glossary.md has them, in its column "was"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
_WAS = re.compile(r"^(\| [^|]+ \|) ([^|]+) (?=\|)", re.MULTILINE)


def retired(page: str) -> list[str]:
    """The words in the second column of a glossary's tables, without those in italics, which have other senses."""
    cells = [was for _, was in _WAS.findall(page) if was != "was" and set(was) != {"-"}]
    return [word for cell in cells for word in cell.split(", ") if word.strip() and not word.startswith("*")]


RETIRED = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, retired(GLOSSARY)))})(?!\w)", re.IGNORECASE)
# Notebooks, experiments and scripts are texts, too; the list of changes is history.
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "notebooks/*.ipynb", "experiments/**/*.toml", "**/*.sh")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md" and ".venv" not in path.parts
)
LIBRARY = sorted(
    path
    for folder in (
        ".",
        "benchmarks",
        "datasets",
        "deploy",
        "models",
        "network",
        "reports",
        "scripts",
        "sweeps",
        "utils",
    )
    for path in (ROOT.glob("*.py") if folder == "." else (ROOT / folder).rglob("*.py"))
)
# Why code has them all the same.
EXCEPTIONS = {
    "network/engine/simulation.py": {"pace"},  # a key and a file of checkpoints, also of runs of before
    "network/partition/assigning.py": {"unseen clients"},  # a key of saved partitions
    "reports/image_numbers.py": {"dealt"},  # a key that runs of before have
}


def words_of(source: str) -> Iterator[str]:
    """All texts of a module but docstrings, and the fields of its classes, which may be options."""
    tree = ast.parse(source)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docstrings.add(first.value)
        if isinstance(node, ast.ClassDef):
            fields = [field.target for field in node.body if isinstance(field, ast.AnnAssign)]
            yield from (field.id for field in fields if isinstance(field, ast.Name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield node.value


def found_in(text: str) -> set[str]:
    """The retired words of a text, whose words may be parted by _."""
    return {word.lower() for word in RETIRED.findall(" ".join(text.replace("_", " ").split()))}


def test_the_glossary_says_which_words_are_retired() -> None:
    page = "| word | was | meaning |\n|---|---|---|\n| **a** | | b |\n| **c** | d, *e*, f g | h |\n\n| word | was |\n| i | j |\n"
    assert retired(page) == ["d", "f g", "j"]
    assert {"dealt", "newcomer", "trivial predictor", "told"} <= {*retired(GLOSSARY)}
    assert not {"part", "kind", "held out"} & {*retired(GLOSSARY)}


def test_texts_and_options_are_found() -> None:
    source = '"""Dealt."""\nclass A:\n    """Dealt."""\n    pace: int = 1\n    def f(self):\n        print(f"it {1} lies\\nin")\n'
    assert set().union(*map(found_in, words_of(source))) == {"pace", "lies in"}


def test_options_help_and_console_have_no_retired_word() -> None:
    used = {}
    for path in LIBRARY:
        name = path.relative_to(ROOT).as_posix()
        if name != "utils/renamed.py":  # the table of former names
            words = set().union(*map(found_in, words_of(path.read_text(encoding="utf-8"))))
            used |= {name: words} if words else {}
    assert used == EXCEPTIONS


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages_have_no_retired_word(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    if page == GLOSSARY:
        page = _WAS.sub(r"\1", page)
    assert not found_in(re.sub(r"```.*?```|`[^`\n]*`|\]\([^)\s]*\)", " ", page, flags=re.DOTALL))
