"""PyTorch's own store, to be measured: prints "PORT DIALECT VERSION BACKEND" and serves until it is killed.

BACKEND is libuv where this torch has it, since that is what its users get by default.
"""
import signal
from datetime import timedelta

import torch
from torch.distributed import TCPStore

LONG = timedelta(seconds=300)


def serve():
    """The best that this torch has. One of before 2.1 does not know the word, a build without libuv refuses it."""
    try:
        return TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False, use_libuv=True), "libuv"
    except (TypeError, RuntimeError):
        return TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False), "legacy"


store, backend = serve()
release = tuple(int(part) for part in torch.__version__.split(".")[:2])
print(store.port, "C" if release >= (2, 2) else "A", torch.__version__, backend, flush=True)
while True:
    signal.pause()
