#!/usr/bin/env bash
# run-tests.sh SUITE... -- runs several test programs at the same time. A suite is a Criterion program, which writes a
# TAP file, or a shell script that prints TAP. The last line has the form `N passed, N failed, N skipped`, which scripts
# can add up.

# Each suite has TEST_TIMEOUT seconds (900). Sanitizers write their reports to log files: a report does not make a
# Criterion test fail, and reports of programs that a test starts would be lost. A suite that leaves a log has failed.
#
# When a suite has ended, the script prints its line with elapsed and CPU time, and the output of a failed suite.
# scripts/suites.txt lists the suites that begin first, because these suites take long. It also lists the suites that
# run alone after all other suites.
#
#     JOBS       number of suites that run at a time (the number of processors plus two, because suites mostly wait)
#     TEST_JOBS  number of tests of a suite that run at a time (twice the number of processors; for a suite that runs
#                alone, the number of processors)
#     BUILD      folder of the logs (build)
#     DDP_BUILD  folder of the programs that end-to-end tests start (the test's own build folder)
#     DDP_AGAIN  1: a failed suite without a sanitizer's report runs once more at the end, alone. Only the second result
#                counts. The output of the first run is printed, and the file DDP_TALLY.again gets the suite's name.
#     DDP_TALLY  a file that gets a line `name passed failed skipped`, for a script that sums up several runs. The file
#                DDP_TALLY.failed gets the reason of each failed suite, in a few lines.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

BUILD=${BUILD:-build}
LOGS=$PWD/$BUILD/test-logs
[ -z "${DDP_BUILD:-}" ] || LOGS=$PWD/$DDP_BUILD/test-logs
limit=${TEST_TIMEOUT:-900}
jobs=${JOBS:-$(($(nproc) + 2))}
test_jobs=${TEST_JOBS:-$((2 * $(nproc)))}
leak_exit=1 # exit status of a program in which AddressSanitizer has found only leaks
passed=0 failed=0 skipped=0 failed_names=() skipped_lines=() again=()
export BUILD

rm -rf "$LOGS"
mkdir -p "$LOGS"

# The sanitizers must not handle these signals, because in some tests a worker dies of such a signal on purpose.
leave_signals=handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0

sanitizer_options() {
    local log=$LOGS/$1.sanitizer
    export ASAN_OPTIONS=log_path=$log:$leave_signals:detect_leaks=1:detect_stack_use_after_return=1
    export UBSAN_OPTIONS=log_path=$log:$leave_signals:print_stacktrace=1
    # ThreadSanitizer mistakes the launcher's clone(CLONE_VM | CLONE_VFORK) for a fork of a process with threads. With
    # die_after_fork=0, ThreadSanitizer does not end the process.
    export TSAN_OPTIONS=log_path=$log:$leave_signals:exitcode=66:die_after_fork=0:suppressions=$PWD/scripts/tsan.supp
    export LSAN_OPTIONS=suppressions=$PWD/scripts/lsan.supp:print_suppressions=0
}

# Some kernels randomize addresses more than an old ThreadSanitizer supports. In this case, run the programs with fixed
# addresses.
without_random_layout=()
if [ -x "${DDP_BUILD:-}/ddprun" ] && ! "$DDP_BUILD/ddprun" --version >/dev/null 2>&1 &&
    setarch -R "$DDP_BUILD/ddprun" --version >/dev/null 2>&1; then
    without_random_layout=(setarch -R)
fi

# If this limit is infinite, ddprun raises its priority while it kills processes. Under ThreadSanitizer, ddprun may then
# spin and wait for another thread, which never runs. So set a finite limit.
[ -z "${DDP_BUILD:-}" ] || ulimit -S -R 1000000 2>/dev/null || true

# Unset the variables that a scheduler, another launcher or the user has set for jobs, because tests must not depend on
# these variables.
umask 022
while read -r variable; do
    [[ $variable =~ ^(PATH|PWD|HOME|USER|LANG|TMPDIR|PYTHON|BUILD|DDP_.*|CC|WERROR|CCACHE_.*|LD_LIBRARY_PATH|.*SAN_OPTIONS)$ ]] ||
        unset "$variable" 2>/dev/null
done < <(compgen -e)
[[ ${TMPDIR:-} != *[[:space:]]* ]] || unset TMPDIR # make does not support blanks in names

# If a shell starts this script in the background, SIGINT and SIGQUIT are ignored. Other parents may ignore more
# signals. Some tests send signals, so reset all signals to their defaults.
all_signals=(env --default-signal)
"${all_signals[@]}" true 2>/dev/null || all_signals=()

