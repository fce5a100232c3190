"""Make the first call of a script for GPUs."""
import torch.distributed as dist

dist.init_process_group("nccl")
