"""One store with its clients: PyTorch's store or ours.

Each client is a process with a thread for each of its actors. torch 1.13 creates Python objects without the
interpreter lock (GIL), so clients that share an interpreter would corrupt it. A process is also the simplest way to
end a blocked call.
"""
import ctypes
import os
import pickle
import signal
import socket
import subprocess
import threading
import time

from torch.distributed import PrefixStore, TCPStore

from operations import EVERYBODY, LONG
from schedule import ACTORS, CLIENT_OF, OLD, op_of

# The connection is lost after these exceptions.
LOST = ("RuntimeError", "DistNetworkError")
STILL_BLOCKED = ("has not come back",)
MESSAGE_BYTES = 1 << 18
PR_SET_PDEATHSIG = 1


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Genuine:
    """PyTorch's own server, in this process."""

    def __init__(self, **backend):
        self.host = TCPStore("127.0.0.1", 0, None, True, LONG, **backend)
        self.address = "127.0.0.1:%d" % self.host.port

    def stop(self):
        del self.host


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen([program, "--listen", "127.0.0.1:0", "--quiet"], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, preexec_fn=die_with_parent)
        self.address = "127.0.0.1:" + self.process.stdout.readline().rsplit(":", 1)[1].strip()

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


class OfTheJob:
    """The store of this rank's job. No rank may have used the store before."""

    def __init__(self):
        self.address = "%s:%s" % (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])

    def stop(self):
        pass


def outcome(call, store, args):
    """Return the outcome of a call in a comparable form. For an error, this is its class and whether it was a
    timeout."""
    try:
        return ("gives", call(store, *args))
    except Exception as error:  # of any class, because the other store must raise the same
        return ("raises", type(error).__name__, "timeout" in str(error).lower())


class Client:
    """Runs in the process of a client. A message is either the address to connect to, or a step."""

    def __init__(self, inboxes, results):
        self.results, self.views = results, None
        threads = [threading.Thread(target=self.act, args=item) for item in inboxes.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def act(self, actor, inbox):
        while True:
            what = pickle.loads(inbox.recv(MESSAGE_BYTES))
            if isinstance(what, str):
                result = outcome(self.connect, what, ())
            else:
                result = outcome(op_of(what).call, self.views[what.view], what.args)
            self.results.send(pickle.dumps((actor, result)))

    def connect(self, address):
        host, port = address.rsplit(":", 1)
        store = TCPStore(host, int(port), None, False, LONG)
        inner = PrefixStore("p", store)
        self.views = [store, inner, PrefixStore("q", inner)]


def fork_client(inboxes, results):
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        try:
            Client(inboxes, results)
        finally:
            os._exit(1)
    return pid


class World:
    """One store with its clients. The clients are forked before the server is created, so that they do not inherit
    the server."""

    def __init__(self, patience_s):
        self.patience_s = patience_s
        self.results, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in ACTORS]
        self.inboxes = [mine for mine, _ in pairs]
        self.pids = [fork_client({a: pairs[a][1] for a in ACTORS if CLIENT_OF[a] == client}, theirs)
                     for client in range(max(CLIENT_OF) + 1)]
        for end in [theirs] + [end for _, end in pairs]:
            end.close()

    def serve(self, server):
        self.server = server
        for client in range(max(CLIENT_OF) + 1):
            self.connect(client)

    def connect(self, client):
        actor = CLIENT_OF.index(client)
        self.tell(actor, self.server.address)
        result = self.collect([actor])[actor]
        if result != ("gives", None):
            raise ConnectionError("no connection to %s: %r" % (type(self.server).__name__, result))

    def tell(self, actor, what):
        self.inboxes[actor].send(pickle.dumps(what))

    def begin(self, step, racers):
        for actor in racers if step.actor == EVERYBODY else [step.actor]:
            self.tell(actor, step)

    def collect(self, expected):
        """Return the outcomes of the expected actors, and of any other actor that has returned."""
        back, deadline = {}, time.monotonic() + self.patience_s
        while True:
            lacking = not set(expected) <= set(back)
            self.results.settimeout(max(0.0, deadline - time.monotonic()) if lacking else 0.0)
            try:
                actor, result = pickle.loads(self.results.recv(MESSAGE_BYTES))
            except (BlockingIOError, socket.timeout):
                return {**{a: STILL_BLOCKED for a in expected}, **back}
            back[actor] = result

    def renew(self, step, back, had_queued):
        """Reconnect the clients whose connection is lost or no longer usable."""
        lost = {CLIENT_OF[a] for a, result in back.items()
                if a in had_queued or result[0] == "raises" and result[1] in LOST}
        if OLD and op_of(step).brief:
            lost.add(CLIENT_OF[step.actor])
        for client in lost:
            self.connect(client)

    def close(self):
        """Stop the clients before the server, because clients of torch 1.13 fail when the server ends first."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for end in self.inboxes + [self.results]:
            end.close()
        self.server.stop()
