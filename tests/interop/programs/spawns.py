"""Each worker starts two processes. They form a separate group on a separate port."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

CHILDREN = 2


def child(index, port, outer):
    for name in [n for n in os.environ if n.startswith("TORCHELASTIC_")]:
        del os.environ[name]
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=index, world_size=CHILDREN)
    t = torch.ones(1) * (index + 1)
    dist.all_reduce(t)
    dist.barrier()
    dist.destroy_process_group()
    os.write(1, b"rank %d, child %d: sum %d\n" % (outer, index, t.item()))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    mp.spawn(child, args=(free, dist.get_rank()), nprocs=CHILDREN)
    dist.barrier()
    print("rank %d: children are done" % dist.get_rank(), flush=True)
    dist.destroy_process_group()
