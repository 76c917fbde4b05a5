"""Ctrl-C and SIGTERM: a training finishes its step, saves, and says how to go on; anything else ends at once.

The state of an ending script is its signal handler alone: `stop_at_once` raises KeyboardInterrupt and installs `_leave`
in its place, so that no second exception is raised while the first is handled; for the last line the system's own
handler follows.
"""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from utils.command import command_line

INTERRUPTED = 130  # the exit code
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_asked = False


class StopRequested(Exception):
    """The user asks to stop, and the step is done: whoever trains saves now."""


class Interrupted(KeyboardInterrupt):
    """A training that was stopped and saved; its text says where it is and how to go on (in one process)."""


@contextmanager
def deferred() -> Iterator[None]:
    """Within the block Ctrl-C and SIGTERM only make `check` raise; a second one ends the program at once.

    A request that was not met before the block ends is met then: the training is over, and saved. Outside the main
    thread, where Python takes no signals, nothing changes.
    """
    global _asked
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = _handle(_note)
    try:
        yield
        if _asked:
            raise Interrupted(f"interrupted; all is saved; go on with: {resume_command()}")
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _asked = False


def check() -> None:
    """Raise `StopRequested` if the user has asked to stop; to be called after every step of a training."""
    if _asked:
        raise StopRequested


def listen() -> None:
    """Take the signals as a script does outside trainings; to be called in the main thread when it starts."""
    _handle(stop_at_once)


def stop_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """The handler outside trainings: ends the program by KeyboardInterrupt, and at the next signal by force."""
    _handle(_leave)
    raise KeyboardInterrupt


def no_more() -> None:
    """Only the last line is left to print: a signal ends the program as if there were no handlers."""
    _handle(signal.SIG_DFL)


def resume_command() -> str:
    """The command line that continues this program's training."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    # The launcher needs --multi_gpu for several processes on CPU cores, too.
    several = ["accelerate", "launch", "--multi_gpu", "--num_processes", str(processes)]
    launcher = several if processes > 1 else ["python"]
    flag = ["--resume_training", "True"]
    arguments = command_line()
    return shlex.join([*launcher, *arguments, *(flag if arguments[-2:] != flag else ())])


def _handle(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> dict[int, Any]:
    """Set the handler of the signals; returns those before. What is ignored, as in a shell's background, stays so."""
    taken = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in taken}


def _note(number: int, frame: FrameType | None) -> None:
    global _asked
    if _asked:
        raise KeyboardInterrupt
    _asked = True
    # An evaluation of many images takes minutes, in which a person would press Ctrl-C again and lose the round.
    if os.isatty(2) and os.environ.get("LOCAL_RANK", "0") == "0":
        os.write(2, b"\nstopping when this step or evaluation is done and saved; once more, and it stops at once\n")


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
