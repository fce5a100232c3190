#!/usr/bin/env bash
# scripts/gpu_check.sh where there is no GPU: it says so and succeeds. What it does with one, it says itself.
# shellcheck source=tests/shell/tap.sh disable=SC2317  # `check` calls the functions
. "$(dirname "$0")/tap.sh"

# As where no driver is installed: nvidia-smi is there, and finds nothing.
mkdir -p "$tmp/bin"
printf '#!/bin/sh\necho "No devices were found"\nexit 6\n' >"$tmp/bin/nvidia-smi"
chmod +x "$tmp/bin/nvidia-smi"

says_skipped() {
    PATH=$tmp/bin:$PATH OUT=$tmp/out scripts/gpu_check.sh | tee "$tmp/said"
    grep -q '^skipped, because no GPU' "$tmp/said" && [ ! -e "$tmp/out" ]
}

check "without a GPU it says that it is skipped, and succeeds" says_skipped
finish
