#!/usr/bin/env bash
# Check that libddp.so exports exactly the functions that include/ddp declares. Programs built with an earlier libddp
# must keep working. So every symbol must have the version in the list of the package libddp0, and the types must be
# those of the last tag.
# shellcheck source=tests/shell/tap.sh disable=SC2317  # `check` calls the functions
. "$(dirname "$0")/tap.sh"

list=scripts/package/debian/libddp0.symbols

# defined LIBRARY -- prints NAME@VERSION of each symbol. Versions are listed as symbols of type A.
defined() {
    nm -D --defined-only "$1" | awk '$2 == "A" { $3 = $3 "@" $3 } { sub(/@@/, "@", $3); print $3 ($3 ~ /@/ ? "" : "@Base") }' | sort
}
defined "$BUILD/libddp.so" | grep -v '^LIBDDP_' | sed 's/@.*//' >"$tmp/exported"
# A declaration may span several lines. So join all lines, and then take the name before the parenthesis.
cat include/ddp/*.h | tr '\n' ' ' | grep -oE 'DDP_API [^;(]*[ *]ddp_[a-z0-9_]+\(' |
    sed -E 's/.*[ *](ddp_[a-z0-9_]+)\($/\1/' | sort -u >"$tmp/declared"

nothing_but_ddp() {
    [ -s "$tmp/exported" ] && ! grep -v '^ddp_' "$tmp/exported"
}
in_declared_only() {
    ! comm -13 "$tmp/declared" "$tmp/exported" | grep .
}
in_library_only() {
    ! comm -23 "$tmp/declared" "$tmp/exported" | grep .
}
soname() {
    readelf -d "$BUILD/libddp.so" | grep -F "SONAME" | grep -F '[libddp.so.0]' &&
        readelf -d "$BUILD/libddp_cuda.so" | grep -F "SONAME" | grep -F '[libddp_cuda.so.0]'
}
# same_list SONAME LIBRARY -- compares the list with the library. `<` marks a row without a symbol, `>` a symbol
# without a row.
same_list() {
    diff <(awk -v soname="$1" '/^[a-z]/ { on = $1 == soname } on && /^ / { print $1 }' "$list" | sort) <(defined "$2") && return
    echo "$list: add a row for a new symbol; a removed symbol or another version breaks existing programs"
    return 1
}
nothing_of_nvidia() {
    ! readelf -d "$BUILD/libddp.so" "$BUILD/libddp_cuda.so" | grep NEEDED | grep -E 'cuda|nccl|libddp'
}

check "every exported symbol begins with ddp_" nothing_but_ddp
check "every exported symbol is declared in include/ddp" in_declared_only
check "every declared function is in the library" in_library_only
check "libddp.so has the symbols and versions of the list" same_list libddp.so.0 "$BUILD/libddp.so"
check "libddp_cuda.so has the symbols and versions of the list" same_list libddp_cuda.so.0 "$BUILD/libddp_cuda.so"
check "neither library links an NVIDIA library or the other library" nothing_of_nvidia
check "the soname carries the major version" soname

# --- against the last tag ---------------------------------------------------------------------------------------------
soname_of() {
    readelf -d "$1" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p'
}

# Build the libddp of the tag from the tag's own sources, without the settings of the make that runs this test.
build_tag() {
    mkdir -p "$old" && git archive "$tag" | tar -x -C "$old" &&
        env -u MAKEFLAGS -u MAKELEVEL -u BUILD -u WERROR make -s -C "$old" -j"$(nproc)" build/libddp.so
}

# Compare the libraries. New functions, and new enumerators at the end, are compatible.
abi_is_kept() {
    local rules=tests/abi/libddp.abignore
    abidiff --no-added-syms --suppressions "$rules" "$old/build/libddp.so" "$BUILD/libddp.so" && return
    echo "programs built with $tag may break; add a rule to $rules for a change that they do not notice"
    return 1
}

tag=$(git describe --tags --abbrev=0 --match '*[0-9].[0-9]*' 2>/dev/null)
old=$BUILD/abi/$(git rev-parse --short "$tag^{commit}" 2>/dev/null)
what="types and functions are those of ${tag:-the last tag}"
if [ -z "$tag" ]; then
    skip "$what" "git knows no tag of a version"
elif ! command -v abidiff >/dev/null; then
    skip "$what" "there is no abidiff (package abigail-tools)"
elif ! readelf -S "$BUILD/libddp.so" | grep -q '\.debug_info'; then
    skip "$what" "$BUILD/libddp.so has no debugging information (-g)"
else
    check "libddp.so of $tag builds" build_tag
    if [ "$(soname_of "$old/build/libddp.so")" != "$(soname_of "$BUILD/libddp.so")" ]; then
        skip "$what" "the soname has changed since"
    else
        check "$what" abi_is_kept
    fi
fi
finish
