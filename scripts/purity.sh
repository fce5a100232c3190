#!/usr/bin/env bash
# purity.sh [OBJECT.o...] -- checks that the modules of scripts/pure-modules (and the given objects) only compute.
#
# A list of what is allowed, not of what is forbidden: a pure object may import the C library's arithmetic, memory and text
# functions, cJSON, the matrix product, and what other pure objects define. So a pure module cannot reach a clock through
# a module of ours that is not pure either. Unlisted objects that would pass are named, to be added to the list.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}

allowed='
mem(cpy|move|set|cmp|chr|rchr|mem) str(len|nlen|cpy|ncpy|cat|ncat|cmp|ncmp|casecmp|ncasecmp|chr|rchr|str|spn|cspn|pbrk)
str(dup|ndup|sep|tok_r|tol|toll|toul|toull|tof|tod|error|signal) stpcpy
malloc calloc realloc free v?snprintf v?asprintf sscanf qsort bsearch
is(alnum|alpha|digit|print|space|xdigit|upper|lower) tolower toupper ctype_(b|tolower|toupper)_loc
(exp|log|log2|log10|pow|sqrt|fabs|floor|ceil|round|lround|llround|fmin|fmax|fmod|sin|cos|tanh|hypot|ldexp|nearbyint|rint)f?
cJSON_[A-Za-z0-9]+ cblas_[sd](gemm|gemv|axpy|scal|dot) crc32(_z)? adler32
errno_location stack_chk_fail assert_fail GLOBAL_OFFSET_TABLE_
'
pattern="^($(xargs <<<"$allowed" | tr ' ' '|'))\$"

# Prints the imports of $1 that neither the pattern nor a symbol defined in the file $2 allows. The C library's names
# for the same functions are undressed first: __memcpy_chk -> memcpy, __isoc99_sscanf -> sscanf.
foreign_imports() {
    nm -u "$1" | awk '{ print $2 }' | sed -E 's/@.*//' | sort -u | comm -23 - "$2" |
        while IFS= read -r symbol; do
            bare=$(sed -E 's/^__isoc(99|23)_//; s/^_+//; s/_chk$//; s/_finite$//' <<<"$symbol")
            grep -Eq "$pattern" <<<"$bare" || echo "$symbol"
        done
}

objects=() bad=0
while read -r module; do
    if [ -f "$module.c" ]; then
        objects+=("$BUILD/obj/$module.o")
    else
        echo "  impure  $module: listed in scripts/pure-modules, but there is no $module.c"
        bad=$((bad + 1))
    fi
done < <(grep -v '^#' scripts/pure-modules)
objects+=("$@")

own=$(mktemp)
trap 'rm -f "$own"' EXIT
nm --defined-only --extern-only "${objects[@]}" | awk 'NF == 3 { print $3 }' | sort -u >"$own"

for object in "${objects[@]}"; do
    imports=$(foreign_imports "$object" "$own" | xargs)
    if [ -n "$imports" ]; then
        echo "  impure  ${object#"$BUILD"/obj/} imports: $imports"
        bad=$((bad + 1))
    fi
done

while read -r object; do
    name=${object#"$BUILD"/obj/}
    if ! grep -qx "${name%.o}" scripts/pure-modules && [ -f "${name%.o}.c" ] &&
        [ -z "$(foreign_imports "$object" "$own")" ]; then
        echo "  note: ${name%.o} is pure, but not in scripts/pure-modules"
    fi
done < <(find "$BUILD/obj/rendezvous" "$BUILD/obj/launcher" "$BUILD/obj/worker" -name '*.o' 2>/dev/null | sort)

echo "purity: ${#objects[@]} modules, $bad of them not pure"
[ "$bad" -eq 0 ]
