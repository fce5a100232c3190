"""Rank 1 fails in the first attempt, after the group is formed: it raises an exception, or with the argument `kill`
kills itself. The second attempt continues from the checkpoint of the first."""
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

STEPS, FAILS_AT = 6, 3


@record
def main(path):
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    state = torch.load(path) if os.path.exists(path) else {"step": 0, "sum": torch.zeros(1)}
    print("rank %d: attempt %d begins at step %d" % (rank, attempt, state["step"]), flush=True)
    # All steps use one tensor, because Gloo's thread may hold the last reference to a new one. Up to torch 2.7, the
    # process then hangs in destroy_process_group, which waits for that thread and holds the GIL (PyTorch pull request
    # 154976).
    t = torch.empty(1)
    for step in range(state["step"], STEPS):
        if rank == 1 and attempt == 0 and step == FAILS_AT:
            if sys.argv[2:] == ["kill"]:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("no step %d today" % step)
        dist.all_reduce(t.fill_(rank + 1))
        state = {"step": step + 1, "sum": state["sum"] + t}
        if rank == 0:
            torch.save(state, path + ".new")
            os.replace(path + ".new", path)
        dist.barrier()
    dist.destroy_process_group()  # without this, torch 2.15 may abort at exit: PyTorch issue 190489
    print("rank %d: %d steps, sum %d" % (rank, state["step"], state["sum"].item()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
