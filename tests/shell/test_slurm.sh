#!/usr/bin/env bash
# Test ddprun under a real Slurm cluster of two nodes: both ways to start it, a failing task, scancel, impossible
# layouts. scripts/slurm/cluster.sh makes the cluster. Without root or Slurm's packages, all checks are skipped.
# shellcheck source=tests/shell/tap.sh disable=SC2317,SC2016  # `check` calls the functions; workers expand the quoted text

if [ "${1:-}" != --inside ]; then
    cd "$(dirname "$0")/../.." || exit
    why=$(scripts/slurm/cluster.sh --check 2>&1) && exec scripts/slurm/cluster.sh "$0" --inside
    echo "ok 1 - a real Slurm # SKIP skipped, because ${why#cluster.sh: no cluster, because }"
    echo "1..1"
    exit 0
fi
. "$(dirname "$0")/tap.sh"

ddprun=$PWD/$BUILD/ddprun
cd "$tmp" || exit
rm -f out err

# Print the time since boot in 1/100 s, because setting the clock does not change it.
monotonic() {
    local up
    read -r up _ </proc/uptime
    echo "${up/./}"
}

# run COMMAND... -- runs the command for at most a minute. Writes its output to the files out and err. Sets rc (exit
# status) and took (duration in 1/100 s).
run() {
    local began
    began=$(monotonic)
    rc=0
    timeout 60 "$@" >out 2>err || rc=$?
    took=$(($(monotonic) - began))
}

# Print the output of the command for a failed check.
print_output() {
    cat out err
    echo "exit status $rc"
}

# has_text FILE TEXT [TIMES] -- succeeds if TIMES lines (default: at least one) of FILE have TEXT.
has_text() {
    local n
    n=$(grep -cF -- "$2" "$1")
    [ "$n" -eq "${3:-$n}" ] && [ "$n" -gt 0 ] && return
    echo "$1 has '$2' $n times"
    print_output
    return 1
}

# lacks FILE TEXT... -- succeeds if FILE has none of the texts.
lacks() {
    local text
    for text in "${@:2}"; do
        ! grep -F -- "$text" "$1" || return 1
    done
}

ended() {
    [ "$rc" -eq "$1" ] && return
    print_output
    return 1
}

# Succeed if the command took less than 30 s. A step of Slurm takes one or two seconds, but a ddprun that waits for
# missing nodes takes 900 s (--timeout).
soon() {
    [ "$took" -lt 3000 ] && return
    print_output
    echo "after $took hundredths of a second"
    return 1
}
soon="the job ends at once, not after a timeout"

show='echo $(hostname) rank $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE group $GROUP_RANK/$GROUP_WORLD_SIZE at $MASTER_ADDR'

# --- one ddprun per node ----------------------------------------------------------------------------------------------
run srun --nodes=2 --ntasks-per-node=1 "$ddprun" --quiet sh -c "$show"
check "srun with one task per node needs no option" ended 0
check "one node has node rank 0" has_text out "n0 rank 0/2 local 0/1 group 0/2 at 10.77.0.1" 1
check "the other node has node rank 1 and the address of the first" has_text out "n1 rank 1/2 local 0/1 group 1/2 at 10.77.0.1" 1

run srun --nodes=2 --ntasks-per-node=1 --gpus-per-node=2 "$ddprun" --quiet sh -c "$show"
check "each GPU of the Slurm step has a worker" has_text out "rank 3/4 local 1/2 group 1/2" 1

run srun --nodes=1 --ntasks-per-node=1 --gpus-per-node=2 "$ddprun" --quiet sh -c "$show"
check "a job of one node uses loopback" has_text out "rank 1/2 local 1/2 group 0/1 at 127.0.0.1" 1

run srun --nodes=2 --ntasks-per-node=1 "$ddprun" --explain
check "--explain names the rule on both nodes" has_text out "Slurm: SLURM_JOB_ID is set" 2
check "--explain names the variable of each value" has_text out "the first host of SLURM_STEP_NODELIST=n[0-1]" 2

