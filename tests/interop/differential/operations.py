"""The operations that both stores run, one row each, and the seeded generator of histories.

A row defines the random arguments, the Python call, the keys for which the call waits and the keys that it writes. From
these keys, the schedule (schedule.py) predicts which actors block and which return. An operation is not generated if
this torch lacks one of its methods (`needs`).

Key names collide on purpose: the key "k1" of PrefixStore("p") is the key "p/k1" of the store itself.
"""
import datetime
from collections import namedtuple

from torch.distributed import PrefixStore, TCPStore

PLAIN_KEYS = ["k%d" % i for i in range(12)] + ["", "p/k1", "p/q/k2", "//", "key with spaces", "schl\u00fcssel", "nul\0key"]
QUEUES = ["queue%d" % i for i in range(3)]
MEETINGS = ["meeting%d" % i for i in range(60)]  # a barrier's key works once; later actors pass at once
PREFIXES = ["", "p/", "p/q/"]  # of a client's three views: store, PrefixStore, PrefixStore in PrefixStore
NUMBERS = [b"0", b"7", b"-3", b"+5", b" 12ab", b"\t\n 3", b"0x10", b"3\x004"]  # PyTorch reads these as numbers
OTHERS = [b"99999999999999999999", b"-", b"text", b"\x003", bytes(range(256)), b"x" * 1439, b"y" * 1441]
BIG = b"z" * 70000  # rare, because torch 1.13's server takes up to a second for it
SHORT = datetime.timedelta(milliseconds=20)  # for a wait that must time out
LONG = datetime.timedelta(seconds=60)  # for a wait that must be released

Step = namedtuple("Step", "actor view op args")


def key(rng):
    return rng.choice(PLAIN_KEYS)


def keys(rng):
    """Return up to four keys: sometimes none, sometimes the same key twice."""
    return [key(rng) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4)))]


def value(rng):
    """Return a value. Empty values are rare: if a message of torch 1.13 ends with one, it is delayed by 200 ms."""
    if rng.random() < 0.003:
        return b""
    kind = rng.random()
    if kind < 0.1:  # rare: ADD to such a value closes the connection. torch 2.15 may need 5 s for a new one
        return rng.choice(OTHERS)
    return rng.choice(NUMBERS) if kind < 0.6 else b"%d" % rng.randint(-1000, 1000)


def pairs(rng):
    names = sorted(set(keys(rng)))
    return names, [value(rng) for _ in names]


def then_count(call):
    """Append a request with a reply to a call that has none. The reply shows that the server has handled both."""

    def both(store, *args):
        call(store, *args)
        return store.num_keys()

    return both


def get_in_time(store, name):
    before = store.timeout
    store.set_timeout(SHORT)
    try:
        return store.get(name)
    finally:
        store.set_timeout(before)


def big(store, name):
    store.set(name, BIG)
    whole = bytes(store.get(name)) == BIG
    store.set(name, "small")
    return whole, store.num_keys()


def listed(store):
    return sorted(store.list_keys())


class Op:
    """One operation. `weight` is its frequency. args(rng) makes random arguments, and call(store, *args) runs the
    operation. waits(args) and writes(args) return names of keys. `needs` lists methods of Store. `brief`: the wait
    must end at once, or else time out and raise. `kind` is what the keys are for the schedule: "key", "queue" or
    "meeting"."""

    def __init__(self, weight, args, call, waits=None, writes=None, needs=(), brief=False, kind="key",
                 changes=False):
        self.weight, self.args, self.call, self.brief, self.kind = weight, args, call, brief, kind
        self.only_reads = kind == "key" and writes is None and not brief and not changes
        self.waits, self.writes = waits or (lambda *_: []), writes or (lambda *_: [])
        self.offered = all(hasattr(TCPStore, n) and hasattr(PrefixStore, n) for n in needs)


def first(name, *_):
    return [name]


def all_of(names, *_):
    return names


