#!/bin/sh
# newer.sh DIR RELEASE: puts etcd and etcdctl of that release of Debian's into DIR (3.5.16 in trixie), and for sid
# ZooKeeper's own jars as well; it changes nothing else. Use them by TENURE_ETCD_BINARY=DIR/etcd and
# TENURE_ZOOKEEPER_JARS=DIR. For the torture, where an etcd that ends leases early (before 3.4.31 and 3.5.13, its issue
# 15247) would leave runs unknown, and for `tests/run --servers-newest`. Needs apt and dpkg, not root; does nothing where
# DIR has them already.
set -eu

into="${1:?newer.sh: name the directory that the servers go to}"
release="${2:?newer.sh: name the release of Debian, trixie or sid}"
packages="etcd-server etcd-client"
[ "$release" != sid ] || packages="$packages libzookeeper-java"
[ ! -x "$into/etcd" ] || [ ! -x "$into/etcdctl" ] || exit 0

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# shellcheck disable=SC2016  # apt fills it in
site="$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -n 1)"
mkdir -p "$work/lists" "$work/cache" "$into"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $release main" >"$work/sources"
apt() {
    apt-get -q -o Dir::Etc::SourceList="$work/sources" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User="" "$@" </dev/null
}
apt update
# shellcheck disable=SC2086  # a list of names
(cd "$work" && apt download $packages)
for package in "$work"/*.deb; do
    dpkg-deb -x "$package" "$work/tree"
done
[ "$release" != sid ] || cp -L "$work/tree/usr/share/java/zookeeper.jar" "$work/tree/usr/share/java/zookeeper-jute.jar" "$into/"
cp "$work/tree/usr/bin/etcd" "$work/tree/usr/bin/etcdctl" "$into/"
"$into/etcd" --version | head -n 1
