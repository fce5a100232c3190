#!/usr/bin/env bash
# Check that the GPU kernels of train are compiled if this machine has an nvcc that works.
# shellcheck source=tests/shell/tap.sh disable=SC2317  # `check` calls the functions
. "$(dirname "$0")/tap.sh"

nvcc=$(PATH=${CUDA_HOME:+$CUDA_HOME/bin:}$PATH:/usr/local/cuda/bin command -v nvcc)
echo 'extern "C" __global__ void nothing(void) {}' >"$tmp/probe.cu"
if grep -qs -e -fsanitize= "$BUILD/flags"; then
    reason='this build has a sanitizer, which does not look into kernels'
elif [ -z "$nvcc" ]; then
    reason='no nvcc is on this machine'
elif ! "$nvcc" -cubin -arch=sm_90 "$tmp/probe.cu" -o "$tmp/probe.cubin" >"$tmp/probe.log" 2>&1; then
    reason="nvcc cannot compile here: $(head -n 1 "$tmp/probe.log")"
fi

are_there() {
    local type
    for type in f32 bf16 f16; do
        [ -s "$BUILD/train_kernels.$type.fatbin" ] || return 1
    done
}
if [ -n "${reason:-}" ]; then
    count=$((count + 1))
    echo "ok $count - kernels for each type of values are built # SKIP skipped, because $reason"
else
    check 'kernels for each type of values are built' are_there
fi
finish
