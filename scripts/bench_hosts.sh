#!/usr/bin/env bash
# bench_hosts.sh -- measures our all-reduce between hosts against Open MPI's all-reduce over TCP, 4 KiB to 64 MiB, 2
# hosts with 2 ranks each. This machine acts as both hosts, which communicate over loopback, so that the script needs no
# second machine. In each of ROUNDS (5) rounds the contenders run in turn, and the table has the medians.

# Open MPI may use only TCP. The column "one host" has the time of four ranks in shared memory, which shows the cost of
# the network. If descriptor 3 is open, the numbers go there as JSON lines. After a minute no further round begins; the
# table has the number of rounds.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
rounds=${ROUNDS:-5}
times=$(mktemp)
trap 'rm -f "$times"' EXIT

# shellcheck source=scripts/bench_mpi.sh
. scripts/bench_mpi.sh

# ours NAME ARGUMENT... -- runs bench_allreduce, and records its lines under NAME.
ours() {
    timeout 60 "$BUILD/tests/bench/bench_allreduce" "${@:2}" | awk -v name="$1" '{ print name, $3, $4 }' >>"$times"
}

run_mpi() {
    timeout 60 mpirun.openmpi --oversubscribe --allow-run-as-root --mca btl self,tcp -n 4 "$mpi" |
        awk '{ print "mpi", $3, $4 }' >>"$times"
}

for ((round = 0; round < rounds && (round == 0 || SECONDS < 60); round++)); do
    ours arena 4 arena 2
    ours private 4 private 2
    ours one 4 arena
    [ -n "$why" ] || run_mpi || why="skipped, because mpirun failed"
done

{ true >&3; } 2>/dev/null || exec 3>/dev/null
sort -k1,1 -k2,2n -k3,3g "$times" | awk -v why="$why" -v rounds="$round" '
    { key = $1 " " $2; n[key]++; us[key, n[key]] = $3 }
    function median(key, half) { half = (n[key] + n[key] % 2) / 2; return n[key] % 2 ? us[key, half] : (us[key, half] + us[key, half + 1]) / 2 }
    function size(bytes) { return bytes < 1048576 ? bytes / 1024 " KiB" : bytes / 1048576 " MiB" }
    END {
        print "all_reduce, f32 sum in place, 2 hosts x 2 ranks over TCP on loopback, median of " rounds " rounds, µs for one call:"
        print ""
        print "| bytes | arena | private | Open MPI (tcp) | arena faster | one host, arena |"
        print "|---:|---:|---:|---:|---:|---:|"
        for (bytes = 4096; bytes <= 67108864; bytes *= 4) {
            arena = median("arena " bytes); peer = "mpi " bytes
            printf "| %s | %.1f | %.1f | %s | %s | %.1f |\n", size(bytes), arena, median("private " bytes),
                peer in n ? sprintf("%.1f", median(peer)) : "-", peer in n ? sprintf("%.1f x", median(peer) / arena) : why,
                median("one " bytes)
            printf "{\"bench\":\"hosts\",\"bytes\":%d,\"arena_us\":%.3f,\"private_us\":%.3f,\"one_host_us\":%.3f,\"openmpi_us\":%s}\n",
                bytes, arena, median("private " bytes), median("one " bytes), peer in n ? median(peer) : "null" > "/dev/fd/3"
        }
    }'
