"""Train two workers with accelerate on Gloo. Each program of this folder prints its results as lines `result ...`."""
import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for epoch in range(3):
    for x, y in data:
        loss = ((model(x) - y) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
loss = accelerator.reduce(loss.detach(), "mean")
if accelerator.is_main_process:
    print(f"result loss {loss.item():.9f} workers {accelerator.num_processes} arguments {sys.argv[1:]}")
accelerator.end_training()
