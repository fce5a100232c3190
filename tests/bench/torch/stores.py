"""Start the two stores that are compared, and print their figures. ddp-rendezvous always comes first."""
import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from datetime import timedelta

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = timedelta(seconds=300)
PR_SET_PDEATHSIG = 1


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(command):
    """Start a server. Return its process, and the words of its first line after the last colon, if the line has
    one."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    return process, process.stdout.readline().strip().rsplit(":", 1)[-1].split()


def now():
    """Return the time in µs. All processes use the same clock."""
    return time.monotonic_ns() / 1000


def in_turn(rounds, measure):
    """Return the values of ddp-rendezvous and of PyTorch's store. The first round is not counted."""
    values = [[measure(who, turn) for who in (0, 1)] for turn in range(rounds + 1)][1:]
    return [list(each) for each in zip(*values)]


class Stores:
    def __init__(self, rendezvous, apart=False):
        """With `apart`, the servers run on the last usable CPU, and this process and its children on the first.
        Otherwise the scheduler may place a server beside its client, or on a CPU that must first wake up. This choice
        would dominate a round trip."""
        usable = sorted(os.sched_getaffinity(0))
        if apart:
            os.sched_setaffinity(0, usable[-1:])
        ours, words = start([rendezvous, "--listen", "127.0.0.1:0", "--quiet"])
        genuine, more = start([sys.executable, os.path.join(HERE, "server.py")])
        if apart:
            os.sched_setaffinity(0, usable[:1])
        self.processes = [ours, genuine]
        self.ports = [int(words[0]), int(more[0])]
        self.version, self.backend = more[2], more[3]
        self.names = ["ddp-rendezvous", f"TCPStore ({self.backend}, torch {self.version})"]

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in self.processes:
            process.kill()
            process.wait()


class Table:
    """Prints rows of medians as Markdown, and as JSON lines on descriptor 3."""

    def __init__(self, bench, title, stores, ratio):
        self.bench, self.stores = bench, stores
        self.json = os.fdopen(os.dup(3), "w")
        self.ratios = []
        print("|", " | ".join([title, *stores.names, ratio]), "|\n|---|---:|---:|---:|")

    def row(self, what, n, values, unit, more_is_better=False):
        """Print a row. `values` holds the values of ddp-rendezvous, then the values of PyTorch's store."""
        ours, theirs = (statistics.median(each) for each in values)
        ratio = ours / theirs if more_is_better else theirs / ours
        self.ratios.append(ratio)
        print(f"| {what} | {ours:,.1f} {unit} | {theirs:,.1f} {unit} | {ratio:.2f} |", flush=True)
        print(json.dumps({"bench": self.bench, "what": what, "n": n, "unit": unit, "ddprun": ours, "torch": theirs,
                          "version": self.stores.version, "backend": self.stores.backend}), file=self.json, flush=True)
