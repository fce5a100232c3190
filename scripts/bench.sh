#!/usr/bin/env bash
# bench.sh [SECTION...] -- measures ddprun against its peers and limits, and prints one page of tables. Each program
# runs its contenders in turn and prints medians, so that a busy machine affects all contenders.

# The page also goes to build/bench.md, and the numbers go to build/bench.json. Sections: launch torn output reaction
# store torch agents all_reduce hosts ssh train probes launches hangs. The last two take most of the time.
#
# ROUNDS (15) is the number of turns. If a peer is not installed, its cell contains "skipped, because ...". The group
# "bench" in scripts/packages.sh lists the peers.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
# shellcheck source=scripts/machine.sh
. scripts/machine.sh

BUILD=${BUILD:-build}
rounds=${ROUNDS:-15}
sections=(launch torn output reaction store torch agents all_reduce hosts ssh train probes launches hangs)
[ $# -gt 0 ] || set -- "${sections[@]}"
bench=$BUILD/tests/bench
lines=$(mktemp -d)
trap 'rm -rf "$lines"' EXIT

# Run the launch section again as an ordinary user. Copy the programs, because this user may not be able to enter the
# build folder.
launch_as_user() {
    if [ "$(id -u)" -ne 0 ]; then return 0; fi
    local copy=$lines/user
    mkdir "$copy"
    chmod 755 "$lines" "$copy"
    cp "$bench/bench_launch" "$BUILD/ddprun" "$copy"
    (cd / && HOME=/ setpriv --reuid=nobody --regid=nogroup --clear-groups "$copy/bench_launch" "$copy/ddprun" "$rounds")
    rm -r "$copy"
}

section() {
    case $1 in
    launch)
        "$bench/bench_launch" "$BUILD/ddprun" "$rounds"
        echo
        launch_as_user
        ;;
    torn) "$bench/bench_torn" "$BUILD/ddprun" "$BUILD/tests/prog/torn_writer" ;;
    output) "$bench/bench_output" "$BUILD/ddprun" "$BUILD/tests/prog/flood" ;;
    reaction) "$bench/bench_reaction" "$BUILD/ddprun" "$BUILD/tests/prog/probe_worker" ;;
    store) "$bench/bench_store" ;;
    torch) BUILD=$BUILD scripts/bench_torch.sh ;;
    agents) "$bench/bench_agents" ;;
    all_reduce) BUILD=$BUILD ROUNDS=$rounds scripts/bench_allreduce.sh ;;
    hosts) BUILD=$BUILD scripts/bench_hosts.sh ;;
    ssh) BUILD=$BUILD scripts/bench_ssh.sh ;;
    train) BUILD=$BUILD scripts/bench_train.sh ;;
    launches) "$BUILD/tests/survivors/launches" --launches=10000 "$BUILD/ddprun" ;;
    hangs)
        if PATH=$PATH${DDP_PY_SPY:+:$DDP_PY_SPY} command -v py-spy >/dev/null; then
            BUILD=$BUILD scripts/hangs.py --cost=60
        else
            echo "hangs: skipped, because there is no py-spy in PATH or \$DDP_PY_SPY"
        fi
        ;;
    probes) "$bench/bench_probes" "$BUILD/ddprun" "$BUILD/tests/prog" 5 ;;
    *)
        echo "bench.sh: '$1': unknown section; choose from: ${sections[*]}" >&2
        return 2
        ;;
    esac
}

missing=$(ddp_missing bench)
if [ -n "$missing" ]; then
    echo "peers that are not installed: $(awk '{ print $1 }' <<<"$missing" | xargs)" >&2
    echo "Install: $(ddp_install_command "$(awk '{ print $1 }' <<<"$missing" | xargs)")" >&2
fi

all_sections() {
    local name bad=0
    ddp_machine 'make bench' "$BUILD"
    for name in "$@"; do
        echo
        section "$name" 3>"$lines/$name" || { echo "| $name | failed |"; bad=1; }
    done
    return "$bad"
}

status=0
all_sections "$@" | tee "$BUILD/bench.md" || status=1
{
    echo '['
    cat "$lines"/* | sed '$!s/$/,/'
    echo ']'
} >"$BUILD/bench.json"
exit "$status"
