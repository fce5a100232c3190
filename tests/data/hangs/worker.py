"""A PyTorch job on Gloo whose rank 1 hangs after some steps, in the way that the first argument names.

The argument may list several ways: "sleep,lock,exit". SIGUSR1 to rank 1 ends a hang, and the job continues with the
next one. For `key` and `part`, send SIGUSR1 to rank 0. For `debugger`, send it to the process that traces rank 1.
`disk` ends when the server of its file system is killed. With `absent`, rank 1 ends before it joins the group.
docs/hangs.md, scripts/hangs.py and tests/e2e/test_hangs.c run this program. record.py runs it to make the fixtures
of tests/unit/diagnosis/test_hang.c. With site-packages/ in PYTHONPATH, the ways that need no PyTorch run without
PyTorch."""
import contextlib
import ctypes
import fcntl
import functools
import json
import multiprocessing
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time


def set_priority(nice):
    """Set the priority of this session among all sessions. `make hangs` imports PyTorch at a low priority, so that
    the import does not delay the trials of other jobs."""
    if "IMPORT_NICE" in os.environ:
        with open("/proc/self/autogroup", "w") as f:
            f.write(nice)


if __name__ == "__main__":
    set_priority(os.environ.get("IMPORT_NICE"))

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WAYS = sys.argv[1].split(",")
STEPS = int(os.environ.get("HANG_STEPS", "8"))
CULPRIT = 1


def in_folder(name):
    """Return the path of a file in the folder of the tests, or in a new folder."""
    return f"{sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp()}/{name}"


class Released(Exception):
    """Raised when SIGUSR1 ends the hang."""


def release(signum, frame):
    raise Released


def load_batch():
    time.sleep(1000000)  # line of sleep


def start_child():
    """Start a child and wait until it exits, but leave it a zombie. The end of a `with` block reaps the child."""
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    return child


def sleep_beside_child():
    with start_child():
        time.sleep(1000000)  # line of zombie


def spin_beside_child():
    with start_child():
        while True:  # line of busy_zombie
            pass  # line of busy_zombie


def hold_gil():
    ctypes.PyDLL(None).pause()  # line of gil


def spin():
    n = 0
    while n >= 0:  # line of loop
        n += 1  # line of loop


def compute():
    """Compute for 3 s, with pauses that leave CPU time to parallel trials. Samples are 6 s apart, so two consecutive
    samples show different callers."""
    until = time.time() + 3
    while time.time() < until:
        sum(range(100000))
        time.sleep(0.02)


def weigh():
    compute()


def shuffle():
    compute()


def pack():
    compute()


def unpack():
    compute()


def calls_in_turn():
    while True:
        weigh()  # line of calls
        shuffle()  # line of calls
        pack()  # line of calls
        unpack()  # line of calls


def take_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # line of lock


def read_fifo():
    path = sys.argv[2] if len(sys.argv) > 2 else in_folder("fifo")
    if not os.path.exists(path):
        os.mkfifo(path)
    with open(os.open(path, os.O_RDWR), "rb") as f:
        f.read(1)  # line of fifo


def lock_file():
    path = in_folder("cache.lock")
    holder, mine = open(path, "w"), open(path, "w")
    fcntl.flock(holder, fcntl.LOCK_EX)
    fcntl.flock(mine, fcntl.LOCK_EX)  # line of file


def read_socket():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(1)
    client = socket.create_connection(server.getsockname())
    client.setblocking(True)
    client.recv(1)  # line of socket


