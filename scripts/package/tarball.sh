#!/usr/bin/env bash
# tarball.sh ARCH VERSION -- packs the files that build.sh has made for ARCH into a tarball in build/dist, below one
# directory. The same commit gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=$1 name=ddprun-$2-linux-$1 build=${BUILD:-build}
mkdir -p "$build/dist"
tar -C "$build/package/$arch/root" --sort=name --owner=0 --group=0 --numeric-owner --mode=go-w --mtime="@$SOURCE_DATE_EPOCH" \
    --transform="s,^\.,$name,S" -c . | gzip -n9 >"$build/dist/$name.tar.gz"
