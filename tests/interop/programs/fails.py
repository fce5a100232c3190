"""Rank 1 fails with a message, which @record writes to the error file."""
import os

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    dist.init_process_group("gloo")
    if os.environ["RANK"] == "1":
        raise ValueError("the data of rank 1 are broken")
    dist.barrier()


if __name__ == "__main__":
    main()
