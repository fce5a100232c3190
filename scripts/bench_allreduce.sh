#!/usr/bin/env bash
# bench_allreduce.sh -- measures our all-reduce against Open MPI's, 4 KiB to 64 MiB, 2 and 4 ranks on this machine. In
# each of ROUNDS (10) rounds the contenders run in turn, so that a busy machine affects all contenders.

# The table has the medians, and how many times faster than Open MPI our all-reduce is. "arena" is memory of
# ddp_shared_alloc, which also contains the gradients. "private" is any other memory. If descriptor 3 is open, the
# numbers go there as JSON lines. The script takes about a minute. After two minutes no further round begins; the table
# has the number of rounds.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
rounds=${ROUNDS:-10}
times=$(mktemp)
trap 'rm -f "$times"' EXIT

# shellcheck source=scripts/bench_mpi.sh
. scripts/bench_mpi.sh

# Allow root, and more ranks than cores. Use only shared memory, not the network.
run_mpi() {
    timeout 60 mpirun.openmpi --oversubscribe --allow-run-as-root --mca btl self,vader -n "$1" "$mpi"
}

for ((round = 0; round < rounds && (round == 0 || SECONDS < 120); round++)); do
    for ranks in 2 4; do
        for memory in arena private; do
            timeout 60 "$BUILD/tests/bench/bench_allreduce" "$ranks" "$memory" >>"$times"
        done
        [ -n "$why" ] || run_mpi "$ranks" >>"$times" || why="skipped, because mpirun failed"
    done
done

{ true >&3; } 2>/dev/null || exec 3>/dev/null
sort -k1,1 -k2,2n -k3,3n -k4,4g "$times" | awk -v why="$why" -v rounds="$round" '
    { key = $1 " " $2 " " $3; n[key]++; us[key, n[key]] = $4 }
    function median(key, half) { half = (n[key] + n[key] % 2) / 2; return n[key] % 2 ? us[key, half] : (us[key, half] + us[key, half + 1]) / 2 }
    function size(bytes) { return bytes < 1048576 ? bytes / 1024 " KiB" : bytes / 1048576 " MiB" }
    function ratio(key, peer) { return peer in n ? sprintf("%.1f x", median(peer) / median(key)) : why }
    END {
        print "all_reduce, f32 sum in place, median of " rounds " rounds, µs for one call:"
        print ""
        print "| ranks | bytes | arena | private | Open MPI | arena faster | private faster |"
        print "|---:|---:|---:|---:|---:|---:|---:|"
        for (ranks = 2; ranks <= 4; ranks += 2)
            for (bytes = 4096; bytes <= 67108864; bytes *= 4) {
                tail = " " ranks " " bytes; peer = "mpi" tail
                printf "| %d | %s | %.1f | %.1f | %s | %s | %s |\n", ranks, size(bytes), median("arena" tail),
                    median("private" tail), peer in n ? sprintf("%.1f", median(peer)) : "-", ratio("arena" tail, peer),
                    ratio("private" tail, peer)
                printf "{\"bench\":\"all_reduce\",\"ranks\":%d,\"bytes\":%d,\"arena_us\":%.3f,\"private_us\":%.3f,\"openmpi_us\":%s}\n",
                    ranks, bytes, median("arena" tail), median("private" tail), peer in n ? median(peer) : "null" > "/dev/fd/3"
            }
    }'
