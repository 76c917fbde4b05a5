"""What is measured on a GPU: the rows of its table, with the goal of each, and the files that results are kept in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utils.files import write_atomically

NOTHING = "–"


class NotHere(Exception):
    """A piece cannot run on this machine; the text says why."""


@dataclass(frozen=True)
class Setup:
    """Where pieces compute, "cuda" or "cpu"; whether at the size of a trial; and the folder of results."""

    device: str
    small: bool
    folder: Path


@dataclass(frozen=True)
class Measure:
    """A row of the table: what is measured, how a number is written, and the goal, if any: a bound or a first word."""

    name: str
    form: str = ",.3g"
    least: float | None = None
    most: float | None = None
    word: str = ""

    @property
    def goal(self) -> str:
        """The goal in a cell."""
        if self.least is not None:
            return f"at least {self.least:g}"
        return self.word if self.most is None else f"at most {self.most:g}"

    def met(self, value: float | str) -> bool | None:
        """Whether a value reaches the goal; None where there is none."""
        if isinstance(value, str):
            return value.startswith(self.word) if self.word else None
        if self.least is not None:
            return value >= self.least
        return None if self.most is None else value <= self.most


@dataclass(frozen=True)
class Result:
    """What a piece has measured: the name of the row, its value, and whatever else a reader may want to know."""

    name: str
    value: float | str
    details: dict[str, Any] = field(default_factory=dict)


class Results:
    """The results in a folder: a line of JSON for each in `results.jsonl`, and the table in `rows.md`.

    A line is on the disk before the next measurement begins, and the table with it, so that nothing is lost with a
    machine that goes away.
    """

    def __init__(self, folder: Path, measures: list[Measure]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lines, self._table = folder / "results.jsonl", folder / "rows.md"
        self._measures = {measure.name: measure for measure in measures}

    def add(self, piece: str, result: Result) -> str:
        """Keep a measurement; returns the row of the table."""
        measure = self._measures[result.name]
        self._write({"piece": piece, "measure": result.name, "value": result.value, "goal": measure.goal,
                     "met": measure.met(result.value), **result.details})  # fmt: skip
        return self._row(measure, result.value)

    def details(self, machine: dict[str, Any]) -> None:
        """Keep what the machine is on which the results that follow are measured."""
        self._write({"machine": machine})

    def end(self, piece: str, outcome: str, seconds: float) -> None:
        """Keep how a piece ended: "done", or why it did not."""
        self._write({"piece": piece, "outcome": outcome, "seconds": round(seconds, 1)})

    def done(self) -> set[str]:
        """The pieces that have been done."""
        return {line["piece"] for line in self.lines() if line.get("outcome") == "done"}

    def outcome(self, piece: str) -> str:
        """How a piece has ended the last time; empty if it has not."""
        return next((line["outcome"] for line in reversed([*self.lines()]) if _ended(line) == piece), "")

    def missed(self) -> list[str]:
        """The rows whose last value does not reach its goal."""
        last = {line["measure"]: line["met"] for line in self.lines() if "measure" in line}
        return [name for name, met in last.items() if met is False]

    def lines(self) -> Iterator[dict[str, Any]]:
        """What is kept, the earliest first; the end of a line that a kill has cut off does not count."""
        if not self._lines.exists():
            return
        for line in self._lines.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def table(self) -> str:
        """The table in Markdown: a row for each measure, with a dash where there is no value."""
        values = {line["measure"]: line["value"] for line in self.lines() if "measure" in line}
        rows = [self._row(measure, values.get(name, NOTHING)) for name, measure in self._measures.items()]
        return "\n".join(["| measure | goal | measured |", "|:---|:---|:---|", *rows])

    def _write(self, line: dict[str, Any]) -> None:
        with self._lines.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(line)}\n")
            file.flush()
            os.fsync(file.fileno())
        with write_atomically(self._table) as path:
            path.write_text(f"{self.table()}\n", encoding="utf-8")

    @staticmethod
    def _row(measure: Measure, value: float | str) -> str:
        shown = value if isinstance(value, str) else format(value, measure.form)
        missed = " (missed)" if value != NOTHING and measure.met(value) is False else ""
        return f"| {measure.name} | {measure.goal} | {shown}{missed} |"


def _ended(line: dict[str, Any]) -> str | None:
    return line["piece"] if "outcome" in line else None
