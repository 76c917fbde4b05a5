#!/usr/bin/env bash
# Runs the quick tests of tests/quick.txt at both ends of what the requirements allow: with the lowest version of every
# package that they name, and with the newest.
#
#   bash scripts/oldest.sh              with python3
#   bash scripts/oldest.sh 3.12 3.13    with each of these Pythons
#
# uv (https://docs.astral.sh/uv) chooses the versions and installs them into .ends/. UV_TORCH_BACKEND=cpu leaves out the
# CUDA libraries.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
requirements=(requirements.txt requirements-{cluster,exr,flower,pretrained,privacy,taskonomy,test,trackers}.txt)
if [ $# -eq 0 ]; then set -- python3; fi
if ! command -v uv > /dev/null; then
    python3 -m venv .ends/uv
    .ends/uv/bin/python -m pip install --quiet --disable-pip-version-check uv
    export PATH="$PWD/.ends/uv/bin:$PATH"
fi
export OMP_NUM_THREADS=1  # as in run_tests.sh

failed=()
for python in "$@"; do
    for end in lowest-direct highest; do
        folder=.ends/$python-$end
        echo "Python $python, $end versions: $folder/versions.txt"
        uv venv --quiet --allow-existing --python "$python" "$folder"
        # Without --upgrade what is in the file from an earlier call would stay. Wheels alone, because the lowest versions
        # are often older than the Python, and would have to be compiled.
        uv pip compile --quiet --upgrade --resolution "$end" --only-binary :all: --python "$folder/bin/python" \
            --output-file "$folder/versions.txt" "${requirements[@]}"
        uv pip sync --quiet --python "$folder/bin/python" "$folder/versions.txt"
        "$folder/bin/python" -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile @tests/quick.txt ||
            failed+=("Python $python with the $end versions")
    done
done
if [ ${#failed[@]} -gt 0 ]; then
    printf 'error: tests fail on %s\n' "${failed[@]}" >&2
    exit 1
fi
