"""A process group that does not come together, since one rank does what the argument says in place of coming:

never     it has imported torch, and sleeps
imports   it sleeps where others import torch
computes  it computes there
exits     it is content and ends with 0
impatient it sleeps, too, and the others give up after some seconds
nccl_id   rank 0 sleeps, and the others wait for its NCCL id, under the key that PyTorch takes
"""
import datetime
import os
import signal
import sys

what, rank, world = sys.argv[1], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

if rank == 1 and what == "exits":
    sys.exit(0)
if rank == 1 and what == "imports":
    signal.pause()
while rank == 1 and what == "computes":
    pass

import torch
import torch.distributed as dist


def wait_for_nccl_id():
    """What ProcessGroupNCCL does at its first collective, which needs no GPU as long as nobody answers."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, False)
    for prefix in ["default_pg", "0"] if torch.__version__ < "2" else ["default_pg", "0/", "cuda/"]:
        store = dist.PrefixStore(prefix, store)
    if rank == 0:
        signal.pause()
    store.get("0")


if what == "nccl_id":
    wait_for_nccl_id()
if rank == 1 and what in ("never", "impatient"):
    signal.pause()
if what == "impatient":
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
dist.init_process_group("gloo")