# --- one suite --------------------------------------------------------------------------------------------------------
name_of() {
    local name=${1#"$BUILD"/}
    echo "${name#tests/}"
}

# Count the results in the suite's TAP as n_ok, n_bad and n_skip. Append each skipped test with its reason to
# skipped_lines.
count_tap() {
    local line
    n_ok=0 n_bad=0 n_skip=0
    while IFS= read -r line; do
        case $line in
        'ok'*'# SKIP'* | 'not ok'*'# SKIP'*)
            n_skip=$((n_skip + 1))
            line=${line#*ok }
            skipped_lines+=("$name: $(sed -E 's/^[0-9]* ?- *//; s/ *# SKIP */: /' <<<"$line")")
            ;;
        'not ok'*) n_bad=$((n_bad + 1)) ;;
        'ok'*) n_ok=$((n_ok + 1)) ;;
        esac
    done <"$tap"
}

show() {
    sed 's/^/    | /' "$1" | tail -n "${2:-400}"
}

# Print the important lines of a failed suite: the end of its output, and the beginning of each sanitizer report.
show_briefly() {
    local log
    echo "  ${DDP_TALLY_NAME:-tests}: $name${why:+: $why}"
    [[ $suite != *.sh ]] || grep '^not ok' "$tap" | sed 's/^/    | /' | tail -n 8
    show "$out" 16
    for log in "${logs[@]}"; do
        sed -e '/^ *$/d' -e 's/^/    | /' "$log" | head -n 16
    done
}

show_all() {
    [[ $suite != *.sh ]] || show "$tap"
    show "$out"
    for log in "${logs[@]}"; do
        show "$log" 120
    done
}

# Criterion leaks the note about a skipped test. A suppression by the name of Criterion's library would also hide our
# leaks, because Criterion calls every test. So return true only if no other code appears in the whole report.
leaks_of_criterion_only() {
    grep -q 'LeakSanitizer: detected memory leaks' "$1" &&
        ! grep -E '^ +#[0-9]+ ' "$1" | grep -qvE '/lib(asan|sanitizer)|/libcriterion\.so'
}

# LeakSanitizer writes this line when a thread ends while it stops all threads. The line is not a finding.
notes_only() {
    ! grep -qvE '^==[0-9]+==Unable to get registers from thread [0-9]+\.$' "$1"
}

# Run a suite in this process, which must run nothing else: the CPU time of this process is then the CPU time of the
# suite. SIGTERM ends the suite.
run_suite() {
    local suite=$1 name file rc=0
    name=$(name_of "$suite") file=${name//\//.}
    local tap=$LOGS/$file.tap
    : >"$tap"
    sanitizer_options "$file"
    echo "${EPOCHREALTIME/[.,]/}" >"$LOGS/$file.start"
    case $suite in
    *.sh) "${all_signals[@]}" timeout -k 5 "$limit" bash "$suite" >"$tap" 2>"$LOGS/$file.out" </dev/null & ;;
    *)
        "${all_signals[@]}" timeout -k 5 "$limit" "${without_random_layout[@]}" "$suite" --jobs="$test_jobs" \
            --tap="$tap" >"$LOGS/$file.out" 2>&1 </dev/null &
        ;;
    esac
    # shellcheck disable=SC2064  # the process id of now
    trap "kill $!" TERM
    wait $! || rc=$?
    times >"$LOGS/$file.times"
    exit "$rc"
}

