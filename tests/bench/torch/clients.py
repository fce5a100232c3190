"""Measure PyTorch's own client with 1, 64 and 1,000 connections, on ddp-rendezvous and on PyTorch's server in turn.

    clients.py DDP_RENDEZVOUS

The clients are spread over at most eight processes. For the latency, one client sends requests while the others are
connected and idle. For the operations per second, every process sends requests through its clients in turn, without
pauses. It alternates set, get and add. A `set` has no reply, so its time is the time to send it. A `get` is two
requests, WAIT and GET.
"""
import statistics
import sys
import time

from torch.distributed import TCPStore

from crew import Crew
from stores import LONG, Stores, Table, in_turn, now

SIZES = (1, 64, 1000)
PROCESSES, ROUNDS, TRIPS, WAKES, SPAN_S, SETTLE_S = 8, 5, 200, 11, 0.4, 0.005
VALUE = b"v" * 128


class Clients:
    """The clients of one process: `count` for each of the two stores. Times are in µs."""

    def __init__(self, number, count, ports):
        self.number, self.count, self.ports, self.stores = number, count, ports, [[], []]

    def connect(self, who):
        self.stores[who] = None  # close the connections of the previous turn
        self.stores[who] = [TCPStore("127.0.0.1", self.ports[who], None, False, LONG) for _ in range(self.count)]

    def trips(self, who, operation):
        """Return the median time of the operation. Each request uses the next client."""
        call, times = self.call_of(operation), []
        for i in range(TRIPS):
            store = self.stores[who][i % self.count]
            store.add(f"before/{self.number}", 1)  # the reply shows that the server has finished all earlier requests
            start = now()
            call(store)
            times.append(now() - start)
        return statistics.median(times)

    def call_of(self, operation):
        key, counter = f"value/{self.number}", f"counter/{self.number}"
        return {"set": lambda store: store.set(key, VALUE), "get": lambda store: store.get(key),
                "add": lambda store: store.add(counter, 1)}[operation]

    def load(self, who):
        """Run operations for SPAN_S seconds; return their number."""
        calls = [self.call_of(operation) for operation in ("set", "get", "add")]
        done, end = 0, time.monotonic() + SPAN_S
        while time.monotonic() < end:
            store = self.stores[who][done % self.count]
            for call in calls:
                call(store)
            done += 1
        return 3 * done

    def wait(self, who, turn, key):
        self.stores[who][turn % self.count].wait([key])
        return now()

    def set(self, who, key):
        start = now()
        self.stores[who][0].set(key, VALUE)
        return start


def connect(crew, who):
    start = now()
    crew.all("connect", who)
    return (now() - start) / 1000


def wake(crew, who, turn, n):
    """Return the time from a set by the last member to the wake-up of the first member, which waits for the key."""
    key = f"wake/{n}/{turn}"
    crew.begin(0, "wait", who, turn, key)
    time.sleep(SETTLE_S)
    start = crew.one(-1, "set", who, key)
    return crew.end(0) - start


def measure(table, ports, n):
    processes = min(n, PROCESSES)
    label = f"{n} client{'s' if n > 1 else ''}"
    # One more process than the clients need. This process sets the keys that the clients wait for.
    with Crew(processes + 1, lambda number: Clients(number, n // processes if number < processes else 1, ports)) as crew:
        took = in_turn(ROUNDS, lambda who, turn: connect(crew, who))
        crew.all("trips", 0, "set"), crew.all("trips", 1, "set")
        if n == SIZES[-1]:
            table.row(f"{label} connect, {processes} at a time", n, took, "ms")
        for operation in ("set", "get", "add"):
            table.row(f"{operation}, {label}", n, in_turn(ROUNDS, lambda who, turn: crew.one(0, "trips", who, operation)), "µs")
        table.row(f"wait, woken by another's set, {label}", n, in_turn(WAKES, lambda who, turn: wake(crew, who, turn, n)), "µs")
        rates = in_turn(ROUNDS, lambda who, turn: sum(crew.all("load", who)) / SPAN_S / 1000)
        table.row(f"operations per second, {label} in {processes} process{'es' if processes > 1 else ''}", n, rates, "k/s", True)


def main():
    with Stores(sys.argv[1], apart=True) as stores:
        table = Table("torch_client", "PyTorch's client", stores, "ours is better by")
        for n in SIZES:
            measure(table, stores.ports, n)
        print(f"\nThrough PyTorch's Python client the ratio is {min(table.ratios):.2f} to {max(table.ratios):.2f} (medians of {ROUNDS}+ rounds).")


main()
