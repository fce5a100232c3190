#!/usr/bin/env bash
# soak.sh -- runs N (200) jobs on several hosts, each with one random fault. For each fault, prints how the jobs ended.
# To repeat a failed run, set SEED to the seed of this run, and set N to 1.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

BUILD=${BUILD:-build}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
seed=${SEED:-$((RANDOM * 32768 + RANDOM))}
"$BUILD/make-data" --out "$dir/data" --samples 2000 --test_samples 100 >/dev/null || exit

echo "== ${N:-200} runs from seed $seed on"
SOAK_RUNS=${N:-200} SOAK_SEED=$seed SOAK_DATA=$dir/data SOAK_TALLY=$dir/tally CRITERION_JOBS=${JOBS:-4} \
    "$BUILD/tests/nodes/soak" 2>&1 | grep -v '^\[----\] *$' >"$dir/out"
rc=${PIPESTATUS[0]}
[ "$rc" -eq 0 ] && [ -z "${SOAK_SHOW:-}" ] || cat "$dir/out"
touch "$dir/tally"
awk '{ n[$1]++; end[$1, $2]++; all[$2]++; if ($2 == "wrong") seeds = seeds " " $3 }
    END {
        printf "%-16s %5s %10s %11s %6s\n", "fault", "runs", "ended well", "named cause", "wrong"
        for (f in n) printf "%-16s %5d %10d %11d %6d\n", f, n[f], end[f, "well"], end[f, "cause"], end[f, "wrong"] | "sort"
        close("sort")
        printf "%-16s %5d %10d %11d %6d\n", "all", NR, all["well"], all["cause"], all["wrong"]
        if (seeds != "") print "wrong with seed" seeds
    }' "$dir/tally"
missing=$((${N:-200} - $(wc -l <"$dir/tally")))
[ "$missing" -eq 0 ] || echo "$missing run(s) did not get to their end: $(grep -m1 -o 'skipped, because.*' "$dir/out")"
exit "$rc"
