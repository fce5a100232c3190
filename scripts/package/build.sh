#!/usr/bin/env bash
# build.sh ARCH [musl] -- compiles programs and libraries for ARCH (x86_64, aarch64) with zig, and installs them into
# the folders bin, lib, include and share of build/package/ARCH/root. The programs need only glibc 2.17 or newer,
# because zig compiles for this old version. This root can be moved.

# With `musl`, the programs are static, need no library, and are in build/package/ARCH-musl/root. Before `make wheel`
# calls this script, it builds the programs for this machine, which the script needs.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=$1 build=${BUILD:-build}
package=$PWD/$build/package
case ${2:-} in
musl) out=$arch-musl target=$arch-linux-musl link=-static ;;
*) out=$arch target=$arch-linux-gnu.2.17 link= ;;
esac
work=$package/$out
libs=$work/libs
export ZIG_GLOBAL_CACHE_DIR=$package/zig-cache ZIG_LOCAL_CACHE_DIR=$package/zig-cache
zig=$(echo "$package"/tools/lib/python3*/site-packages/ziglang/zig)
cc="$zig cc -target $target"

# archive NAME SOURCE FILE... -- makes libNAME.a from files of src/SOURCE. The paths are relative, because the text of
# an assertion contains the path of its file.
archive() {
    local name=$1 source=$package/src/$2
    shift 2
    mkdir -p "$libs/$name" "$libs/lib"
    # shellcheck disable=SC2016,SC2086  # the inner shell expands; $cc is a list of words
    (cd "$source" && printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} sh -c '
        object=$1/$(echo {} | tr / _).o; shift
        exec "$@" -c {} -o "$object"' sh "$libs/$name" $cc -O2 -fPIC -fvisibility=hidden -w -D_GNU_SOURCE -Iinclude -Isrc ${more:-})
    rm -f "$libs/lib/lib$name.a"
    "$zig" ar rcsD "$libs/lib/lib$name.a" "$libs/$name"/*.o
}

if ! cmp -s "$package/src.pins" "$libs/pins"; then
    rm -rf "$libs"
    mkdir -p "$libs/include/cjson"
    cd "$package/src/libuv1"
    uv=(src/*.c)
    for file in async core dl epoll fs getaddrinfo getnameinfo linux-core linux-inotify linux-syscalls loop loop-watcher pipe poll \
        process procfs-exepath proctitle random-devurandom random-getrandom random-sysctl-linux signal stream tcp thread tty udp; do
        uv+=("src/unix/$file.c")
    done
    archive uv libuv1 "${uv[@]}"
    archive cjson cjson cJSON.c
    archive z zlib crc32.c # libddp uses no other file of zlib
    # Compile libsodium without its configure script, as portable C, because libsodium has only portable code for
    # HMAC-SHA256. The linker takes only the few files that the programs use.
    cd "$package/src/libsodium"
    sed -e 's/@VERSION@/1.0.18/; s/@SODIUM_LIBRARY_VERSION_MAJOR@/10/; s/@SODIUM_LIBRARY_VERSION_MINOR@/3/; /@SODIUM_LIBRARY_MINIMAL/d' \
        src/libsodium/include/sodium/version.h.in >src/libsodium/include/sodium/version.h
    mapfile -t sodium < <(find src/libsodium -name '*.c' | LC_ALL=C sort)
    more='-DCONFIGURED=1 -DHAVE_PTHREAD=1 -Isrc/libsodium/include/sodium' archive sodium libsodium "${sodium[@]}"
    cd "$package/src"
    cp -r libuv1/include/. libsodium/src/libsodium/include/. "$libs/include"
    cp cjson/cJSON.h "$libs/include/cjson"
    cp zlib/zlib.h zlib/zconf.h "$libs/include"
    cd "$package/../.."
    # sys/queue.h has only macros. musl does not have this header.
    [ -z "$link" ] || install -D -m 644 -t "$libs/include/sys" "${zig%/*}/lib/libc/include/generic-glibc/sys/queue.h"
    cp "$package/src.pins" "$libs/pins"
fi

# WERROR is empty, because this compiler is newer than the compiler of the tests, and may have other warnings.
flags=(BUILD="$build/package/$out/build" TOOLS="${TOOLS:-$build}" CC="$cc" CFLAGS=-O2 WERROR= DEPS= EXAMPLES= NVCC= LIBUV=-luv LIBSODIUM=-lsodium LIBCJSON=-lcjson
    ONE_SEGMENT=
    CPPFLAGS="-isystem $libs/include" LDFLAGS="-s $link -L$libs/lib" DESTDIR="$work/stage" PREFIX=/root)
root=$work/root
rm -rf "$root" "$work/stage"
if [ -n "$link" ]; then
    make --no-print-directory "${flags[@]}" "$build/package/$out/build/"{ddprun,ddp-rendezvous,ddpctl}
    install -D -t "$root/bin" "$build/package/$out/build/"{ddprun,ddp-rendezvous,ddpctl}
    exit
fi
make --no-print-directory "${flags[@]}" install
mv "$work/stage/root" "$root"
rmdir "$work/stage"

# A wheel cannot contain links. So the file of a library has its soname as its name, and libddp.so is a linker script,
# which lets -lddp find the library. Remove libddp.a, because objects that zig has made are of little use to another
# compiler.
cd "$root/lib"
for soname in lib*.so.?; do
    mv "$(readlink "$soname")" "$soname"
done
rm libddp.a libddp.so
echo "INPUT($(echo libddp.so.?))" >libddp.so
# The root can be moved, so use relative paths in ddp.pc. Add an rpath, because no loader searches the root by default.
# shellcheck disable=SC2016  # pkg-config expands the variables
sed -i -e 's|^prefix=.*|prefix=${pcfiledir}/../..|; s|^libdir=.*|libdir=${prefix}/lib|' -e '/^Libs.private/d' \
    -e 's|^Libs: |Libs: -Wl,-rpath,${libdir} |' pkgconfig/ddp.pc
install -D -m 644 ../../../../../LICENSE ../share/doc/ddprun/LICENSE
for name in libuv1 cjson libsodium zlib; do
    install -m 644 "$package/src/$name/debian/copyright" "../share/doc/ddprun/copyright.$name"
done
