# Sourced by run_pipeline.sh and run_tests.sh: makes and enters .venv unless a virtual environment is active.
if [ -z "${VIRTUAL_ENV:-}" ]; then
    [ -x .venv/bin/python ] || python3 -m venv .venv
    source .venv/bin/activate
    # The stamp makes the second run quick: nothing is installed while the requirements stay the same.
    if ! cmp -s requirements.txt .venv/requirements.installed; then
        echo "Installing the packages of requirements.txt into .venv (once; some minutes, some gigabytes)"
        python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
        cp requirements.txt .venv/requirements.installed
    fi
fi
