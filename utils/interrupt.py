"""Ctrl-C and SIGTERM: a training finishes its step, saves, and says how to go on; anything else ends at once."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_asked = False


class StopRequested(Exception):
    """The user asks to stop, and the step is done: whoever trains saves now."""


class Interrupted(KeyboardInterrupt):
    """A training that was stopped and saved; its text says where it is, and how to go on, or is left to others."""


@contextmanager
def deferred() -> Iterator[None]:
    """Within the block Ctrl-C and SIGTERM only make `check` raise; a second one ends the program at once.

    A request that nobody has met when the block ends is met then: the training is over, and saved. Outside the main
    thread, where Python takes no signals, nothing changes.
    """
    global _asked
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # What is ignored, as Ctrl-C is in the background of a shell, stays so.
    taken = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    handlers = {number: signal.signal(number, _note) for number in taken}
    try:
        yield
        if _asked:
            raise Interrupted(f"interrupted; all is saved; go on with: {resume_command()}")
    finally:
        _asked = False
        for number, handler in handlers.items():
            signal.signal(number, handler)


def check() -> None:
    """Raise `StopRequested` if the user has asked to stop; to be called after every step of a training."""
    if _asked:
        raise StopRequested


def stop_at_once(number: int, frame: FrameType | None) -> None:
    """The handler outside trainings."""
    raise KeyboardInterrupt


def resume_command() -> str:
    """The command line that continues this program's training."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    # The launcher needs --multi_gpu for several processes on CPU cores, too.
    several = ["accelerate", "launch", "--multi_gpu", "--num_processes", str(processes)]
    launcher = several if processes > 1 else ["python"]
    flag = ["--resume_training", "True"]
    given = sys.argv if sys.argv[-2:] == flag else [*sys.argv, *flag]
    return shlex.join([*launcher, *given])


def _note(number: int, frame: FrameType | None) -> None:
    global _asked
    if _asked:
        raise KeyboardInterrupt
    _asked = True
