#!/usr/bin/env bash
# check.sh ARCH... -- `make packages`: builds every package, checks it, and prints one table. The table names each check
# that this machine cannot run, with the reason. If a check fails, the table is still complete, and the exit status is
# 1.
# shellcheck disable=SC2317  # `check` calls the functions
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
package=$PWD/$BUILD/package dist=$BUILD/dist log=$PWD/$BUILD/package/check.log
host=$(uname -m) bad=0
order=()
declare -A seconds how
mkdir -p "$package"

# build FILE TARGET -- makes TARGET, which builds FILE, and begins the row of FILE.
build() {
    local start=$SECONDS
    order+=("$1")
    how[$1]=
    rm -f "$dist/$1"
    make --no-print-directory "$2" || { how[$1]='FAILED to build'; bad=1; }
    seconds[$1]=$((SECONDS - start))
}

# check FILE WORDS COMMAND... -- runs COMMAND, and adds WORDS to the row of FILE. unchecked FILE WORDS REASON -- adds
# WORDS, and the reason why this check was skipped.
check() {
    local file=$1 words=$2
    shift 2
    echo "== $file: $words"
    if "$@" >"$log" 2>&1; then
        grep '^# ' "$log"
    else
        cat "$log"
        words="FAILED: $words" bad=1
    fi
    how[$file]+=${how[$file]:+, }$words
}
unchecked() {
    how[$1]+=${how[$1]:+, }"$2: skipped, $3"
}

is_small() {
    [ "$(stat -c %s "$1")" -le 3000000 ]
}

passes_tools() {
    "$package/tools/bin/twine" check --strict "$1" && "$package/tools/bin/check-wheel-contents" "$1" &&
        "$package/tools/bin/auditwheel" show "$1" | tee /dev/stderr | tr '\n' ' ' | grep -q "consistent with the following platform tag: \"manylinux_2_17_"
}

# is_reproducible WHEEL ARCH -- builds the same sources again in another folder, with only the fetched inputs, and
# compares the two wheels.
is_reproducible() {
    local again=$package/again file=$1 arch=$2 commit
    commit=$(git rev-parse --short=12 HEAD)
    rm -rf "$again"
    mkdir -p "$again/build/package"
    git ls-files -z | xargs -0 cp --parents -t "$again"
    ln -s "$package/tools" "$package/src" "$package/src.pins" "$again/build/package"
    (cd "$again" && export BUILD=build TOOLS="$package/.." COMMIT=$commit && scripts/package/build.sh "$arch" &&
        scripts/package/wheel.sh "$arch" "$VERSION") && cmp "$dist/$file" "$again/build/dist/$file" && rm -rf "$again"
}

# runs_job ROOT [EMULATOR...] -- runs a job of two workers with the programs in ROOT/bin, and expects that ddpctl shows
# the job. EMULATOR runs programs of another architecture.
runs_job() {
    local bin=$1/bin dir job tries=0 rc=0
    shift
    dir=$(mktemp -d)
    "$@" "$bin/ddprun" --version && "$@" "$bin/ddp-rendezvous" --version || return 1
    # shellcheck disable=SC2016  # the worker's shell expands the text
    "$@" "$bin/ddprun" --nproc_per_node=2 --rdzv_id=packages$$ sh -c 'echo $RANK of $WORLD_SIZE
        until [ -e "$0" ]; do sleep 0.05; done' "$dir/go" >"$dir/out" &
    job=$!
    until "$@" "$bin/ddpctl" --job packages$$ status >"$dir/status" 2>&1 && grep -q '^ *1 ' "$dir/status"; do
        if [ $((tries += 1)) -gt 600 ] || ! kill -0 "$job" 2>/dev/null; then break; fi
        sleep 0.05
    done
    touch "$dir/go"
    wait "$job" || rc=$?
    cat "$dir/out" "$dir/status"
    sort "$dir/out" | diff - <(printf '[%d] %d of 2\n' 0 0 1 1) && grep -q '^ *1 ' "$dir/status" || rc=1
    rm -rf "$dir"
    return "$rc"
}

