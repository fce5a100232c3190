"""Train while nodes join and leave. The parameters must equal those of one process that trains alone.

    resize.py STATE WORLD...    each WORLD is the world size of the next three steps

If the next steps need another world size than the job has, the ranks wait until the launcher stops them.
"""
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 3
DATA = torch.arange(48.0).reshape(12, 4) / 48  # the 12 rows can be divided among 1, 2 and 3 ranks


def make(kind=lambda module: module):
    torch.manual_seed(1)
    module = kind(torch.nn.Linear(4, 2))
    return module, torch.optim.SGD(module.parameters(), lr=0.1)


def train(module, optimizer, data):
    optimizer.zero_grad()
    module(data).square().mean().backward()
    optimizer.step()


def main(path, *worlds):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    module, optimizer = make(DDP)
    step = 0
    if os.path.exists(path):
        saved = torch.load(path)
        step = saved.pop("step")
        module.load_state_dict(saved)
    while step < STEPS * len(worlds):
        if worlds[step // STEPS] != world:
            print("rank %d of %d waits at step %d" % (rank, world, step), flush=True)
            signal.pause()
        train(module, optimizer, DATA[rank::world])
        step += 1
        if rank == 0:
            torch.save({"step": step, **module.state_dict()}, path + ".new")
            os.replace(path + ".new", path)
        dist.barrier()
    alone, optimizer = make()
    for _ in range(step):
        train(alone, optimizer, DATA)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(module.parameters(), alone.parameters()))
    print("rank %d of %d: %d steps, as alone" % (rank, world, step), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
