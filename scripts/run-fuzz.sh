#!/usr/bin/env bash
# run-fuzz.sh SOURCE... -- runs the fuzz program of each SOURCE, a file tests/fuzz/fuzz_NAME.c, for FUZZ_SECONDS (60). A
# program begins with the seeds in tests/fuzz/corpus/NAME, and with the inputs that earlier runs have found
# ($BUILD/corpus/NAME), so that each run continues the search.

# JOBS programs run at a time (default: the number of cores). The last line is `N passed, N failed, N skipped`. An input
# that fails is kept in $BUILD/findings. The script prints the command that repeats the failure.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
BUILD=${BUILD:-build/fuzz}
seconds=${FUZZ_SECONDS:-60}
jobs=${JOBS:-$(nproc)}
passed=0 failed=0
mkdir -p "$BUILD/findings"

fuzz_one() {
    local name=$1 corpus=$BUILD/corpus/$1
    local seeds=tests/fuzz/corpus/$name
    mkdir -p "$corpus"
    set -- "$corpus"
    [ ! -d "$seeds" ] || set -- "$corpus" "$seeds"
    case $name in hub | session) set -- -dict=tests/fuzz/messages.dict "$@" ;; esac
    timeout -k 5 $((seconds + 60)) "$BUILD/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$BUILD/findings/$name-" "$@" \
        >"$BUILD/$name.log" 2>&1 </dev/null
    echo $? >"$BUILD/$name.rc"
}

for source in "$@"; do
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n
    done
    fuzz_one "$name" &
done
wait

for source in "$@"; do
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$BUILD/$name.log")
    if [ "$(cat "$BUILD/$name.rc")" -eq 0 ]; then
        passed=$((passed + 1))
        printf '  ok      fuzz/%-27s %9d inputs %4d s\n' "$name" "${runs:-0}" "$seconds"
    else
        failed=$((failed + 1))
        printf '  FAILED  fuzz/%s\n' "$name"
        tail -n 60 "$BUILD/$name.log" | sed 's/^/    | /'
        finding=$(find "$BUILD/findings" -name "$name-*" -newer "$source" | head -n 1)
        [ -z "$finding" ] || echo "    play it again: $BUILD/tests/fuzz/fuzz_$name $finding"
    fi
done

[ -z "${DDP_TALLY:-}" ] || echo "fuzz $passed $failed 0" >>"$DDP_TALLY"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
