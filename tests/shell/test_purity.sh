#!/usr/bin/env bash
# Prove that the checks of `make purity` can fail. They must detect a module that reads the clock, a needless public
# function, an include that scripts/layers.sh forbids, a circle, and stilted English.
# shellcheck source=tests/shell/tap.sh disable=SC2317  # `check` calls the functions
. "$(dirname "$0")/tap.sh"

compile() {
    ${CC:-gcc} -std=c11 -O2 -c -x c - -o "$tmp/$1.o"
}

names_the_clock() {
    scripts/purity.sh "$tmp/clock.o" | grep -E 'impure .*clock imports: time$'
}

names_the_public_function() {
    scripts/purity.sh "$tmp/clock.o" | grep -E 'clock.c: only this file uses now, so it must be static$'
}

complains_about_no_object_but() {
    ! scripts/purity.sh "$@" | grep -F "$tmp/text"
}

# Run a copy of the script in a small separate tree.
includes_against_the_arrows() {
    mkdir -p "$tmp"/tree/{scripts,worker/core,rendezvous/hub}
    cp scripts/layers.sh "$tmp/tree/scripts"
    touch "$tmp/tree/rendezvous/hub/hub.h"
    printf '#include "hub/hub.h"\n#include <uv.h>\n' >"$tmp/tree/worker/core/wrong.c"
    ! "$tmp/tree/scripts/layers.sh" worker/core/wrong.c >"$tmp/layers" &&
        grep -q 'worker/core must not include rendezvous/hub/hub.h' "$tmp/layers" &&
        grep -q 'worker/core must not include <uv.h>' "$tmp/layers"
}

echo '#include <time.h>
long now(void); long now(void) { return (long)time(0); }' | compile clock
echo '#include <string.h>
int main(int n, char **words) { return n + (int)strlen(words[0]); }' | compile text

# Detect two files that call each other.
names_both() {
    ! scripts/circles.sh "$tmp/ping.o" "$tmp/pong.o" >"$tmp/circles" &&
        grep -q "$tmp/ping" "$tmp/circles" && grep -q "$tmp/pong" "$tmp/circles"
}

echo 'int ping(int n); int pong(int n); int ping(int n) { return n > 0 ? pong(n - 1) : 0; }' | compile ping
echo 'int ping(int n); int pong(int n); int pong(int n) { return n > 0 ? ping(n - 1) : 0; }' | compile pong

# Detect a circle of concepts in which no two files call each other.
names_the_concepts() {
    ! scripts/circles.sh "$tmp/left_a.o" "$tmp/left_b.o" "$tmp/right.o" >"$tmp/circles" &&
        grep -q 'circle of concepts' "$tmp/circles" && grep -qx " *$tmp/left" "$tmp/circles" && ! grep -q 'circle of files' "$tmp/circles"
}

echo 'int left_a(void); int right(void); int left_a(void) { return right(); }' | compile left_a
echo 'int left_b(void); int left_b(void) { return 1; }' | compile left_b
echo 'int right(void); int left_b(void); int right(void) { return left_b(); }' | compile right

# Write one stilted phrase into each kind of text.
detects_stilted_english() {
    mkdir -p "$tmp/text/scripts"
    cp scripts/english.sh "$tmp/text/scripts"
    printf '/* Whoever waits is told of it. */\nconst char *text = "nobody has come";\n' >"$tmp/text/bad.c"
    echo 'There is none.' >"$tmp/text/bad.md"
    ! "$tmp/text/scripts/english.sh" --list >"$tmp/english" && grep -q '^bad.c:1: Whoever' "$tmp/english" &&
        grep -q '^bad.c:2: nobody' "$tmp/english" && grep -q '^bad.md:1: There is none' "$tmp/english"
}

# The script must report neither headings of groups nor imperatives that end with -s.
detects_a_function_comment_without_a_verb() {
    printf '/* Returns the number of `key`. */\nint a(int key);\n/* The number. */\nstatic const int *b(int key)\n{\n' >"$tmp/text/bad.c"
    printf '/* Process a key. */\nint c(int key);\n\n/* The keys of a store: */\nint d(void);\n\n/* The last. */\n\nint e(void);\n' >"$tmp/text/good.c"
    ! "$tmp/text/scripts/english.sh" >"$tmp/english" && [ "$(grep -c 'begins with a verb' "$tmp/english")" = 2 ] &&
        grep -q '^bad.c:1: .*"Returns"' "$tmp/english" && grep -q '^bad.c:3: .*"The"' "$tmp/english"
}

