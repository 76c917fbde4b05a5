"""The pages say what is so: their links lead somewhere, and scripts take the commands as they stand."""

from __future__ import annotations

import csv
import importlib
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from deploy.settings import DeployedStage
from sweeps.expand import declared_arguments, parsed_jobs
from sweeps.experiment import Given, experiment_of, read_experiment
from sweeps.sources import folder_source
from sweeps.sweep import asked
from tests.conftest import ROOT
from utils.args import Parser
from utils.errors import UserError
from utils.renamed import NAMES as FORMER
from utils.settings import Settings

PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"), ROOT / "results/README.md"]
)
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
# Programs of others, whose arguments are theirs.
FOREIGN = {
    "cd",
    "conda",
    "export",
    "flower-superlink",
    "flwr",
    "git",
    "mypy",
    "omnitools.download",
    "pip",
    "rsync",
    "ruff",
    "source",
    "tensorboard",
}
FOREIGN_OPTIONS = {
    "--clip", "--components", "--cpus", "--database", "--dest", "--disable", "--enable", "--exponent", "--extra",
    "--cov", "--flag", "--host", "--logdir", "--machine_rank",
    "--main_process_ip", "--main_process_port", "--multi_gpu", "--nodes", "--num_machines",
    "--num_processes", "--soak", "--ssl", "--stream", "--time",
}  # fmt: skip
SCRIPTS = sorted(
    path
    for pattern in (
        "*.py",
        "benchmarks/*.py",
        "datasets/download.py",
        "datasets/rooms/make.py",
        "reports/*.py",
        "scripts/*.py",
    )
    for path in ROOT.glob(pattern)
    if re.search(r"Parser\(|from_args\(", path.read_text(encoding="utf-8"))
)


class Parsed(Exception):
    """A script has read its arguments and taken them."""


def code_blocks(text: str, *languages: str) -> list[str]:
    """The blocks of a page in these languages."""
    return [code for language in languages for code in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)]


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a page, in blocks and within sentences, without settings of the environment."""
    lines = [line for block in code_blocks(text, "bash") for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`((?:python|bash|accelerate)\s[^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for line in lines:
        for command in line.split("&&"):
            words = shlex.split(command.replace("<(", ""), comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                del words[0]
            if words:
                yield words


def check_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise unless the program exists and takes these arguments."""
    program, *arguments = words
    if program == "sbatch":
        words = words[next(at for at, word in enumerate(words) if word.endswith(".sh")) :]
        program, arguments = "bash", words
    if program == "accelerate":
        program, arguments = "python", [word for word in words if word.endswith(".py")][:1]
        if not arguments:  # a line that stands for any script
            return
        arguments += words[words.index(*arguments) + 1 :]
    if arguments[:1] == ["scripts/with_wheels.sh"]:
        _, _, program, *arguments = arguments
    if program == "bash":
        check_shell(monkeypatch, *arguments)
    elif re.fullmatch(r"python[\d.]*", program):
        if arguments[0] == "-m" and arguments[1] in ("pip", "venv"):
            check_requirements(arguments)
        else:
            check_python(arguments, monkeypatch)
    else:
        assert program in FOREIGN, f"{program}: unknown program"
        check_requirements(arguments)


def check_shell(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: str) -> None:
    """Raise unless it is one of the shell scripts, with arguments that the sweep behind it takes."""
    if "…" in script:
        assert list(ROOT.glob(script.replace("…", "*")))
        return
    assert (ROOT / script).is_file(), f"{script}: no such script"
    if script == "scripts/federation_on_nodes.sh":
        check_python(["test_fed.py", *arguments], monkeypatch)
        return
    experiments = re.findall(r'reproduce\.sh" "?([^"\s]+)', (ROOT / script).read_text())
    for name in experiments:
        default = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", name)
        check_sweep(["--experiment", f"experiments/{default}.toml", *arguments], monkeypatch)
    # The one hands all to pytest, and the other takes Pythons.
    assert experiments or script in (
        "run_tests.sh",
        "scripts/oldest.sh",
        "tests/exports/run.sh",
        "tests/peers/run.sh",
    ), f"{script}: nobody knows what it takes"


