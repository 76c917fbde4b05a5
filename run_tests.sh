#!/usr/bin/env bash
# Runs all tests and, from Python 3.12 on, reports how many lines of the library they run. Further arguments go to pytest
# and select tests, such as `bash run_tests.sh tests/network`. `--soak 100` kills every resumable script a hundred times.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/environment.sh requirements.txt requirements-cluster.txt requirements-exr.txt requirements-flower.txt \
    requirements-pretrained.txt requirements-privacy.txt requirements-taskonomy.txt requirements-test.txt
ruff check --quiet .
mypy
export OMP_NUM_THREADS=1  # more threads make what is this small slower, most of all beside other work
unset PYTHONDONTWRITEBYTECODE  # every process that is started here would compile every module and test anew
# Side by side, a file's tests in one process. The files come by name, which ends with short ones: by their number of
# tests, the last would be those of few and long tests, beside a process that has nothing left to do.
if [ $# -eq 0 ]; then
    set -- --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
    # Before sys.monitoring, which Python has since 3.12, measuring took a third of all time.
    if python -c 'import sys; sys.exit(not hasattr(sys, "monitoring"))'; then
        export COVERAGE_CORE=sysmon
        set -- "$@" --cov --cov-fail-under=90
    fi
fi
python -m pytest "$@"
