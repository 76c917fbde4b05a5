"""One self-contained HTML page of everything in a results folder."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment
from PIL import Image

from reports.finished import Results, check_versions
from reports.labels import in_order, task_label
from reports.page_words import STAGES, TABLES, glossary, meaning_of, table_of, title_of
from reports.trivial import central_not_learnt, not_learnt
from reports.verdicts import headlines
from utils.errors import UserError
from utils.files import files_below, json_in
from utils.renamed import DATA
from utils.stage import changes_numbers
from utils.versions import declared

_VERSIONS = ("data_version", "source_hash", "commit", "gpu")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?( .*)?")
_EMPTY = {"", "–"}
_LEAD = "tables/comparison"
_METHOD = Path(__file__).parents[1] / "docs/images/method.png"
_METHOD_TEXT = (
    "Top: a Dirichlet partition of class labels, as usual. Bottom: the same of clusters of the task's embeddings."
)
_RUN_FIGURE = 1000  # width in pixels of runs' figures; those of tables and sweeps keep their size


@dataclass(frozen=True)
class Column:
    """A column's name, whether all its cells are numbers, and whether they are links to folders beside the page."""

    name: str
    number: bool
    link: bool = False

    @property
    def meaning(self) -> str:
        """What the terms in its name mean, by the glossary."""
        return meaning_of(self.name)


@dataclass(frozen=True)
class Figure:
    """An embedded picture: its `data:` address, its size in pixels, its caption, and the file that it is of."""

    source: str
    width: int
    height: int
    caption: str
    file: str


@dataclass(frozen=True)
class Part:
    """A table, or figures, under one heading; `common` has the values that all rows of a table share.

    A part that is not `open` is folded until its heading is clicked.
    """

    title: str
    id: str
    about: str = ""
    columns: Sequence[Column] = ()
    rows: Sequence[Sequence[str]] = ()
    figures: Sequence[Figure] = ()
    common: Mapping[str, str] = field(default_factory=dict)
    open: bool = False

    @property
    def size(self) -> str:
        """The number of its rows or figures, as text."""
        what, n = ("row", len(self.rows)) if self.columns else ("figure", len(self.figures))
        return f"{n} {what}{'s' * (n != 1)}"


@dataclass(frozen=True)
class Section:
    """Parts of one kind."""

    title: str
    id: str
    parts: Sequence[Part]
    about: str = ""


class _Run(NamedTuple):
    """A run directory: its name in the results folder, its stage, and the contents of its files."""

    name: str
    stage: str
    path: Path
    args: Mapping[str, Any]
    environment: Mapping[str, Any]


def report_page(result_path: Path) -> str:
    """The page: figures of tables and sweeps, every table, figures of the first seed's runs, and all runs.

    It begins with the answers in words, the figure that compares partitions, what has not been learnt, how partitions
    are made, and the settings in which runs differ.

    Raises `UserError` if there is no run, or if a run's or table's file cannot be read.
    """
    runs = list(_runs(result_path))
    if not runs:
        raise UserError(f"{result_path} has no run; see --result_path")
    tables = [_table_part(path, result_path) for path in _tables(result_path)]
    figures = [*_figure_parts(result_path)]
    lead = next((part.figures[0] for part in figures if part.figures[0].file == f"{_LEAD}.png"), None)
    parts = {
        "Figures": ([part for part in figures if part.figures[0] is not lead], ""),
        "Tables": (tables, "Click a column's head to sort by it."),
        "Figures of runs": ([*_run_figures(runs)], "Of the first seed; those of other seeds are in the runs' folders."),
        "Runs": ([*_run_tables(runs)], "Links to runs work while this page is in the results folder."),
    }
    sections = [Section(title, _id(title), of, text) for title, (of, text) in parts.items() if of]
    template = Environment(autoescape=True, trim_blocks=True).from_string(
        Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    )
    return template.render(
        title=f"Results in {result_path}",
        lead=lead,
        method=_figure(_METHOD, _METHOD_TEXT, "", _RUN_FIGURE),
        settings=_settings(runs),
        words=glossary(),
        sections=sections,
        warnings=_not_learnt(result_path),
        headlines=_headlines(result_path),
        versions=check_versions(Results(result_path), mixed_versions=True),
        about=f"{len(runs)} runs and {len(tables)} tables, put together on {datetime.now():%Y-%m-%d at %H:%M}.",
    )


