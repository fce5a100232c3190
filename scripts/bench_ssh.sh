#!/usr/bin/env bash
# bench_ssh.sh [HOSTS] -- the start of a job of HOSTS (8) hosts with 2 workers each by --hosts, against bare ssh and mpirun.
#
# This machine plays all hosts: h1, h2 ... are names in a configuration of ssh, which all lead to a real sshd that the script
# starts. In each of ROUNDS (5) rounds the contenders run in turn, and the table has the medians. A time ends when the first or
# the last worker prints the clock. All logins share the processors here, so compare with as many logins at once.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
hosts=${1:-8}
rounds=${ROUNDS:-5}
dir=$(mktemp -d)
times=$dir/times
trap '[ ! -s "$dir/pid" ] || kill "$(cat "$dir/pid")"; rm -rf "$dir"' EXIT

for program in /usr/sbin/sshd ssh ssh-keygen; do
    if ! command -v "$program" >/dev/null; then
        echo "| start over ssh | skipped, because $program is not installed |"
        exit 0
    fi
done
port=$((20000 + $$ % 10000))
ssh-keygen -q -t ed25519 -N '' -f "$dir/host"
ssh-keygen -q -t ed25519 -N '' -f "$dir/user"
cp "$dir/user.pub" "$dir/authorized"
echo "h* $(cut -d' ' -f1,2 "$dir/host.pub")" >"$dir/known"
cat >"$dir/sshd" <<END
ListenAddress 127.0.0.1:$port
HostKey $dir/host
AuthorizedKeysFile $dir/authorized
StrictModes no
UsePAM no
PidFile $dir/pid
MaxStartups 1000
MaxSessions 1000
END
cat >"$dir/config" <<END
Host h*
HostName 127.0.0.1
Port $port
IdentityFile $dir/user
IdentitiesOnly yes
HostKeyAlias h
UserKnownHostsFile $dir/known
LogLevel ERROR
END
[ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
/usr/sbin/sshd -f "$dir/sshd" -E "$dir/log"
until [ -s "$dir/pid" ]; do sleep 0.05; done
ssh="$(command -v ssh) -F $dir/config"

now() { date +%s%N; }

# since NAME BEGIN END -- record milliseconds.
since() { echo "$1 $((($3 - $2) / 1000)) us" >>"$times"; }

# job NAME COMMAND... -- run a job whose workers print the clock, and record the first and the last.
job() {
    local name=$1 begin
    shift
    begin=$(now)
    if ! timeout 120 "$@" sh -c 'echo at $(date +%s%N)' >"$dir/out" 2>"$dir/err"; then
        echo "$name failed: $(tail -3 "$dir/err")" >&2
        return 0
    fi
    sed -n 's/.*at //p' "$dir/out" | sort -n >"$dir/clocks"
    since "$name, first worker" "$begin" "$(head -1 "$dir/clocks")"
    since "$name, last worker" "$begin" "$(tail -1 "$dir/clocks")"
}

ours=("$BUILD/ddprun" "--hosts=h[1-$hosts]:2" "--ssh=$ssh")
list=$(seq -s , -f 'h%g:2' "$hosts")
mpi=(mpirun.openmpi --allow-run-as-root --oversubscribe --host "$list" -np $((2 * hosts)) --mca plm_rsh_agent "$ssh"
    --mca orte_keep_fqdn_hostnames 1 --mca plm_rsh_num_concurrent 1000)
for ((round = 0; round < rounds; round++)); do
    begin=$(now)
    $ssh h1 true
    since "ssh true" "$begin" "$(now)"
    begin=$(now)
    for ((i = 1; i <= hosts; i++)); do $ssh "h$i" true & done
    wait
    since "$hosts x ssh true at once" "$begin" "$(now)"
    job "ddprun --ssh_fanout=0" "${ours[@]}" --ssh_fanout=0
    job "ddprun --ssh_fanout=16" "${ours[@]}" --ssh_fanout=16
    ! command -v mpirun.openmpi >/dev/null || job mpirun "${mpi[@]}"
done
echo "Start of $hosts hosts with 2 workers each, $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg), median of $rounds rounds:"
echo
echo "| what | ms |"
echo "|---|---:|"
awk '{ us = $(NF - 1); sub(/ [0-9]+ us$/, ""); if (!($0 in n)) order[++names] = $0; t[$0, ++n[$0]] = us }
     END {
         for (k = 1; k <= names; k++) {
             name = order[k]
             for (i = 2; i <= n[name]; i++)
                 for (j = i; j > 1 && t[name, j] < t[name, j - 1]; j--) {
                     swap = t[name, j]; t[name, j] = t[name, j - 1]; t[name, j - 1] = swap
                 }
             printf "| %s | %.0f |\n", name, t[name, int((n[name] + 1) / 2)] / 1000
         }
     }' "$times"
