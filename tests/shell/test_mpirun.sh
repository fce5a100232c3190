#!/usr/bin/env bash
# Start ddprun with the real mpirun of Open MPI and of MPICH on this machine: each of their processes must have one
# worker.
# shellcheck source=tests/shell/tap.sh disable=SC2317,SC2016  # `check` calls the functions; workers expand the quoted text
. "$(dirname "$0")/tap.sh"

ddprun=$PWD/$BUILD/ddprun
show='echo rank $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE group $GROUP_RANK/$GROUP_WORLD_SIZE at $MASTER_ADDR'

# Print a free port. Another process could take it, but this is unlikely because the kernel has many free ports.
port() {
    "$ddprun" --master_port=0 --no_prefix sh -c 'echo $MASTER_PORT'
}

# started COMMAND... -- succeeds if three workers have their ranks.
started() {
    local rank
    env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 "$@" -n 3 \
        "$ddprun" --per_task --master_port="$(port)" sh -c "$show" >"$tmp/out" || return
    cat "$tmp/out"
    for rank in 0 1 2; do
        grep -qF "rank $rank/3 local $rank/3 group 0/1 at 127.0.0.1" "$tmp/out" || return
    done
}

# refused COMMAND... -- succeeds if ddprun rejects a start without --per_task, in which each process would start all
# workers. Each process writes to the file itself, because Hydra may drop the output of processes that exit at once.
refused() {
    : >"$tmp/out"
    env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 "$@" -n 2 \
        sh -c 'exec "$0" true >>"$1" 2>&1' "$ddprun" "$tmp/out"
    cat "$tmp/out"
    grep -q WRONG_TASK_LAYOUT "$tmp/out" && [ "$(grep -c 'the 2 copies' "$tmp/out")" -eq 1 ]
}

# one NAME COMMAND... -- checks one mpirun.
one() {
    if command -v "$2" >/dev/null; then
        check "$1 runs one worker per process" started "${@:2}"
        check "$1 with several launchers per node is rejected once" refused "${@:2}"
    else
        count=$((count + 1))
        echo "ok $count - $1 # SKIP skipped, because there is no $2"
    fi
}

one "Open MPI" mpirun.openmpi --oversubscribe
one "Hydra" mpiexec.hydra
finish
