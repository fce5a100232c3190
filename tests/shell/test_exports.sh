#!/usr/bin/env bash
# libddp.so shows the world what include/ddp declares, and nothing else; libddp_cuda.so one function.
# shellcheck source=tests/shell/tap.sh disable=SC2317  # `check` calls the functions
. "$(dirname "$0")/tap.sh"

nm -D --defined-only "$BUILD/libddp.so" | awk '{ print $3 }' | sort -u >"$tmp/exported"
# A declaration may be broken over lines: join everything, then take the name in front of the parenthesis.
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
one_entry() {
    [ "$(nm -D --defined-only "$BUILD/libddp_cuda.so" | awk '{ print $3 }')" = ddp_cuda_entry ]
}
nothing_of_nvidia() {
    ! readelf -d "$BUILD/libddp.so" "$BUILD/libddp_cuda.so" | grep NEEDED | grep -E 'cuda|nccl|libddp'
}

check "every exported symbol begins with ddp_" nothing_but_ddp
check "every exported symbol is declared in include/ddp" in_declared_only
check "every declared function is in the library" in_library_only
check "libddp_cuda.so shows its entry alone" one_entry
check "neither library links anything of NVIDIA, nor the other" nothing_of_nvidia
check "the soname carries the major version" soname
finish