def _tables(result_path: Path) -> list[Path]:
    """The CSV files of `tables/`: first those of `make_tables.py`, in the order of `TABLES`, then all others."""
    ranks = list(TABLES)
    return sorted(
        (result_path / "tables").glob("*.csv"),
        key=lambda path: (ranks.index(table) if (table := table_of(path.stem)) else len(ranks), path.name),
    )


def _table_part(path: Path, result_path: Path) -> Part:
    table, known = _read(result_path, path.stem), table_of(path.stem)
    text = f"{TABLES[known][1]} " if known else ""
    file = f"File: tables/{path.name}"
    return Part(title_of(path.stem), _id("table", path.stem), text + file, _columns(table), table.to_numpy().tolist())


def _columns(table: pd.DataFrame, link: str = "") -> list[Column]:
    return [Column(str(name), _all_numbers(table[name]), name == link) for name in table]


def _all_numbers(cells: pd.Series) -> bool:
    filled = [cell for cell in cells if cell not in _EMPTY]
    return bool(filled) and all(_NUMBER.fullmatch(cell) for cell in filled)


def _headlines(result_path: Path) -> dict[str, list[str]]:
    verdicts, splits = (_read(result_path, name) for name in ("verdicts", "splits"))
    try:
        return headlines(verdicts, splits)
    except (ValueError, KeyError) as error:  # an older version had other columns
        raise UserError(f"{result_path / 'tables'}: verdicts of an older version; run make_tables.py again") from error


def _not_learnt(result_path: Path) -> list[str]:
    central = _read(result_path, "central")
    return [*not_learnt(_read(result_path, "learnt")), *(central_not_learnt(central) if "learnt" in central else ())]


def _read(result_path: Path, name: str) -> pd.DataFrame:
    """A table as text; empty if it has not been made."""
    path = result_path / "tables" / f"{name}.csv"
    if not path.is_file():
        return pd.DataFrame()
    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False).replace({"data": DATA})
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable table ({error}); run make_tables.py again") from error


def _figure_parts(result_path: Path) -> Iterator[Part]:
    """The figures outside run directories: those of tables and of sweeps."""
    for path in files_below(result_path, "*.png"):
        name = path.relative_to(result_path)
        in_place = path.parent.name == "figures" or path.parent == result_path / "tables"
        if in_place and not STAGES.keys() & set(name.parts):
            title = title_of(path.stem)
            anchor = _id("figure", name.with_suffix("").as_posix().replace("figures/", ""))
            yield Part(title, anchor, figures=[_figure(path, title, name.as_posix(), None)], open=True)


def _run_figures(runs: Sequence[_Run]) -> Iterator[Part]:
    """A part per stage and task, with the figures of its first seed's runs; within a stage, best learnt tasks first."""
    groups: dict[tuple[str, str], list[_Run]] = {}
    for run in runs:
        groups.setdefault((run.stage, str(run.args.get("task", ""))), []).append(run)
    stages, learnt = list(dict.fromkeys(run.stage for run in runs)), _learnt(runs)
    order = sorted(groups, key=lambda group: (stages.index(group[0]), -learnt.get(group[1], 0.0)))
    for (stage, task), members in ((group, groups[group]) for group in order):
        first = min(run.args.get("rand_seed", 0) for run in members)
        figures = [
            _figure(path, title_of(path.stem), f"{run.name}/figures/{path.name}", _RUN_FIGURE)
            for run in members
            if run.args.get("rand_seed", 0) == first
            for path in sorted(run.path.glob("figures/*.png"))
        ]
        if figures:
            title = ": ".join(filter(None, (_stage_title(stage), task_label(task))))
            yield Part(title, _id("run-figures", stage, task), figures=figures)


def _learnt(runs: Sequence[_Run]) -> dict[str, float]:
    """How far the best central model's loss is below the constant baseline's, as a share of the latter, by task."""
    shares: dict[str, float] = {}
    for run in runs:
        summary = _json(run.path / "summary.json")
        if run.stage.endswith("train_centralized") and {"test", "trivial"} <= summary.keys():
            if not (trivial := summary["trivial"]["loss"]) > 0:  # 0 where all images are of one class
                continue
            share = 1 - summary["test"]["loss"] / trivial
            shares[run.args["task"]] = max(share, shares.get(run.args["task"], share))
    return shares


