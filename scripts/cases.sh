#!/usr/bin/env bash
# cases.sh -- prints the rows of tests/nodes/cases as a table, each with the tests that cover it. The script fails if a
# row has no test, or if a test names an unknown row, so that the table stays true.

# A SCENE or a MISSING_RANK names its cases in its row (.cases = "F05 F44"). A shell test names its case in a comment
# ("# --- F14: ...").
set -euo pipefail
cd "$(dirname "$0")/.."

# Print lines "F05 waits::followers_are_no_causes".
named() {
    cat tests/nodes/test_*.c | awk 'BEGIN { RS = "(SCENE|MISSING_RANK)\\(" }
        match($0, /\.cases = "[^"]*"/) {
            n = split(substr($0, RSTART + 10, RLENGTH - 11), cases, " ")
            split($0, names, /[ \n,]+/)
            test = names[1] == "" ? names[2] "::" names[3] : names[1] "::" names[2]
            for (i = 1; i <= n; i++)
                print cases[i], test
        }'
    grep -oE '^# --- (F[0-9]{2}): ' tests/shell/test_*.sh | sed -E 's/(.*):# --- (F..): /\2 \1/'
}

awk '
    FNR == NR { tests[$1] = tests[$1] (tests[$1] ? ", " : "") "`" $2 "`"; next }
    /^#/ || NF == 0 { next }
    !head++ { print "| case | what users meet | tests |\n|---|---|---|" }
    {
        name = $1
        sub(/^[^ ]+ /, "")
        print "| " name " | " $0 " | " (name in tests ? tests[name] : "none") " |"
        bad += !(name in tests)
        delete tests[name]
    }
    END {
        for (name in tests) {
            print "cases.sh: " tests[name] ": there is no case " name > "/dev/stderr"
            bad++
        }
        exit bad > 0
    }' <(named) tests/nodes/cases
