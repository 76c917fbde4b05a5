"""Print in one line which of the requirements in some files the environment does not meet; nothing if it meets all.

Runs where nothing is installed yet, and with the Python that is there.
"""

import importlib.metadata
import sys
from pathlib import Path


def is_met(requirement: str) -> bool:
    """Whether a package is there, in one of the versions wanted."""
    try:
        from packaging.requirements import Requirement
    except ImportError:  # it comes with the packages that are asked for
        return False
    wanted = Requirement(requirement)
    try:
        return wanted.specifier.contains(importlib.metadata.version(wanted.name), prereleases=True)
    except importlib.metadata.PackageNotFoundError:
        return False


def main() -> None:
    """Read the files named on the command line."""
    lines = [line for name in sys.argv[1:] for line in Path(name).read_text(encoding="utf-8").splitlines()]
    requirements = filter(None, (line.partition("#")[0].strip() for line in lines))
    print(", ".join(requirement for requirement in requirements if not is_met(requirement)))


if __name__ == "__main__":
    main()
