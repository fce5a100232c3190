#!/usr/bin/env bash
# Run `make install` into an empty folder. Then compile a user's program with only pkg-config, against the shared and
# the static library. `make uninstall` must leave no file. The commands of README.md install into a home, and commands
# of the pages that need an installation use this one.
# shellcheck source=tests/shell/tap.sh disable=SC2317  # `check` calls the functions
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/shell/pages.sh
. "$(dirname "$0")/pages.sh"

version=$(sed -En 's/^#define DDP_VERSION_(MAJOR|MINOR|PATCH) +//p' include/ddp/context.h | paste -sd.)
date=$(sed -n 's/^#define DDP_VERSION_DATE  *"\([0-9-]*\)".*/\1/p' include/ddp/context.h)
stage=$tmp/stage
prefix=/opt/ddp
export PKG_CONFIG_PATH=$stage$prefix/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$stage
export LD_LIBRARY_PATH=$stage$prefix/lib

# Do not pass the variables of the parent make (BUILD=..., T=...) to this make.
make_it() {
    env -u MAKEFLAGS -u MAKELEVEL make -s BUILD="$BUILD" DESTDIR="$stage" PREFIX="$prefix" "$@"
}

# Print C block number $2 (default: 1) of page $1, as a reader would copy it.
program_of() {
    awk -v block="${2:-1}" '/^```c$/ { n++; next } /^```$/ { if (n == block) exit; next } n == block' "$1"
}

# compile_with COMMAND... -- compiles the worker of docs/libddp.md with the flags that the command prints.
compile_with() {
    # shellcheck disable=SC2046  # pkg-config prints words
    program_of docs/libddp.md | ${CC:-gcc} -std=c11 -Wall -Wextra -Werror -x c - -x none -o "$tmp/worker" $("$@")
}

pkg() {
    pkg-config "$@" ddp
}

static_flags() {
    echo "$(pkg --cflags) $stage$prefix/lib/libddp.a $(pkg --static --libs | sed 's/-lddp//')"
}

runs_alone() {
    "$tmp/worker" | tee "$tmp/out"
    grep -q 'rank 0 of 1' "$tmp/out"
}

fit_is_short() {
    [ "$(program_of docs/libddp.md 2 | wc -l)" -le 60 ]
}

# in_home PAGE LINE COMMAND -- runs the command as shown, with the environment that earlier commands have exported. A
# worker prints one line. cc treats warnings as errors.
home=$tmp/home
exports=
in_home() {
    local place=$home/src workers=
    case $3 in
    export*) exports+="$3;" && return ;;
    make*) place=. ;;
    esac
    (cd "$place" && env -u MAKEFLAGS -u MAKELEVEL -u PKG_CONFIG_PATH -u PKG_CONFIG_SYSROOT_DIR -u LD_LIBRARY_PATH BUILD="$BUILD" HOME="$home" \
        PATH="$tmp/bin:$PATH" bash -c "$exports$3") >"$tmp/out" || return 1
    cat "$tmp/out"
    [[ ! $3 =~ --nproc_per_node=([0-9]+) ]] || workers=${BASH_REMATCH[1]}
    [ -z "$workers" ] || [ "$(wc -l <"$tmp/out")" -eq "$workers" ] && shows "$1" "$2" "$tmp/out" cat
}

# Hide cJSON and zlib from pkg-config, because only programs that link libddp.a need them.
pkg_config_needs_nothing_else() {
    PKG_CONFIG_LIBDIR=$PKG_CONFIG_PATH pkg --cflags --libs
}

# Print a C++ program with every header and every INIT macro.
cpp_program() {
    local header macro type
    for header in include/ddp/*.h; do echo "#include <ddp/${header##*/}>"; done
    echo 'int main() {'
    for macro in $(sed -n 's/^#define \(DDP_[A-Z0-9_]*_INIT\).*/\1/p' include/ddp/*.h); do
        type=$(tr '[:upper:]' '[:lower:]' <<<"${macro%_INIT}")
        case $macro in DDP_SGD_INIT | DDP_ADAM_INIT | DDP_ADAMW_INIT) type=ddp_optim ;; esac
        echo "{ $type o = $macro; (void)o; }"
    done
    echo '}'
}

# cpp_compiles COMPILER STANDARD -- compiles that program.
cpp_compiles() {
    # shellcheck disable=SC2046  # pkg-config prints words
    cpp_program | "$1" -std="$2" -Wall -Wextra -pedantic -Werror -fsyntax-only $(pkg --cflags) -x c++ -
}

nothing_left() {
    ! find "$stage" ! -type d | grep .
}

every_page_is_clean() {
    find "$stage$prefix/share/man" -type f -exec groff -man -ww -z -Tutf8 {} + 2>&1 | fails grep .
}

# Check the man pages for the version and its date, which one header defines.
every_page_has_the_date() {
    local page pages=0
    for page in "$stage$prefix"/share/man/man*/*; do
        head -n 1 "$page" | grep -qE "^\.TH [A-Z-]+ [138] \"$date\" \"ddprun $version\"" || { echo "$page: $(head -n 1 "$page")"; return 1; }
        pages=$((pages + 1))
    done
    [ "$pages" -ge 5 ]
}

