#!/bin/sh
# newer-etcd.sh DIR: puts etcd and etcdctl of Debian's next release (3.5.16 in trixie) into DIR, and changes nothing else.
# For the torture, where an etcd that ends leases early (before 3.4.31 and 3.5.13, its issue 15247) would leave runs
# unknown: TENURE_ETCD_BINARY=DIR/etcd. Needs apt and dpkg, not root; does nothing where DIR has them already.
set -eu

into="${1:?newer-etcd.sh: name the directory that etcd and etcdctl go to}"
[ ! -x "$into/etcd" ] || [ ! -x "$into/etcdctl" ] || exit 0

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# shellcheck disable=SC2016  # apt fills it in
site="$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -n 1)"
mkdir -p "$work/lists" "$work/cache" "$into"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site trixie main" >"$work/sources"
apt() {
    apt-get -q -o Dir::Etc::SourceList="$work/sources" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User="" "$@" </dev/null
}
apt update
(cd "$work" && apt download etcd-server etcd-client)
for package in "$work"/*.deb; do
    dpkg-deb -x "$package" "$work/tree"
done
cp "$work/tree/usr/bin/etcd" "$work/tree/usr/bin/etcdctl" "$into/"
"$into/etcd" --version | head -n 1
