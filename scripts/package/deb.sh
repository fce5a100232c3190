#!/usr/bin/env bash
# deb.sh -- `make deb`: builds the packages ddprun, libddp0, libddp-dev and ddprun-train into build/dist/ and checks
# them with lintian. debhelper expects the folder debian/ at the top of the sources, so scripts/package/debian/ is
# copied into an export of the tracked files. Builds are reproducible, because all times are SOURCE_DATE_EPOCH (default:
# DATE).

# VERSION, DATE and COMMIT are from the Makefile, and the build dependencies are from scripts/packages.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
scripts/check-deps.sh build deb

build=${BUILD:?is set by make}/deb
dist=$BUILD/dist
tree=$build/ddprun-$VERSION
umask 022

rm -rf "$build"
mkdir -p "$tree" "$dist"
# `git stash create` makes a commit of modified tracked files. If no file is modified, it prints nothing.
state=$(git -c user.name=deb -c user.email=deb@localhost stash create)
git archive "${state:-HEAD}" | tar -x -C "$tree"
cp -r scripts/package/debian "$tree"
libraries=$(ddp_rows build | awk '$1 ~ /-dev$/ && $1 != "libc6-dev" { print $1 }' | paste -sd,)
sed -i "s/@BUILD_DEPENDS@/$libraries/" "$tree/debian/control"
cat >"$tree/debian/changelog" <<EOF
ddprun ($VERSION-1) unstable; urgency=medium

  * changelog.gz lists the changes of this version.

 -- $(sed -n 's/^Maintainer: //p' "$tree/debian/control")  $(LC_ALL=C date -u -R -d "$DATE")
EOF

echo "== building ddprun $VERSION for $(dpkg --print-architecture) (the log is $build/log)"
# Pass only these variables to the build. The flags of the calling make must not reach the build.
passed_on=()
while read -r name; do
    passed_on+=("$name=${!name}")
done < <(compgen -e | grep -E '^(PATH|HOME|TMPDIR|CCACHE_.*|SOURCE_DATE_EPOCH|COMMIT)$')
(cd "$tree" && env -i LC_ALL=C.UTF-8 "${passed_on[@]}" DEB_BUILD_OPTIONS="noautodbgsym parallel=$(nproc)" \
    dpkg-buildpackage -us -uc -b) >"$build/log" 2>&1 || {
    tail -n 40 "$build/log" >&2
    exit 1
}
for package in "$build"/*.deb; do
    rm -f "$dist/$(dpkg-deb -f "$package" Package)"_*.deb
    cp -p "$package" "$dist"
    echo "$dist/${package##*/} $(stat -c %s "$package") bytes"
done
# The suppressed tag would require the number of a bug in Debian.
lintian --allow-root --tag-display-limit 0 --suppress-tags initial-upload-closes-no-bugs --fail-on error "$build"/*.changes
