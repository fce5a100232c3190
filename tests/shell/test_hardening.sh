#!/usr/bin/env bash
# Check that every program and shared library has Debian's hardening: full RELRO, PIE, no executable stack, stack
# protector and FORTIFY. If the compiler supports the processor's control-flow protection, check for it, too.
# shellcheck source=tests/shell/tap.sh disable=SC2317  # `check` calls the functions
. "$(dirname "$0")/tap.sh"

programs=()
for name in ddprun ddp-rendezvous ddpctl train make-data ddp-bench; do
    programs+=("$BUILD/$name")
done
libraries=("$BUILD/libddp.so" "$BUILD/libddp_cuda.so")
all=("${programs[@]}" "${libraries[@]}")

skip() {
    count=$((count + 1))
    echo "ok $count - $1 # SKIP skipped, because $2"
}

# accepts FLAG -- succeeds if the compiler supports the flag on this machine.
accepts() {
    echo 'int main(void) { return 0; }' | ${CC:-gcc} -Werror "$1" -x c -c - -o /dev/null 2>/dev/null
}

# each PATTERN READELF-OPTION FILE... -- succeeds if readelf prints a line with the pattern for every file. Prints the
# files without such a line.
each() {
    local pattern=$1 option=$2 file bad=0
    shift 2
    for file in "$@"; do
        readelf -W "$option" "$file" >"$tmp/readelf" || return 1
        grep -qE "$pattern" "$tmp/readelf" || { echo "$file: no line of readelf $option matches $pattern"; bad=1; }
    done
    return "$bad"
}

was_built_with() {
    grep -qE -- "(^| )$1( |\$)" "$BUILD/flags"
}

mapfile -t objects < <(find "$BUILD"/obj/{rendezvous,launcher,worker} -name '*.o' | while IFS= read -r object; do
    source=${object#"$BUILD"/obj/}
    [ ! -f "${source%.o}.c" ] || echo "$object"
done)

check "there are objects to check" test "${#objects[@]}" -gt 100
check "relocations are read-only" each GNU_RELRO --program-headers "${all[@]}"
check "symbols are bound at start" each 'FLAGS.*NOW' --dynamic "${all[@]}"
check "no stack is executable" each 'GNU_STACK.* RW +0x' --program-headers "${all[@]}"
check "every program is position-independent" each 'FLAGS_1.*PIE' --dynamic "${programs[@]}"
check "every program and library has the stack protector" each '__stack_chk_fail' --dyn-syms "${all[@]}"
if was_built_with -O0 || was_built_with '-fsanitize=.*'; then
    skip "every program has fortified calls" "$BUILD is built with -O0 or a sanitizer"
else
    check "every program has fortified calls" each '__[a-z]+_chk' --dyn-syms "${programs[@]}" "$BUILD/libddp.so"
fi
if accepts -fstack-clash-protection; then
    check "stacks cannot jump over their guard page" was_built_with -fstack-clash-protection
fi
if accepts -fcf-protection; then
    check "every object has branch and shadow-stack protection" each 'x86 feature: IBT, SHSTK' --notes "${objects[@]}"
elif accepts -mbranch-protection=standard; then
    check "every object has branch protection" each 'AArch64 feature: BTI, PAC' --notes "${objects[@]}"
else
    skip "every object has branch protection" "${CC:-gcc} has none for $(uname -m)"
fi
finish
