"""What the user did wrong, said in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable


class UserError(Exception):
    """A mistake in the arguments or the data. Its text says what is wrong and how to mend it, in one line."""


def run_script(main: Callable[[], None]) -> None:
    """Run a script's `main`; a `UserError` becomes one line on stderr and exit code 2, without a traceback."""
    try:
        main()
    except UserError as error:
        line = " ".join(str(error).split())
        sys.exit(_fail(f"error: {line}", 2))
    except KeyboardInterrupt:
        sys.exit(_fail("interrupted", 130))


def _fail(line: str, code: int) -> int:
    print(line, file=sys.stderr)
    return code
