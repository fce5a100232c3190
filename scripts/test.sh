#!/usr/bin/env bash
# test.sh [--quick] -- installs what the tests need, builds, and runs everything: the tests, the same under the sanitizers,
# the purity of the cores, the layers, the format, and a short fuzz run. --quick runs the plain tests and purity only.
#
# At the end stands once more what failed, in few lines, as the top of a long log may be cut away, and how long each step took.
# The last line sums up all runs: `N passed, N failed, N skipped`. FUZZ_SECONDS (8) is the time of each fuzz program.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

quick=no
case ${1:-} in
'') ;;
--quick) quick=yes ;;
*)
    echo "usage: scripts/test.sh [--quick]" >&2
    exit 2
    ;;
esac

jobs=$(nproc)
DDP_TALLY=$PWD/build/tally
export DDP_TALLY
mkdir -p build
: >"$DDP_TALLY"
: >"$DDP_TALLY.failed"
times=

# step NAME COMMAND... -- a step that counts tests writes to the tally itself; one that only succeeds or fails counts as one.
step() {
    local name=$1 before told rc=0
    shift
    before=$(wc -l <"$DDP_TALLY")
    told=$(wc -l <"$DDP_TALLY.failed")
    echo
    echo "== $name: $*"
    SECONDS=0
    DDP_TALLY_NAME=$name "$@" || rc=$?
    echo "== $name took $SECONDS s"
    times+="$name $SECONDS s, "
    if [ "$rc" -ne 0 ] && [ "$(wc -l <"$DDP_TALLY.failed")" -eq "$told" ]; then
        echo "  $name: $* ended with exit status $rc; see above" >>"$DDP_TALLY.failed"
    fi
    if [ "$(wc -l <"$DDP_TALLY")" -eq "$before" ]; then
        if [ "$rc" -eq 0 ]; then echo "$name 1 0 0"; else echo "$name 0 1 0"; fi >>"$DDP_TALLY"
    elif [ "$rc" -ne 0 ] && [ "$(tail -n 1 "$DDP_TALLY" | cut -d' ' -f3)" -eq 0 ]; then
        echo "$name 0 1 0" >>"$DDP_TALLY"
    fi
}

# skip NAME WHY -- counts one skipped step.
skip() {
    echo
    echo "== $1: skipped, because $2"
    echo "$1 0 0 1" >>"$DDP_TALLY"
}

wanted=(build test)
[ "$quick" = yes ] || wanted+=(fuzz format)
ddp_install "${wanted[@]}" || exit
ddp_install torch || echo "== going on without it"
ddp_install nodes || echo "== going on without them"
ddp_install slurm || echo "== going on without Slurm"

step build make -j"$jobs" test-programs
# Against a genuine PyTorch's store ten times as many operations as someone who only types `make test` wants to wait for.
DDP_OPERATIONS=100000 step test make test
step purity make purity
if [ "$quick" = no ]; then
    step asan-ubsan make -j"$jobs" asan-ubsan
    step tsan make -j"$jobs" tsan
    step fuzz make -j"$jobs" fuzz FUZZ_SECONDS="${FUZZ_SECONDS:-8}"
    # Every version of clang-format breaks lines in its own way; the files follow the one of Debian 12.
    if clang-format --version | grep -q 'version 14\.'; then
        step format make check-format
    else
        skip format "$(clang-format --version) is not version 14"
    fi
fi

if [ -s "$DDP_TALLY.failed" ]; then
    echo
    echo "== what failed"
    head -n 60 "$DDP_TALLY.failed"
fi
echo
echo "== all of it: ${times%, }"
awk '{ printf "  %-10s %5d passed %4d failed %4d skipped\n", $1, $2, $3, $4 }' "$DDP_TALLY"
awk '{ p += $2; f += $3; s += $4 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0 }' \
    "$DDP_TALLY"
