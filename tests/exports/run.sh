#!/usr/bin/env bash
# Data sets as the tools that people annotate with write them, read by the sources: bash tests/exports/run.sh [FOLDER]
# The tools are installed into an environment of their own in the folder, which is kept; without one, in a new folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-$(mktemp -d)}
tools=$folder/tools
if [ ! -e "$tools/installed" ]; then
    python -m venv "$tools"
    "$tools/bin/python" -m pip install -q -r tests/exports/requirements.txt
    touch "$tools/installed"
fi
rm -rf "$folder/exports"
"$tools/bin/python" tests/exports/writers.py "$folder/exports"
EXPORTS=$folder/exports python -m pytest tests/exports/round_trips.py -p no:cacheprovider