def connect_socket():
    """Connect until the server's queue is full. The kernel then drops the next SYN, as a firewall does."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    clients = []
    while True:
        clients.append(socket.create_connection(server.getsockname(), timeout=300))  # line of connect


def read_pipe():
    r, w = os.pipe()
    os.read(r, 1)  # line of pipe


def read_disk():
    """Read a file of a file system that does not answer. The mount is visible only to this process and to the server
    of the file system. The read fails when the server ends."""
    folder, libc = in_folder("disk"), ctypes.CDLL(None, use_errno=True)
    os.makedirs(folder, exist_ok=True)
    if libc.unshare(0x20000) != 0 or libc.mount(b"none", b"/", None, 0x44000, None) != 0:  # CLONE_NEWNS; MS_REC | MS_PRIVATE
        sys.exit(f"mount namespace: {os.strerror(ctypes.get_errno())}")
    server = os.path.dirname(os.path.abspath(__file__)) + "/../../nodes/quota_fs.py"
    with subprocess.Popen([sys.executable, server, folder, "silent"], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with contextlib.suppress(OSError), open(folder + "/data", "rb") as f:
            f.read(1)  # line of disk
    libc.umount2(folder.encode(), 2)  # MNT_DETACH


def stop():
    os.kill(os.getpid(), 19)


def debug():
    """Start a child that stops its parent, as a debugger does, until the child receives SIGUSR1."""
    libc = ctypes.CDLL(None)
    libc.prctl(0x59616D61, ctypes.c_ulong(-1 & (2**64 - 1)), 0, 0, 0)
    reader, writer = os.pipe()
    if os.fork() == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        os.read(reader, 1)
        libc.ptrace(16, os.getppid(), 0, 0)
        signal.sigwait([signal.SIGUSR1])
        libc.ptrace(17, os.getppid(), 0, signal.SIGUSR1)  # detach, and deliver SIGUSR1 to the stopped thread
        os._exit(0)
    os.write(writer, b"x")  # the child attaches only now, because hooks inside fork() ignore exceptions
    time.sleep(1000000)


def wait_for_child():
    r, w = os.pipe()
    if os.fork() == 0:
        os._exit(1)
    os.read(r, 1)  # line of child


def fill(queue):
    path = in_folder("batches.fifo")
    if not os.path.exists(path):
        os.mkfifo(path)
    queue.put(open(path).read())  # line in the child of loader


def drain(queue):
    queue.get()


def wait_for_loader():
    """Wait for the queue of a child that opens a FIFO without a writer. The other child waits for this process."""
    batches, orders = multiprocessing.Queue(), multiprocessing.Queue()
    children = [multiprocessing.Process(target=target, args=(queue,), daemon=True)
                for target, queue in ((drain, orders), (fill, batches))]
    for child in children:
        child.start()
    try:
        batches.get()  # line of loader
    finally:
        for child in children:
            child.kill()
            child.join()


def run_program():
    subprocess.run(["sleep", "1000000"])  # line of program


def traceback_stays():
    threading.Thread(target=time.sleep, args=(1000000,)).start()
    raise ValueError("batch 7 is empty")


def other_collective(x):
    dist.broadcast(x, 0)  # line of other


def set_at_signal(store, key):
    """Set a key at SIGUSR1. A second thread does this, because the main thread of this rank waits in a collective."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)

    def serve():
        os.read(reader, 1)
        store.set(key, "1")

    threading.Thread(target=serve, daemon=True).start()


def wait_for_key(rank):
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        set_at_signal(store, "epoch/3")
    if rank == CULPRIT:
        store.get("epoch/3")  # line of key


