"""Bars where somebody looks at them, and lines of text everywhere else."""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import redirect_stderr

import pytest

from utils import progress


class Clock:
    """Time that passes only where the test lets it."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.fixture(params=["log", "terminal"])
def stream(request: pytest.FixtureRequest) -> io.StringIO:
    return io.StringIO() if request.param == "log" else Terminal()


def test_a_terminal_gets_a_bar() -> None:
    with redirect_stderr(Terminal()) as terminal:
        assert list(progress.bar(range(3), desc="rounds")) == [0, 1, 2]
    assert "rounds: 100%" in terminal.getvalue() and "3/3" in terminal.getvalue()


def test_a_process_that_is_not_the_main_one_shows_nothing(stream: io.StringIO, clock: Clock) -> None:
    with redirect_stderr(stream):
        for _ in progress.bar(range(20), shown=False):
            clock.now += 100
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "at"),  # that each of a hundred items takes, and the items after which there is a line
    [(600.0, range(10, 101, 10)), (6.1, range(10, 101, 10)), (3.0, range(20, 101, 20)), (0.7, [86]), (0.59, [])],
)
def test_a_log_gets_a_line_a_tenth_and_no_two_in_a_minute(seconds: float, at: Iterable[int], clock: Clock) -> None:
    with redirect_stderr(io.StringIO()) as log:
        for _ in progress.bar(range(100), desc="packing", unit="image"):
            clock.now += seconds
    lines = log.getvalue().splitlines()
    assert [int(line.split(" of 100 images after ")[0].removeprefix("packing: ")) for line in lines] == list(at)


def test_a_line_says_what_has_been_said_of_the_last_item(clock: Clock) -> None:
    with redirect_stderr(io.StringIO()) as log, progress.bar(range(2), desc="FedAvg normal", unit="round") as bar:
        for round in bar:
            clock.now += 65
            bar.set_postfix(train=f"{round / 4:.2f}")
    assert log.getvalue() == (
        "FedAvg normal: 1 of 2 rounds after 01:05, train=0.00\nFedAvg normal: 2 of 2 rounds after 02:10, train=0.25\n"
    )


@pytest.mark.parametrize(("unit", "units"), [("batch", "batches"), ("epoch", "epochs"), ("pass", "passes")])
def test_units_have_their_plural(unit: str, units: str, clock: Clock) -> None:
    with redirect_stderr(io.StringIO()) as log, progress.bar(total=10, desc="all", unit=unit) as bar:
        clock.now += 100
        bar.update(10)
    assert log.getvalue() == f"all: 10 of 10 {units} after 01:40\n"


def test_what_was_done_before_is_counted_and_not_said(clock: Clock) -> None:
    with (
        redirect_stderr(io.StringIO()) as log,
        progress.bar(total=100, initial=50, desc="packing", unit="image") as bar,
    ):
        for _ in range(2):
            clock.now += 100
            bar.update(8)
    assert log.getvalue() == "packing: 66 of 100 images after 03:20\n"  # at 58 no tenth has been added


def test_nothing_to_do_is_no_mistake() -> None:
    with redirect_stderr(io.StringIO()) as log, progress.bar(total=0) as bar:
        bar.update(0)
        assert list(progress.bar([])) == []
    assert log.getvalue() == ""


def test_a_message_gets_a_line_of_its_own(stream: io.StringIO) -> None:
    with redirect_stderr(stream), progress.bar(range(3)) as bar:
        next(iter(bar))
        progress.say("client 3 is left out")
    assert "client 3 is left out" in stream.getvalue().replace("\r", "\n").splitlines()
