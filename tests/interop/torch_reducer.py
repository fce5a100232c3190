#!/usr/bin/env python3
"""Print the gradients that PyTorch's DDP averages over three ranks, for tests/socket/test_reducer.c.

python3 tests/interop/torch_reducer.py > tests/socket/torch_gradients.h
"""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 3
SIZES = {"a": 3, "b": 2, "c": 2}


def wanted(rank, step, name):
    """Return the gradient of a rank's backward pass. The values are chosen so that no sum of them is exact in
    float."""
    first = {"a": 0.1, "b": -0.7, "c": 1.3}[name]
    return torch.tensor([first * (rank + 1) + 0.01 * (step + 1) * (i + 1) for i in range(SIZES[name])])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        for name, n in SIZES.items():
            setattr(self, name, nn.Parameter(torch.zeros(n)))

    def forward(self, rank, step, names):
        return sum((getattr(self, n) * wanted(rank, step, n)).sum() for n in names)


def gradients(ddp):
    return [p.grad.tolist() if p.grad is not None else [] for p in ddp.module.parameters()]


def plain(rank):
    ddp = DDP(Model())
    ddp(rank, 0, "abc").backward()
    return gradients(ddp)


def accumulate(rank):
    ddp = DDP(Model())
    with ddp.no_sync():
        ddp(rank, 0, "abc").backward()
    ddp(rank, 1, "abc").backward()
    return gradients(ddp)


def unused(rank):
    ddp = DDP(Model(), find_unused_parameters=True)
    ddp(rank, 0, "ab" if rank == 0 else "a").backward()
    return gradients(ddp)


def join(rank, by_world):
    ddp = DDP(Model())
    with ddp.join(divide_by_initial_world_size=by_world):
        for step in range(WORLD - rank):
            ddp.zero_grad()
            ddp(rank, step, "abc").backward()
    return gradients(ddp)


def half(rank):
    ddp = DDP(Model())
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    ddp(rank, 0, "abc").backward()
    return gradients(ddp)


SCENARIOS = [("plain", plain), ("accumulate", accumulate), ("unused", unused), ("half", half),
             ("join_world", lambda r: join(r, True)), ("join_active", lambda r: join(r, False))]


def run(rank, path):
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=WORLD)
    for name, scenario in SCENARIOS:
        answer = scenario(rank)
        if rank == 0:
            flat = [v for grads, n in zip(answer, SIZES.values()) for v in (grads or [float("nan")] * n)]
            text = ", ".join("NAN" if v != v else f"{v:.9g}" for v in flat)
            print(f'    {{ "{name}", {{ {text} }} }},', flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    print("/* torch_gradients.h -- made by tests/interop/torch_reducer.py with PyTorch " + torch.__version__.split("a")[0])
    print(" * (DistributedDataParallel on Gloo, three ranks): rank 0's gradients of a, b and c; NAN: none */")
    print("static const struct torch_gradients torch_gradients[] = {", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, (folder + "/store",), WORLD)
    print("};")
