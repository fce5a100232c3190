#!/usr/bin/env bash
# interop-nolibuv.sh SUITE... -- runs suites of `make interop` with the PyTorch of Debian 13, a version 2.x that was
# built without libuv. The suites run in a bare Debian 13 in build/trixie (about 2 GB), which the first call makes as
# root. The programs of this build run there unchanged, at the same path.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
# shellcheck source=scripts/root.sh
. scripts/root.sh

[ "$(id -u)" -eq 0 ] || { echo "interop-nolibuv.sh: chroot and mount need root" >&2; exit 2; }
ddp_install root
mkdir -p build
dir=$(realpath build)
root=$dir/trixie
source=$PWD
# PyTorch, the libraries of the programs and tests, and the commands that tests of several hosts need.
packages='python3-torch libcriterion-dev libuv1-dev libcjson-dev libsodium-dev libopenblas-dev zlib1g-dev iproute2 nftables iputils-ping'

root_make trixie "$root" "$dir/trixie.log"
trap 'root_unmount "$root"' EXIT
trap 'exit 130' INT TERM
root_unmount "$root"
root_settings "$root"
root_mount "$root"

in_root() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@"
}

if [ ! -e "$root/.installed" ]; then
    echo "== installing Debian 13's PyTorch there (minutes; the log is $dir/trixie.log)"
    # shellcheck disable=SC2086  # a list of names
    in_root DEBIAN_FRONTEND=noninteractive sh -c "apt-get -q update && apt-get -qy --no-install-recommends install $packages" \
        >>"$dir/trixie.log" 2>&1 || { tail -n 20 "$dir/trixie.log" >&2; exit 1; }
    touch "$root/.installed"
fi

# Mount the source at the same path in the root. Do not use --rbind: the root is below the source, so its own mounts
# would appear there again.
mkdir -p "$root$source"
mount --bind "$source" "$root$source"
in_root BUILD="${BUILD:-build}" PYTHON=/usr/bin/python3 RESTARTS="${RESTARTS:-10}" OPERATIONS="${OPERATIONS:-}" SEED="${SEED:-}" \
    "$source/scripts/interop.sh" "$@"
