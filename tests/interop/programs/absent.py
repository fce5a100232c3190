"""A process group that does not form, because one rank never enters it. The argument says what this rank does:

never      rank 1 imports torch and then sleeps
imports    rank 1 sleeps before it imports torch
computes   rank 1 computes before it imports torch
exits      rank 1 exits with code 0
impatient  like never, but the other ranks time out after 5 s
nccl_id    rank 0 sleeps, and the other ranks wait for its NCCL id, under PyTorch's key
"""
import datetime
import os
import signal
import sys
import time

what, rank, world = sys.argv[1], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

if rank == 1 and what == "exits":
    sys.exit(0)
if rank == 1 and what == "imports":
    signal.pause()
while rank == 1 and what == "computes":
    sum(range(10**5))
    time.sleep(0.02)  # other tests need the processor

import torch
import torch.distributed as dist


def wait_for_nccl_id():
    """Wait as ProcessGroupNCCL does at its first collective. Without an answer of rank 0 this needs no GPU."""
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
