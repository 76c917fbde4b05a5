"""Print the requirements in some files that the environment does not meet, in one line; nothing if it meets all.

A requirement with a marker, `embreex>=4; platform_machine == "x86_64"`, counts only where the marker holds. The script
runs with any Python, before anything is installed.
"""

import importlib.metadata
import sys
from pathlib import Path


def is_met(requirement: str) -> bool:
    """Whether a package is installed in a version that the requirement allows, or not required on this system."""
    try:
        from packaging.requirements import Requirement
    except ImportError:  # packaging comes with the required packages
        return False
    parsed = Requirement(requirement)
    if parsed.marker and not parsed.marker.evaluate():
        return True
    try:
        return parsed.specifier.contains(importlib.metadata.version(parsed.name), prereleases=True)
    except importlib.metadata.PackageNotFoundError:
        return False


def main() -> None:
    """Check the requirements in the files named on the command line."""
    lines = [line for name in sys.argv[1:] for line in Path(name).read_text(encoding="utf-8").splitlines()]
    requirements = filter(None, (line.partition("#")[0].strip() for line in lines))
    print(", ".join(requirement.partition(";")[0].strip() for requirement in requirements if not is_met(requirement)))


if __name__ == "__main__":
    main()
