"""Words of earlier versions are used no more: those in the column "was" of docs/glossary.md."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
_WAS = re.compile(r"^(\| [^|]+ \|) ([^|]+) (?=\|)", re.MULTILINE)


def retired(page: str) -> list[str]:
    """The words in the second column of a glossary's tables, without those in italics, which have other senses."""
    cells = [was for _, was in _WAS.findall(page) if was != "was"]
    return [word for cell in cells for word in cell.split(", ") if not word.startswith("*")]


RETIRED = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, retired(GLOSSARY)))})(?!\w)", re.IGNORECASE)
MODULES = ["*.py", *(f"{room}/**/*.py" for room in ("benchmarks", "datasets", "deploy", "models", "network"))]
MODULES += [f"{room}/**/*.py" for room in ("reports", "scripts", "sweeps", "utils")]
PAGES = ["*.md", "docs/**/*.md", "benchmarks/*.md", "results/README.md", "notebooks/*.ipynb"]
PAGES += ["experiments/**/*.toml", "*.sh", "scripts/**/*.sh"]
# Files that have some all the same, and why.
EXCEPTIONS = {
    "CHANGELOG.md": None,  # what was
    "experiments/task_perspective/non_participating_clients.toml": {"unseen clients"},  # the folder of earlier results
    "network/engine/simulation.py": {"pace"},  # a key and a file of earlier checkpoints
    "network/partition/assigning.py": {"unseen clients"},  # a key of earlier partitions
    "reports/image_numbers.py": {"dealt"},  # a key of earlier runs
    "utils/renamed.py": {"clients' held out", "clients' own", "kinds", "patience", "unseen clients"},  # former names
}


def texts_of(module: str) -> Iterator[str]:
    """All texts of a module but docstrings, and the fields of its classes, which may be options."""
    docstrings: set[ast.expr] = set()
    for node in ast.walk(ast.parse(module)):
        match node:
            case ast.Expr(value=ast.Constant() as docstring):
                docstrings.add(docstring)  # before its own turn: a tree is walked from the top
            case ast.ClassDef():
                fields = (field.target for field in node.body if isinstance(field, ast.AnnAssign))
                yield from (field.id for field in fields if isinstance(field, ast.Name))
            case ast.Constant(value=str(text)) if node not in docstrings:
                yield text


def prose_of(page: str) -> Iterator[str]:
    """A page without code, targets of links and, in the glossary, the words of earlier versions."""
    page = _WAS.sub(r"\1", page) if page == GLOSSARY else page
    yield re.sub(r"```.*?```|`[^`\n]*`|\]\([^)\s]*\)", " ", page, flags=re.DOTALL)


def words_in(texts: Iterator[str]) -> set[str]:
    """The retired words of texts, whose words may be parted by lines, or by `_` in names."""
    return {word.lower() for text in texts for word in RETIRED.findall(" ".join(text.replace("_", " ").split()))}


def test_the_glossary_says_which_words_are_retired() -> None:
    rows = "| **a** | | b |", "| **c** | d, *e*, f g | h |", "", "| word | was |", "|---|---|", "| i | j |"
    assert retired("\n".join(["| word | was | meaning |", "|---|---|---|", *rows])) == ["d", "f g", "j"]
    assert {"dealt", "newcomer", "trivial predictor", "told"} <= {*retired(GLOSSARY)}
    assert not {"part", "kind", "held out"} & {*retired(GLOSSARY)}


def test_they_are_found_in_texts_and_options_but_not_in_docstrings() -> None:
    module = """
        '''Dealt.'''
        class Settings:
            '''Dealt.'''
            unseen_clients: int = 1
            def show(self):
                '''Dealt.'''
                print(f"{self.pace} of it lies\\nin", "newcomer_s")
        """
    assert words_in(texts_of(textwrap.dedent(module))) == {"lies in", "newcomer", "unseen clients"}
    assert words_in(prose_of("It lies\nin `said`, [told](asked.md).\n```\ndealt\n```\n")) == {"lies in", "told"}


@pytest.mark.parametrize(
    ("patterns", "texts"), [(MODULES, texts_of), (PAGES, prose_of)], ids=["options, help, console and errors", "pages"]
)
def test_no_retired_word_is_left(patterns: list[str], texts: Callable[[str], Iterator[str]]) -> None:
    for path in {path for pattern in patterns for path in ROOT.glob(pattern)}:
        excepted = EXCEPTIONS.get(name := path.relative_to(ROOT).as_posix(), set())
        if excepted is not None:
            words = words_in(texts(path.read_text(encoding="utf-8")))
            assert words == excepted, f"{name}: {words}; docs/glossary.md has the words of today"
