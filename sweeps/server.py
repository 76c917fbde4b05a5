"""Loaded by the server that jobs are forked from: what is not loaded here, each job would read from a file.

A sweep takes hours, and files may change meanwhile; its jobs are all to run the same code.
"""

from __future__ import annotations

import sys

from sweeps import records, work  # noqa: F401
from utils.versions import ROOT

# Forked processes look here whether they have the script that started the sweep, and otherwise run it as a module.
sys.modules["__main__"].__file__ = str(ROOT / "run_sweep.py")