OPS = {
    "set": Op(22, lambda r: (key(r), value(r)), then_count(lambda s, k, v: s.set(k, v)), writes=first),
    "get": Op(16, lambda r: (key(r),), lambda s, k: bytes(s.get(k)), waits=first),
    "add": Op(16, lambda r: (key(r), r.choice((0, 1, 5, -7, 1 << 40))), lambda s, k, n: s.add(k, n), writes=first),
    "compare_set": Op(12, lambda r: (key(r), r.choice((b"", value(r))), value(r)), lambda s, *a: bytes(s.compare_set(*a)),
                      writes=lambda k, old, _: [] if old else [k]),
    "delete_key": Op(12, lambda r: (key(r),), lambda s, k: s.delete_key(k), changes=True),
    "num_keys": Op(4, lambda r: (), lambda s: s.num_keys()),
    "wait": Op(7, lambda r: (keys(r),), lambda s, k: s.wait(k, LONG), waits=all_of),
    "wait_in_time": Op(0.3, lambda r: (keys(r),), lambda s, k: s.wait(k, SHORT), waits=all_of, brief=True),
    "get_in_time": Op(0.2, lambda r: (key(r),), get_in_time, waits=first, brief=True, needs=("set_timeout", "timeout")),
    "check": Op(6, lambda r: (keys(r),), lambda s, k: s.check(k), needs=("check",)),
    "append": Op(6, lambda r: (key(r), value(r)[:300]), then_count(lambda s, k, v: s.append(k, v)), writes=first,
                 needs=("append",)),
    "multi_get": Op(5, lambda r: (keys(r),), lambda s, k: [bytes(v) for v in s.multi_get(k)], waits=all_of,
                    needs=("multi_get",)),
    "multi_set": Op(5, pairs, then_count(lambda s, k, v: s.multi_set(k, v)), writes=all_of, needs=("multi_set",)),
    "queue_push": Op(5, lambda r: (r.choice(QUEUES), value(r)), then_count(lambda s, q, v: s.queue_push(q, v)),
                     writes=first, needs=("queue_push",), kind="queue"),
    "queue_pop": Op(1, lambda r: (r.choice(QUEUES),), lambda s, q: bytes(s.queue_pop(q)), waits=first,
                    needs=("queue_pop",), kind="queue"),
    "queue_pop_now": Op(2, lambda r: (r.choice(QUEUES),), lambda s, q: bytes(s.queue_pop(q, False)),
                        needs=("queue_pop",), kind="queue"),
    "queue_len": Op(2, lambda r: (r.choice(QUEUES),), lambda s, q: s.queue_len(q), needs=("queue_len",), kind="queue"),
    "barrier": Op(2, lambda r: (r.choice(MEETINGS),), lambda s, k: s.barrier(k, 2, LONG), needs=("barrier",), kind="meeting"),
    "big": Op(0.02, lambda r: (key(r),), big, writes=first),
    "list_keys": Op(1, lambda r: (), listed, needs=("list_keys",)),
    "clone": Op(0.1, lambda r: (key(r), value(r)), lambda s, k, v: bytes(s.clone().compare_set(k, "never", v)),
                needs=("clone",), changes=True),
    "has_extended_api": Op(0.1, lambda r: (), lambda s: s.has_extended_api(), needs=("has_extended_api",)),
}
# All free actors run such an operation at the same time. Their order is random, so the results are sorted before they
# are compared.
RACES = {
    "race_add": Op(1, lambda r: ("counter", r.choice((1, 3))), lambda s, k, n: s.add(k, n), writes=first),
    "race_create": Op(1, lambda r: ("flag%d" % r.randrange(1 << 30), "mine"),
                      lambda s, k, v: bytes(s.compare_set(k, "", v)), writes=first),
}
EVERYBODY = -1
OFFERED = [n for n in OPS if OPS[n].offered]
WEIGHTS = [OPS[n].weight for n in OFFERED]


def leave_out(kind):
    OFFERED[:] = [n for n in OFFERED if OPS[n].kind != kind]
    WEIGHTS[:] = [OPS[n].weight for n in OFFERED]


def full_name(view, name):
    return PREFIXES[view] + name


def make_step(rng, actors):
    """Return a step of any of `actors`, which are free."""
    if rng.random() < 0.01:
        name = rng.choice(sorted(RACES))
        return Step(EVERYBODY, 0, name, RACES[name].args(rng))
    name = rng.choices(OFFERED, WEIGHTS)[0]
    # PrefixStore builds its barrier from other operations, which use other key names.
    view = 0 if OPS[name].kind == "meeting" else rng.choices((0, 1, 2), (6, 2, 1))[0]
    return Step(rng.choice(actors), view, name, OPS[name].args(rng))


def release_step(rng, actors, full, kind):
    """Return a step that releases an actor that waits for the full name `full`."""
    if kind == "meeting":
        return Step(rng.choice(actors), 0, "barrier", (full,))
    op = "queue_push" if kind == "queue" else rng.choice([n for n in ("set", "add", "append") if OPS[n].offered])
    return Step(rng.choice(actors), 0, op, (full, 1) if op == "add" else (full, value(rng)))
