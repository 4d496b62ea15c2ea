# For tests/run and tests/torture, which source it from the project's root: a virtual environment in .venv, and servers.

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "holdfast needs Python 3.11 or later; set PYTHON to one (this is $("$python" --version))" >&2
    exit 1
fi
if [ ! -x .venv/bin/python ]; then
    "$python" -m venv .venv
fi
# Only when the requirements changed: a run without a network must be possible.
stamp=.venv/holdfast-tests.stamp
if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test,demo]'
    touch "$stamp"
fi
PYTHON=.venv/bin/python tests/servers/install.sh
