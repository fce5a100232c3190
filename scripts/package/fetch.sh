#!/usr/bin/env bash
# fetch.sh [checks] -- fetches the inputs in the list scripts/package/pins into build/package. `checks` adds the
# programs that check a wheel. An input that has been fetched is not fetched again.

# tools/ is a virtual environment with zig and the programs that build a wheel. src/NAME is the source of a library.
#
# At the next point release, the mirrors drop a pinned Debian revision. The script then uses the current revision, whose
# signature apt has checked, and prints that `pins` must change. The upstream archive must still be the pinned archive.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/root.sh
. scripts/root.sh
pins=scripts/package/pins dir=$PWD/${BUILD:-build}/package
mkdir -p "$dir"

die() {
    echo "fetch.sh: $*" >&2
    exit 1
}

# pins_of KIND -- prints the rows of this kind: name, version, sha256.
pins_of() {
    awk -v kind="$1" '$1 == kind { print $2, $3, $4 }' "$pins"
}

fetch_tools() {
    rm -rf "$dir/tools"
    python3 -m venv "$dir/tools" || die "python3 -m venv failed; install python3-venv"
    pins_of pypi | awk '{ gsub(/,/, " --hash=sha256:", $3); print $1 "==" $2 " --hash=sha256:" $3 }' >"$dir/requirements.txt"
    "$dir/tools/bin/pip" install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
        -r "$dir/requirements.txt" || die "cannot install the tools from PyPI; check the network, or the versions in $pins"
}

# Run apt-get with a separate folder for its lists, so that the machine's own apt configuration stays unchanged.
apt_private() {
    apt-get -q -o Dir::Etc::sourcelist="$dir/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$dir/apt/lists" -o Dir::Cache="$dir/apt" -o APT::Sandbox::User="$(id -un)" "$@"
}

# verify NAME FILE SHA256 -- returns true if FILE has this checksum.
verify() {
    echo "$3  $2" | sha256sum --quiet -c - >/dev/null 2>&1
}

# fetch_source NAME VERSION ORIG_SHA256,DEBIAN_SHA256 -- puts the unpacked and patched source into src/NAME.
fetch_source() {
    local name=$1 version=$2 orig=${3%,*} changes=${3#*,} file
    rm -rf "$dir/src/$name" "$dir/src/$name.get"
    mkdir -p "$dir/src/$name.get"
    cd "$dir/src/$name.get"
    if ! apt_private source --download-only --only-source "$name=$version" >log 2>&1; then
        apt_private source --download-only --only-source "$name" >log 2>&1 || die "$name: apt-get source failed: $(tail -n 1 log)"
        echo "fetch.sh: $name: $version is no longer on the mirror, using $(ls ./*.dsc); change $pins" >&2
        changes=
    fi
    for file in ./*.orig.tar.*; do
        verify "$name" "$file" "$orig" || die "$name: $file is not the pinned file (sha256); expected $orig"
    done
    for file in ./*.debian.tar.*; do
        [ -z "$changes" ] || verify "$name" "$file" "$changes" || die "$name: $file is not the pinned file (sha256); expected $changes"
    done
    dpkg-source --no-check -x ./*.dsc "../$name" >>log 2>&1 || die "$name: dpkg-source failed: $(tail -n 1 log)"
    cd - >/dev/null
    rm -rf "$dir/src/$name.get" "$dir"/src/*.orig.tar.*
}

fetch_sources() {
    local suite mirror
    suite=$(pins_of suite)
    suite=${suite%% *}
    mirror=$(root_mirror) || true # one of the lists may be missing
    mirror=${mirror:-http://deb.debian.org/debian}
    mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial" "$dir/src"
    printf 'deb-src %s main\n' "$mirror $suite" "${mirror%/}-security $suite-security" >"$dir/apt/sources.list"
    apt_private update >"$dir/apt/log" 2>&1 || die "apt-get update failed: $(tail -n 1 "$dir/apt/log")"
    while read -r name version sums; do
        fetch_source "$name" "$version" "$sums"
    done < <(pins_of debian)
    rm -rf "$dir/apt"
}

# stale NAME KIND... -- returns true if the rows of these kinds have changed since `fetched NAME KIND...` recorded them.
stale() {
    local name=$1
    shift
    ! for kind in "$@"; do pins_of "$kind"; done | cmp -s - "$dir/$name.pins"
}
fetched() {
    local name=$1
    shift
    for kind in "$@"; do pins_of "$kind"; done >"$dir/$name.pins"
}

if stale tools pypi; then
    fetch_tools
    rm -f "$dir/checks.pins"
    fetched tools pypi
fi
if stale src suite debian; then
    fetch_sources
    fetched src suite debian
fi
if [ "${1:-}" = checks ] && stale checks check; then
    # shellcheck disable=SC2046  # a list of words
    "$dir/tools/bin/pip" install -q --disable-pip-version-check $(pins_of check | awk '{ print $1 "==" $2 }')
    fetched checks check
fi
