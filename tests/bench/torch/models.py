"""Train the models of `train` in PyTorch with DistributedDataParallel on Gloo; print the milliseconds of a step.

    ddprun --nproc_per_node=2 models.py mlp|gpt2:tiny|resnet20 BATCH STEPS

BATCH is the batch size of each worker. Rank 0 prints the mean. The batch is in memory before the clock starts. Each
worker has one thread, as in `train`.
"""
import math
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 10
BLOCKS, HEADS, WIDTH, LENGTH, VOCABULARY = 2, 2, 64, 64, 256


def mlp():
    return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.ahead = torch.ones(LENGTH, LENGTH).triu(1).bool()

    def attend(self, x):
        rows, length, _ = x.shape
        q, k, v = (p.view(rows, length, HEADS, -1).transpose(1, 2) for p in self.qkv(x).split(WIDTH, dim=2))
        scores = (q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)).masked_fill(self.ahead, -math.inf)
        return self.out((scores.softmax(3) @ v).transpose(1, 2).reshape(rows, length, WIDTH))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.network(self.norm2(x))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.place = torch.arange(LENGTH)

    def forward(self, tokens):
        x = self.blocks(self.tokens(tokens) + self.places(self.place))
        return F.linear(self.norm(x), self.tokens.weight).flatten(0, 1)


class Unit(nn.Sequential):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.stride, self.new = outputs // inputs, (outputs - inputs) // 2
        self.first, self.second = Unit(inputs, outputs, self.stride), Unit(outputs, outputs)

    def forward(self, x):
        y = self.second(F.relu(self.first(x)))
        if self.new:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.new, self.new))
        return F.relu(x + y)


def resnet20():
    widths = [16] * 4 + [32] * 3 + [64] * 3
    blocks = [Residual(a, b) for a, b in zip(widths, widths[1:])]
    return nn.Sequential(
        Unit(3, 16), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )


MODELS = {"mlp": mlp, "gpt2:tiny": Gpt2, "resnet20": resnet20}


def batch_of(name, batch):
    if name == "mlp":
        return torch.rand(batch, 784), torch.randint(10, (batch,))
    if name == "resnet20":
        return torch.rand(batch, 3, 32, 32), torch.randint(10, (batch,))
    tokens = torch.randint(VOCABULARY, (batch, LENGTH + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()


def main():
    name, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(MODELS[name]())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, target = batch_of(name, batch)
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(x), target).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"{(time.perf_counter() - start) * 1e3 / steps:.4f}")
    dist.destroy_process_group()


main()