# judge SUITE STATUS -- adds the results of a suite that has ended to the sums, and prints its line.
judge() {
    local suite=$1 rc=$2 name file found log why='' logs=() word=ok ms cpu_ms=0 time
    name=$(name_of "$suite") file=${name//\//.}
    local out=$LOGS/$file.out tap=$LOGS/$file.tap
    ms=$(((${EPOCHREALTIME/[.,]/} - $(cat "$LOGS/$file.start")) / 1000))
    for time in $(tail -n 1 "$LOGS/$file.times" 2>/dev/null); do
        [[ $time =~ ^([0-9]+)m([0-9]+)[.,]([0-9]+)s$ ]]
        cpu_ms=$((cpu_ms + BASH_REMATCH[1] * 60000 + BASH_REMATCH[2] * 1000 + 10#${BASH_REMATCH[3]}))
    done
    rm -f "$LOGS/$file.start" "$LOGS/$file.times"
    count_tap
    mapfile -t found < <(compgen -G "$LOGS/$file.sanitizer*")
    for log in "${found[@]}"; do
        leaks_of_criterion_only "$log" || notes_only "$log" || logs+=("$log")
    done
    # Criterion's own leak changes the exit status, which is not a failure. Any other exit status is a failure, for
    # example after a timeout or a crash.
    [ ${#found[@]} -eq ${#logs[@]} ] || [ "$rc" -ne "$leak_exit" ] || rc=0
    if [ "$rc" -eq 124 ] || [ "$rc" -eq 137 ]; then
        why="not finished after $limit s"
    elif [ ${#logs[@]} -gt 0 ]; then
        why="${#logs[@]} sanitizer report(s)"
    elif [ "$rc" -ne 0 ] && [ "$n_bad" -eq 0 ]; then
        why="exit status $rc"
    elif [ $((n_ok + n_bad + n_skip)) -eq 0 ]; then
        why="no test in it has run"
    fi
    [ -z "$why" ] || n_bad=$((n_bad + 1))
    if [ "$n_bad" -ne 0 ] && [ "${DDP_AGAIN:-}" = 1 ] && [ ${#logs[@]} -eq 0 ]; then
        printf '  %-7s %-32s %4d failed %5d ms%s\n' again "$name" "$n_bad" "$ms" "${why:+   $why}"
        show_all
        again+=("$suite")
        return
    fi
    passed=$((passed + n_ok)) failed=$((failed + n_bad)) skipped=$((skipped + n_skip))
    [ "$n_bad" -eq 0 ] || word=FAILED
    printf '  %-7s %-32s %4d tests %6d ms, CPU %6d ms%s\n' "$word" "$name" $((n_ok + n_bad + n_skip)) "$ms" "$cpu_ms" \
        "${why:+   $why}"
    if [ "$n_bad" -ne 0 ]; then
        failed_names+=("$name")
        [ -z "${DDP_TALLY:-}" ] || show_briefly >>"$DDP_TALLY.failed"
        show_all
    fi
}

# --- all suites -------------------------------------------------------------------------------------------------------
# called WORD SUITE... -- prints each SUITE that has a line with WORD in scripts/suites.txt, in the order of these lines.
called() {
    local word name suite
    while read -r word name _; do
        [ "$word" = "$1" ] || continue
        for suite in "${@:2}"; do
            [ "$(name_of "$suite")" != "$name" ] || echo "$suite"
        done
    done <scripts/suites.txt
}

declare -A running=() # process id -> suite
wait_for_one() {
    local pid rc=0
    wait -n -p pid "${!running[@]}" || rc=$?
    judge "${running[$pid]}" "$rc"
    unset "running[$pid]"
}

# run_all AT_A_TIME SUITE... -- runs the suites, at most AT_A_TIME at the same time.
run_all() {
    local at_a_time=$1 suite
    for suite in "${@:2}"; do
        while [ ${#running[@]} -ge "$at_a_time" ]; do
            wait_for_one
        done
        run_suite "$suite" &
        running[$!]=$suite
    done
    while [ ${#running[@]} -gt 0 ]; do
        wait_for_one
    done
}

# End all running suites. `timeout` passes the signal on to its suite.
end_early() {
    [ ${#running[@]} -eq 0 ] || kill "${!running[@]}"
    exit 130
}
trap end_early INT TERM HUP

mapfile -t first < <(called first "$@")
mapfile -t alone < <(called alone "$@")
rest=()
for suite in "$@"; do
    [[ " ${first[*]} ${alone[*]} " == *" $suite "* ]] || rest+=("$suite")
done
run_all "$jobs" "${first[@]}" "${rest[@]}"
test_jobs=${TEST_JOBS:-$(nproc)}
run_all 1 "${alone[@]}"
if [ ${#again[@]} -gt 0 ]; then
    DDP_AGAIN=
    [ -z "${DDP_TALLY:-}" ] || printf '  %s\n' "${again[@]/#/${DDP_TALLY_NAME:-tests}: }" >>"$DDP_TALLY.again"
    run_all 1 "${again[@]}"
fi

[ ${#skipped_lines[@]} -eq 0 ] || printf '  skipped %s\n' "${skipped_lines[@]}"
[ ${#failed_names[@]} -eq 0 ] || echo "  failed in: ${failed_names[*]} (logs: $LOGS)"
[ -z "${DDP_TALLY:-}" ] || echo "${DDP_TALLY_NAME:-tests} $passed $failed $skipped" >>"$DDP_TALLY"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
