#!/usr/bin/env bash
# bench.sh [SECTION...] -- measures ddprun against its peers and limits, and prints one page of tables that can be pasted into the
# README; the same goes to build/bench.md, the numbers to build/bench.json. Sections: launch torn output store all_reduce.
#
# Each program takes its contenders in turns within one run and prints medians. A peer that is not installed leaves a cell
# "skipped, because ..."; scripts/packages.sh lists them under "bench". ROUNDS (15) is the number of turns.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

BUILD=${BUILD:-build}
rounds=${ROUNDS:-15}
[ $# -gt 0 ] || set -- launch torn output store all_reduce
bench=$BUILD/tests/bench
lines=$(mktemp -d)
trap 'rm -rf "$lines"' EXIT

machine() {
    local cpu
    cpu=$(LC_ALL=C lscpu | sed -n 's/^Model name: *//p' | head -n 1)
    echo "Measured on $(date -u +%Y-%m-%d) by \`make bench\`: ${cpu:-unknown CPU}, $(nproc) cores, Linux $(uname -r)," \
        "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release), $("${CC:-gcc}" --version | head -n 1)$(peers);" \
        "ddprun $("$BUILD/ddprun" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)." \
        "Load before: $(cut -d' ' -f1 /proc/loadavg)."
}

peers() {
    ! command -v mpiexec.hydra >/dev/null ||
        printf ', Hydra %s' "$(mpiexec.hydra --version | sed -n 's/^ *Version: *//p')"
    ! command -v mpirun.openmpi >/dev/null ||
        printf ', Open MPI %s' "$(mpirun.openmpi --version | sed -n 's/^mpirun.* //p' | head -n 1)"
}

section() {
    case $1 in
    launch) "$bench/bench_launch" "$BUILD/ddprun" "$rounds" ;;
    torn) "$bench/bench_torn" "$BUILD/ddprun" "$BUILD/tests/prog/torn_writer" ;;
    output) "$bench/bench_output" "$BUILD/ddprun" "$BUILD/tests/prog/flood" ;;
    store) "$bench/bench_store" ;;
    all_reduce) BUILD=$BUILD ROUNDS=$rounds scripts/bench_allreduce.sh ;;
    *)
        echo "bench.sh: no section '$1' (launch torn output store all_reduce)" >&2
        return 2
        ;;
    esac
}

missing=$(ddp_missing bench)
if [ -n "$missing" ]; then
    echo "peers that are not installed: $(awk '{ print $1 }' <<<"$missing" | xargs)" >&2
    echo "Install: $(ddp_install_command "$(awk '{ print $1 }' <<<"$missing" | xargs)")" >&2
fi

all_sections() {
    local name bad=0
    machine
    for name in "$@"; do
        echo
        section "$name" 3>"$lines/$name" || { echo "| $name | failed |"; bad=1; }
    done
    return "$bad"
}

status=0
all_sections "$@" | tee "$BUILD/bench.md" || status=1
{
    echo '['
    cat "$lines"/* | sed '$!s/$/,/'
    echo ']'
} >"$BUILD/bench.json"
exit "$status"
