#!/usr/bin/env bash
# Compare our declarations of NCCL's and CUDA's functions (worker/cuda/*_abi.h) with the real headers, if there are
# any. The headers are those of the system, of /usr/local/cuda, of pip's packages, or of the directories in
# DDP_NVIDIA_INCLUDE (separated by ':').
# shellcheck source=tests/shell/tap.sh disable=SC2317  # `check` calls the functions
. "$(dirname "$0")/tap.sh"

# Print the directories that may contain nccl.h or cuda_runtime_api.h.
places() {
    tr ':' '\n' <<<"${DDP_NVIDIA_INCLUDE:-}"
    printf '%s\n' /usr/include /usr/local/cuda/include
    python3 -c 'import site, sys; print("\n".join(site.getsitepackages() + [site.getusersitepackages()]))' 2>/dev/null |
        while IFS= read -r packages; do
            printf '%s\n' "$packages/nvidia/nccl/include" "$packages/nvidia/cu13/include" \
                "$packages/nvidia/cuda_runtime/include" "$packages/nvidia/cublas/include"
        done
}

# Print the first of these directories that contains file $1.
find_header() {
    local place
    while IFS= read -r place; do
        [ -z "$place" ] || [ ! -f "$place/$1" ] || { echo "$place"; return; }
    done < <(places)
}

nccl=$(find_header nccl.h)
cuda=$(find_header cuda_runtime_api.h)
same() {
    ${CC:-gcc} -std=c11 -Wall -Werror -fsyntax-only -Iworker -isystem "$nccl" -isystem "$cuda" tests/abi/nccl.c
}

# Prove that the check can fail.
notices_a_difference() {
    mkdir -p "$tmp/cuda"
    sed 's/X(DDP_AVG, NCCL_AVG, ncclAvg, 4)/X(DDP_AVG, NCCL_AVG, ncclAvg, 3)/' worker/cuda/nccl_abi.h >"$tmp/cuda/nccl_abi.h"
    cp worker/cuda/cudart_abi.h "$tmp/cuda/"
    fails ${CC:-gcc} -std=c11 -fsyntax-only -I"$tmp" -isystem "$nccl" -isystem "$cuda" tests/abi/nccl.c
    sed 's/size_t count, nccl_type type, int peer/int count, nccl_type type, int peer/' worker/cuda/nccl_abi.h \
        >"$tmp/cuda/nccl_abi.h"
    fails ${CC:-gcc} -std=c11 -fsyntax-only -I"$tmp" -isystem "$nccl" -isystem "$cuda" tests/abi/nccl.c
}

what='our declarations agree with nccl.h and cuda_runtime_api.h'
if [ -z "$nccl" ] || [ -z "$cuda" ]; then
    skip "$what" "nccl.h or cuda_runtime_api.h is not on this machine"
else
    check "$what" same
    check 'the check detects a difference' notices_a_difference
fi

lt=$(find_header cublasLt.h) driver=$(find_header cuda.h)
compute_same() {
    ${CC:-gcc} -std=c11 -Wall -Werror -fsyntax-only "-I${1:-worker}" -isystem "$lt" -isystem "$driver" -isystem "$cuda" tests/abi/compute.c
}
compute_notices() {
    mkdir -p "$tmp/lt/cuda"
    cp worker/cuda/compute_abi.h "$tmp/lt/cuda/"
    compute_same "$tmp/lt" || return 1
    sed 's/CUBLASLT_EPILOGUE_BIAS, 4/CUBLASLT_EPILOGUE_BIAS, 5/' worker/cuda/compute_abi.h >"$tmp/lt/cuda/compute_abi.h"
    fails compute_same "$tmp/lt"
}
what='our declarations agree with cublasLt.h and cuda.h'
if [ -z "$lt" ] || [ -z "$driver" ] || [ -z "$cuda" ]; then
    skip "$what" "cublasLt.h or cuda.h is not on this machine"
else
    check "$what" compute_same
    check 'that check detects a difference, too' compute_notices
fi
finish
