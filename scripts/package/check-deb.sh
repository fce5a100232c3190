#!/usr/bin/env bash
# check-deb.sh [SUITE...] -- installs, uses and purges the packages of `make deb` in bare Debian systems (default:
# bookworm trixie). Packages that were built in trixie do not fit bookworm, so the script then skips bookworm.

# The script prints one TAP line per check and fails if a check fails. It needs root.
# shellcheck source=tests/shell/tap.sh disable=SC2317  # `check` calls the functions
. "$(dirname "$0")/../../tests/shell/tap.sh"

names=(ddprun libddp0 libddp-dev ddprun-train)

# --- in the bare system -----------------------------------------------------------------------------------------------
apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends "$@"
}

# install_packages NAME... -- installs the packages from $dist, and keeps a list of their files for nothing_is_left.
install_packages() {
    local name files=()
    for name in "$@"; do files+=("./$dist/${name}"_*.deb); done
    apt install "${files[@]}" && dpkg -L "$@" >>"$tmp/files"
}

nothing_else_came() {
    ! command -v gcc python3 && ! compgen -G '/usr/lib/*/libddp*'
}

programs_start() {
    local program
    for program in ddprun ddp-rendezvous ddpctl ddp-bench; do "$program" --version || return 1; done
}

# two_workers PATTERN COMMAND... -- runs a job of two workers. Both workers must print a line with PATTERN.
two_workers() {
    ddprun --nproc_per_node=2 "${@:2}" >"$tmp/out" || return 1
    cat "$tmp/out"
    [ "$(grep -c "$1" "$tmp/out")" -eq 2 ]
}

trains() {
    /usr/libexec/ddprun/make-data --out "$tmp/data" --samples 640 --test_samples 64 &&
        ddprun --nproc_per_node=2 /usr/libexec/ddprun/train --data "$tmp/data" --epochs 1 --summary "$tmp/summary" &&
        grep param_hash "$tmp/summary"
}

# Compile the worker of docs/libddp.md.
compiles() {
    # shellcheck disable=SC2046  # pkg-config prints words
    awk '/^```$/ { if (on) exit } on; /^```c$/ { on = 1 }' docs/libddp.md |
        gcc -std=c11 -Wall -Wextra -Werror -x c - -x none -o "$tmp/worker" $(pkg-config --cflags --libs ddp)
}

# Expect that no file of the packages is left, no file with a similar name, and no entry in the lists of dpkg and
# ldconfig. Do not search /tmp, where jobs keep their records.
nothing_is_left() {
    local file
    {
        while IFS= read -r file; do
            [ ! -e "$file" ] || dpkg -S "$file" >/dev/null 2>&1 || echo "$file"
        done < <(sort -u "$tmp/files" | grep -v '^/\.$')
        find / -xdev \( -path /src -o -path /tmp \) -prune -o \( -name 'ddp*' -o -name 'libddp*' -o -name '_ddp*' \) -print
        dpkg-query -W "${names[@]}" 2>/dev/null
        ldconfig -p | grep ddp
    } | fails grep .
}

in_root() {
    apt update >/dev/null || exit
    check "ddprun installs" install_packages ddprun
    check "it brings no compiler, Python or libddp" nothing_else_came
    check "its programs start" programs_start
    # shellcheck disable=SC2016  # the worker's variables
    check "a job of two workers runs" two_workers 'rank [01] of 2' sh -c 'echo rank $RANK of $WORLD_SIZE'
    check "ddprun-train installs" install_packages ddprun-train
    check "two workers train" trains
    check "libddp-dev installs with libddp0" install_packages libddp0 libddp-dev
    check "gcc and pkg-config install" apt install gcc libc6-dev pkg-config
    check "a worker compiles" compiles
    check "it needs the library by its version" grep -q LIBDDP_0 "$tmp/worker"
    check "it runs with two workers" two_workers 'of 2' "$tmp/worker"
    check "the packages are purged" apt purge "${names[@]}"
    check "nothing of them is left" nothing_is_left
    finish
}

# --- here -------------------------------------------------------------------------------------------------------------
if [ "${1:-}" = --in-root ]; then
    dist=$2
    in_root
fi
[ "$(id -u)" -eq 0 ] || { echo "check-deb.sh: chroot and mount need root" >&2; exit 2; }
compgen -G "$BUILD/dist/*.deb" >/dev/null || { echo "$BUILD/dist: no Debian package in it; run \`make deb\`" >&2; exit 2; }
here=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
[ $# -gt 0 ] || set -- bookworm trixie

for suite in "$@"; do
    if [ "$suite" = bookworm ] && [ "$here" != bookworm ]; then
        skip "$suite" "the packages were built in $here"
        continue
    fi
    before=$bad
    scripts/fresh-root.sh -s "$suite" -c "$BUILD/dist" scripts/package/check-deb.sh --in-root "$BUILD/dist" >"$tmp/log" 2>"$tmp/errors"
    rc=$?
    # Print the checks that have run in the bare system, with the numbers of this script.
    while IFS= read -r line; do
        count=$((count + 1))
        echo "${line%%[0-9]*}$count - $suite: ${line#* - }"
        [[ $line == ok* ]] || bad=$((bad + 1))
    done < <(grep -E '^(not )?ok ' "$tmp/log")
    [ "$rc" -eq 0 ] || [ "$bad" -gt "$before" ] || check "$suite: the checks ended with exit status $rc" false
    [ "$rc" -eq 0 ] || tail -n 60 "$tmp/errors" >&2
done
finish