def _stage_title(stage: str) -> str:
    """A stage in words, with the folder of the results that it is in, if there is one."""
    *folder, name = stage.split("/")
    return STAGES[name] + (f" ({'/'.join(folder)})" if folder else "")


def _settings(runs: Sequence[_Run]) -> dict[str, str]:
    """The arguments in which federated runs differ, and their values in order, without those that name files."""
    args = [run.args for run in runs if run.stage.endswith("test_federated")]
    values = {
        name: {str(arguments[name]): arguments[name] for arguments in args if name in arguments}
        for arguments in args
        for name in arguments
    }
    several = {name: of for name, of in values.items() if len(of) > 1 and changes_numbers(name) and name != "classes"}
    return {name: ", ".join(in_order(of) if name == "task" else _in_order(of)) for name, of in several.items()}


def _in_order(values: Mapping[str, Any]) -> list[str]:
    """Texts by the numbers that they are of, or else by the alphabet."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values())
    return sorted(values, key=(lambda text: values[text]) if numbers else None)


def _figure(path: Path, caption: str, file: str, width: int | None) -> Figure:
    """A picture as it is or, since there are many of runs, as WebP of at most this width."""
    try:
        content, form = path.read_bytes(), "png"
        with Image.open(path) as image:
            size = image.size
            if width is not None:
                small = image.convert("RGB")
                small.thumbnail((width, 10 * width))
                buffer = io.BytesIO()
                small.save(buffer, "WEBP", quality=80)
                content, form, size = buffer.getvalue(), "webp", small.size
    except OSError as error:
        raise UserError(f"{path}: not a readable picture ({error}); remove it or make it again") from error
    return Figure(f"data:image/{form};base64,{base64.b64encode(content).decode()}", *size, caption, file)


def _run_tables(runs: Sequence[_Run]) -> Iterator[Part]:
    """A table per stage: one row per run with what the stage's runs differ in, and beside it what they share."""
    for stage in dict.fromkeys(run.stage for run in runs):
        members = [run for run in runs if run.stage == stage]
        settings = pd.DataFrame([_settings_shown(run) for run in members], dtype=str).fillna("")
        common = {name: settings[name].iloc[0] for name in settings if name != "run" and settings[name].nunique() == 1}
        table = settings.drop(columns=list(common))
        table = table[sorted(table, key=lambda name: not changes_numbers(name))]  # file locations come last
        yield Part(
            _stage_title(stage),
            _id("runs", stage),
            f"Runs: {len(members)}.",
            _columns(table, "run"),
            table.to_numpy().tolist(),
            common=common,
        )


def _settings_shown(run: _Run) -> dict[str, str]:
    """The cells of a run's row: its folder, when it finished, its arguments and its versions."""
    summary = run.path / "summary.json"
    finished = run.stage.endswith("extract_datapoints") or summary.is_file()
    when = summary if summary.is_file() else run.path / "args.json"
    code = declared(run.environment) or {}
    versions = {"code_version": ", ".join(f"{part} {number}" for part, number in code.items()) or "unknown"}
    versions |= {name: str(run.environment.get(name, "unknown"))[:16] for name in _VERSIONS}
    packages = {f"{name} version": version for name, version in run.environment.get("packages", {}).items()}
    python = {"python version": run.environment.get("python", "unknown")}
    done = f"{datetime.fromtimestamp(when.stat().st_mtime):%Y-%m-%d %H:%M}" if finished else "not finished"
    texts = {"run": run.name, "finished": done, **run.args, **versions, **python, **packages}
    return {name: str(value) for name, value in texts.items()}


def _runs(result_path: Path) -> Iterator[_Run]:
    """All run directories, sorted by name."""
    for path in files_below(result_path, "args.json"):
        name = path.parent.relative_to(result_path)
        depth = next((i for i, part in enumerate(name.parts) if part in STAGES), None)
        if depth is not None:
            stage = "/".join(name.parts[: depth + 1])
            environment = path.with_name("environment.json")
            yield _Run(name.as_posix(), stage, path.parent, _json(path), _json(environment))


def _json(path: Path) -> dict[str, Any]:
    """A run's file; empty if it is missing, as after a run was killed at its start."""
    try:
        content = json_in(path) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); remove the run or run it again") from error
    return content if isinstance(content, dict) else {}


def _id(*words: str) -> str:
    """An anchor for links within the page."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")