# The script must report neither the names of variables nor a code with a row.
detects_a_code_without_a_row() {
    mkdir -p "$tmp/codes"/{scripts,launcher,rendezvous/diagnosis}
    cp scripts/english.sh "$tmp/codes/scripts"
    echo '    X(PORT_IN_USE, ERROR, "port", "stop it")' >"$tmp/codes/rendezvous/diagnosis/findings.h"
    printf '%s\n' 'return held ? "PORT_IN_USE" : "CANNOT_SING";' 'code = "PORT_IN_USE";' 'getenv("NO_COLOR");' 'log("no [SONG_LEFT]");' \
        'return code != 0 ? name(code) : "NO_SONG";' 'host_fail(o, "BAD_SONG", words);' >"$tmp/codes/launcher/bad.c"
    ! "$tmp/codes/scripts/english.sh" >"$tmp/english" && [ "$(grep -c 'has no row' "$tmp/english")" = 3 ] &&
        grep -q '^launcher/bad.c:4: .* SONG_LEFT ' "$tmp/english" && grep -q '^launcher/bad.c:5: .* NO_SONG ' "$tmp/english" &&
        grep -q '^launcher/bad.c:6: .* BAD_SONG ' "$tmp/english"
}

# The script must report a literal in two parts, and a literal with values in place of conversions. It must report
# neither the golden file, nor a message of the test, nor two words in a row, nor words with another punctuation mark.
detects_a_sentence_in_a_test() {
    mkdir -p "$tmp/golden"/{scripts,rendezvous,launcher,worker,include} "$tmp/golden"/tests/{e2e,lib,nodes,shell,sim,socket,survivors,unit/base}
    sed "s/^my \$limit = .*/my \$limit = 0;/; /^golden='/,/^'/c golden='base unit/base/test_gold'" scripts/wording.sh >"$tmp/golden/scripts/wording.sh"
    chmod +x "$tmp/golden/scripts/wording.sh"
    touch "$tmp/golden/scripts/hangs.py"
    printf '%s\n' 'const char *text = "rank %d sings a green song aloud";' \
        'const char *count = "%d bird%s of %s (%d left): gone";' >"$tmp/golden/rendezvous/product.c"
    echo 'cr_assert_str_eq(got, "rank 3 sings a green song aloud");' >"$tmp/golden/tests/unit/base/test_gold.c"
    printf '%s\n' 'cr_assert(strstr(got, "rank 3") && strstr(got, "green song"), "rank 3 sings a green");' \
        'says("2 birds of node 7; left: gone"); says("2 birds of node 7"); says("(3 left): gone");' >"$tmp/golden/tests/e2e/test_good.c"
    "$tmp/golden/scripts/wording.sh" || return 1
    printf '%s\n' 'cr_assert(strstr(got, "rank 3 sings a "' '"green song"));' 'says("2 birds of node 7 (3 left)");' \
        'says("1 bird of n1 (0 left)");' >"$tmp/golden/tests/e2e/test_bad.c"
    echo "grep 'sings a green' log" >"$tmp/golden/tests/shell/test_bad.sh"
    ! "$tmp/golden/scripts/wording.sh" --list >"$tmp/wording" && grep -q '^tests/e2e/test_bad.c:1: "rank \* sings a"' "$tmp/wording" &&
        grep -q '^tests/e2e/test_bad.c:3: "birds of \* left"' "$tmp/wording" && grep -q '^tests/e2e/test_bad.c:4: "bird of \* left"' "$tmp/wording" &&
        grep -q '^tests/shell/test_bad.sh:1: ' "$tmp/wording" && [ "$(grep -c '^tests/' "$tmp/wording")" = 4 ]
}

check "a module that reads the clock is not pure" fails scripts/purity.sh "$tmp/clock.o"
check "the message names the module and the symbol" names_the_clock
check "a function that only its file uses is found" names_the_public_function
check "a module that only counts letters is pure" complains_about_no_object_but "$tmp/text.o"
check "an include that scripts/layers.sh forbids is found" includes_against_the_arrows
check "all pure modules are pure" scripts/purity.sh
check "all includes follow the layers" scripts/layers.sh
check "files that call each other are found and named" names_both
check "a circle of concepts is found even if files have no circle" names_the_concepts
check "no circle of files or concepts exists" scripts/circles.sh
check "stilted English is found with its place" detects_stilted_english
check "a function comment that does not begin with an imperative is found" detects_a_function_comment_without_a_verb
check "the texts are plain English" scripts/english.sh
check "a finding code that ddprun explain does not explain is found" detects_a_code_without_a_row
check "a sentence that a test compares outside of its golden file is found" detects_a_sentence_in_a_test
check "tests compare sentences in golden files only" scripts/wording.sh
finish
