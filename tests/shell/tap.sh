# tap.sh -- functions for the shell tests, which print TAP on stdout and the output of failed checks on stderr.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
BUILD=${BUILD:-build}
count=0
bad=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# check SENTENCE COMMAND... -- passes if the command succeeds; otherwise prints its output.
check() {
    local what=$1
    shift
    count=$((count + 1))
    if "$@" >"$tmp/check" 2>&1; then
        echo "ok $count - $what"
    else
        echo "not ok $count - $what"
        bad=$((bad + 1))
        sed 's/^/  /' "$tmp/check" >&2
    fi
}

# skip SENTENCE REASON -- counts a check, but does not run it.
skip() {
    count=$((count + 1))
    echo "ok $count - $1 # SKIP skipped, because $2"
}

# finish -- prints the plan and exits. A test script ends with this call.
finish() {
    echo "1..$count"
    exit $((bad > 0))
}

# fails COMMAND... -- succeeds if the command fails.
fails() {
    ! "$@"
}