# --- one ddprun per worker --------------------------------------------------------------------------------------------
run srun --nodes=2 --ntasks-per-node=2 "$ddprun" --per_task --quiet sh -c "$show; [ \$RANK = \$SLURM_PROCID ] && echo same"
check "--per_task runs one worker in each task" ended 0
check "the rank is the number of the task" has_text out same 4
check "node rank and local rank are those of the task" has_text out "n1 rank 3/4 local 1/2 group 1/2 at 10.77.0.1" 1

run srun --nodes=1 --ntasks-per-node=3 "$ddprun" --per_task --quiet sh -c "$show"
check "tasks of one node use loopback" has_text out "rank 2/3 local 2/3 group 0/1 at 127.0.0.1" 1

# --- the secret -------------------------------------------------------------------------------------------------------
# MUNGE delivers the secret of the job. libmunge's default socket is a link to the socket of munged. Slurm does not
# use this link.
both_ready() {
    timeout 30 bash -c 'until [ "$(grep -c ready out)" -ge 2 ]; do sleep 0.05; done'
}
munge=/run/munge/munge.socket.2
timeout 60 srun --nodes=2 --ntasks-per-node=1 "$ddprun" --verbose sh -c 'echo ready; until [ -e '"$tmp"'/go ]; do sleep 0.05; done' >out 2>err &
srun=$!
check "a job without a secret file starts on both nodes" both_ready
check "the store has a secret, so the job prints no warning" lacks err STORE_IS_OPEN NO_SECRET
at=$(grep -o 'store at 10.77.0.1:[0-9]*' err | head -n 1)
at=${at##* }
ctl=("${ddprun%/*}/ddpctl" --addr="$at" --timeout=10 status)
"${ctl[@]}" >ctl 2>&1
check "the job's user reads the status from another host" has_text ctl "world size 2" 1
DDP_MUNGE_LIBRARY=/missing "${ctl[@]}" >ctl 2>&1
check "ddpctl without MUNGE prints the reason" has_text ctl "MUNGE: /missing" 1
cp "${ctl[0]}" "$tmp" && chmod 755 "$tmp"
setpriv --reuid=1000 --clear-groups "$tmp/ddpctl" "${ctl[@]:1}" >ctl 2>&1
rc=$?
check "another user cannot read the status" [ "$rc" -ne 0 ]
check "the reason is that munged does not unseal the secret" has_text ctl "the secret is for another user" 1
# Send VALIDATE, and then AUTH of version 2 with the request for the credential.
python3 -c 'import socket, struct, sys
host, port = sys.argv[1].split(":")
s = socket.create_connection((host, int(port)))
s.sendall(bytes.fromhex("00cef7853c") + b"\x83" + struct.pack("<Q", 2) + b"\2\3")
f = s.makefile("rb")
n, = struct.unpack("<Q", f.read(8))
print(f.read(n)[2:].decode())' "$at" >credential
check "a client without a secret gets the credential" grep -q ^MUNGE: credential
setpriv --reuid=1000 --clear-groups unmunge --socket="$munge" <credential >plain 2>&1
rc=$?
check "another user cannot read the secret in the credential" [ "$rc" -ne 0 ]
check "the reason is that the credential is for the job's user" has_text plain "Unauthorized credential" 1
unmunge --socket="$munge" --output=plain --metadata=/dev/null <credential >/dev/null 2>&1
check "the job's user can read the secret in the credential" grep -q "^ddprun secret 1" plain
touch go
rc=0
wait "$srun" || rc=$?
check "the job exits with code 0" ended 0

# With --encrypt, MUNGE sends the secret before the TLS handshake.
rm -f go
: >out # `both_ready` must not read lines of the previous job
timeout 60 srun --nodes=2 --ntasks-per-node=1 "$ddprun" --encrypt --verbose sh -c \
    'echo ready at $MASTER_ADDR:$MASTER_PORT; until [ -e '"$tmp"'/go ]; do sleep 0.05; done' >out 2>err &
srun=$!
check "--encrypt needs no secret file either" both_ready
at=$(grep -o 'store at 10.77.0.1:[0-9]*' err | head -n 1)
at=${at##* }
check "the workers of the store's node connect to the store" has_text out "ready at $at" 1
check "the workers of the other node connect to a relay" has_text out "ready at 10.77.0.2:" 1
ctl=("${ddprun%/*}/ddpctl" --addr="$at" --timeout=10 status)
"${ctl[@]}" --encrypt >ctl 2>&1
check "the job's user reads the encrypted status" has_text ctl "world size 2" 1
"${ctl[@]}" >ctl 2>&1
check "ddpctl without --encrypt prints the reason" has_text ctl "use --encrypt" 1
setpriv --reuid=1000 --clear-groups "$tmp/ddpctl" "${ctl[@]:1}" --encrypt >ctl 2>&1
rc=$?
check "another user cannot read the encrypted status" [ "$rc" -ne 0 ]
check "the reason is that the secret is not for this user" has_text ctl "the secret is for another user" 1
touch go
rc=0
wait "$srun" || rc=$?
check "the encrypted job exits with code 0" ended 0

key=$tmp/job.key
"$ddprun" --make_secret "$key"
run env PET_SECRET_FILE="$key" srun --nodes=2 --ntasks-per-node=1 "$ddprun" --quiet sh -c "$show"
check "a secret file is used instead of MUNGE" has_text out "n1 rank 1/2 local 0/1 group 1/2 at 10.77.0.1" 1

rm "$munge"
run srun --nodes=2 --ntasks-per-node=1 "$ddprun" true
check "a job of two nodes without munged is rejected" ended 125
check "both nodes print the code" has_text err "NO_SECRET" 2
check "both nodes print the reason" has_text err 'MUNGE: Failed to access "/run/munge/munge.socket.2"'
check "the message names a remedy" has_text err "run munged on every node"
check "$soon" soon
run srun --nodes=2 --ntasks-per-node=1 "$ddprun" --insecure --quiet sh -c "$show"
check "--insecure starts the job" has_text out "n1 rank 1/2" 1
run env PET_SECRET_FILE="$key" srun --nodes=2 --ntasks-per-node=1 "$ddprun" --quiet sh -c "$show"
check "a secret file starts the job" has_text out "n1 rank 1/2" 1
ln -s "$ddprun" torchrun
run srun --nodes=2 --ntasks-per-node=1 sh -c 'exec ./torchrun --nnodes=2 --node_rank=$SLURM_NODEID --master_addr=10.77.0.1 --no_python "$@"' 0 sh -c "$show"
check "the name torchrun starts the job" has_text out "n1 rank 1/2" 1
check "the job prints a warning" has_text err STORE_IS_OPEN 1

python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(64)
time.sleep(100)' "$munge" &
hung=$!
until [ -S "$munge" ]; do sleep 0.05; done
chmod 777 "$munge"
run srun --nodes=2 --ntasks-per-node=1 "$ddprun" true
check "a munged that hangs does not hang the job" ended 125
check "the message names munged" has_text err "MUNGE: munged has not answered within 3 s"
kill "$hung"
rm "$munge"

ln -s "${SLURM_CONF%/*}/munge.socket" "$munge"
mkdir broken
echo "no library" >broken/libmunge.so.2
run srun --nodes=2 --ntasks-per-node=1 sh -c '[ $SLURM_NODEID = 0 ] || export LD_LIBRARY_PATH='"$tmp"'/broken; exec "$0" --timeout=15s true' "$ddprun"
check "a node without libmunge does not join" [ "$rc" -ne 0 ]
check "the node prints the reason" has_text err "MUNGE: $tmp/broken/libmunge.so.2"
run srun --nodes=2 --ntasks-per-node=1 sh -c '[ $SLURM_NODEID = 1 ] || set -- --insecure; exec "$0" --timeout=15s "$@" true' "$ddprun"
check "a node does not join another node's open store" [ "$rc" -ne 0 ]
check "the second node prints the reason, too" has_text err "the store has no secret, so this node does not join" 1
if unshare --user --map-user=1000 true 2>/dev/null; then # a chroot has no user namespaces
    run srun --nodes=2 --ntasks-per-node=1 unshare --user --map-user=1000 "$ddprun" true
    check "a user namespace with another id is rejected" ended 125
    check "the reason is that munged reports another id for the process" has_text err "munged reports a user id other than 1000"
else
    skip "a user namespace with another id is rejected" "user namespaces are not available"
fi

# --- training ---------------------------------------------------------------------------------------------------------
"${ddprun%/*}/make-data" --out data --samples 4000 --test_samples 400 >/dev/null
train=("${ddprun%/*}/train" --data "$tmp/data" --epochs 1 --limit_steps 10)
run srun --nodes=2 --ntasks-per-node=1 --gpus-per-node=2 "$ddprun" "${train[@]}"
check "a training job runs on both nodes" has_text out "4 workers" 1
sum=$(grep -o 'parameters [0-9a-f]*' out)
run srun --nodes=2 --ntasks-per-node=2 "$ddprun" --per_task "${train[@]}"
check "a job with one worker per task computes the same bits" has_text out "${sum:-no parameters}" 1

# --- a failing task ---------------------------------------------------------------------------------------------------
run srun --nodes=2 --ntasks-per-node=1 "$ddprun" --nproc_per_node=2 sh -c '[ $RANK != 3 ] || exit 7; sleep 50'
check "the code of the first failure reaches srun" ended 7
check "both nodes name the first failure" has_text err "rank 3 on n1 failed first: exit 7" 2

run srun --nodes=2 --ntasks-per-node=2 "$ddprun" --per_task sh -c '[ $RANK != 1 ] || exit 9; sleep 50'
check "the code also reaches srun with one worker per task" ended 9
check "each of the four tasks names the first failure" has_text err "rank 1 on n0 failed first: exit 9" 4

# --- scancel ----------------------------------------------------------------------------------------------------------
# began NAME SRUN_OPTION COMMAND... -- starts a job of two nodes and waits until both have printed "ready". Sets job
# to its number, and srun to the pid of srun.
began() {
    : >out # remove the lines of the previous job
    timeout 60 srun --nodes=2 "$2" --job-name="$1" "${@:3}" >out 2>err &
    srun=$!
    until [ "$(grep -c ready out)" -ge 2 ]; do
        kill -0 "$srun" 2>/dev/null || return 1
        sleep 0.05
    done
    until job=$(squeue -h -o %A --name="$1") && [ -n "$job" ]; do # a busy controller may list the job late
        kill -0 "$srun" 2>/dev/null || return 1
        sleep 0.05
    done
}
# Wait until srun has exited and the allocation no longer exists.
wait_until_gone() {
    rc=0
    wait "$srun" || rc=$?
    timeout 30 bash -c 'until [ -z "$(squeue -h)" ]; do sleep 0.05; done'
}
none_left() {
    pgrep -f 'sleep 4321' && return 1
    return 0
}
# Slurm signals every process of a step, and ddprun forwards its signal. So a program that saves must tolerate a
# second SIGTERM.
saves='trap "trap : TERM; echo saved; exit 0" TERM; trap "echo heard" USR1; echo ready; while :; do sleep 0.1; done'
began polite --ntasks-per-node=1 "$ddprun" sh -c "$saves"
scancel --signal=USR1 "$job"
timeout 20 bash -c 'until [ "$(grep -c heard out)" -ge 2 ]; do sleep 0.05; done'
scancel "$job"
wait_until_gone
check "a signal from scancel reaches the workers" has_text out heard
check "the signal is forwarded once, although guardian and agent both receive it" has_text err "SIGUSR1 from slurmstepd" 2
check "scancel without a signal reaches the workers as SIGTERM" has_text out saved 2
check "the report names the sender of the SIGTERM" has_text err "SIGTERM from slurmstepd"

began tasks --ntasks-per-node=2 "$ddprun" --per_task sh -c "$saves"
until [ "$(grep -c ready out)" -eq 4 ]; do sleep 0.05; done
scancel --signal=TERM "$job"
wait_until_gone
check "a SIGTERM before a preemption lets all tasks save" has_text out saved 4
check "the job exits with the code of SIGTERM" ended 143

# These workers have left their session and ignore SIGTERM.
began deaf --ntasks-per-node=1 "$ddprun" --grace=2s sh -c 'trap "" TERM; setsid sleep 4321 & echo ready; sleep 4321; sleep 4321'
scancel "$job"
wait_until_gone
check "workers that ignore SIGTERM are killed" none_left

# --- requeue ----------------------------------------------------------------------------------------------------------
# The second run has the same job number, nodes and port as the first run, which may not have ended yet. The workers
# of the first run ignore SIGTERM and leave a process behind.
twice='echo "life $((${SLURM_RESTART_COUNT:-0} + 1)) rank $RANK/$WORLD_SIZE attempt $TORCHELASTIC_RESTART_COUNT"
    [ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] || exit 0
    trap "" TERM; setsid sleep 4321 & sleep 4321; sleep 4321'
job=$(sbatch --parsable --time=5 --output=requeue.out --export="ALL,DDPRUN=$ddprun" "$OLDPWD/scripts/slurm/train.sbatch" sh -c "$twice")
wait_for_text() { # TEXT TIMES SECONDS -- waits for TEXT in TIMES lines of requeue.out
    timeout "$3" bash -c 'until [ "$(grep -cF -- "$1" requeue.out)" -ge "$2" ]; do sleep 0.05; done' bash "$1" "$2" 2>/dev/null
    rc=$?
    cp requeue.out out
}
wait_for_text "life 1 rank" 2 30
run scontrol requeue "$job"
check "a running job is requeued" ended 0
wait_for_text "life 2 rank" 2 60
check "the job starts again on both nodes" has_text requeue.out "life 2 rank" 2
check "the second run is a new job, not another attempt" has_text requeue.out "life 2 rank 1/2 attempt 0" 1
timeout 30 bash -c 'until [ -z "$(squeue -h)" ]; do sleep 0.05; done'
check "the second run completes" [ "$(scontrol show job "$job" | grep -o 'JobState=[A-Z]*')" = JobState=COMPLETED ]
cp requeue.out out
check "no process of the first run disturbs the second run" lacks requeue.out "refused" "in use" JOB_DIFFERS LAUNCHED_TWICE STALE
check "no process of the first run is left" none_left

# --- F14: impossible layouts
# ------------------------------------------------------------------------------------------
run srun --nodes=2 --ntasks-per-node=2 "$ddprun" true
check "several tasks per node are rejected" ended 2
check "one task of each node prints the error" has_text err "runs 2 of the 4 copies of" 2
check "the error names both remedies" has_text err "--per_task" 2
check "the error has a code" has_text err WRONG_TASK_LAYOUT 2
check "$soon" soon

printf '#!/bin/bash\n%s true\n' "$ddprun" >alone.sbatch
run sbatch --wait --nodes=2 --output=batch.out alone.sbatch
check "a batch script without srun is rejected" ended 2
check "the reason is that it runs on the first node only" has_text batch.out LAUNCHED_ON_ONE_NODE 1
check "$soon" soon

run salloc --nodes=2 srun --nodes=1 --ntasks=1 "$ddprun" sh -c "$show"
check "one task in an allocation of two nodes runs" ended 0
check "the job warns about the idle node" has_text err STEP_TOO_SMALL 1
check "$soon" soon

# --- --hosts ----------------------------------------------------------------------------------------------------------
run salloc --nodes=2 "$ddprun" --hosts=n0:1,n1:2 sh -c "$show"
check "--hosts inside an allocation starts all hosts" ended 0
check "ranks follow the list" has_text out "[n1:2] n1 rank 2/3 local 1/2 group 1/2 at 10.77.0.1" 1
run salloc --nodes=2 "$ddprun" --hosts=n0:1,n1:2 --dry_run true
check "srun is its remote shell" has_text out "srun --nodes=1" 2
run salloc --nodes=2 "$ddprun" --hosts=n0:1,n1:2 --detach true
check "--detach is rejected, because the job would end with the allocation" ended 2
printf '#!/bin/bash\n%s --hosts=n0:1,n1:2 sh -c '"'%s'"'\n' "$ddprun" "$show" >hosts.sbatch
run sbatch --wait --nodes=2 --output=hosts.out hosts.sbatch
check "a batch script needs no srun with --hosts" has_text hosts.out "[n1:2] n1 rank 2/3 local 1/2 group 1/2 at 10.77.0.1" 1
run srun --nodes=1 --ntasks=1 "$ddprun" --hosts=n0:1,n1:2 true
check "--hosts inside a step is rejected" ended 2
check "the error shows the srun command" has_text err "srun --ntasks-per-node=1 ddprun ..." 1
check "the error also names srun as remote shell" has_text err "--remote_shell=srun" 1
run srun --nodes=2 --ntasks=2 "$ddprun" --hosts=n0:1,n1:2 --remote_shell=srun true
check "a step of two tasks cannot start hosts" has_text err "srun --ntasks-per-node=1 ddprun ..." 2

run salloc --nodes=2 "$ddprun" '--hosts=n[0-1]' --ssh=false true
check "another remote shell is not replaced" ended 2
run salloc --nodes=2 "$ddprun" '--hosts=n[0-1]:2' --remote_shell=srun sh -c '[ $RANK != 3 ] || exit 7; sleep 50'
check "the exit code is that of the first failure" ended 7
run salloc --nodes=2 "$ddprun" '--hosts=n[0-1]' --remote_shell=srun --ship sh -c 'readlink /proc/$PPID/exe'
check "srun copies the program, too" has_text out "/ddprun-ship." 2
check "no copy of the program is left" [ -z "$(ls -d /tmp/ddprun-ship.* 2>/dev/null)" ]
run "$ddprun" --hosts=n0 --remote_shell=srun true
check "srun outside an allocation is rejected" ended 2
check "the error names a remedy" has_text err "salloc" 1

# --- the example ------------------------------------------------------------------------------------------------------
sbatch=$OLDPWD/scripts/slurm/train.sbatch
# batch OPTION... -- submits the example and waits until it has ended. sbatch --wait would only poll every ten
# seconds.
batch() {
    run sbatch --time=5 "$@" "$sbatch" sh -c "$show"
    timeout 60 bash -c 'until [ -z "$(squeue -h)" ]; do sleep 0.05; done'
}
batch --output=node.out --export="ALL,DDPRUN=$ddprun"
check "train.sbatch runs one ddprun per node" has_text node.out "rank 1/2 local 0/1" 1
batch --output=task.out --ntasks-per-node=2 --export="ALL,DDPRUN=$ddprun,MODE=task"
check "train.sbatch can run one ddprun per worker" has_text task.out "rank 3/4 local 1/2 group 1/2" 1
batch --output=secret.out --export="ALL,DDPRUN=$ddprun,SECRET_DIR=$tmp,DDP_MUNGE_LIBRARY=/missing"
check "train.sbatch makes a secret file without MUNGE" has_text secret.out "rank 1/2 local 0/1" 1
check "only the user can read the secret file" [ "$(stat -c %a "$tmp"/ddprun-*.key)" = 600 ]

finish
