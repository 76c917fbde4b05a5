#!/usr/bin/env bash
# Compares every row of the table of peers in docs/partitions.md with the real packages, 200 seeds a side: up to half an hour.
#
#   bash tests/peers/run.sh [FOLDER]    FOLDER: of the packages' environment, which is made if it is missing; default: temporary
#
# The packages have an environment of their own, because they need other versions than this project.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ $# -gt 0 ]; then folder=$1; else folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; fi
if [ ! -x "$folder/bin/python" ]; then
    python -m venv "$folder"
    "$folder/bin/python" -m pip install -q -r "$here/requirements.txt"
    "$folder/bin/python" -m pip install -q --no-deps fedlab==1.3.0 byzfl==0.0.11 nvflare==2.9.0
fi
# In a folder of its own: Hugging Face's `datasets` must be found, and not this project's.
(cd "$folder" && "$folder/bin/python" -W ignore "$here/counts_of_peers.py" "$folder/counts.npz")
cd "$here/../.."
PEERS_COUNTS="$folder/counts.npz" python -m pytest tests/peers -q -p no:cacheprovider
