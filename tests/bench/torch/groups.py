"""Measure init_process_group("gloo") with 2, 8 and 32 ranks, on ddp-rendezvous and on PyTorch's server in turn.

    groups.py DDP_RENDEZVOUS

All ranks are processes of this machine, forked after the import of torch. The clock runs from the start command until
the last rank has its group. This includes the connections to the store, the exchange of addresses through the store,
and Gloo's own connections.
"""
import os
import sys
from datetime import timedelta

import torch.distributed as dist

from crew import Crew
from stores import Stores, Table, in_turn, now

SIZES = (2, 8, 32)
ROUNDS = 11
TIMEOUT = timedelta(seconds=60)


class Rank:
    def __init__(self, rank, size, ports):
        self.rank, self.size, self.ports = rank, size, ports

    def meet(self, who, turn):
        """Form the group and return the time of its completion. Each turn uses its own key prefix."""
        store = dist.TCPStore("127.0.0.1", self.ports[who], self.size, False, TIMEOUT)
        dist.init_process_group("gloo", store=dist.PrefixStore(f"{self.size}/{turn}", store), rank=self.rank,
                                world_size=self.size, timeout=TIMEOUT)
        return now()

    def part(self):
        dist.destroy_process_group()

    def memory(self):
        """Return the proportional memory (PSS) of this rank in KiB."""
        with open("/proc/self/smaps_rollup") as lines:
            return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def meet(crew, who, turn):
    start = now()
    last = max(crew.all("meet", who, turn))
    meet.memory = max(meet.memory, sum(crew.all("memory")))
    crew.all("part")
    return (last - start) / 1000


meet.memory = 0


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with Stores(sys.argv[1]) as stores:
        table = Table("torch_group", f'init_process_group("gloo") (median of {ROUNDS})', stores, "theirs is")
        for n in SIZES:
            with Crew(n, lambda rank: Rank(rank, n, stores.ports)) as crew:
                table.row(f"{n} ranks", n, in_turn(ROUNDS, lambda who, turn: meet(crew, who, turn)), "ms")
        print(f"\nMemory of all ranks together: {meet.memory / 1024:.0f} MiB at most.")


main()
