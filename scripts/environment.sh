# Source it with requirement files. It puts a Python with their packages first on the PATH, or fails with one line.
#
# An active environment, venv's or conda's, is the user's. A line names what it lacks, and nothing is installed into it.
# Conda's `base` does not count as one, because it is active in every shell without having been chosen. Without an active
# environment, the script makes .venv and installs what that lacks.
case $(uname -s) in
    Linux | Darwin) ;;
    *) echo "error: this runs on Linux and macOS; on Windows, run it in WSL" >&2; exit 2 ;;
esac

active=${VIRTUAL_ENV:-}
if [ -z "$active" ] && [ "${CONDA_DEFAULT_ENV:-}" != base ]; then active=${CONDA_PREFIX:-}; fi
if [ "$active" -ef .venv ]; then active=; fi  # ours, entered by hand

python=${active:-.venv}/bin/python
if [ -z "$active" ] && [ ! -x "$python" ]; then python=python3; fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
    echo "error: $python is not Python 3.11 or newer${active:+; install one into the active environment, or leave it}" >&2
    exit 2
fi
if [ "$python" = python3 ]; then python3 -m venv .venv; fi
export PATH="${active:-$PWD/.venv}/bin:$PATH"

lacking=$(python scripts/lacking.py "$@")
install="python -m pip install ${*/#/--requirement }"
if [ -n "$lacking" ] && [ -n "$active" ]; then
    echo "error: the active environment $active lacks $lacking; install with: $install" >&2
    exit 2
elif [ -n "$lacking" ]; then
    echo "Installing the packages of $* into .venv (once; some minutes, some gigabytes)"
    $install --quiet --disable-pip-version-check
fi
