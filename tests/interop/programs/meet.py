"""Create a process group in other ways than env://: with tcp://, with the job's store, with a store that the program
hosts on MASTER_ADDR, and for RPC. (Two default groups with the same store and name would read each other's keys.)

For a PyTorch without libuv, the program must pass use_libuv=False to every store, and its rank 0 must host the job's
store. Like env://, the program reads this from USE_LIBUV and TORCHELASTIC_USE_AGENT_STORE."""
import os
import socket
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import rpc

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
addr, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
MINUTE = timedelta(minutes=1)
LIBUV = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}
HOSTS = rank == 0 and os.environ["TORCHELASTIC_USE_AGENT_STORE"] != "True"


def store_at(where, size, hosts=False, **more):
    return dist.TCPStore(addr, where, size, hosts, MINUTE, **LIBUV, **more)


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


def agree(store, name, make):
    """Return a value that rank 0 makes. All ranks return the same value."""
    if rank == 0:
        store.set(name, str(make()))
    return store.get(name).decode()


def use_group():
    t = torch.ones(4) * rank
    dist.all_reduce(t)
    assert t.eq(world * (world - 1) / 2).all()
    assert dist.get_world_size() == world and dist.get_rank() == rank
    dist.barrier()
    dist.destroy_process_group()


def tcp():
    dist.init_process_group("gloo", init_method="tcp://%s:%d" % (addr, port), rank=rank, world_size=world)
    use_group()


def store_of_the_job():
    store = dist.PrefixStore("mine", store_at(port, world))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    use_group()


def store_of_its_own():
    """Use a second store on MASTER_ADDR, as many programs do for their own data. The rank that hosts the store leaves
    it last."""
    first = store_at(port, None)
    second = store_at(int(agree(first, "second port", free_port)), world, rank == 0)
    dist.init_process_group("gloo", store=dist.PrefixStore("own", second), rank=rank, world_size=world)
    use_group()
    if rank == 0:
        while first.add("left", 0) < world - 1:
            time.sleep(0.02)
    del second
    first.add("left", 1)


def remote_calls():
    rpc.init_rpc("worker%d" % rank, rank=rank, world_size=world)
    answer = rpc.rpc_sync("worker%d" % ((rank + 1) % world), torch.add, args=(torch.ones(2), 2))
    assert answer.eq(3).all()
    rpc.shutdown()


kept = store_at(port, None, True, multi_tenant=True) if HOSTS else None
for part in (tcp, store_of_the_job, store_of_its_own, remote_calls):
    part()
    print("rank %d of %d: %s" % (rank, world, part.__name__), flush=True)
