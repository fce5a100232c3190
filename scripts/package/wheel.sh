#!/usr/bin/env bash
# wheel.sh ARCH VERSION -- packs the files that build.sh has made for ARCH, and the Python module, into a wheel in
# build/dist. The same commit gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=$1 version=$2 build=$PWD/${BUILD:-build}
work=$build/package/$arch/wheel
rm -rf "$work"
mkdir -p "$work/python" "$build/dist"
cp -r "$build/package/$arch/root" scripts/package/pyproject.toml scripts/package/hatch_build.py README.md LICENSE "$work"
mv "$work"/root/share/doc/ddprun/copyright.* "$work" # a wheel has a separate place for these files
rm -r "$work/root/share/doc"
cp -r launcher/python/. "$work/python"
find "$work/python" -name __pycache__ -prune -exec rm -r {} +
DDP_VERSION=$version DDP_PLATFORM=manylinux_2_17_$arch "$build/package/tools/bin/python" -m build --wheel --no-isolation \
    --outdir "$build/dist" "$work" >"$work.log" 2>&1 || { cat "$work.log" >&2; exit 1; }
tail -n 1 "$work.log"
