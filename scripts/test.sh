#!/usr/bin/env bash
# test.sh [--quick] [--no-install] -- installs the packages that the tests need, builds with WERROR=1, and runs the
# checks of CI. A suite that fails runs once more, alone, because other suites and other users of the machine may have
# slowed it down.

# The checks are the tests, the wheel, the tests under the sanitizers, the checks of purity, layers and format, a short
# fuzz run, and the demo, here and in a bare Debian 13. --quick runs only the plain tests and the check of purity. With
# --no-install, the script installs nothing, and skips a step whose packages are missing.
#
# The end of the output lists the suites that ran once more, the failures in a few lines, and the time of each step. The
# end repeats the failures, because the top of a long log may be cut off. The last line sums up all runs: `N passed, N
# failed, N skipped`. FUZZ_SECONDS (1) is the duration of each fuzz program.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

quick=no install=yes
for option in "$@"; do
    case $option in
    --quick) quick=yes ;;
    --no-install) install=no ;;
    *)
        echo "usage: scripts/test.sh [--quick] [--no-install]" >&2
        exit 2
        ;;
    esac
done

jobs=$(nproc)
DDP_TALLY=$PWD/build/tally
export DDP_TALLY
mkdir -p build
: >"$DDP_TALLY"
: >"$DDP_TALLY.failed"
: >"$DDP_TALLY.again"
export DDP_AGAIN=1
times=

# step NAME COMMAND... -- runs a step. A step that counts tests adds its own lines to the tally. Any other step counts
# as one test.
step() {
    local name=$1 before told rc=0
    shift
    before=$(wc -l <"$DDP_TALLY")
    told=$(wc -l <"$DDP_TALLY.failed")
    echo
    echo "== $name: $*"
    SECONDS=0
    DDP_TALLY_NAME=$name "$@" || rc=$?
    echo "== $name took $SECONDS s"
    times+="$name $SECONDS s, "
    if [ "$rc" -ne 0 ] && [ "$(wc -l <"$DDP_TALLY.failed")" -eq "$told" ]; then
        echo "  $name: $* ended with exit status $rc; see above" >>"$DDP_TALLY.failed"
    fi
    if [ "$(wc -l <"$DDP_TALLY")" -eq "$before" ]; then
        if [ "$rc" -eq 0 ]; then echo "$name 1 0 0"; else echo "$name 0 1 0"; fi >>"$DDP_TALLY"
    elif [ "$rc" -ne 0 ] && [ "$(tail -n 1 "$DDP_TALLY" | cut -d' ' -f3)" -eq 0 ]; then
        echo "$name 0 1 0" >>"$DDP_TALLY"
    fi
}

# skip NAME WHY -- counts one skipped step.
skip() {
    echo
    echo "== $1: skipped, because $2"
    echo "$1 0 0 1" >>"$DDP_TALLY"
}

# missing GROUP... -- prints the missing packages of the groups on one line.
missing() {
    ddp_missing "$@" | awk '{ print $1 }' | sort -u | xargs
}

# step_with "GROUP..." NAME COMMAND... -- runs a step, or skips it if packages of the groups are missing.
step_with() {
    local groups=$1 lacks
    shift
    # shellcheck disable=SC2086  # a list of names
    lacks=$(missing $groups)
    if [ -n "$lacks" ]; then skip "$1" "$lacks is not installed"; else step "$@"; fi
}

# Run the demo in a bare Debian 13, which has a newer compiler. Use the lowest priority, because other steps run at the
# same time. The exit status is 77 if no bare Debian 13 can be made.
demo_on_trixie() {
    # shellcheck disable=SC2016  # the inner shell expands the text
    exec setsid nice -n 19 bash -c 'scripts/fresh-root.sh -s trixie true >build/trixie-root.log 2>&1 || exit 77
        exec scripts/fresh-root.sh -s trixie scripts/demo.sh >build/trixie.log 2>&1'
}
# Stop the demo, which is a session of several processes. Then wait, because fresh-root.sh must unmount its mounts.
stop_trixie() {
    [ -n "$trixie" ] || return 0
    kill -TERM -- "-$trixie" 2>/dev/null || kill "$trixie" 2>/dev/null
    wait "$trixie"
}
show_trixie() {
    cat build/trixie.log
    return "$1"
}
finish_trixie() {
    local rc=0
    if [ "$(id -u)" -ne 0 ]; then
        skip trixie "chroot and mount need root"
    elif [ -z "$trixie" ]; then
        skip trixie "debootstrap is not installed"
    else
        wait "$trixie" || rc=$?
        trixie=
        if [ "$rc" -eq 77 ]; then
            skip trixie "no bare Debian 13 can be made: $(tail -n 1 build/trixie-root.log)"
        else
            step trixie show_trixie "$rc"
        fi
    fi
}

