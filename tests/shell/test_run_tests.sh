#!/usr/bin/env bash
# Test which suites scripts/run-tests.sh counts as failed. A copy of the script runs suites of a few lines in a
# separate tree.
# shellcheck source=tests/shell/tap.sh disable=SC2317,SC2016  # `check` calls the functions; suites expand the quoted text
. "$(dirname "$0")/tap.sh"

mkdir -p "$tmp/tree/scripts"
cp scripts/run-tests.sh "$tmp/tree/scripts"
touch "$tmp/tree/scripts/suites.txt"

# suite NAME < COMMANDS -- makes a suite whose only test passes, and which then runs the commands.
suite() {
    { echo 'echo "ok 1 - is passed"' && cat; } >"$tmp/$1.sh"
}

# leak FRAME... -- prints commands that report a leak with this stack, as AddressSanitizer does.
leak() {
    cat <<'END'
log=${ASAN_OPTIONS#log_path=}
exec >"${log%%:*}.1"
echo '==1==ERROR: LeakSanitizer: detected memory leaks'
echo '    #0 0x1 in malloc /usr/lib/libasan.so.8'
END
    printf "echo '    #1 0x2 in %s'\n" "$@"
}

# Run a suite in an empty environment, because the run around this test must not count its result.
run_suite() {
    env -i PATH="$PATH" TEST_TIMEOUT="${limit:-60}" DDP_AGAIN="${again:-}" bash "$tmp/tree/scripts/run-tests.sh" "$tmp/$1.sh"
}

suite good </dev/null
suite exits <<<'exit 3'
suite hangs <<<'exec sleep 60'
suite leaks < <(leak 'test_x tests/unit/test_x.c:7' && echo 'exit 1')
suite leaks_behind_criterion < <(leak 'test_x tests/unit/test_x.c:7' 'cr /lib/libcriterion.so.3' && echo 'exit 0')
suite criterion_leaks < <(leak 'cr /lib/libcriterion.so.3' && echo 'exit 1')
suite criterion_leaks_and_exits < <(leak 'cr /lib/libcriterion.so.3' && echo 'exit 3')
suite criterion_leaks_and_hangs < <(leak 'cr /lib/libcriterion.so.3' && echo 'exec sleep 60')
suite ends_a_thread <<'END'
log=${ASAN_OPTIONS#log_path=}
echo '==9==Unable to get registers from thread 5.' >"${log%%:*}.9"
END

check "a suite passes if its tests pass" run_suite good
check "a suite with another exit status fails" fails run_suite exits
limit=1 check "a suite that does not end fails" fails run_suite hangs
check "a suite with a leak fails" fails run_suite leaks
check "a suite with a leak fails even if its exit status is 0" fails run_suite leaks_behind_criterion
check "a leak in Criterion is not a failure" run_suite criterion_leaks
check "a leak in Criterion does not hide another exit status" fails run_suite criterion_leaks_and_exits
check "a message about a thread that exits is not a failure" run_suite ends_a_thread
limit=1 check "a leak in Criterion does not hide a timeout" fails run_suite criterion_leaks_and_hangs

# With DDP_AGAIN=1, a suite that fails runs again. A report of a sanitizer counts as a failure even if it occurs only
# once.
once='[ ! -e "$0.ran" ] || exit 0; touch "$0.ran"'
suite exits_once <<<"$once; exit 3"
suite leaks_once < <(echo "$once" && leak 'test_x tests/unit/test_x.c:7' && echo 'exit 1')
again=1 check "a suite that fails once passes in its second run" run_suite exits_once
again=1 check "a suite that fails twice fails" fails run_suite exits
again=1 check "a suite with one report of a sanitizer fails" fails run_suite leaks_once
finish
