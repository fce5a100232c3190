"""Predict which actors block and which return, so that a history of several clients runs the same way twice.

Histories run in lock step: a step begins, every actor that it releases returns, and then the next step begins. A step
that must block stays blocked while other steps run. So every later step verifies again that it has not returned.
Values are not modelled, because the two stores are compared with each other.

Six actors use five clients. The last two actors are threads that share one client, and a client handles one request
at a time.
"""
import torch

from operations import EVERYBODY, OPS, RACES, full_name

OLD = torch.__version__.startswith("1.")
CLIENT_OF = [0, 1, 2, 3, 4, 4]
SHARING = (4, 5)
ACTORS = range(len(CLIENT_OF))

# Steps that are left out because PyTorch's store is broken or undefined there. Each row has the reason, and a
# function that returns True for such a step. None means that the generator never makes such a step.
BROKEN = [
    ("COMPARE_SET while an actor waits for the key: the older server does not wake the actor if COMPARE_SET creates the key. The "
     "server with libuv wakes the actor even if COMPARE_SET has stored nothing",
     lambda s, step: step.op in ("compare_set", "clone", "race_create") and s.is_waited_for(names_of(step)[0])),
    ("the server of torch 1.13 remembers a wait that has timed out, and answers it before a later reply. The deadline of a wait "
     "applies to all later requests of the client: world.py makes a new connection", None),
    ("get and compare_set of torch 1.13 make their result without the GIL: threads that share a client do not use them",
     lambda s, step: OLD and step.actor in SHARING and step.op in ("get", "get_in_time", "big", "compare_set")),
    ("the server with libuv never removes a client from the list of waiters of a queue, whatever the client waits for later: "
     "world.py makes a new connection", None),
    ("in torch 2.x, some calls do not wait until the client's other thread has its answer: no step is begun behind that thread",
     None),
    ("a sum over 64 bits is undefined in PyTorch's server", None),
    ("size: torch 1.13 accepts every length and allocates as much memory as there is. The server with libuv and ours close the "
     "connection for a key over 8 KiB, a value over 8 MiB or 131,072 keys", None),
    ("MULTI_GET of a key that existed when its client began to wait for other keys, and that is deleted meanwhile: the older "
     "server closes the connection",
     lambda s, step: step.op == "delete_key" and names_of(step)[0] in s.to_be_got()),
    ("one name for a key and for a queue: PyTorch documents this as unexpected behaviour", None),
    ("SET of a barrier's key releases all actors in the barrier", None),
    ("`big` sets a key twice, so an actor that waits for the key reads either value",
     lambda s, step: step.op == "big" and s.is_waited_for(names_of(step)[0])),
]


def op_of(step):
    return RACES[step.op] if step.actor == EVERYBODY else OPS[step.op]


def names_of(step):
    """Return the full names of the keys of a step. In most operations, the first argument is a key or a list of
    keys."""
    name = step.args[0] if step.args else []
    return [full_name(step.view, n) for n in ([name] if isinstance(name, str) else name)]