def check_sweep(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise unless run_sweep.py takes these words, and each script the commands that come of them."""
    shortened = "…" in words
    monkeypatch.setattr(sys, "argv", ["run_sweep.py", *(word for word in words if word != "…")])
    said, given = asked(*importlib.import_module("run_sweep").parse_args())
    if shortened and given.source is None:
        given = replace(given, source=folder_source(Path("photos")))
    jobs = experiment_of(said, given, declared_arguments()).jobs()
    parsed_jobs({job.commands[-1][0]: job for job in jobs}.values())  # one of each script: the words are the same


def check_requirements(arguments: list[str]) -> None:
    """Raise unless the files of requirements among these exist."""
    for flag, value in pairwise(arguments):
        assert flag not in ("-r", "-c") or (ROOT / value).is_file(), f"{value}: no such file"


def check_python(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise unless the script or module, `words[0]` or `-m` and `words[1]`, takes the words that follow."""
    module, arguments = (words[1], words[2:]) if words[0] == "-m" else (words[0].removesuffix(".py"), words[1:])
    path = ROOT / f"{module.replace('.', '/')}.py"
    assert path.is_file(), f"{module}: no such script"
    shortened = {"…", "..."} & set(arguments)
    monkeypatch.setattr(sys, "argv", [module, *(word for word in arguments if word not in shortened)])
    script = importlib.import_module(module)
    path = Path(script.main.__code__.co_filename) if hasattr(script, "main") else path  # of one with two names
    try:
        if module == "run_sweep":
            check_sweep(arguments, monkeypatch)
        elif path in SCRIPTS:
            if "from_args(" in path.read_text(encoding="utf-8"):
                read = Settings.from_args.__func__  # type: ignore[attr-defined]
                monkeypatch.setattr(Settings, "from_args", classmethod(stopping(read)))
            else:
                monkeypatch.setattr(Parser, "parse_args", stopping(Parser.parse_args))
            script.main()
        else:
            assert not arguments, f"{module} takes no arguments"
    except Parsed:
        pass
    except UserError as error:
        if not (shortened and "the following arguments are required" in str(error)):
            raise


def stopping(read: Callable) -> Callable:
    """A method that reads arguments, after which nothing comes."""

    def read_and_stop(of: object, *words: object) -> None:
        read(of, *words)
        raise Parsed

    return read_and_stop


@pytest.mark.parametrize("name", NAMES)
def test_commands_are_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for words in commands((ROOT / name).read_text(encoding="utf-8")):
        with monkeypatch.context() as patch:
            try:
                check_command(words, patch)
            except (AssertionError, UserError) as error:
                raise AssertionError(f"{name}: {shlex.join(words)}: {error}") from error


@pytest.mark.parametrize(
    "command",
    [
        "python test_fed.py --task normal --no_such 1",
        "python test_fed.py --task no_such",
        "python no_such.py",
        "bash scripts/no_such.sh",
        "bash run_pipeline.sh --no_such",
        "pip install -r no_such.txt",
        "no_such_program",
        "bash scripts/fedcv/reproduce_table_2.sh --no_such",
        "bash scripts/feddifrc/table3_methods.sh --data x --lam y",
        "python run_sweep.py --data_path data --init_lrr 0.1",
        "bash scripts/fedcv/reproduce_table_2.sh --scale no",
        "python -m benchmarks.partition --no_such 1",
        "python -m datasets.download --no_such 1",
    ],
)
def test_wrong_commands_are_found(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [words] = commands(f"```bash\n{command}\n```")
    with pytest.raises((AssertionError, UserError)):
        check_command(words, monkeypatch)


def test_experiments_in_pages_are_taken(tmp_path: Path) -> None:
    blocks = [code for name in NAMES for code in code_blocks((ROOT / name).read_text(encoding="utf-8"), "toml")]
    assert blocks
    for code in blocks:
        (tmp_path / "page.toml").write_text(code)
        keys = read_experiment(tmp_path / "page.toml", None)
        assert parsed_jobs(experiment_of(keys, Given(), declared_arguments()).jobs())


def anchors(path: Path) -> set[str]:
    """The names that a page's headings get."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href|srcset)="([^"]+)"', text)
    for link in links:
        if re.match(r"https?://|mailto:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.is_relative_to(ROOT) and target.exists(), f"{name}: {link}"
        assert not anchor or anchor in anchors(target), f"{name}: {link}: no such heading"


MADE = {"docs/settings.md", "docs/method_settings.md"}  # by a program, of the code's own texts
LISTS = {"docs/README.md", "docs/glossary.md"} | MADE  # of pages, words and fields: nothing to run
PROGRAMS = {"docs/python.md"}  # whose shortest command is a program


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("docs/", "benchmarks/"))])
def test_pages_are_short_and_begin_with_their_purpose_and_a_command(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text.count("\n") < 250
    purpose, *rest = text.split("\n## ")[0].split("\n\n")[1:]
    assert re.match("[A-Z`]", purpose)
    if name not in LISTS:
        blocks = [block for block in rest if block.startswith("```")]
        assert blocks, "a command comes before the first heading"
        assert name in PROGRAMS or blocks[0].count("\n") <= 5, "the first command is the shortest"


def sentences(text: str) -> Iterator[str]:
    """A page's sentences outside code blocks, tables, headings and pictures, where a code span is a word.

    A sentence ends at a stop, a question or exclamation mark or a colon before a capital, a digit or code, at an empty
    line, and before a point of a list.
    """
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"^\s*(\||#|<|!\[).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "X", text))
    text = re.sub(r"\b(et al|vs|e\.g|i\.e)\.", r"\1", text)
    for paragraph in re.split(r"\n\s*\n|^\s*(?:[-*>]|\d+\.)\s", text, flags=re.MULTILINE):
        yield from re.split(r"(?<=[.!?:])[*_)\"\]]*\s+(?=[\[(*_\"]*[A-Z0-9α-ω])", " ".join(paragraph.split()))


@pytest.mark.parametrize("name", sorted({*NAMES} - {"CHANGELOG.md", "docs/glossary.md"} - MADE))
def test_the_baseline_has_one_name_in_tables_and_one_in_prose(name: str) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    in_prose, in_tables = (
        " ".join(" ".join(line for line in text.splitlines() if line.lstrip().startswith("|") == table).split())
        for table in (False, True)
    )
    assert not re.findall(r"(?<!\")\bconstant baseline|\btrivial", in_prose, re.IGNORECASE)
    assert not re.findall(r"mean-prediction|\btrivial", in_tables, re.IGNORECASE)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"CHANGELOG.md"} - MADE))
def test_sentences_are_short(name: str) -> None:
    for sentence in sentences((ROOT / name).read_text(encoding="utf-8")):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        assert len(words) <= 25, f"{len(words)} words: {sentence}"


def test_sentences_end_where_readers_see_it() -> None:
    text = "# A\n\nOne `a. B` of [two](x.md).\nThree: four. Five et al. Six\n\n| 7 |\n- 8: Nine\n- *ten.* Eleven\n"
    assert [*sentences(text)] == [
        "",
        "One X of [two].",
        "Three: four.",
        "Five et al Six",
        "",
        "8:",
        "Nine",
        "*ten.",
        "Eleven",
    ]


RESULTS = sorted((ROOT / "docs/results").glob("*.csv"))


def cells(row: str) -> list[str]:
    """The cells of a Markdown table's row."""
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip())[1:-1]]


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_measured_tables_name_the_commands_and_the_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    lines = path.read_text(encoding="utf-8").splitlines()
    head = [line for line in lines if line.startswith("#")]
    made = [line.removeprefix("# command: ") for line in head[:-1]]
    assert made and re.match(r"# commit: [0-9a-f]{7}\b", head[-1])
    for words in commands("```bash\n" + "\n".join(made) + "\n```"):
        with monkeypatch.context() as patch:
            check_command(words, patch)
    names, *rows = csv.reader(lines[len(head) :])
    assert rows and len(set(names)) == len(names) and all(len(row) == len(names) for row in rows)


