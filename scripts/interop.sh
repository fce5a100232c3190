#!/usr/bin/env bash
# interop.sh SUITE... -- runs the suites with the PyTorch of $PYTHON, and prints the version of this PyTorch. RESTARTS
# (100) and OPERATIONS (100000) are the numbers of restarts and of store operations. SEED is the seed of the operations
# (default: random).
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
