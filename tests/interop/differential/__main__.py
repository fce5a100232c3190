"""Run one seeded history of store operations against PyTorch's own TCPStore and against ddprun's store. Every answer,
class of exception and blocked call must be equal.

    python3 tests/interop/differential build/ddp-rendezvous [--operations N] [--seed S] [--legacy]
    ddprun ... tests/interop/differential job [--operations N]

A difference is printed as the shortest history that still has it, with the results of both stores. --legacy selects
the older of the two servers of torch 2.x. `job` uses the store of the running job. That store is empty only once, so
no history is repeated or shortened.
"""
import argparse
import faulthandler
import os
import random
import sys
import time

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # torch 2.x prints a stack for each closed connection

import torch  # noqa: E402

from operations import EVERYBODY, OFFERED, full_name, leave_out, make_step, release_step  # noqa: E402
from schedule import CLIENT_OF, Schedule, op_of  # noqa: E402
from world import Genuine, OfTheJob, Ours, STILL_BLOCKED, World  # noqa: E402

SETTLED_S = 0.003  # in a replay, a call that returns wrongly has returned by then
SHORTEN_S = 25  # after this time, the shortest history so far is printed
ARRIVED_S = 0.01  # after this time, a request has arrived in the server,
SURELY_S = 0.15  # ... even on a busy machine. A difference must also occur with this delay
PART = 5000  # operations on one pair of stores; the next part begins with empty stores
SHOWN = 40  # at most this many last steps of a history are printed
WAITERS = 3  # when this many actors are blocked, the next step releases one
NAMES = ("torch", "ddprun")


class Difference(Exception):
    """The expected actors of the last step, and {actor: outcome} for each store."""


class Pair:
    """Both stores, which run the same steps."""

    def __init__(self, options, patience_s, arrived_s=ARRIVED_S):
        self.arrived_s = arrived_s
        self.worlds = [World(patience_s), World(patience_s)]
        self.worlds[0].serve(Genuine(**({"use_libuv": False} if options.legacy else {})))
        self.worlds[1].serve(OfTheJob() if options.daemon == "job" else Ours(options.daemon))
        self.schedule = Schedule()
        self.last_wait = 0.0

    def run(self, step):
        """Run a step in both stores. Raise Difference if the outcomes differ."""
        if self.schedule.depends_on_arrival(step):
            time.sleep(max(0.0, self.last_wait + self.arrived_s - time.monotonic()))
        racers = self.schedule.racers()
        waiting, queued = len(self.schedule.busy()), self.schedule.queued()
        expected = self.schedule.begin(step)
        for world in self.worlds:
            world.begin(step, racers)
        if len(self.schedule.busy()) > waiting or self.schedule.lacks and len(expected) > 1:
            self.last_wait = time.monotonic()
        if op_of(step).kind == "meeting" and not expected:
            time.sleep(self.arrived_s)  # the first actor in a barrier creates its key
        back = [world.collect(expected) for world in self.worlds]
        came = [{a for a, result in b.items() if result != STILL_BLOCKED} for b in back]
        if came != [set(expected)] * 2 or comparable(step, back[0]) != comparable(step, back[1]):
            raise Difference(expected, *back)
        for world, results in zip(self.worlds, back):
            world.renew(step, results, queued)

    def close(self):
        for world in self.worlds:
            world.close()


def comparable(step, back):
    """Return the outcomes for a comparison. In a race, any actor may win, so the actors are removed."""
    return sorted(back.values(), key=repr) if step.actor == EVERYBODY else back


def next_step(rng, schedule):
    free = schedule.racers()
    if len(schedule.lacks) >= WAITERS or not free:
        actor = rng.choice(schedule.waits[:2])
        return release_step(rng, free, sorted(schedule.lacks[actor])[0], schedule.kinds[actor])
    return make_step(rng, schedule.free())