def test_pages_quote_measured_tables_as_they_are() -> None:
    quoted = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for table, how_many, link in re.findall(
            r"((?:^\|.*\n)*)(?:^\n)?\(\[(as data|all \d+ rows)\]\((\S+\.csv)\)\)", text, re.MULTILINE
        ):
            path = (page.parent / link).resolve()
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
            rows = [*csv.reader(lines)][1:]
            assert how_many in ("as data", f"all {len(rows)} rows"), path
            for row in table.splitlines()[2:]:
                # A page leaves out a row's first cell where it is that of the row before.
                assert any(there[not cell[0] :] == cell[not cell[0] :] for there in rows for cell in [cells(row)]), row
            quoted.add(path)
    assert quoted == set(RESULTS)


# Numbers that are no measurement: sizes of networks and data sets, rules with a test of each row, what is computed from
# a measured table, and what others' packages can do.
DEFINED = (
    "| `--encoder` | parameters",
    "| there, at α | here",
    "| data set | images | stage 1",
    "| part | once |",
    "| part | each time |",
    "| | `--flag True`",
)


def test_measured_tables_of_pages_are_data() -> None:
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for table, link in re.findall(r"((?:^\|.*\n)+)\n?(\(\[(?:as data|all))?", text, re.MULTILINE):
            head, _, *rows = table.splitlines()
            numbers = [row for row in rows if re.search(r"\| [+−-]?\d+(\.\d+|,\d{3}| %)", row)]
            assert link or head.startswith(DEFINED) or 2 * len(numbers) <= len(rows), f"{page.name}: {head}"


