#!/usr/bin/env bash
# probes.sh [TRIALS] -- measures the same properties of every installed launcher: exit code, remaining processes, torn
# lines, time to the end. It prints one table with the versions, and writes it to build/probes.md. The table has no
# verdicts.

# Processes that a launcher has left are killed. A measurement that depends on timing is repeated TRIALS (5) times. If a
# job does not end, the script counts the job and does not wait for it. torchrun needs seconds for each start, so the
# script takes minutes.
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
