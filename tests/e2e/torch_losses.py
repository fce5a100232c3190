#!/usr/bin/env python3
"""Train as `train` does, but with PyTorch. Print the losses of the first steps, for the table in test_train.c.

    build/make-data --out DIR --samples 1050 --test_samples 10
    python3 tests/e2e/torch_losses.py DIR mlp 20
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data.distributed import DistributedSampler

folder, model, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])


def values(name, header):
    with open(f"{folder}/{name}", "rb") as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1 = nn.Linear(784, 200)
        self.lin2 = nn.Linear(200, 200)
        self.lin3 = nn.Linear(200, 10)

    def forward(self, x):
        if model == "mlp":
            return self.lin3(F.relu(self.lin2(F.relu(self.lin1(x)))))
        return self.lin3(F.log_softmax(self.lin2(torch.sigmoid(self.lin1(x))), dim=1))


images = values("train-images-idx3-ubyte", 16).reshape(-1, 784).float() / 255
labels = values("train-labels-idx1-ubyte", 8).long()
torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
sampler = DistributedSampler(range(len(images)), num_replicas=1, rank=0, shuffle=True, seed=0)
losses = []
for epoch in range(steps):
    sampler.set_epoch(epoch)
    for batch in torch.tensor(list(sampler)).split(100):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if len(losses) >= steps:
        break
print(", ".join(f"{loss:.7g}" for loss in losses[:steps]))
