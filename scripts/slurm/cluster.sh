#!/usr/bin/env bash
# cluster.sh [--nodes=N] COMMAND... -- runs COMMAND in a Slurm cluster of N (2) nodes on this machine, and exits with
# the code of COMMAND. The cluster runs real daemons in separate namespaces (processes, mounts, network), so its ports,
# files and processes cannot conflict with anything else on the machine.

# cluster.sh --check only reports whether this machine can run a cluster.
#
# The daemons are munged, slurmctld, and a slurmd for each node. When COMMAND has ended, the kernel removes the
# namespaces and all their contents. Each node is a network namespace with a host name and an address:
#
#     login 10.77.0.254 (the command, slurmctld) --- bridge --- n0 10.77.0.1, n1 10.77.0.2 ... (slurmd)
#
# The script needs root, and the packages of the group slurm in scripts/packages.sh. If no cluster can run here, the
# script prints the reason and exits with 77. If a daemon does not start, the script prints the daemons' logs.
set -euo pipefail

nodes=2
if [[ ${1:-} == --nodes=* ]]; then
    nodes=${1#*=}
    shift
fi
if [ $# -eq 0 ] || ! [[ $nodes =~ ^[1-9][0-9]?$ ]]; then
    echo "usage: scripts/slurm/cluster.sh [--nodes=N] COMMAND..." >&2
    exit 2
fi

# Print the reason why no cluster can run here. Print nothing if a cluster can run.
obstacle() {
    local program
    for program in munged slurmctld slurmd srun ip unshare; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || { echo "$program is not installed"; return; }
    done
    [ "$(id -u)" -eq 0 ] || { echo "it needs root"; return; }
    unshare --net --uts ip link add name b type bridge 2>/dev/null || echo "the kernel refuses a network namespace or a bridge"
}

if [ "${DDP_CLUSTER:-}" = "" ]; then
    why=$(obstacle)
    if [ -n "$why" ]; then
        echo "cluster.sh: no cluster, because $why" >&2
        exit 77
    fi
    [ "$1" != --check ] || exit 0
    dir=$(mktemp -d "${TMPDIR:-/tmp}/slurm.XXXXXX")
    trap 'rmdir "$dir"' EXIT
    rc=0
    # When the first process of a PID namespace ends, the kernel kills all other processes in it.
    DDP_CLUSTER=$dir unshare --mount --pid --net --uts --ipc --fork --kill-child --mount-proc \
        "$0" "--nodes=$nodes" "$@" || rc=$?
    exit "$rc"
fi

# --- inside the namespaces ------------------------------------------------------------------------------------------
export PATH=$PATH:/usr/sbin:/sbin
dir=$DDP_CLUSTER
unset DDP_CLUSTER
mount -t tmpfs -o mode=755 cluster "$dir"
hostname login

ip link set lo up
ip link add name bridge type bridge
ip addr add 10.77.0.254/24 dev bridge
ip link set bridge up
{
    echo "127.0.0.1 localhost"
    echo "10.77.0.254 login"
    for ((i = 0; i < nodes; i++)); do
        echo "10.77.0.$((i + 1)) n$i"
    done
} >"$dir/hosts"
mount --bind "$dir/hosts" /etc/hosts

memory=$(awk '/^MemTotal/ { print int($2 / 1024 / 2) }' /proc/meminfo)
cat >"$dir/slurm.conf" <<END
ClusterName=ddprun
SlurmctldHost=login(10.77.0.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=2
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
KillWait=5
MinJobAge=60
Waittime=0
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n[0-$((nodes - 1))] CPUs=8 Gres=gpu:4 RealMemory=$memory State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP OverSubscribe=NO
END
export SLURM_CONF=$dir/slurm.conf
mkdir "$dir/state"
for ((i = 0; i < nodes; i++)); do
    mkdir "$dir/spool.n$i"
done
touch "$dir"/gpu{0,1,2,3} # no program opens these device files
echo "Name=gpu File=$dir/gpu[0-3]" >"$dir/gres.conf"

# failed WHAT -- prints WHAT and the daemons' logs, and exits.
failed() {
    echo "cluster.sh: $1" >&2
    tail -n 20 "$dir"/*.log >&2
    exit 1
}

# until_ok SECONDS COMMAND... -- repeats COMMAND every 50 ms until it succeeds, or until SECONDS are over.
until_ok() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.05
    done
}

dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 status=none
chmod 400 "$dir/munge.key"
munged --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munge.pid" \
    --log-file="$dir/munged.log" --seed-file="$dir/munge.seed"
mkdir -p /run/munge # libmunge's default place, for programs that do not read slurm.conf
mount -t tmpfs -o mode=755 munge /run/munge
ln -s "$dir/munge.socket" /run/munge/munge.socket.2
slurmctld -c
until_ok 20 scontrol ping || failed "slurmctld does not answer"

# Start each node in new namespaces. The network of a node is made from outside, as soon as its namespace exists. slurmd
# starts after that.
for ((i = 0; i < nodes; i++)); do
    # shellcheck disable=SC2016  # the inner shell's
    unshare --net --uts bash -c '
        hostname "n$1"
        until ip link show eth0 >/dev/null 2>&1; do sleep 0.01; done
        ip link set lo up
        ip addr add "10.77.0.$(($1 + 1))/24" dev eth0
        ip link set eth0 up
        exec slurmd -D -N "n$1" -f "$2" >/dev/null 2>&1' node "$i" "$SLURM_CONF" &
    node=$!
    until_ok 5 bash -c "[ \"\$(readlink /proc/$node/ns/net)\" != \"\$(readlink /proc/$$/ns/net)\" ]" ||
        failed "node n$i got no network of its own"
    ip link add "veth$i" type veth peer name eth0 netns "$node"
    ip link set "veth$i" master bridge up
done
# shellcheck disable=SC2016
until_ok 15 bash -c '[ "$(sinfo -h -t idle -o %D)" = "$1" ]' idle "$nodes" || failed "not all of the $nodes nodes are idle: $(sinfo -h -N -o '%N %T' | tr '\n' ' ')"

rc=0
"$@" || rc=$?
exit "$rc"
