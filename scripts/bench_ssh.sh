#!/usr/bin/env bash
# bench_ssh.sh [HOSTS...] -- measures the start of jobs with --hosts, against bare ssh and mpirun. This machine acts as
# all hosts, so that the script needs no cluster. In each of ROUNDS (3) rounds the contenders run in turn, and the table
# has the medians.

# HOSTS (8 and 64) are the numbers of hosts. Each host has 2 workers. The names h1, h2 ... in a configuration of ssh all
# lead to one real sshd, which the script starts. A time ends when the first or the last worker prints the time. All
# logins share the processors of this machine, so compare ddprun with the row "as many ssh at once". In the row "logins
# of 350 ms", a stand-in replaces ssh, so this row shows the time that ddprun itself needs: the first worker of 8 hosts
# must start within 1.5 × 350 + 20 ms. If descriptor 3 is open, the numbers go there as JSON lines.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
rounds=${ROUNDS:-3}
[ $# -gt 0 ] || set -- 8 64
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
printf '#!/bin/sh\nsleep 0.35\nshift\nexec sh -c "$*"\n' >"$dir/login"
chmod +x "$dir/login"

now() { date +%s%N; }

# since NAME BEGIN END -- records the time from BEGIN to END in microseconds, under NAME.
since() { echo "$hosts|$1|$((($3 - $2) / 1000))" >>"$times"; }

# job NAME COMMAND... -- runs a job whose workers print the time. Records the time of the first worker (with $note) and
# of the last worker.
job() {
    local name=$1 begin
    shift
    begin=$(now)
    if ! timeout 120 "$@" sh -c 'echo at $(date +%s%N)' >"$dir/out" 2>"$dir/err"; then
        echo "$name failed: $(tail -3 "$dir/err")" >&2
        return 0
    fi
    sed -n 's/.*at //p' "$dir/out" | sort -n >"$dir/clocks"
    since "$name, first worker${note:-}" "$begin" "$(head -1 "$dir/clocks")"
    since "$name, last worker" "$begin" "$(tail -1 "$dir/clocks")"
}

round_of() {
    local hosts=$1 begin i list
    begin=$(now)
    $ssh h1 true
    since "one ssh" "$begin" "$(now)"
    begin=$(now)
    for ((i = 1; i <= hosts; i++)); do $ssh "h$i" true & done
    wait
    since "as many ssh at once" "$begin" "$(now)"
    job ddprun "$BUILD/ddprun" "--hosts=h[1-$hosts]:2" "--ssh=$ssh"
    note=' (8 hosts: limit 545 ms)' job "ddprun, logins of 350 ms" "$BUILD/ddprun" "--hosts=h[1-$hosts]:2" "--remote_shell=$dir/login"
    list=$(seq -s , -f 'h%g:2' "$hosts")
    ! command -v mpirun.openmpi >/dev/null ||
        job mpirun.openmpi mpirun.openmpi --allow-run-as-root --oversubscribe --host "$list" -np $((2 * hosts)) \
            --mca plm_rsh_agent "$ssh" --mca orte_keep_fqdn_hostnames 1 --mca plm_rsh_num_concurrent 1000
}

for hosts in "$@"; do
    for ((round = 0; round < rounds; round++)); do round_of "$hosts"; done
done
{ true >&3; } 2>/dev/null || exec 3>/dev/null
sort -t '|' -k1,1n -k2,2 -k3,3n "$times" | awk -F '|' -v rounds="$rounds" -v cpus="$(nproc)" '
    { key = $1 "|" $2; if (!(key in n)) { if (!($2 in seen)) { seen[$2]; names[++rows] = $2 } if ($1 != last) counts[++columns] = last = $1 } us[key, ++n[key]] = $3 }
    function median(key) { return us[key, int((n[key] + 1) / 2)] / 1000 }
    END {
        printf "Start over ssh, %d processors:\n\n| start over ssh, 2 workers each (median of %d rounds) |", cpus, rounds
        for (c = 1; c <= columns; c++) printf " %s hosts |", counts[c]
        printf "\n|---|"
        for (c = 1; c <= columns; c++) printf "---:|"
        for (r = 1; r <= rows; r++) {
            printf "\n| %s |", names[r]
            for (c = 1; c <= columns; c++) {
                printf " %.0f ms |", median(counts[c] "|" names[r])
                printf "{\"section\": \"ssh\", \"what\": \"%s\", \"hosts\": %s, \"ms\": %.1f}\n", names[r], counts[c], median(counts[c] "|" names[r]) >"/dev/fd/3"
            }
        }
        printf "\n"
    }'
