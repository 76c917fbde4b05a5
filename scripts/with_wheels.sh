#!/usr/bin/env bash
# Runs a program on a machine without a network, with the packages of a folder that `scripts/wheels.py` made.
#
#   bash scripts/with_wheels.sh wheels python3 -m benchmarks.gpu --minutes 6
#
# The named Python unpacks the wheels into a folder of their own, which is removed at the end. Its environment stays as it
# is. If a wheel is not for that Python or system, the script fails with a line that names the wheel.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ $# -lt 3 ] || ! compgen -G "$1/*.whl" > /dev/null; then
    echo "error: give a folder of wheels and a command: bash scripts/with_wheels.sh wheels python3 -m benchmarks.gpu" >&2
    exit 2
fi
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if ! output=$("$2" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile --no-cache-dir \
    --target "$site" "$1"/*.whl 2>&1); then
    echo "error: ${output##*ERROR: }" >&2
    exit 2
fi
PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" "${@:2}"
