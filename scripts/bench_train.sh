#!/usr/bin/env bash
# bench_train.sh -- measures a step of `train` against the same model in PyTorch, with DistributedDataParallel on Gloo.
# Both programs have 2 workers of one thread each and run in turn. The table has the medians of ROUNDS (5).

# Our time is a mean over all steps and includes the reading of data. PyTorch's time does not include the reading of
# data (tests/bench/torch/models.py) and the first ten steps. Both programs run under ddprun. PYTHON= (/usr/bin/python3)
# is the interpreter with torch. If descriptor 3 is open, the numbers go there as JSON lines.
#
# Then the script measures the speed of each of 10 full epochs of the mlp, with the defaults of `train`. A model that
# converges must not become slow, as it would if subnormal numbers took more time. The table has the medians of
# EPOCH_ROUNDS (3).
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
PYTHON=${PYTHON:-/usr/bin/python3}
rounds=${ROUNDS:-5}
epoch_rounds=${EPOCH_ROUNDS:-3}
epochs=10
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

why=
torch=$("$PYTHON" -c 'import torch; print(torch.__version__)' 2>/dev/null) || why="skipped, because $PYTHON has no torch"

# Columns: model, name of a sample, samples per worker, steps, other arguments of `train`.
cases=("mlp|picture|100|300|--data $work/pictures" "mlp|picture|400|100|--data $work/pictures"
    "gpt2:tiny|64 tokens|4|200|--data $work/tokens" "gpt2:tiny|64 tokens|16|60|--data $work/tokens"
    "resnet20|picture|16|20|--data $work/colours")

"$BUILD/make-data" --out "$work/pictures" --samples 20000 --test_samples 100 >/dev/null
"$BUILD/make-data" --out "$work/epochs" --samples 60000 --test_samples 100 >/dev/null
# Noise in the format of CIFAR-10: records of a label and 3,072 bytes.
mkdir "$work/colours"
records() {
    local i
    for ((i = 0; i < $1; i++)); do
        printf '\0'
        head -c 3072 /dev/urandom
    done
}
records 640 >"$work/colours/data_batch_1.bin"
records 10 >"$work/colours/test_batch.bin"
"$BUILD/make-data" --out "$work/tokens" --format tokens --samples 200000 --test_samples 1000 >/dev/null

export OMP_NUM_THREADS=1
ours() {
    # shellcheck disable=SC2086
    "$BUILD/ddprun" --nproc_per_node="$1" "$BUILD/train" --quiet --model "$2" --batch "$3" --limit_steps "$4" --epochs 10 \
        --eval_every 10 --lr 0.001 --summary "$work/summary.json" $5
    awk -F '[:,]' '/"train_s"/ { s = $2 } /"steps"/ { n = $2 } END { printf "%.4f\n", s * 1e3 / n }' "$work/summary.json"
}

# Print lines "WORKERS EPOCH SAMPLES_PER_S".
speeds() {
    "$BUILD/ddprun" --nproc_per_node="$1" "$BUILD/train" --quiet --data "$work/epochs" --epochs $epochs --eval_every $epochs --metrics "$work/metrics"
    awk -F '[:,]' -v workers="$1" '/"epoch_loss"/ { for (i = 1; i < NF; i++) if ($i == "\"samples_s\"") print workers, ++n, $(i + 1) + 0 }' "$work/metrics"
}

theirs() {
    "$BUILD/ddprun" --no_prefix --nproc_per_node=2 "$PYTHON" tests/bench/torch/models.py "$1" "$2" "$3" 2>/dev/null
}

for ((round = 0; round < rounds && (round == 0 || SECONDS < 100); round++)); do
    for case in "${cases[@]}"; do
        IFS='|' read -r model _ batch steps words <<<"$case"
        echo "$model $batch ours $(ours 2 "$model" "$batch" "$steps" "$words")"
        echo "$model $batch one $(ours 1 "$model" "$batch" "$steps" "$words")"
        [ -n "$why" ] || echo "$model $batch torch $(theirs "$model" "$batch" "$steps")"
    done
done >"$work/times"

{ true >&3; } 2>/dev/null || exec 3>/dev/null
printf '%s\n' "${cases[@]}" >"$work/cases"
sort -k1,1 -k2,2n -k3,3 -k4,4g "$work/times" | awk -v why="$why" -v torch="${torch:-none}" -v rounds="$round" -v cases="$work/cases" '
    { key = $1 " " $2 " " $3; n[key]++; ms[key, n[key]] = $4 }
    function median(key, half) { half = (n[key] + n[key] % 2) / 2; return n[key] % 2 ? ms[key, half] : (ms[key, half] + ms[key, half + 1]) / 2 }
    END {
        print "train, a step of 2 workers (Adam, float32, one thread each), median of " rounds " rounds, ms; and one worker on its own batch:"
        print ""
        print "| model | batch of a worker | train | PyTorch DDP, Gloo (torch " torch ") | train takes | one worker | 1 -> 2 workers |"
        print "|---|---:|---:|---:|---:|---:|---:|"
        while ((getline line < cases) > 0) {
            split(line, c, "|"); key = c[1] " " c[3]
            two = median(key " ours"); one = median(key " one"); peer = key " torch"
            printf "| %s | %d x %s | %.2f | %s | %s | %.2f | %.2f x |\n", c[1], c[3], c[2], two,
                peer in n ? sprintf("%.2f", median(peer)) : why, peer in n ? sprintf("%.2f x", two / median(peer)) : "-", one, 2 * one / two
            printf "{\"bench\":\"train\",\"model\":\"%s\",\"batch\":%d,\"train_ms\":%.4f,\"one_worker_ms\":%.4f,\"torch_ms\":%s}\n",
                c[1], c[3], two, one, peer in n ? median(peer) : "null" > "/dev/fd/3"
        }
    }'

for ((round = 0; round < epoch_rounds; round++)); do
    speeds 1
    speeds 2
done | sort -k1,1n -k2,2n -k3,3g | awk -v rounds="$epoch_rounds" -v epochs="$epochs" '
    { key = $1 " " $2; n[key]++; speed[key, n[key]] = $3 }
    function median(key, half) { half = (n[key] + n[key] % 2) / 2; return n[key] % 2 ? speed[key, half] : (speed[key, half] + speed[key, half + 1]) / 2 }
    END {
        print ""
        print "train, samples/s of each epoch of the mlp (60000 pictures, batch 100 a worker), median of " rounds " runs; expected: last / first of at least 0.8:"
        print ""
        head = "| workers |"; rule = "|---:|"
        for (e = 1; e <= epochs; e++) { head = head " " e " |"; rule = rule "---:|" }
        print head " last / first |"
        print rule "---:|"
        for (w = 1; w <= 2; w++) {
            row = "| " w " |"
            for (e = 1; e <= epochs; e++) row = row sprintf(" %.0f |", median(w " " e))
            ratio = median(w " " epochs) / median(w " 1")
            printf "%s %.2f |\n", row, ratio
            printf "{\"bench\":\"train_epochs\",\"workers\":%d,\"first_samples_s\":%.0f,\"last_samples_s\":%.0f,\"ratio\":%.3f}\n",
                w, median(w " 1"), median(w " " epochs), ratio > "/dev/fd/3"
        }
    }'
