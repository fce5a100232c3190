#!/usr/bin/env bash
# bench_torch.sh [PART...] -- measures our store against PyTorch's own, and ddprun against torchrun, with the torch of
# PYTHON= (/usr/bin/python3). If permitted, the script runs in a separate network namespace, because PyTorch's server
# looks up the name of every client, and a slow name server would dominate the measurement. In the namespace each lookup
# fails at once.

# The parts are throughput, crowd and launch (tests/bench/bench_torch.c), and clients and groups (tests/bench/torch/).
# Two more parts run only if they are named. "encrypt" measures the cost of --encrypt. "stacks" measures the cost of the
# search for hangs, with py-spy in PATH. If descriptor 3 is open, the numbers go there as JSON lines.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
PYTHON=${PYTHON:-/usr/bin/python3}
parts=("$@")
[ $# -gt 0 ] || parts=(throughput crowd clients groups launch)

if [ -z "${BENCH_TORCH_ALONE:-}" ]; then
    if ! "$PYTHON" -c 'import torch' 2>/dev/null; then
        echo "| torch | skipped, because $PYTHON has no torch (PYTHON= names another interpreter) |"
        exit 0
    fi
    export BENCH_TORCH_ALONE=yes
    up='ip link set lo up && exec "$@"'
    if unshare --map-root-user --net sh -c "$up" sh true 2>/dev/null; then
        exec unshare --map-root-user --net sh -c "$up" sh "$0" "${parts[@]}"
    fi
    echo "In the network of this machine: PyTorch's server asks its name server about every client."
    echo
fi

{ true >&3; } 2>/dev/null || exec 3>/dev/null
export TORCH_CPP_LOG_LEVEL=ERROR # torch warns about every client whose name it cannot find
ulimit -Sn "$(ulimit -Hn)"
for part in "${parts[@]}"; do
    case $part in
    clients | groups) "$PYTHON" "tests/bench/torch/$part.py" "$BUILD/ddp-rendezvous" ;;
    encrypt) "$PYTHON" tests/bench/torch/encrypt.py "$BUILD/ddprun" ;;
    stacks) "$PYTHON" tests/bench/torch/stacks.py "$BUILD/ddprun" "$BUILD/ddpctl" ;;
    *) "$BUILD/tests/bench/bench_torch" "$PYTHON" "$BUILD/ddprun" "$part" ;;
    esac
    echo
done
