"""What the user did wrong, or the machine cannot do, said in one line."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable

from utils.interrupt import Interrupted, stop_at_once

# What a disk or its owner refuses; other errors of the system are faults of the program, and keep their traceback.
_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS}


class UserError(Exception):
    """A mistake in the arguments or the data. Its text says what is wrong and how to mend it, in one line."""


def run_script(main: Callable[[], None], smaller: str = "") -> None:
    """Run a script's `main`; what the user can mend becomes one line on stderr and exit code 2, without a traceback.

    That is a `UserError`, a full or protected disk, or too little memory, for which `smaller` names the arguments
    that can be lowered. Ctrl-C and SIGTERM end the script with exit code 130.
    """
    signal.signal(signal.SIGTERM, stop_at_once)
    try:
        main()
    except UserError as error:
        sys.exit(_fail(f"error: {error}", 2))
    except (MemoryError, RuntimeError) as error:
        if not _is_memory(error):
            raise
        sys.exit(_fail(f"error: {_memory_advice(error, smaller)}", 2))
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(_fail(f"error: {where}{error.strerror}; make room or give another folder", 2))
    except Interrupted as error:
        sys.exit(_fail(str(error), 130))
    except KeyboardInterrupt:
        sys.exit(_fail("interrupted", 130))


def _is_memory(error: BaseException) -> bool:
    """Whether Python, PyTorch on a GPU or PyTorch on the CPU has run out of memory."""
    return isinstance(error, MemoryError) or _on_gpu(error) or "can't allocate memory" in str(error)


def _on_gpu(error: BaseException) -> bool:
    return type(error).__name__ == "OutOfMemoryError"  # torch's; this module does without torch


def _memory_advice(error: BaseException, smaller: str) -> str:
    ways = [f"lower {smaller}"] * bool(smaller) + ["give --use_accelerator False"] * _on_gpu(error)
    what = "the GPU's memory" if _on_gpu(error) else "the memory"
    return f"{what} is too small; {' or '.join(ways) or 'free some, or take a machine with more'}"


def _fail(line: str, code: int) -> int:
    if line:  # of several processes one speaks
        print(" ".join(line.split()), file=sys.stderr)
    return code
