"""Connect CLIENTS processes of each rank to the store at the same time. Each process must get its answers while all
are connected."""
import os
from datetime import timedelta

import torch.distributed as dist

CLIENTS = 100
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def connect():
    return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False, timedelta(minutes=2))


def client(begin):
    os.read(begin, 1)  # returns when the rank closes its end
    store = connect()
    if store.add("clients", 1) == CLIENTS * world:
        store.set("all", "here")
    assert store.get("all") == b"here"


def fork_client(begin, close):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(close)
            client(begin)
            code = 0
        finally:
            os._exit(code)
    return pid


begin, close = os.pipe()
pids = [fork_client(begin, close) for _ in range(CLIENTS)]
own = connect()
if own.add("ranks", 1) == world:
    own.set("begin", "now")
own.wait(["begin"])
os.close(close)
codes = [os.waitpid(pid, 0)[1] for pid in pids]
assert codes == CLIENTS * [0], codes
print("rank %d of %d: clients" % (rank, world), flush=True)
