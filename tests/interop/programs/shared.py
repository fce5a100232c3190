"""A program with its own port: two launches of it share one store. The first argument is the port.

With `barrier` as second argument, the ranks only meet in the barrier at the end of init_process_group. NCCL behaves
like this, because it creates communicators later. Without `barrier`, rank 0 of each launch waits for an address that
no rank provides. If there were an address, ranks of two launches would connect to each other. Gloo might then end
them before ddprun can report anything."""
import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

rank, world, port = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(sys.argv[1])
MINUTES = timedelta(minutes=5)


def barrier():
    store = dist.PrefixStore("default_pg", dist.TCPStore("127.0.0.1", port, world, False, timeout=MINUTES))
    if torch.__version__ < "2":
        c10d._group_count = 1
        c10d.get_world_size = lambda group=None: world
        c10d._store_based_barrier(rank, store, MINUTES)
    else:
        c10d._store_based_barrier(rank, store, "0", world, MINUTES)
    signal.pause()


os.environ["MASTER_PORT"] = str(port)
print("has begun", file=sys.stderr, flush=True)
if sys.argv[2:] == ["barrier"]:
    barrier()
if rank == 0:
    dist.init_process_group("gloo", timeout=MINUTES)
signal.pause()
