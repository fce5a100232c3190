#!/usr/bin/env bash
# Test scripts/gpu_check.sh. Without a GPU, it must report that and succeed. With a GPU, this test only checks that
# the script ends at its time limit if nothing is built.
# shellcheck source=tests/shell/tap.sh disable=SC2317  # `check` calls the functions
. "$(dirname "$0")/tap.sh"

# Simulate a machine without a GPU: nvidia-smi exists, but finds no device.
mkdir -p "$tmp/bin"
printf '#!/bin/sh\necho "No devices were found"\nexit 6\n' >"$tmp/bin/nvidia-smi"
chmod +x "$tmp/bin/nvidia-smi"

reports_a_skip() {
    PATH=$tmp/bin:$PATH OUT=$tmp/out scripts/gpu_check.sh | tee "$tmp/said"
    grep -q '^skipped, because no GPU' "$tmp/said" && [ ! -e "$tmp/out" ]
}

check "without a GPU, the script reports a skip and succeeds" reports_a_skip

mkdir -p "$tmp/with"
printf '#!/bin/sh\necho "NVIDIA H200, 580.159.03"\n' >"$tmp/with/nvidia-smi"
chmod +x "$tmp/with/nvidia-smi"

# Check that each check of the script has a row, and that a file has the same table.
reports_what_is_missing() {
    fails env PATH="$tmp/with:$PATH" OUT="$tmp/with/out" BUILD="$tmp/none" NO_BUILD=1 WITHIN=1 scripts/gpu_check.sh >"$tmp/said"
    cat "$tmp/said"
    grep -q "^| $tmp/none/train | FAILED: " "$tmp/said" &&
        grep -q '^| kernels and models against the CPU, this GPU | skipped, because ' "$tmp/said" &&
        grep -q '^| all_reduce, .* | skipped, because the 1 s of WITHIN=' "$tmp/said" &&
        grep -q '^| a rank .* | skipped' "$tmp/said" &&
        cmp "$tmp/said" "$tmp/with/out/table.md"
}

check "with a GPU, missing programs and late checks are rows of a table" reports_what_is_missing
finish
