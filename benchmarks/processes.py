"""How benchmarks start programs over several processes, and functions in a process of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import Any

from utils.errors import UserError

_FORKS = multiprocessing.get_context("fork")


def several(n_processes: int) -> list[str]:
    """The beginning of a command that runs a program over so many processes of this machine, on GPUs if it has any."""
    if n_processes == 1:
        return [sys.executable]
    launch = f"-m accelerate.commands.launch --multi_gpu --num_machines 1 --num_processes {n_processes}"
    return [sys.executable, *f"{launch} --mixed_precision no --dynamo_backend no --main_process_port 0".split()]


def forked(function: Callable[..., object], *arguments: Any) -> BaseProcess:
    """Start a function in a fork of this process, with everything imported; it leads a group of its own.

    A process that has used a GPU must not be forked.
    """
    process = _FORKS.Process(target=_leading, args=(function, *arguments))
    process.start()
    return process


def end(process: BaseProcess) -> None:
    """End a process of `forked` with all that it has started, if it has not ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()  # one that had no time to lead a group
    process.join()


def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a fork of this process, which ends with it; UserError if the fork dies."""
    ours, theirs = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=_answer, args=(theirs, function, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        raise UserError(f"{function.__name__} has died; its messages are above") from None
    finally:
        process.join()


def _leading(function: Callable[..., object], *arguments: Any) -> None:
    os.setpgrp()
    function(*arguments)


def _answer(connection: Any, function: Callable[..., Any], *arguments: Any) -> None:
    connection.send(function(*arguments))