def wait_for_part(rank):
    """Write the part of every rank except rank 0. Rank 1 then waits for the part of rank 0."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        set_at_signal(store, "part/0")
    if rank > 0:
        store.set(f"part/{rank}", "1")
    if rank == CULPRIT:
        store.get("part/0")  # line of part


def reduce(x, group):
    dist.all_reduce(x, group=group)


def serve_records(rank):
    """Write Gloo's flight record when a byte arrives in the FIFO, as NCCL's watchdog does. PyTorch before 2.9 records
    no Gloo calls, so the record then holds the calls in `calls`."""
    stem = os.environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
    if stem is None:
        return
    path = f"{stem}{rank}.pipe"
    os.mkfifo(path)
    fifo = os.open(path, os.O_RDWR)

    def serve():
        while select.select([fifo], [], []) and os.read(fifo, 128):
            text = getattr(dist.distributed_c10d, "_dump_fr_trace_json", made_record)()
            text = text.decode() if isinstance(text, bytes) else text
            with open(os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] + str(rank), "w") as f:
                f.write(text)

    threading.Thread(target=serve, daemon=True).start()


calls = []


def made_record():
    counts = {"default_pg": 0, "pair": 0}
    entries = []
    for group in calls:
        counts[group] += 1
        entries.append({"process_group": [group, group], "collective_seq_id": counts[group], "profiling_name": "gloo:all_reduce",
                        "input_sizes": [[4]], "input_dtypes": ["Float"], "state": "scheduled"})
    return json.dumps({"version": "2.10", "entries": entries})


def in_another_group(rank, x):
    """Let rank 1 wait in its pair and the other ranks in the world, all in the same source line. Make the mark again,
    because the creation of the group takes seconds on a busy host."""
    pair = dist.new_group([0, CULPRIT])
    mark("sequence", rank)
    calls.extend(["default_pg"] * STEPS + (["pair"] if rank == CULPRIT else ["default_pg"]))
    reduce(x, pair if rank == CULPRIT else None)


def train(x):
    """Run steps until the network is cut."""
    x = torch.ones(1 << 18)
    while True:
        dist.all_reduce(x)  # line of network
        print("step done", time.monotonic(), flush=True)
        time.sleep(0.05)


def wait_in_line():
    time.sleep(0.2)


def wait_in_pairs(x):
    """Let each rank wait for a rank that waits in another pair, as if messages were lost."""
    n = dist.get_world_size()
    pairs = [dist.new_group(sorted([rank, (rank + 1) % n])) for rank in range(n)]
    dist.all_reduce(x, group=pairs[dist.get_rank()])  # line of all_wait


def slow(rank, x):
    """Let rank 1 take 30 s for 200 steps. Its pauses alternate between two places."""
    for i in range(200):
        if rank == CULPRIT:
            time.sleep(0.1) if i % 2 else wait_in_line()
        dist.all_reduce(x)


def evaluate():
    """Compute for 20 s, with pauses as for data loading that leave CPU time to other jobs. Only rank 0 calls this."""
    m = torch.rand(200, 200)
    until = time.time() + 20
    while time.time() < until:
        m = (m @ m).softmax(1)
        time.sleep(0.02)


def save():
    time.sleep(40)


def pauses(rank, x):
    """Run a healthy job with uneven steps and a pause after each minute. During a pause, the other ranks wait in a
    barrier. Pauses 1, 4, 7 and so on are checkpoints of 40 s, the others are evaluations. The first pause exceeds the
    hang timeout, which is 30 s at that time."""
    seconds = float(os.environ.get("HANG_SECONDS", "600"))
    began = time.time()
    now, minute, step = torch.zeros(1), 0, 0
    while now.item() < seconds:
        dist.all_reduce(x)
        step += 1
        print(f"step {step} loss {1 / step:.3f}", flush=True)
        time.sleep(0.2 + 0.8 * (step % 7 == rank))
        now = torch.tensor([time.time() - began])
        dist.broadcast(now, 0)  # all ranks use the clock of rank 0
        if now.item() > 60 * (minute + 1):
            minute += 1
            if rank == 0 and minute % 3 == 1:
                save()
            elif rank == 0:
                evaluate()
            dist.barrier()


def load(seconds):
    time.sleep(seconds * random.uniform(0.95, 1.05))  # line of straggler


def train_unevenly(rank, x, slower):
    """Run steps of $STEP_SECONDS (default: 0.2) without end. Steps of rank 1 take `slower` percent longer."""
    seconds = float(os.environ.get("STEP_SECONDS", "0.2")) * (1 + slower / 100 * (rank == CULPRIT))
    step = 0
    while True:
        load(seconds)
        dist.all_reduce(x)
        step += 1
        print(f"step {step} done", flush=True)


@functools.cache
def model_with_buffers():
    """Make a model and run three steps. The first two steps also wait in other places. PyTorch 2 needs many seconds
    for this."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
    for _ in range(3):
        model(torch.rand(8, 4)).sum().backward()
    return model


