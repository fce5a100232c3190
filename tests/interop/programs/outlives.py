"""Check that the store is reachable until the last worker has exited. Each rank queries the store for longer than the
other ranks live, even after SIGTERM. In the end, the rank prints whether it has used little CPU time. A failed query
raises an exception.

    outlives.py HOW [FIFO]    end: rank 0 exits at once; fail: rank 0 fails at once; stay: both query until SIGTERM;
                              once: like stay, but in a later attempt all ranks exit at once

With FIFO, each rank opens the FIFO as its stderr. The reader of the FIFO sees when the rank exits, and what the rank
prints after the launcher has gone.
"""
import os
import signal
import sys
import time
from datetime import timedelta

import torch.distributed as dist

rank, world, how = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[1]
if len(sys.argv) > 2:
    os.dup2(os.open(sys.argv[2], os.O_WRONLY), 2)
if how == "once" and os.environ["DDPRUN_ATTEMPT"] != "0":
    print("rank %d of %d goes on" % (rank, world), flush=True)
    sys.exit(0)
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, timedelta(seconds=30))
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(time.monotonic()))


def look(seconds):
    """Query the store now and then. Most of the time, only hold the connection, as a worker that computes does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        store.add("looks", 1)
        time.sleep(0.05)


store.add("here", 1)
while store.add("here", 0) < world:
    time.sleep(0.05)
print("rank %d looks" % rank, flush=True)
if rank == 0 and how in ("end", "fail"):
    sys.exit(7 if how == "fail" else 0)
before = time.process_time()
if how == "end":
    look(1.5)
else:
    while not stopped:
        look(0.05)
    look(1.5)
used = time.process_time() - before
print("rank %d: store is there" % rank if used < 0.8 else "rank %d has used %.1f s" % (rank, used), flush=True)
os._exit(0)
