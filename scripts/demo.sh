#!/usr/bin/env bash
# demo.sh -- trains a model, even on a bare Debian 12 or 13. The script installs missing packages, builds, makes sample
# data in Fashion-MNIST's format, and trains with four workers on this machine. The demo takes one to three minutes
# after the installation of packages.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

data=build/demo-data
ddp_install build

echo "== building"
make -j"$(nproc)"

if [ ! -e "$data" ]; then
    echo "== making sample data in $data"
    build/make-data --out "$data.new"
    mv "$data.new" "$data"
fi

echo "== training with four workers"
set -x
build/ddprun --nproc_per_node=4 build/train --data "$data" --epochs 2 --summary build/demo-summary.json
{ set +x; } 2>/dev/null

echo "== build/demo-summary.json"
cat build/demo-summary.json
echo
echo "param_hash repeats on this machine. It depends on OpenBLAS's kernels for the processor; OPENBLAS_CORETYPE=Haswell makes it equal on all x86-64 processors with AVX2."
