#!/usr/bin/env bash
# probes.sh [TRIALS] -- puts the same questions to every installed launcher: exit code, processes left behind, torn lines,
# time to the end. Prints one table with the versions, also to build/probes.md. There are no verdicts, and processes that a
# launcher leaves behind are killed. TRIALS (5) repeats the questions whose answer depends on timing.
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