# unpacks TARBALL -- unpacks the tarball into a new directory, runs a job there, and compiles a program with pkg-config.
unpacks() {
    local dir rc=0
    dir=$(mktemp -d)
    tar -xzf "$dist/$1" -C "$dir" && runs_job "$dir/${1%.tar.gz}" && awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md >"$dir/w.c" &&
        PKG_CONFIG_PATH=$dir/${1%.tar.gz}/lib/pkgconfig pkg-config --cflags --libs ddp | xargs gcc "$dir/w.c" -o "$dir/w" &&
        "$dir/${1%.tar.gz}/bin/ddprun" --nproc_per_node=2 "$dir/w" || rc=1
    rm -rf "$dir"
    return "$rc"
}

in_bare_root() {
    scripts/fresh-root.sh -s "$1" -c "$dist" sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y --no-install-recommends install python3-venv iproute2 && tests/shell/test_wheel.sh' | tee "$package/root.log" &&
        grep -q '^ok 1 ' "$package/root.log" && ! grep '^ok 1 .*SKIP' "$package/root.log"
}

scripts/package/fetch.sh checks || exit
for arch; do
    wheel=ddprun-$VERSION-py3-none-manylinux_2_17_$arch.whl
    build "$wheel" "wheel-$arch"
    check "$wheel" "at most 3 MB" is_small "$dist/$wheel"
    check "$wheel" "twine, auditwheel, check-wheel-contents" passes_tools "$dist/$wheel"
    if [ "$arch" = "$host" ]; then
        check "$wheel" "built twice, same bytes" is_reproducible "$wheel" "$arch"
        check "$wheel" "virtual environments" tests/shell/test_wheel.sh
        for suite in bullseye bookworm trixie; do
            if [ "$(id -u)" -ne 0 ] || [ -n "$(ddp_missing root)" ]; then
                unchecked "$wheel" "bare $suite" "needs root and debootstrap"
            else
                check "$wheel" "bare $suite" in_bare_root $suite
            fi
        done
    elif ! command -v "qemu-$arch-static" >/dev/null || [ ! -e "/usr/$arch-linux-gnu/lib" ]; then
        unchecked "$wheel" "a job under qemu" "needs qemu-user-static and libc6-arm64-cross"
    else
        check "$wheel" "a job under qemu" runs_job "$package/$arch/root" "qemu-$arch-static" -L "/usr/$arch-linux-gnu"
    fi
    tarball=ddprun-$VERSION-linux-$arch.tar.gz
    build "$tarball" "tarball-$arch"
    if [ "$arch" = "$host" ]; then
        check "$tarball" "unpacked elsewhere: a job, a program in C" unpacks "$tarball"
    else
        how[$tarball]+=${how[$tarball]:+, }"same files as the wheel"
    fi
done
image=ddprun-$VERSION-image-$host.tar
if ! command -v buildah >/dev/null; then
    order+=("$image")
    unchecked "$image" "a job in it" "buildah is not installed"
else
    build "$image" image
    [ -e "$dist/$image" ] && how[$image]+=${how[$image]:+, }"a job in it"
fi
if [ -n "$(ddp_missing deb)" ]; then
    order+=("ddprun_${VERSION}-1_*.deb")
    unchecked "${order[-1]}" "Debian packages" "debhelper and lintian are not installed"
else
    build "ddprun_${VERSION}-1_$(dpkg --print-architecture).deb" deb
    check "${order[-1]}" "lintian; installed and removed" scripts/package/check-deb.sh
fi

echo
printf '%-52s %9s %7s  %s\n' file bytes seconds "checked how"
for file in "${order[@]}"; do
    # shellcheck disable=SC2086  # the file may be a pattern
    printf '%-52s %9s %7s  %s\n' "$file" "$(stat -c %s "$dist"/$file 2>/dev/null || echo -)" "${seconds[$file]:--}" "${how[$file]}"
done
exit $bad
