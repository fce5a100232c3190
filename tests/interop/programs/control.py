"""Use torch.distributed.elastic: is_torchelastic_launched(), a synchronization through the job's store, a sampler that
continues in the middle of an epoch, and timers that the launcher watches."""
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.elastic.timer as timer
from torch.distributed.elastic.utils import store as meetings
from torch.distributed.elastic.utils.data import ElasticDistributedSampler

assert dist.is_torchelastic_launched()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def environment():
    assert int(os.environ["TORCHELASTIC_RESTART_COUNT"]) <= int(os.environ["TORCHELASTIC_MAX_RESTARTS"])
    assert os.environ["TORCHELASTIC_RUN_ID"] and os.environ["ROLE_NAME"]
    assert int(os.environ["GROUP_RANK"]) * int(os.environ["LOCAL_WORLD_SIZE"]) + int(os.environ["LOCAL_RANK"]) == rank
    told = [None] * world
    dist.all_gather_object(told, os.environ["TORCHELASTIC_RUN_ID"])
    assert len(set(told)) == 1


def synchronized():
    """Synchronize as torchrun's own agents do: each rank writes a value, and reads the values of all ranks."""
    libuv = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}
    joined = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False,
                           timedelta(minutes=1), **libuv)
    store = dist.PrefixStore("control", joined)
    values = meetings.synchronize(store, b"from %d" % rank, rank, world, "values")
    assert values == [b"from %d" % r for r in range(world)], values
    dist.barrier()


def sampler():
    """Start at item 4, as after a restart."""
    data = torch.arange(12)
    order = ElasticDistributedSampler(data, num_replicas=world, rank=rank, start_index=4)
    everybody = [None] * world
    dist.all_gather_object(everybody, list(order))
    assert sorted(sum(everybody, [])) == list(range(4, 12)), everybody


def timers():
    """Use a timer, if TORCHELASTIC_ENABLE_FILE_TIMER makes the launcher watch timers."""
    if os.environ.get("TORCHELASTIC_ENABLE_FILE_TIMER") != "1":
        return
    timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
    with timer.expires(after=60):
        dist.all_reduce(torch.ones(1))


for part in (environment, synchronized, sampler, timers):
    part()
    print("rank %d of %d: %s" % (rank, world, part.__name__), flush=True)
dist.barrier()
dist.destroy_process_group()