def run_part(options, done, arrived_s=ARRIVED_S):
    """Return the history, and the difference that its last step caused, or None."""
    rng, count = random.Random("%d/%d" % (options.seed, done)), min(PART, options.operations - done)
    pair, history = Pair(options, 10, arrived_s), []
    try:
        while len(history) < count:
            step = next_step(rng, pair.schedule)
            if pair.schedule.allows(step):
                history.append(step)
                pair.run(step)
    except Difference as difference:
        return history, difference
    finally:
        pair.close()
    return history, None


def replay(options, history, deadline):
    """Run a history until its first difference. Return the steps and the difference, or None. Skip steps of blocked
    actors."""
    pair, steps = Pair(options, patience_s=2), []
    try:
        for step in history:
            if pair.schedule.allows(step) and time.monotonic() < deadline:
                steps.append(step)
                pair.run(step)
                time.sleep(SETTLED_S if pair.schedule.lacks else 0)
    except Difference as difference:
        return steps, difference
    finally:
        pair.close()
    return steps, None


def shorten(options, history, difference):
    """Return the shortest end of the history that still differs, without all parts that the difference does not
    need."""
    deadline = time.monotonic() + SHORTEN_S
    for size in (2 ** n for n in range(len(history).bit_length())):
        steps, found = replay(options, history[-size:], deadline)
        if found is not None:
            history, difference = steps, found
            break
    cut = max(len(history) // 2, 1)
    while cut > 0:
        at = 0
        while at < len(history) and time.monotonic() < deadline:
            steps, found = replay(options, history[:at] + history[at + cut:], deadline)
            if found is not None:
                history, difference = steps, found
            else:
                at += cut
        cut //= 2
    return history, difference


def show(history, difference):
    for number, step in enumerate(history[-SHOWN:], 1):
        who = "all actors" if step.actor == EVERYBODY else "actor %d (client %d)" % (step.actor, CLIENT_OF[step.actor])
        print("  %3d. %s: %s%s" % (number, who, step.op, show_args(step)))
    expected, *back = difference.args
    print("  expected to return: %s" % (expected or "no actor"))
    for name, results in zip(NAMES, back):
        print("  %-8s %s" % (name + ":", results or "no actor returns"))


def show_args(step):
    prefix = full_name(step.view, "")
    return "(%s)%s" % (", ".join(map(repr, step.args)), " with prefix %r" % prefix if prefix else "")


def parse_options():
    parser = argparse.ArgumentParser(prog="differential")
    parser.add_argument("daemon", help="path of ddp-rendezvous, or `job`")
    parser.add_argument("--operations", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--legacy", action="store_true")
    parser.add_argument("--limit", type=int, default=300, help="seconds until the program prints its stack and exits")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 31)
    if options.legacy:
        leave_out("queue")  # the older server has no queues
    if options.daemon == "job":
        options.operations = min(options.operations, PART)
    return options


def main():
    options = parse_options()
    faulthandler.dump_traceback_later(options.limit, exit=True)
    print("torch %s, seed %d, operations: %s" % (
        torch.__version__, options.seed, ", ".join(OFFERED)), flush=True)
    began, done = time.monotonic(), 0
    while done < options.operations:
        of_job = options.daemon == "job"
        history, difference = run_part(options, done, SURELY_S if of_job else ARRIVED_S)
        if difference is not None and not of_job:
            print("repeating operations %d to %d of seed %d slowly" % (
                done, done + len(history), options.seed), flush=True)
            history, difference = run_part(options, done, SURELY_S)
        if difference is not None:
            print("difference in operation %d of seed %d" % (done + len(history), options.seed))
            show(history if of_job else history[-1:], difference)
            if of_job:
                return 1
            print("shortest history with a difference:", flush=True)
            show(*shorten(options, history, difference))
            return 1
        done += len(history)
    print("%d operations, no difference, %.0f s" % (done, time.monotonic() - began))
    return 0


if __name__ == "__main__":
    sys.exit(main())
