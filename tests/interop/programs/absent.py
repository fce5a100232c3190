"""Try to form a process group. It does not form, because of one rank. The argument names the reason:

never     rank 1 has imported torch, and sleeps
imports   rank 1 sleeps while the other ranks import torch
computes  rank 1 computes while the other ranks import torch
exits     rank 1 ends with code 0
impatient rank 1 sleeps, and the other ranks give up after some seconds
nccl_id   rank 0 sleeps, and the other ranks wait for its NCCL id, under the key that PyTorch uses
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
    """Wait as ProcessGroupNCCL does in its first collective. This wait needs no GPU if no rank answers."""
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
