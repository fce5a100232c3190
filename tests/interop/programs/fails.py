"""Rank 1 fails with a message, which @record writes to the error file. All ranks have left the group by then, so no
other failure can be the first."""
import os
import signal

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()
    if os.environ["RANK"] == "1":
        raise ValueError("the data of rank 1 are broken")
    signal.pause()


if __name__ == "__main__":
    main()
