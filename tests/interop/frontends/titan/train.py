"""A stand-in for `-m torchtitan.train`. It prints what a worker gets from the options of run_train.sh."""
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(rank)
names = ("ROLE_NAME", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE")
print("result", rank.item(), *(os.environ[name] for name in names), __name__, sys.argv[1:])
dist.destroy_process_group()
