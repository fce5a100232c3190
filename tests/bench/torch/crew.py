"""Processes that execute calls. They are made by fork, so that PyTorch is imported only once.

Threads are no alternative, for two reasons. torch 1.13 creates Python objects without the interpreter lock (GIL), and
threads of one interpreter would measure the contention for that lock.
"""
import multiprocessing
import os

from stores import die_with_parent


def serve(work, inbox):
    """Run a member: receive the name of a method of `work` and its arguments, and send the result back."""
    die_with_parent()
    while True:
        name, args = inbox.recv()
        inbox.send(getattr(work, name)(*args))


class Crew:
    """Each member has its own object, which `make(number)` creates."""

    def __init__(self, size, make):
        self.pipes, self.processes = [], []
        for number in range(size):
            mine, theirs = multiprocessing.Pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    serve(make(number), theirs)
                finally:
                    os._exit(1)
            theirs.close()
            self.pipes.append(mine)
            self.processes.append(pid)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for pid in self.processes:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        for pipe in self.pipes:
            pipe.close()

    def begin(self, member, name, *args):
        self.pipes[member].send((name, args))

    def end(self, member):
        return self.pipes[member].recv()

    def one(self, member, name, *args):
        self.begin(member, name, *args)
        return self.end(member)

    def all(self, name, *args):
        """Call the method in all members at the same time; return the results."""
        for member in range(len(self.pipes)):
            self.begin(member, name, *args)
        return [self.end(member) for member in range(len(self.pipes))]
