#!/usr/bin/env bash
# Runs all tests; further arguments go to pytest, e.g. `bash run_tests.sh tests/network`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/environment.sh
ruff check --quiet .
python -m pytest "$@"
