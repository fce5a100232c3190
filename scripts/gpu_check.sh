#!/usr/bin/env bash
# gpu_check.sh -- on a machine with an NVIDIA GPU, builds, runs the tests and measurements that CI cannot run, and
# prints one table. On any other machine, the script prints the reason and succeeds.

#     scripts/gpu_check.sh            all checks, ten minutes at most
#     NO_BUILD=1 scripts/gpu_check.sh     with the existing BUILD=, even from another machine
#
# Each line of the table is one check with its result. The line is printed when the result is known. Details are in
# build/gpu-check/, or in DIR with OUT=DIR. If this machine lacks something that a check needs, the line of the check
# names what is missing.
#
#     WITHIN=SECONDS    time limit of all checks (570); later checks are skipped, so the most important checks come first
#     LIMIT=SECONDS     time limit of one check (120; some checks have 300)
#     BATCHES="32"      batch sizes of GPT-2 124M (16 32 64)
#     WORKERS="1 2 4"   numbers of workers whose results must be equal bit by bit (1 2 4 8)
#     LIBRARIES=DIR     libraries that the programs were linked with on another machine (libopenblas.so.0 ...)
set -uo pipefail
cd "$(dirname "$0")/.." || exit
BUILD=${BUILD:-build}
out=${OUT:-$BUILD/gpu-check}
limit=${LIMIT:-120} within=${WITHIN:-570}
[ -z "${LIBRARIES:-}" ] || export LD_LIBRARY_PATH=$LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

skipped() {
    echo "skipped, because $1"
    exit 0
}
if ! command -v nvidia-smi >/dev/null || ! gpus=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null); then
    skipped "no GPU is on this machine (nvidia-smi shows none)"
fi
[ -n "$gpus" ] || skipped "no GPU is on this machine (nvidia-smi shows none)"
count=$(wc -l <<<"$gpus")
mkdir -p "$out"
rows=() shown=0 bad=0

