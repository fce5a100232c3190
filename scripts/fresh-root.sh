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

# The first Debian source of this machine; debootstrap and apt in the new root use the same.
mirror() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null |
        grep -Eo '(https?|file|ftp)://[^ ]+' | grep -E 'debian/?$' | head -n 1
}

# Copies the machine's way to its packages into the root $1. What a root does not have yet gets its folders.
copy_settings() {
    rm -f "$1/etc/apt/sources.list"
    local path
    for path in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/keyrings /etc/apt/trusted.gpg.d \
        /usr/share/keyrings /etc/ssl/certs /etc/resolv.conf /etc/hosts; do
        [ -e "$path" ] || continue
        mkdir -p "$1$(dirname "$path")"
        rm -rf "$1$path"
        cp -aL "$path" "$1$path"
    done
    # How packages are fetched (proxy, time limits), without the hooks that this machine runs around it.
    apt-config dump Acquire >"$1/etc/apt/apt.conf.d/90host"
}

# Deepest first; what is still busy is detached.
unmount() {
    local point
    awk -v r="$root" '$2 == r || index($2, r "/") == 1 { print $2 }' /proc/mounts | sort -r | while IFS= read -r point; do
        umount "$point" 2>/dev/null || umount -l "$point"
    done
}
trap unmount EXIT
trap 'exit 130' INT TERM

if [ ! -e "$base/etc/debian_version" ]; then
    echo "== making a bare Debian 12 in $base (minutes; the log is $dir/debootstrap.log)"
    rm -rf --one-file-system "$base.new"
    debootstrap --variant=minbase bookworm "$base.new" "$(mirror)" >"$dir/debootstrap.log" 2>&1 || {
        tail -n 20 "$dir/debootstrap.log" >&2
        exit 1
    }
    rm -rf "$base.new"/var/cache/apt/archives/*.deb
    mv "$base.new" "$base"
fi

echo "== copying $base to $root"
unmount
rm -rf --one-file-system "$root"
cp -a "$base" "$root"
copy_settings "$root"
git clone -q . "$root/src"
# A mount point of its own, as a root is: without that nothing in it could unshare its mounts.
mount --bind "$root" "$root" && mount --make-private "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys" && mount --make-rslave "$root/sys"
mount --rbind /dev "$root/dev" && mount --make-rslave "$root/dev"

echo "== in a bare Debian $(cat "$root/etc/debian_version"), clone of $(git rev-parse --short HEAD): $*"
passed_on=()
for name in http_proxy https_proxy no_proxy CI FUZZ_SECONDS; do
    [ -z "${!name:-}" ] || passed_on+=("$name=${!name}")
done
chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" "${passed_on[@]}" \
    sh -c 'cd /src && exec "$@"' sh "$@"
