#!/usr/bin/env bash
# fresh-root.sh [-d DIR] COMMAND... -- tries COMMAND in a bare Debian 12, in a clean clone of this repository's HEAD.
#
#     scripts/fresh-root.sh scripts/demo.sh
#
# The root is made with debootstrap once and kept in DIR (build/fresh-root): DIR/base is never run in; each call copies it to
# DIR/root, so what the last call installed is gone. It uses this machine's package sources, proxy, keys and certificates.
# Needs root. /proc, /dev and /sys are mounted inside and unmounted again however the command ends; the exit status is
# the command's.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
# shellcheck source=scripts/root.sh
. scripts/root.sh

dir=build/fresh-root
if [ "${1:-}" = -d ]; then
    dir=$2
    shift 2
fi
case "${1:-}" in
-h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
'' | -*) echo "usage: scripts/fresh-root.sh [-d DIR] COMMAND..." >&2; exit 2 ;;
esac
[ "$(id -u)" -eq 0 ] || { echo "fresh-root.sh: chroot and mount need root" >&2; exit 2; }
ddp_install root
mkdir -p "$dir"
dir=$(realpath "$dir")
base=$dir/base root=$dir/root

trap 'root_unmount "$root"' EXIT
trap 'exit 130' INT TERM

root_make bookworm "$base" "$dir/debootstrap.log"

echo "== copying $base to $root"
root_unmount "$root"
rm -rf --one-file-system "$root"
cp -a "$base" "$root"
rm -f "$root/etc/apt/sources.list"
root_settings "$root" /etc/apt/sources.list /etc/apt/sources.list.d
git clone -q . "$root/src"
root_mount "$root"

echo "== in a bare Debian $(cat "$root/etc/debian_version"), clone of $(git rev-parse --short HEAD): $*"
passed_on=()
for name in http_proxy https_proxy no_proxy CI FUZZ_SECONDS; do
    [ -z "${!name:-}" ] || passed_on+=("$name=${!name}")
done
chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" "${passed_on[@]}" \
    sh -c 'cd /src && exec "$@"' sh "$@"
