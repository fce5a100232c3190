"""Run PyTorch's own store for measurements: print "PORT DIALECT VERSION BACKEND" and serve until the process is
killed.

BACKEND is libuv if this torch has libuv, because users then get libuv by default.
"""
import signal
from datetime import timedelta

import torch
from torch.distributed import TCPStore

LONG = timedelta(seconds=300)


def serve():
    """Return the fastest store of this torch, and its backend. torch before 2.1 does not know `use_libuv`, and a
    build without libuv rejects it."""
    try:
        return TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False, use_libuv=True), "libuv"
    except (TypeError, RuntimeError):
        return TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False), "legacy"


store, backend = serve()
release = tuple(int(part) for part in torch.__version__.split(".")[:2])
print(store.port, "C" if release >= (2, 2) else "A", torch.__version__, backend, flush=True)
while True:
    signal.pause()
