# Sourced from the project's root by what runs tests: `environment GROUP` puts the packages of a dependency group of
# pyproject.toml into .venv, `servers` installs the servers that tests start. Both do only what is missing.

environment() {
    local python=${PYTHON:-python3} group=$1 stamp
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "tenure needs Python 3.11 or later; set PYTHON to one (this is $("$python" --version))" >&2
        exit 1
    fi
    if [ ! -x .venv/bin/python ]; then
        "$python" -m venv .venv
    fi
    stamp=.venv/tenure-$group.stamp
    # Only when the requirements changed: a run without a network must be possible.
    if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
        if ! .venv/bin/python -c 'import pip, sys; sys.exit([*map(int, pip.__version__.split(".")[:2])] < [25, 1])'; then
            .venv/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1' # the first with --group
        fi
        .venv/bin/python -m pip install --quiet --disable-pip-version-check -e . --group "$group"
        touch "$stamp"
    fi
}

servers() {
    PYTHON=.venv/bin/python tests/servers/install.sh
}
