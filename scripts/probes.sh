#!/usr/bin/env bash
# probes.sh [TRIALS] -- asks every launcher that is installed the same questions: which exit code, who is left behind, which lines
# are torn, how soon is all over. Prints one table with the versions; the same goes to build/probes.md. Nothing is judged,
# and nothing that a launcher leaves behind stays. TRIALS (5) is for the questions whose answer hangs on the moment.
#
# A job that does not end is counted, not waited for. torchrun needs seconds for each start, so this takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/machine.sh
. scripts/machine.sh

BUILD=${BUILD:-build}
{
    ddp_machine 'make probes' "$BUILD"
    echo
    "$BUILD/tests/bench/bench_probes" "$BUILD/ddprun" "$BUILD/tests/prog" "${1:-5}"
} | tee "$BUILD/probes.md"