# Print the rows except the last one, which may still change. `show all` prints the last row, too.
show() {
    local till=$((${#rows[@]} - 1))
    [ "${1:-}" != all ] || till=${#rows[@]}
    for (( ; shown < till; shown++)); do
        printf '%s\n' "${rows[shown]}" | tee -a "$out/table.md"
    done
}

# row NAME RESULT -- adds a line to the table.
row() {
    rows+=("| $1 | $2 |")
    show
}

finish() {
    show all
    [ "$bad" -eq 0 ]
    exit
}

# left NAME [SECONDS] -- returns true if at least SECONDS (10) are left. Otherwise adds a row that NAME is skipped.
left() {
    [ $((within - SECONDS)) -lt "${2:-10}" ] || return 0
    row "$1" "skipped, because the $within s of WITHIN= are over"
    return 1
}

# check NAME COMMAND... -- runs COMMAND with a time limit, and writes its output to a file. Adds a row with the result.
check() {
    local name=$1 rc=0 log most=$limit
    left "$name" || return
    shift
    [ "$most" -le $((within - SECONDS)) ] || most=$((within - SECONDS))
    log=$out/${name//[^a-z0-9]/_}.log
    timeout -k 5 "$most" "$@" >"$log" 2>&1 </dev/null || rc=$?
    if [ "$rc" -eq 0 ]; then
        result=ok
    else
        result="FAILED ($rc$([ "$rc" -ne 124 ] || echo ", not done after $most s")): $(grep -v '^ *$' "$log" |
            grep -m 1 -E 'DDP_ERR|ddp-bench:|FAIL|rror' || tail -n 1 "$log")"
        bad=$((bad + 1))
    fi
    row "$name" "$result"
    [ "$rc" -eq 0 ]
}

# figures LOG -- prints the largest bus bandwidth in a log of ddp-bench --json, and the time for the smallest size.
figures() {
    python3 - "$1" <<'PYTHON'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
best = max(rows, key=lambda row: row["busbw"] or row["algbw"])
least = min(rows, key=lambda row: (row["bytes"], row["us"]))
print("%.1f us for %d B; %.1f GB/s bus (%.1f algorithm) at %d B" %
      (least["us"], least["bytes"], best["busbw"], best["algbw"], best["bytes"]))
PYTHON
}

# bench NAME RANKS OPTION... -- runs ddp-bench with RANKS workers under ddprun, and adds a row with the speed.
bench() {
    local name=$1 ranks=$2 share=()
    shift 2
    [ "$ranks" -le "$count" ] || share=(--share_gpu)
    if check "$name" "$BUILD/ddprun" --standalone --no_prefix "${share[@]}" --nproc_per_node="$ranks" "$BUILD/ddp-bench" \
        --json "$@"; then
        rows[-1]="| $name | $(figures "$out/${name//[^a-z0-9]/_}.log") |"
    fi
}

# --- programs and libraries --------------------------------------------------------------------------------------------
{
    echo "$(date -u +%F), $(git describe --always --dirty 2>/dev/null), $(head -n 1 <<<"$gpus") x $count, $(nproc) cores:"
    echo
    echo '| check | result |'
    echo '|---|---|'
} | tee "$out/table.md"
programs=("$BUILD/ddprun" "$BUILD/ddp-rendezvous" "$BUILD/ddp-bench" "$BUILD/train" "$BUILD/make-data")
if [ -z "${NO_BUILD:-}" ]; then
    limit=400 check 'build' make -j"$(nproc)" all || {
        row 'all else' 'skipped, because nothing is built; scripts/check-deps.sh build says what is missing, NO_BUILD=1 takes BUILD= of another machine'
        finish
    }
    limit=400 check 'build of the tests' make -j"$(nproc)" test-programs
fi
for file in "${programs[@]}" "$BUILD"/train_kernels.{f32,bf16,f16}.fatbin; do
    [ -e "$file" ] || { row "$file" 'FAILED: it is not there; make builds it (kernels with nvcc)' && bad=$((bad + 1)); }
done
if missing=$(ldd "${programs[@]}" 2>/dev/null | awk '/not found/ { print $1 }' | sort -u | xargs) && [ -n "$missing" ]; then
    row 'libraries of the programs' "FAILED: $missing are not on this machine; install them, or name their directory in LIBRARIES="
    bad=$((bad + 1))
    finish
fi

# Print the directories that may have CUDA's libraries: the folder of nvcc, the usual places, and the folders of pip's
# packages. pip has one directory for all libraries of CUDA 13 (nvidia/cu13/lib), but a separate one for NCCL and for
# each library of CUDA 12 (such as nvidia/nccl/lib).
cuda_directories() {
    local nvcc
    nvcc=$(command -v nvcc) && nvcc=$(readlink -f "$nvcc") && printf '%s\n' "${nvcc%/bin/*}"/lib{64,}
    [ -z "${CUDA_HOME:-}" ] || printf '%s\n' "$CUDA_HOME"/lib{64,}
    printf '%s\n' /usr/local/cuda/lib{64,} /usr/local/cuda-*/lib{64,} /usr/local/nvidia/lib{64,} \
        /usr/local/lib /usr/lib/x86_64-linux-gnu
    python3 -c 'import glob, sys
for path in sys.path:
    print(*glob.glob(path + "/nvidia/*/lib"), sep="\n")' 2>/dev/null
}
directories=$(cuda_directories)

# place_of NAME -- prints the path of the library NAME in the first directory that has it.
place_of() {
    local directory
    while IFS= read -r directory; do
        [ -z "$directory" ] || [ ! -e "$directory/$1" ] || { echo "$directory/$1"; return; }
    done <<<"$directories"
}

# loads NAME -- returns true if the loader finds the library NAME.
loads() {
    local IFS=: directory
    for directory in ${LD_LIBRARY_PATH:-}; do
        [ ! -e "$directory/$1" ] || return 0
    done
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q "^[[:space:]]*${1//./\\.} "
}

# find_library VARIABLE NAME... -- searches for a library that has one of the names, and adds a row with its place. If
# the loader does not find the library, sets VARIABLE to its path.
find_library() {
    local variable=$1 name found
    shift
    if [ -n "${!variable:-}" ]; then
        row "$variable" "${!variable}, as given"
        return
    fi
    for name in "$@"; do
        loads "$name" && row "$variable" "$name, which the loader finds" && return
        found=$(place_of "$name")
        [ -z "$found" ] || { export "$variable=$found" && row "$variable" "$found" && return; }
    done
    row "$variable" "FAILED: neither the loader nor CUDA's and pip's directories have $*; name the file in $variable="
    bad=$((bad + 1))
}
# CUDA's runtime searches for the driver only by name, so add the driver's directory to the loader's path.
if ! loads libcuda.so.1 && driver=$(place_of libcuda.so.1) && [ -n "$driver" ]; then
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${driver%/*}
fi
find_library DDP_CUDA_DRIVER_LIBRARY libcuda.so.1
find_library DDP_CUDART_LIBRARY libcudart.so.13 libcudart.so.12
find_library DDP_CUBLASLT_LIBRARY libcublasLt.so.13 libcublasLt.so.12
find_library DDP_NCCL_LIBRARY libnccl.so.2
check 'our declarations and the headers' bash tests/shell/test_abi.sh

# --- train: kernels, models, losses, times -----------------------------------------------------------------------------
gpu_tests=("$BUILD/tests/socket/test_kernels" "$BUILD/tests/socket/test_kernels_pictures" "$BUILD/tests/socket/test_models_gpu")
# suites NAME SUITE... -- runs the suites as one check. Skips the check if a suite is not built.
suites() {
    local name=$1 suite
    shift
    for suite in "$@"; do
        [ -x "$suite" ] || { row "$name" "skipped, because $suite is not built (scripts/check-deps.sh test says what it needs)"; return; }
    done
    check "$name" env BUILD="$BUILD" scripts/run-tests.sh "$@"
}
DDP_TEST_GPU=1 TEST_JOBS=8 JOBS=1 suites 'kernels and models against the CPU, this GPU' "${gpu_tests[@]}"

# step_losses FILE -- prints the loss of each step from a file of metrics, one per line.
step_losses() {
    sed -n 's/.*"loss":\([-0-9.e]*\),.*/\1/p' "$1"
}
gpt2=(--data "$out/tokens" --model gpt2:tiny --optimizer adamw --lr 0.003 --clip 1 --global_batch 16)
resnet=(--data "$out/digits" --model resnet20 --optimizer sgd --lr 0.001 --momentum 0.9 --global_batch 32 --sync_bn)
# on_both NAME TOLERANCE OPTION... -- trains 20 steps on the CPU and on the GPU, and compares the losses.
on_both() {
    local name=$1 tolerance=$2 device
    shift 2
    for device in cpu cuda; do
        check "$name, $device" "$BUILD/train" "$@" --limit_steps 20 --metrics "$out/$device.jsonl" --device "$device" || return
    done
    if ! paste <(step_losses "$out/cpu.jsonl") <(step_losses "$out/cuda.jsonl") |
        awk -v t="$tolerance" '{ off = ($1 - $2) / $1; off = off < 0 ? -off : off; if (off > most) most = off }
            END { printf "largest difference of a loss %.2g\n", most; exit !(NR == 20 && most <= t) }' >"$out/off"; then
        bad=$((bad + 1)) rows[-1]="| $name | FAILED: $(cat "$out/off") |"
    else
        rows[-1]="| $name | $(cat "$out/off") |"
    fi
}
hash_of() {
    sed -n 's/^hash of the parameters \([0-9a-f]*\).*/\1/p' "$1"
}
# again NAME OPTION... -- trains 30 steps twice, and expects the same bits in both runs.
again() {
    local name=$1 first
    shift
    check "$name, once" "$BUILD/train" "$@" --limit_steps 30 --device cuda || return
    first=$(hash_of "$out/${name//[^a-z0-9]/_}__once.log")
    check "$name, the same bits again" "$BUILD/train" "$@" --limit_steps 30 --device cuda || return
    if [ -z "$first" ] || [ "$(hash_of "$out/${name//[^a-z0-9]/_}__the_same_bits_again.log")" != "$first" ]; then
        bad=$((bad + 1)) rows[-1]="| $name, the same bits again | FAILED: other parameters |"
    fi
}
# same_bits NAME RANKS OPTION... -- trains 20 steps with RANKS workers. The parameters must equal those of the first
# run, whose hash is in `first`.
same_bits() {
    local name=$1 ranks=$2 log=$out/${1//[^a-z0-9]/_}.log share=()
    shift 2
    [ "$ranks" -le "$count" ] || share=(--share_gpu)
    check "$name" "$BUILD/ddprun" --standalone --no_prefix --nproc_per_node="$ranks" "${share[@]}" "$BUILD/train" "$@" \
        --limit_steps 20 --determinism world --check_every 5 --device cuda || return
    first=${first:-$(hash_of "$log")}
    if [ -z "$first" ] || [ "$(hash_of "$log")" != "$first" ]; then
        bad=$((bad + 1)) rows[-1]="| $name | FAILED: parameters $(hash_of "$log"), of the first run ${first:-none} |"
    fi
}
# same_for_all NAME OPTION... -- expects the same bits for all numbers of workers, with and without --zero1.
same_for_all() {
    local name=$1 first='' ranks
    shift
    for ranks in ${WORKERS:-1 2 4 8}; do
        same_bits "$name, --determinism world, $ranks workers" "$ranks" "$@"
    done
    for ranks in 2 4; do
        same_bits "$name, --determinism world --zero1, $ranks workers" "$ranks" "$@" --zero1
    done
}
# `train` has a table of the peak rates of many GPUs (worker/train/journal.c). For other GPUs, set PEAK_TFLOPS= (16
# bits) and PEAK_FP32_TFLOPS=.
peak=${PEAK_TFLOPS:-}
# speed NAME OPTION... -- trains 60 steps of GPT-2 124M, and adds a row with the medians of all steps except the first
# ten.
speed() {
    local name=$1
    shift
    check "$name" "$BUILD/train" --data "$out/tokens" --model gpt2:124M --optimizer adamw --lr 1e-4 --clip 1 --limit_steps 60 \
        --metrics "$out/speed.jsonl" ${peak:+--peak_tflops "$peak"} --device cuda "$@" || return
    rows[-1]="| $name | $(python3 - "$out/speed.jsonl" <<'PYTHON'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
rows = [row for row in rows if "loss" in row][10:]
middle = lambda key: statistics.median(row[key] for row in rows)
mfu = "%.3f" % middle("mfu") if "mfu" in rows[0] else "of an unknown peak"
print("%.0f tokens/s, MFU %s, loss %.3f" % (middle("tokens_s"), mfu, rows[-1]["loss"]))
PYTHON
    ) |"
}
share=()
[ "$count" -gt 1 ] || share=(--share_gpu)
two=("$BUILD/ddprun" --standalone --no_prefix --nproc_per_node=2 "${share[@]}" "$BUILD/train")
tokens='' pictures=''
check 'tokens to train with' "$BUILD/make-data" --out "$out/tokens" --format tokens --samples 4000000 --test_samples 3000 && tokens=yes
check 'pictures to train with' "$BUILD/make-data" --out "$out/digits" --samples 20000 --test_samples 1000 &&
    pictures=yes

if [ -n "$tokens" ]; then
    on_both 'gpt2:tiny, losses of 20 steps, fp32' 1e-4 "${gpt2[@]}"
    on_both 'gpt2:tiny, losses of 20 steps, bf16' 1e-2 "${gpt2[@]}" --precision bf16
    on_both 'gpt2:tiny, losses of 20 steps, fp16' 1e-2 "${gpt2[@]}" --precision fp16
    again 'gpt2:10M' --data "$out/tokens" --model gpt2:10M --batch 16 --precision bf16
fi
if [ -n "$pictures" ]; then
    on_both 'resnet20, losses of 20 steps, fp32' 5e-3 "${resnet[@]}"
    on_both 'resnet20, losses of 20 steps, bf16' 2e-2 "${resnet[@]}" --precision bf16
    on_both 'resnet20, losses of 20 steps, fp16' 2e-2 "${resnet[@]}" --precision fp16
    again 'resnet20, bf16' --data "$out/digits" --model resnet20 --optimizer sgd --batch 128 --precision bf16
    for precision in fp32 bf16; do
        name="resnet20, $precision, batch 512"
        check "$name" "$BUILD/train" --data "$out/digits" --model resnet20 --optimizer sgd --batch 512 --epochs 2 --device cuda \
            --precision $precision && rows[-1]="| $name | $(grep -o 'loss .*' "$out/${name//[^a-z0-9]/_}.log" | tail -n 1) |"
    done
fi
if [ -n "$tokens" ]; then
    for batch in ${BATCHES:-16 32 64}; do
        speed "gpt2:124M, bf16, batch $batch x 1024" --batch "$batch" --precision bf16
    done
    if ! left 'the same in PyTorch' 90; then
        :
    elif timeout 60 python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
        for batch in ${BATCHES:-16 32 64}; do
            name="the same in PyTorch (compiled, DDP), batch $batch"
            limit=300 check "$name" python3 tests/bench/torch/gpt2_gpu.py "$batch" &&
                rows[-1]="| $name | $(grep tokens_s "$out/${name//[^a-z0-9]/_}.log") |"
        done
    else
        row 'the same in PyTorch' 'skipped, because python3 has no torch with CUDA'
    fi
fi

# --- several workers ---------------------------------------------------------------------------------------------------
[ -z "$tokens" ] || check 'gpt2:tiny, 2 workers through NCCL' "${two[@]}" --data "$out/tokens" --model gpt2:tiny --global_batch 16 \
    --limit_steps 20 --device cuda
[ -z "$pictures" ] || check 'resnet20, 2 workers through NCCL, --sync_bn' "${two[@]}" "${resnet[@]}" --limit_steps 20 --device cuda
[ -z "$tokens" ] || check '--zero1, averages by NCCL, 2 workers' "${two[@]}" --data "$out/tokens" --model gpt2:10M --batch 4 \
    --limit_steps 10 --precision bf16 --zero1 --check_every 2 --device cuda
[ -z "$tokens" ] || same_for_all "gpt2:tiny, bf16" "${gpt2[@]}" --precision bf16
[ -z "$pictures" ] || same_for_all 'resnet20, fp32' --data "$out/digits" --model resnet20 --global_batch 64 --optimizer sgd \
    --lr 0.01

bench 'all_reduce, world of one, device memory' 1 --backend nccl -e 256M -n 50
bench 'all collectives, cpu backend with device buffers, 2 ranks' 2 --backend cpu --memory gpu --collective all -e 16M
if [ "$count" -gt 1 ]; then
    bench "all_reduce, NCCL, $count ranks" "$count" --backend nccl -b 8 -e 1G -f 8
    bench "all collectives, NCCL, $count ranks" "$count" --backend nccl --collective all -e 64M
fi
# Ranks that share a GPU are slow. These two checks are about values, not about speed.
bench 'all collectives, NCCL, 2 ranks on one GPU' "$((count + 1))" --backend nccl --collective all -b 4K -e 1M -f 16 -n 3 -w 1
bench 'averages in bf16, NCCL, ranks on one GPU' "$((count + 1))" --backend nccl -d bf16 -o avg -b 64K -e 64K -n 3 -w 1

# Kill one of two ranks. The other rank must end by itself within seconds, and report which rank has died.
worker() {
    RANK=$1 WORLD_SIZE=2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$2 DDP_SHARE_GPU=1 \
        exec "$BUILD/ddp-bench" --backend nccl -b 64K -e 64K -n 1000000 -c 0 >"$out/kill_$1.log" 2>&1
}
kill_one() {
    local port rc=1 start i
    "$BUILD/ddp-rendezvous" --listen 127.0.0.1:0 >"$out/kill_store.log" 2>&1 &
    local store=$!
    for ((i = 0; i < 100; i++)); do
        port=$(sed -n 's/.*listening on 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$out/kill_store.log" | head -n 1)
        [ -z "$port" ] || break
        sleep 0.1
    done
    worker 0 "$port" &
    local survivor=$!
    worker 1 "$port" &
    local victim=$!
    { sleep 45 && kill -9 $survivor $victim; } & # if the survivor hangs, only this check may fail
    local dog=$!
    sleep 15 # the ranks are now in the middle of a million calls
    start=$SECONDS
    kill -0 $victim && kill -9 $victim && wait $survivor
    [ $((SECONDS - start)) -gt 10 ] || ! grep 'rank 1 (pid .*has ended' "$out/kill_0.log" || rc=0
    kill $store $dog $survivor
    wait $store $victim
    return $rc
}
if ! left 'a rank is killed in a call of NCCL' 60; then :; elif kill_one >/dev/null 2>&1; then row 'a rank is killed in a call of NCCL' ok; else
    row 'a rank is killed in a call of NCCL' "FAILED, see $out/kill_0.log"
    bad=$((bad + 1))
fi

# --- long checks, and checks that CI also runs -------------------------------------------------------------------------
if [ -n "$tokens" ]; then
    same_for_all "gpt2:tiny, fp32" "${gpt2[@]}" --precision fp32
    limit=300 peak=${PEAK_FP32_TFLOPS:-} speed 'gpt2:124M, fp32, batch 8 x 1024' --batch 8 # slow, because float32 does not use TF32
fi
unset DDP_CUDA_DRIVER_LIBRARY DDP_CUDART_LIBRARY DDP_CUBLASLT_LIBRARY DDP_NCCL_LIBRARY
suites 'kernels and models, fake GPU' "${gpu_tests[@]}" "$BUILD/tests/e2e/test_train_gpu" "$BUILD/tests/socket/test_zero1"
suites 'tests of the NCCL backend, fake GPU' "$BUILD/tests/unit/cuda/test_nccl_plan" "$BUILD/tests/socket/test_nccl" \
    "$BUILD/tests/e2e/test_ddp_bench"
finish
