"""Use DistributedDataParallel in all variants, a sampler, a sharded optimizer, and a checkpoint that is loaded
again."""
import os
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
data = torch.arange(64.0).reshape(16, 4) / 64
mine = data[rank::world]


class Branches(torch.nn.Module):
    """A module with two branches, of which each call uses one."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)

    def forward(self, x, which="a"):
        return getattr(self, which)(x)


def model(kind=Branches):
    torch.manual_seed(1)
    return kind()


def gradient(module):
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


def expected(x, scale=1.0):
    """Return the gradient that one process computes from all data, divided by the world size."""
    whole = model().a
    (whole(x).sum() * scale).backward()
    return gradient(whole) / world


def same(got, wanted):
    assert torch.allclose(got, wanted, atol=1e-5), (got, wanted)


def plain():
    ddp = DDP(model().a)
    ddp(mine).sum().backward()
    same(gradient(ddp), expected(data))


def unused():
    ddp = DDP(model(), find_unused_parameters=True)
    ddp(mine).sum().backward()
    same(gradient(ddp.module.a), expected(data))


def no_sync():
    ddp = DDP(model().a)
    with ddp.no_sync():
        ddp(mine).sum().backward()
    ddp(mine).sum().backward()
    same(gradient(ddp), expected(data, 2.0))


def static_graph():
    ddp = DDP(model(), static_graph=True)
    for _ in range(2):
        ddp.zero_grad()
        ddp(mine).sum().backward()
    same(gradient(ddp.module.a), expected(data))


def comm_hook():
    ddp = DDP(model().a)
    ddp.register_comm_hook(None, default_hooks.allreduce_hook)
    ddp(mine).sum().backward()
    same(gradient(ddp), expected(data))


def sync_batch_norm():
    """Use SyncBatchNorm on a CPU. If PyTorch supports it only on GPUs, its error must say so."""
    norm = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.BatchNorm1d(4))
    said = "works"
    try:
        out = norm(mine)
        assert torch.allclose(out, torch.nn.BatchNorm1d(4)(data)[rank::world], atol=1e-4)
    except ValueError as error:
        assert "GPU" in str(error), error
        said = "refused"
    print("rank %d: SyncBatchNorm on a CPU is %s" % (rank, said), flush=True)


def sampler():
    order = DistributedSampler(data, seed=3)
    seen = []
    for epoch in range(2):
        order.set_epoch(epoch)
        for (batch,) in DataLoader(TensorDataset(data), batch_size=4, sampler=order):
            seen += [int(x) for x in batch[:, 0] * 16]
    everybody = [None] * world
    dist.all_gather_object(everybody, seen)
    assert sorted(sum(everybody, [])) == sorted(2 * list(range(16)))


def sharded_optimizer():
    ddp, alone = DDP(model().a), model().a
    zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=0.1)
    adam = torch.optim.Adam(alone.parameters(), lr=0.1)
    for _ in range(3):
        for module, optimizer, x in ((ddp, zero, mine), (alone, adam, data)):
            optimizer.zero_grad()
            module(x).square().mean().backward()
            optimizer.step()
    same(torch.cat([p.flatten() for p in ddp.parameters()]), torch.cat([p.flatten() for p in alone.parameters()]))
    zero.consolidate_state_dict(0)
    assert rank != 0 or zero.state_dict()["state"]


def checkpoint():
    """Write a checkpoint on rank 0, and read it on all ranks."""
    path = [os.path.join(tempfile.gettempdir(), "interop-%d.pt" % os.getpid()) if rank == 0 else None]
    dist.broadcast_object_list(path)
    ddp = DDP(model().a)
    torch.optim.SGD(ddp.parameters(), lr=0.1).step()
    if rank == 0:
        torch.save(ddp.state_dict(), path[0])
    dist.barrier()
    loaded = DDP(torch.nn.Linear(4, 2))
    loaded.load_state_dict(torch.load(path[0]))
    assert all(a.equal(b) for a, b in zip(ddp.parameters(), loaded.parameters()))
    dist.barrier()
    if rank == 0:
        os.remove(path[0])


for part in (plain, unused, no_sync, static_graph, comm_hook, sync_batch_norm, sampler, sharded_optimizer, checkpoint):
    part()
    print("rank %d of %d: %s" % (rank, world, part.__name__), flush=True)
dist.barrier()
dist.destroy_process_group()
