"""Train GPT-2 124M in PyTorch on one GPU with the fastest settings: bf16, torch.compile, flash attention, fused
AdamW, DDP. Print the tokens per second: the median of the steps after the first ten. scripts/gpu_check.sh compares
`train` with this program.

    python3 tests/bench/torch/gpt2_gpu.py [BATCH [STEPS]]
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

WIDTH, HEADS, BLOCKS, LENGTH, VOCABULARY = 768, 12, 12, 1024, 50304  # a multiple of 128, for speed


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.att = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows = x.size(0)
        q, k, v = (t.view(rows, LENGTH, HEADS, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.att(y.transpose(1, 2).reshape(rows, LENGTH, WIDTH))
        return x + self.proj(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, token, target):
        x = self.tokens(token) + self.places.weight
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), target.view(-1))


def main():
    batch = int(sys.argv[1]) if len(sys.argv) > 1 else 32
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29517")):
        os.environ.setdefault(name, value)
    dist.init_process_group("nccl")
    torch.set_float32_matmul_precision("high")
    model = nn.parallel.DistributedDataParallel(GPT2().cuda(), gradient_as_bucket_view=True)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    data = torch.randint(0, 256, (batch, LENGTH + 1), device="cuda")
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(data[:, :-1].contiguous(), data[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    print("tokens_s %.0f, torch %s, loss %.3f" % (batch * LENGTH / statistics.median(times[10:]), torch.__version__, loss.item()))
    dist.destroy_process_group()


main()
