"""Loaded by the server that jobs are forked from, so that all jobs run the same code.

A sweep takes hours, and files may change meanwhile: each job would read what is not loaded here from a file.
"""

from __future__ import annotations

import sys

from sweeps import expand, records, work  # noqa: F401
from utils.versions import ROOT

# Forked processes check here that they have the script that started the sweep; otherwise they would run it as a module.
sys.modules["__main__"].__file__ = str(ROOT / "run_sweep.py")