class Schedule:
    def __init__(self):
        self.keys = set()
        self.queues = {}  # name -> items
        self.lacks = {}  # actor -> full names that it still waits for
        self.getting = set()  # actors whose last blocked step is a multi_get
        self.kinds = {}  # actor -> kind of these names
        self.asked = {}  # actor -> all names of its blocked step, present or not
        self.waits = []  # actors in the order in which they began to wait
        self.holder = {}  # client -> actor that uses it
        self.behind = {}  # client -> step of an actor that waits for the holder

    def busy(self):
        return set(self.lacks) | {step.actor for step in self.behind.values()}

    def free(self):
        return [a for a in ACTORS if a not in self.busy()]

    def to_be_got(self):
        return {name for actor in self.getting if actor in self.asked for name in self.asked[actor]}

    def queued(self):
        return {a for a, kind in self.kinds.items() if kind == "queue"}

    def is_waited_for(self, name):
        return any(name in lacks for lacks in self.lacks.values())

    def depends_on_arrival(self, step):
        """Return True if the result depends on whether all waiting requests have reached the server."""
        op = op_of(step)
        return self.is_held(step) or bool(self.lacks) and (
            op.kind == "queue" or step.op == "delete_key" and any(names_of(step)[0] in asked for asked in self.asked.values()))

    def is_held(self, step):
        return step.actor != EVERYBODY and CLIENT_OF[step.actor] in self.holder

    def allows(self, step):
        """Return False if the actor is busy, or if PyTorch's store is broken for this step. Also return False if the
        result depends on time: on when the client becomes free, or on whether a short wait times out."""
        if step.actor != EVERYBODY and step.actor in self.busy():
            return False
        op = op_of(step)
        if self.is_held(step) and not (OLD and op.only_reads) or op.brief and not self.lacking(step):
            return False
        return not any(avoid is not None and avoid(self, step) for _, avoid in BROKEN)

    def racers(self):
        """Return the free actors whose client is free, too. Of the actors that share a client, only the first can be
        in the list."""
        return [a for a in self.free() if CLIENT_OF[a] not in self.holder and a != SHARING[1]]

    def begin(self, step):
        """Begin a step. Return the actors whose calls return."""
        if step.actor == EVERYBODY:
            self.keys.update(names_of(step))
            return self.racers()
        if self.is_held(step):
            self.behind[CLIENT_OF[step.actor]] = step
            return []
        return self.perform(step)

    def perform(self, step):
        op, names, lacks = op_of(step), names_of(step), self.lacking(step)
        if op.kind == "meeting":
            lacks = set(names) - self.keys
            self.keys.update(names)
        if lacks and not op.brief:
            self.lacks[step.actor], self.asked[step.actor], self.kinds[step.actor] = set(lacks), set(names), op.kind
            self.waits.append(step.actor)
            (self.getting.add if step.op == "multi_get" else self.getting.discard)(step.actor)
            self.holder[CLIENT_OF[step.actor]] = step.actor
            return []
        return [step.actor] + self.take_effect(step, op, names)

    def lacking(self, step):
        """Return the full names that a step would wait for."""
        op = op_of(step)
        return {full_name(step.view, n) for n in op.waits(*step.args)} - self.present(op.kind)

    def present(self, kind):
        return {q for q, n in self.queues.items() if n > 0} if kind == "queue" else self.keys

    def take_effect(self, step, op, names):
        if op.kind == "queue":
            return self.change_queue(step.op, names[0])
        if step.op == "delete_key":
            self.keys.discard(names[0])
        written = [full_name(step.view, n) for n in op.writes(*step.args)]
        if op.kind == "meeting":
            written = names
        self.keys.update(written)
        return [actor for name in written for actor in self.wake(name, everybody=True)]

    def change_queue(self, op, name):
        if op == "queue_push":
            self.queues[name] = self.queues.get(name, 0) + 1
            woken = self.wake(name, everybody=False)
            self.queues[name] -= len(woken) > 0
            return woken
        if op in ("queue_pop", "queue_pop_now") and self.queues.get(name, 0) > 0:
            self.queues[name] -= 1
        return []

    def wake(self, name, everybody):
        """Remove `name` from the names that actors wait for. Return the actors that now wait for nothing. After each
        comes the actor that waited for its client, if its step ends, too."""
        back = []
        for actor in list(self.waits):
            if name not in self.lacks.get(actor, ()):
                continue
            self.lacks[actor].discard(name)
            if not self.lacks[actor]:
                back.append(actor)
                back += self.leave(actor)
                if not everybody:
                    break
        return back

    def leave(self, actor):
        client = CLIENT_OF[actor]
        del self.lacks[actor], self.asked[actor], self.kinds[actor], self.holder[client]
        self.waits.remove(actor)
        behind = self.behind.pop(client, None)
        return self.perform(behind) if behind is not None else []
