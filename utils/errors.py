"""Mistakes of the user and limits of the machine, told in one line."""

from __future__ import annotations

import errno
import os
import re
import select
import sys
from collections.abc import Callable
from importlib.util import find_spec

from utils import interrupt

_ROOM = "make room or give another folder"
# What a disk or its owner refuses, and what helps; other errors of the system are faults of the program.
_REMEDIES = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS), _ROOM)
_REMEDIES[errno.ENAMETOOLONG] = "give a shorter one"
_LONGEST = 500  # characters of a word in a line
_UNREAD = 141  # the exit code that shells give a program which SIGPIPE has ended


class UserError(Exception):
    """A mistake in the arguments or the data. Its text says what is wrong and how to fix it, in one line."""


def run_script(main: Callable[[], None], smaller: str = "", requirements: str = "") -> None:
    """Run a script's `main`; what the user can fix becomes one line on stderr and exit code 2, without a traceback.

    That is what `explained` explains, with the same arguments. Ctrl-C and SIGTERM end the script with a line and exit
    code 130; a reader of its output that has gone, as `head` does, without a line and with 141.
    """
    interrupt.listen()
    try:
        line, code = _outcome(main, smaller, requirements)
        unread = _flushed()
        code = code or unread
        interrupt.no_more()
    except KeyboardInterrupt:
        line, code = "interrupted", interrupt.INTERRUPTED
        interrupt.no_more()
    if line:
        print(_short(line), file=sys.stderr, flush=True)
    if code:
        sys.exit(code)


def _outcome(main: Callable[[], None], smaller: str, requirements: str) -> tuple[str, int]:
    """The line that a script ends with, if any, and its exit code; raises what is a fault of the program."""
    try:
        main()
    except SystemExit as error:
        return "", int(error.code or 0)  # of --help, or of a sweep with jobs that failed
    except interrupt.Interrupted as error:
        return str(error), interrupt.INTERRUPTED  # of several processes one has a text
    except KeyboardInterrupt:
        return "interrupted", interrupt.INTERRUPTED
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_has_gone():
            return "", _UNREAD
        if (mendable := explained(error, smaller, requirements)) is None:
            raise
        return f"error: {mendable}", 2
    return "", 0


def _flushed() -> int:
    """Write out what was printed; the exit code that follows."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python tries once more, and complains
        return _UNREAD
    except OSError:
        pass  # a full disk: Python says so in the end
    return 0


def _reader_has_gone() -> bool:
    """Whether nobody reads what is printed any more."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)  # for an error alone
    return bool(output.poll(0))


def explained(error: Exception, smaller: str = "", requirements: str = "") -> str | None:
    """What the user can fix about an error, and how, in a line; None for a fault of the program.

    That is a `UserError`, a package that is not installed, a full or protected disk, a name that is too long, or too
    little memory, for which `smaller` names the arguments that can be lowered. `requirements` is the file of
    packages that the script needs beside those of the main one.
    """
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and (package := _absent(error)):
        return (
            f"no package {package} in {sys.executable}; enter the environment that has it (source .venv/bin/activate), "
            f"or install it: python -m pip install -r requirements.txt{f' -r {requirements}' * bool(requirements)}"
        )
    if _is_memory(error):
        return _memory_advice(error, smaller)
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        return f"{error.filename or 'a file'}: {error.strerror}; {_REMEDIES[error.errno]}"
    return None


def _absent(error: ModuleNotFoundError) -> str:
    """The package that is not there; empty where it is, and only a module of it is missing."""
    package = (error.name or "").partition(".")[0]
    return package if package and find_spec(package) is None else ""


def _short(text: str) -> str:
    """The same in one line, with the middle of overlong words left out."""
    half = _LONGEST // 2
    return re.sub(rf"\S{{{_LONGEST},}}", lambda word: f"{word[0][:half]}…{word[0][-half:]}", " ".join(text.split()))


def _is_memory(error: BaseException) -> bool:
    """Whether Python, PyTorch on a GPU or PyTorch on the CPU has run out of memory."""
    return isinstance(error, MemoryError) or _on_gpu(error) or "can't allocate memory" in str(error)


def _on_gpu(error: BaseException) -> bool:
    return type(error).__name__ == "OutOfMemoryError"  # torch's; this module does not import torch


def _memory_advice(error: BaseException, smaller: str) -> str:
    ways = [f"lower {smaller}"] * bool(smaller) + ["give --use_accelerator False"] * _on_gpu(error)
    what = "the GPU's memory" if _on_gpu(error) else "the memory"
    return f"{what} is too small; {' or '.join(ways) or 'free some, or take a machine with more'}"