pages_for_the_programs() {
    local page
    for page in man1/ddprun.1 man1/ddpctl.1 man1/ddp-bench.1 man8/ddp-rendezvous.8; do
        [ -s "$stage$prefix/share/man/$page" ] || { echo "$page is missing"; return 1; }
    done
}

# Check that the completions are in the folders that each shell reads.
completions_for_the_shells() {
    local share=$stage$prefix/share program
    for program in ddprun ddpctl; do
        bash -n "$share/bash-completion/completions/$program" &&
            grep -q "^complete -F _$program $program" "$share/bash-completion/completions/$program" &&
            grep -q "^#compdef $program" "$share/zsh/site-functions/_$program" &&
            grep -q "^complete -c $program " "$share/fish/vendor_completions.d/$program.fish" || return 1
    done
}

check "make install" make_it install
check "bash, zsh and fish find completions" completions_for_the_shells
check "an installed program starts" "$stage$prefix/bin/ddprun" --version
check "pkg-config knows version $version" pkg --exact-version="$version"
check "every program has its man page" pages_for_the_programs
check "the man pages have no errors" every_page_is_clean
check "each man page has the version and its date" every_page_has_the_date
check "the worker of docs/libddp.md compiles against the static library" compile_with static_flags
check "the statically linked worker runs alone" runs_alone
check "the worker compiles against the shared library" compile_with pkg --cflags --libs
check "the dynamically linked worker runs alone" runs_alone
check "the training program of docs/libddp.md has 60 lines" fit_is_short
mkdir -p "$tmp/bin" "$home/src"
printf '#!/bin/sh\nexec %s -std=c11 -Wall -Wextra -Werror "$@"\n' "${CC:-gcc}" >"$tmp/bin/cc"
chmod +x "$tmp/bin/cc"
for page in README.md docs/*.md; do
    program_of "$page" 1 >"$home/src/worker.c"
    program_of "$page" 2 >"$home/src/fit.c"
    while IFS=$'\t' read -r -u 3 line command; do
        needs_installation "$command" && check "$page:$line: $command" in_home "$page" "$line" "$command"
    done 3< <(commands "$page")
done
check "pkg-config needs no other package" pkg_config_needs_nothing_else
for compiler in g++ clang++; do
    for standard in c++17 c++20; do
        if command -v "$compiler" >/dev/null; then
            check "the headers are valid $standard for $compiler" cpp_compiles "$compiler" "$standard"
        else
            skip "the headers are valid $standard for $compiler" "there is no $compiler"
        fi
    done
done
torchrun=$stage$prefix/bin/torchrun

the_alias_has_torchruns_defaults() {
    "$torchrun" --no_python --dry_run true | tee "$tmp/out"
    grep -q '1 worker on' "$tmp/out" && grep -q 'TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT' "$tmp/out"
}

a_real_torchrun_is_left_alone() {
    rm "$torchrun" && echo theirs >"$torchrun"
    make_it install-torchrun-alias 2>&1 | grep 'nothing was' || return 1
    make_it uninstall && grep -q theirs "$torchrun" && rm "$torchrun"
}

# Install the alias into an empty directory, without `make install`.
the_alias_alone_works() {
    make_it DESTDIR="$tmp/alone" install-torchrun-alias && "$tmp/alone$prefix/bin/torchrun" --version &&
        make_it DESTDIR="$tmp/alone" uninstall && ! find "$tmp/alone" ! -type d | grep .
}

check "make install-torchrun-alias alone yields a working command" the_alias_alone_works
check "make install-torchrun-alias" make_it install-torchrun-alias
check "the alias has torchrun's defaults" the_alias_has_torchruns_defaults
check "a real torchrun is left alone" a_real_torchrun_is_left_alone
check "both targets install again" make_it install install-torchrun-alias
check "make uninstall succeeds" make_it uninstall
check "make uninstall leaves no file" nothing_left
finish
