"""Use every collective of Gloo, collectives of objects, groups, barriers, and messages between two ranks. At least
two ranks are needed."""
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
others = range(world)
total = world * (world + 1) // 2


def mine(*shape):
    return torch.full(shape or (3,), float(rank + 1))


def tensors():
    t = mine()
    dist.all_reduce(t)
    assert t.eq(total).all()
    for op, result in ((dist.ReduceOp.MAX, world), (dist.ReduceOp.MIN, 1)):
        t = mine()
        dist.all_reduce(t, op)
        assert t.eq(result).all()
    t = mine()
    dist.broadcast(t, 1)
    assert t.eq(2).all()
    t = mine()
    dist.reduce(t, 0)
    assert rank != 0 or t.eq(total).all()
    parts = [torch.empty(3) for _ in others]
    dist.all_gather(parts, mine())
    assert [int(p[0]) for p in parts] == [r + 1 for r in others]
    dist.gather(mine(), parts if rank == 0 else None)
    t = torch.empty(3)
    dist.scatter(t, [torch.full((3,), 10.0 * r) for r in others] if rank == 0 else None)
    assert t.eq(10 * rank).all()
    work = dist.all_reduce(mine(), async_op=True)
    work.wait()


def gloo_may_refuse(name, call, check):
    """Run a collective that some versions of Gloo lack. The launcher has no influence on this, so a lack is only
    printed."""
    try:
        call()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        print("rank %d: Gloo lacks %s (%s)" % (rank, name, type(error).__name__), flush=True)
        return
    assert check(), name


def rarer():
    got = torch.empty(world)
    gloo_may_refuse("all_to_all_single", lambda: dist.all_to_all_single(got, torch.full((world,), float(rank))),
                    lambda: got.tolist() == [float(r) for r in others])
    parts = [torch.empty(1) for _ in others]
    gloo_may_refuse("all_to_all", lambda: dist.all_to_all(parts, [torch.full((1,), float(rank)) for _ in others]),
                    lambda: [int(p) for p in parts] == list(others))
    part = torch.empty(3)
    gloo_may_refuse("reduce_scatter", lambda: dist.reduce_scatter(part, [mine() for _ in others]),
                    lambda: part.eq(total).all())
    whole = torch.empty(3 * world)
    gloo_may_refuse("all_gather_into_tensor", lambda: dist.all_gather_into_tensor(whole, mine()),
                    lambda: whole[::3].tolist() == [r + 1.0 for r in others])
    dist.barrier()


def objects():
    heard = [None] * world
    dist.all_gather_object(heard, {"rank": rank})
    assert [h["rank"] for h in heard] == list(others)
    told = ["from 0" if rank == 0 else None, rank]
    dist.broadcast_object_list(told, 0)
    assert told == ["from 0", 0]
    heard = [None] * world
    dist.gather_object("rank %d" % rank, heard if rank == 0 else None)
    assert rank != 0 or heard == ["rank %d" % r for r in others]
    part = [None]
    dist.scatter_object_list(part, ["for %d" % r for r in others] if rank == 0 else None)
    assert part == ["for %d" % rank]


def messages():
    right, left = (rank + 1) % world, (rank - 1) % world
    sent, got = dist.isend(mine(), right, tag=7), torch.empty(3)
    dist.recv(got, left, tag=7)
    sent.wait()
    assert got.eq(left + 1).all()


def groups():
    pair, alone = dist.new_group([0, 1]), [dist.new_group([r]) for r in others]
    t = mine()
    if rank < 2:
        dist.all_reduce(t, group=pair)
        assert t.eq(3).all()
        dist.barrier(pair)
    t = mine()
    dist.all_reduce(t, group=alone[rank])
    assert t.eq(rank + 1).all()


def monitored():
    """Let only rank 0 enter a monitored barrier. The error of rank 0 must name rank 1."""
    dist.monitored_barrier(timeout=timedelta(seconds=30), wait_all_ranks=True)
    said = "nothing"
    if rank == 0:
        try:
            dist.monitored_barrier(timeout=timedelta(milliseconds=200), wait_all_ranks=True)
        except RuntimeError as error:
            said = "1" if "1" in str(error).split("\n")[0] else str(error)
        print("missing in monitored:", said)
    # The missing ranks must stay connected until then. Otherwise, rank 0 would report that they have exited.
    store = c10d._get_default_store()
    store.set("monitored", "1") if rank == 0 else store.wait(["monitored"])


for part in (tensors, rarer, objects, messages, groups, monitored):
    part()
    print("rank %d of %d: %s" % (rank, world, part.__name__), flush=True)
dist.destroy_process_group()