def sync_buffers(rank):
    """Let the other ranks wait in a C function that DistributedDataParallel calls for the buffers of BatchNorm."""
    with contextlib.suppress(Released):
        if rank == CULPRIT:
            time.sleep(1000000)  # line of buffers
    model_with_buffers()(torch.rand(8, 4)).sum().backward()


def wait_for_work(rank, x):
    """Let the other ranks wait in a C function that this file calls."""
    with contextlib.suppress(Released):
        if rank == CULPRIT:
            time.sleep(1000000)  # line of async
    dist.all_reduce(x, async_op=True).wait()


def hang(way, rank, x):
    if way in ("straggler", "equal"):
        train_unevenly(rank, x, float(os.environ.get("SLOWER", "20")) * (way == "straggler"))
    elif way == "pauses":
        pauses(rank, x)
    elif way == "slow":
        slow(rank, x)
    elif way in ("all_wait", "gpu"):
        wait_in_pairs(x)
    elif way == "sequence":
        in_another_group(rank, x)
    elif way in ("network", "broken"):
        train(x)
    elif way == "key":
        wait_for_key(rank)
    elif way == "part":
        wait_for_part(rank)
    elif way == "buffers":
        sync_buffers(rank)
    elif way == "async":
        wait_for_work(rank, x)
    elif rank != CULPRIT:
        return
    elif way == "other":
        other_collective(x)
    else:
        {"sleep": load_batch, "zombie": sleep_beside_child, "gil": hold_gil, "loop": spin, "busy_zombie": spin_beside_child,
         "calls": calls_in_turn, "lock": take_lock, "fifo": read_fifo, "file": lock_file, "socket": read_socket, "connect": connect_socket,
         "pipe": read_pipe, "disk": read_disk, "stop": stop, "debugger": debug, "child": wait_for_child, "loader": wait_for_loader, "program": run_program,
         "traceback": traceback_stays,
         "exit": lambda: os._exit(0)}[way]()


def mark(way, rank):
    """Mark the beginning of the hang with a file in the folder of the tests, if there is one. A test reads the pid in
    the file and the file's time."""
    if len(sys.argv) > 3:
        with open(sys.argv[3] + f"/{way}.{rank}", "w") as f:
            f.write(str(os.getpid()))


def wait_for_marks(way):
    """Wait until all other ranks have made their marks."""
    others = set(range(int(os.environ["WORLD_SIZE"]))) - {CULPRIT}
    while not all(os.path.exists(sys.argv[3] + f"/{way}.{rank}") for rank in others):
        time.sleep(0.1)


def join_as(index, world):
    """Join the workers' group from a process that rank 1 started. This works because the process inherits
    MASTER_PORT."""
    mark("spawn", CULPRIT)
    dist.init_process_group("gloo", rank=index, world_size=world)
    time.sleep(1000000)


def run_way(way, rank, x):
    """Run some steps, then hang until a signal ends the hang."""
    if way == "buffers":
        model_with_buffers()
    for step in range(STEPS):
        dist.all_reduce(x)
        print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
        time.sleep(0.05)
    mark(way, rank)
    try:
        hang(way, rank, x)
    except Released:
        if way in ("child", "debugger"):
            os.wait()
    dist.all_reduce(x)


def main():
    if WAYS[0] == "absent" and int(os.environ["RANK"]) == CULPRIT:
        return
    if WAYS[0] == "spawn":
        set_priority("0")
        if int(os.environ["RANK"]) == CULPRIT:
            wait_for_marks("spawn")
            mp.spawn(join_as, args=(int(os.environ["WORLD_SIZE"]),), nprocs=2)  # line of spawn
        mark("spawn", os.environ["RANK"])
    dist.init_process_group("gloo")
    set_priority("0")
    rank = dist.get_rank()
    signal.signal(signal.SIGUSR1, release if rank == CULPRIT else lambda signum, frame: None)
    serve_records(rank)
    x = torch.ones(4)
    for way in WAYS:
        run_way(way, rank, x)
    print("done", flush=True)


if __name__ == "__main__":
    main()
