#!/usr/bin/env bash
# interop.sh SUITE... -- runs the suites that need PyTorch with that of $PYTHON, and prints its version. RESTARTS,
# OPERATIONS and SEED: how many restarts and store operations are tried, and from which seed; a random one if not given.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

if ! version=$("$PYTHON" -c 'import torch; print(torch.__version__)'); then
    echo "$PYTHON has no torch: give another interpreter as PYTHON=, or install python3-torch" >&2
    exit 1
fi
export DDP_PYTHON=$PYTHON DDP_RESTARTS=${RESTARTS:-100} DDP_OPERATIONS=${OPERATIONS:-100000} DDP_SEED=${SEED:-$RANDOM}
export TEST_TIMEOUT=3600
echo "== torch $version of $PYTHON; $DDP_RESTARTS restarts, $DDP_OPERATIONS operations with seed $DDP_SEED"
scripts/run-tests.sh "$@"
rc=$?
echo "== that was torch $version"
exit "$rc"