def test_the_papers_scripts_are_in_the_table() -> None:
    text = (ROOT / "docs/sweeps.md").read_text(encoding="utf-8")
    table = text.split("| `bash scripts/task_perspective/reproduce_….sh` |")[1].split("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    scripts = ROOT.glob("scripts/task_perspective/reproduce_*.sh")
    assert named == {path.stem.removeprefix("reproduce_") for path in scripts}


def test_the_front_page_is_short_and_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 120 and "](docs/README.md)" in text
    overview = ROOT / "docs/README.md"
    links = re.findall(r"\]\(([^)#\s]+\.md)", overview.read_text(encoding="utf-8"))
    assert set(PAGES) - set(ROOT.glob("*.md")) - {overview} <= {(overview.parent / link).resolve() for link in links}


def test_options_named_in_pages_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    known = set(FOREIGN_OPTIONS)

    def note_and_stop(parser: Parser, *_: object) -> None:
        known.update(parser._option_string_actions)
        raise Parsed

    monkeypatch.setattr(Parser, "parse_known_args", note_and_stop)
    monkeypatch.setattr("sys.argv", ["no_arguments"])  # those of the tests are not for the scripts
    for path in SCRIPTS:
        script = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        with pytest.raises(Parsed):
            getattr(script, "parse_args", script.main)()
    with pytest.raises(Parsed):
        DeployedStage.from_args(None, [])
    for name in NAMES:
        named = set(re.findall(r"(?<![\w-])--[a-z]\w*", (ROOT / name).read_text(encoding="utf-8")))
        former = {f"--{each}" for each in FORMER} if name == "CHANGELOG.md" else set()
        assert named <= known | former, f"{name}: {named - known}"