# install_optional GROUP... -- installs all groups with one command. If the command fails, installs each group
# separately. A step is skipped if its packages are still missing.
install_optional() {
    local group
    ddp_install "$@" || for group in "$@"; do ddp_install "$group" || echo "== continuing without $group"; done
}

# py-spy reads the stacks of Python programs. PyPI has py-spy, but Debian does not. Tests find py-spy by this variable.
export DDP_PY_SPY=$PWD/build/py-spy-path
install_py_spy() {
    [ ! -x "$DDP_PY_SPY/py-spy" ] || return 0
    mkdir -p "$DDP_PY_SPY"
    { python3 -m venv build/py-spy-venv && timeout 90 build/py-spy-venv/bin/pip install -q py-spy==0.4.3 &&
        ln -sf ../py-spy-venv/bin/py-spy "$DDP_PY_SPY/py-spy"; } >build/py-spy.log 2>&1 ||
        echo "== continuing without py-spy: $(tail -n 1 build/py-spy.log)"
}

# Fetch the compiler and the sources for the wheel. If this function fails, the step "wheel" tries again.
fetch_package() {
    if [ "$quick" = yes ] || [ -n "$(missing package)" ]; then return 0; fi
    scripts/package/fetch.sh || echo "== continuing without what the wheel needs"
}

installing=
if [ "$install" = yes ]; then
    ddp_install build test || exit
    # The build needs no other packages, so install the other packages during the build.
    others=(python torch nodes slurm page abi)
    [ "$quick" = yes ] || others+=(package root fuzz format)
    { install_optional "${others[@]}"; install_py_spy; fetch_package; } >build/install.log 2>&1 &
    installing=$!
else
    scripts/check-deps.sh build || exit
fi

export WERROR=1 FUZZ_O=-O0
if [ -z "$(missing test)" ]; then
    step build make -j"$jobs" test-programs
else
    step build make -j"$jobs"
fi
if [ -n "$installing" ]; then
    wait "$installing"
    cat build/install.log
    [ "$quick" = yes ] || ddp_install fuzz format || exit
fi
# `make test` installs the wheel in virtual environments, so build the wheel first.
[ "$quick" = yes ] || step_with package wheel make -j"$jobs" wheel ARCH="$(uname -m)"
# Most tests wait, so compile the programs of later steps during the tests, at the lowest priority. If this build fails,
# the later step compiles its programs again.
ahead='' trixie=''
build_ahead() {
    nice -n 19 make -k -j"$jobs" "$1" >>build/sanitizer-builds.log 2>&1 &
    ahead=$!
}
stop_ahead() {
    [ -z "$ahead" ] || kill "$ahead" 2>/dev/null
    [ -z "$ahead" ] || wait "$ahead"
    ahead=
}
if [ "$quick" = no ]; then
    trap 'stop_ahead; stop_trixie' EXIT
    [ -n "$(missing test)" ] || build_ahead sanitizer-builds
fi
step_with test test make test
step_with test purity make purity
if [ "$quick" = no ]; then
    stop_ahead
    if [ -z "$(missing test)" ]; then
        make -k -j"$jobs" asan-ubsan-programs # compile the rest on all processors; the next step reports failures
        build_ahead tsan-fuzz-programs
    fi
    step_with test asan-ubsan make -j"$jobs" asan-ubsan
    stop_ahead
    if [ "$(id -u)" -eq 0 ] && [ -z "$(missing root)" ]; then
        demo_on_trixie &
        trixie=$!
    fi
    step_with test tsan make -j"$jobs" tsan
    step_with fuzz fuzz make -j"$jobs" fuzz FUZZ_SECONDS="${FUZZ_SECONDS:-1}"
    # Each version of clang-format breaks lines in another way. The files follow the version of Debian 12.
    if [ -z "$(missing format)" ] && ! clang-format --version | grep -q 'version 14\.'; then
        skip format "$(clang-format --version) is not version 14"
    else
        step_with format format make check-format
    fi
    step demo scripts/demo.sh
    finish_trixie
fi

if [ -s "$DDP_TALLY.again" ]; then
    echo
    echo "== what failed first and ran again alone"
    cat "$DDP_TALLY.again"
fi
if [ -s "$DDP_TALLY.failed" ]; then
    echo
    echo "== what failed"
    head -n 60 "$DDP_TALLY.failed"
fi
echo
echo "== all of it: ${times%, }"
awk '{ printf "  %-10s %5d passed %4d failed %4d skipped\n", $1, $2, $3, $4 }' "$DDP_TALLY"
awk '{ p += $2; f += $3; s += $4 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0 }' \
    "$DDP_TALLY"
