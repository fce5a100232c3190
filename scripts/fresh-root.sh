#!/usr/bin/env bash
# fresh-root.sh [-d DIR] [-s SUITE] [-c PATH]... COMMAND... -- runs COMMAND in a bare Debian, in a clean clone of this
# repository's HEAD. Each call runs COMMAND in a new copy of this system, so packages that an earlier call has installed
# are gone.

#     scripts/fresh-root.sh scripts/demo.sh
#     scripts/fresh-root.sh -s trixie scripts/demo.sh
#
# SUITE is bookworm (Debian 12, the default), trixie (Debian 13), or another suite of debootstrap. debootstrap makes the
# system once, in DIR/SUITE (DIR: build/fresh-root), and the copy is DIR/SUITE.root. The copy uses this machine's
# mirror, proxy, keys and certificates. -c copies PATH, such as build/dist, from the repository to the same place in the
# clone. The script needs root, because it mounts /proc, /dev and /sys in the copy. At the end it unmounts them in any
# case. The exit status is that of COMMAND.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
# shellcheck source=scripts/root.sh
. scripts/root.sh

dir=build/fresh-root suite=bookworm copies=()
while [ $# -ge 2 ]; do
    case $1 in
    -d) dir=$2 ;;
    -s) suite=$2 ;;
    -c) copies+=("$2") ;;
    *) break ;;
    esac
    shift 2
done
case "${1:-}" in
-h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
'' | -*) echo "usage: scripts/fresh-root.sh [-d DIR] [-s SUITE] [-c PATH]... COMMAND..." >&2; exit 2 ;;
esac
[ "$(id -u)" -eq 0 ] || { echo "fresh-root.sh: chroot and mount need root" >&2; exit 2; }
ddp_install root
mkdir -p "$dir"
dir=$(realpath "$dir")
base=$dir/$suite root=$dir/$suite.root

trap 'root_unmount "$root"' EXIT
trap 'exit 130' INT TERM

root_make "$suite" "$base" "$dir/$suite.log"

echo "== copying $base to $root"
root_unmount "$root"
rm -rf --one-file-system "$root"
cp -a "$base" "$root"
# The package sources of this machine also have updates, which fit only a system of the same suite.
if grep -qx "VERSION_CODENAME=$suite" /etc/os-release; then
    rm -f "$root/etc/apt/sources.list"
    root_settings "$root" /etc/apt/sources.list /etc/apt/sources.list.d
else
    root_settings "$root"
fi
git clone -q . "$root/src"
[ ${#copies[@]} -eq 0 ] || cp -a --parents "${copies[@]}" "$root/src"
root_mount "$root"

echo "== in a bare Debian $(cat "$root/etc/debian_version"), clone of $(git rev-parse --short HEAD): $*"
passed_on=()
for name in http_proxy https_proxy no_proxy CI FUZZ_SECONDS WERROR; do
    [ -z "${!name:-}" ] || passed_on+=("$name=${!name}")
done
chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" "${passed_on[@]}" \
    sh -c 'cd /src && exec "$@"' sh "$@"
