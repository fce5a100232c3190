"""A job without PyTorch: after some steps, rank CULPRIT sleeps and the other ranks wait. fake_py_spy.py prints their
stacks.

With FOREIGN=PID, the stand-in for NVML (tests/fake/fake_nvml.c) gets a list of processes at step 4: ranks 0, 1 and 2
on the GPUs 0, 1 and 0, and PID on GPU 1. With STEPS=1, all ranks print steps until they are stopped. With HEALS=1,
the second attempt exits with code 0. With PRINTS=1, rank 0 prints lines until it is stopped, and prints "epoch 1" at
SIGUSR1. With RECORDS=1, all ranks wait, and each rank writes a flight record when a byte arrives in its FIFO, as
NCCL's watchdog does. In these records, rank CULPRIT has made one call less."""
import os
import pickle
import select
import signal
import sys
import threading
import time

rank, culprit = os.environ["RANK"], os.environ["CULPRIT"]
records = os.environ.get("RECORDS") == "1"


def call(seq):
    frames = [{"name": "step", "filename": "/job/train.py", "line": 88}]
    return {"process_group": ("0", "default_pg"), "collective_seq_id": seq, "profiling_name": "nccl:all_reduce", "input_sizes": [[4]],
            "input_dtypes": ["Float"], "state": "scheduled", "time_created_ns": time.time_ns(), "is_p2p": False, "frames": frames}


def serve(fifo):
    while True:
        select.select([fifo], [], [])
        if not os.read(fifo, 128):
            time.sleep(0.01)
            continue
        record = {"version": "2.10", "entries": [call(seq) for seq in range(1, 8 + (rank != culprit))]}
        with open(os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] + rank, "wb") as f:
            pickle.dump(record, f, 2)


def print_lines(epoch):
    """Print lines in a thread, so that the main thread uses no CPU time."""
    print("printer", os.getpid(), flush=True)
    for line in range(1000000):
        print(f"waited {line} times", flush=True)
        if epoch.wait(0.1):
            print("epoch 1", flush=True)
            epoch.clear()


if os.environ.get("HEALS") == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
    sys.exit(0)
if records:
    name = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + rank + ".pipe"
    os.mkfifo(name)
    threading.Thread(target=serve, args=(os.open(name, os.O_RDONLY | os.O_NONBLOCK),), daemon=True).start()
for step in range(1000000 if os.environ["STEPS"] == "1" else 8):
    if step == 4 and "FOREIGN" in os.environ and rank in "012":
        with open(os.environ["FAKE_NVML"], "a") as f:
            f.write(f"process {int(rank) % 2} {os.getpid()} 1024\n")
            f.write(f"process 1 {os.environ['FOREIGN']} 31744\n" if rank == "1" else "")
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
    time.sleep(0.02)
if rank == culprit and not records:
    print("pid", os.getpid(), flush=True)
    time.sleep(1000000)
if os.environ.get("PRINTS") == "1" and rank == "0":
    epoch = threading.Event()
    signal.signal(signal.SIGUSR1, lambda signum, frame: epoch.set())
    threading.Thread(target=print_lines, args=(epoch,), daemon=True).start()
threading.Event().wait()
