#!/usr/bin/env bash
# Reads data sets as annotation tools write them: bash tests/exports/run.sh [FOLDER]
# The tools are installed into an environment of their own in the folder, which is kept. By default the folder is a new one.
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
