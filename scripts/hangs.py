#!/usr/bin/env python3
"""hangs.py N [WAY...] -- make every class of hang N times on one node and on two, and compare the reports with the truth.

`make hangs N=20 PYTHON=...` runs it. PYTHON has PyTorch (default /usr/bin/python3), and py-spy is beside it or in PATH. A trial is good
if every node names the right rank, the right place and the right finding, at most 15 s after --hang_timeout. Exit 0 only if all are."""
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
PYTHON = os.environ.get("PYTHON") or "/usr/bin/python3"
LIMIT_S, DEADLINE_S, GIVE_UP_S = 5, 15, 120

# way: what the report contains. The culprit is rank 1 of four; `none` must stay without a report.
WAYS = {
    "sleep": r"rank 1 \(.*is in load_batch \(worker\.py:\d+\) and has slept.*\[RANK_SLEEPS\]",
    "loop": r"rank 1 \(.*is in spin \(worker\.py:\d+\) and has computed.*\[RANK_LOOPS\]",
    "lock": r"rank 1 \(.*is in take_lock \(worker\.py:\d+\).*\[RANK_IN_LOCK\]",
    "fifo": r"rank 1 \(.*is in read_fifo \(worker\.py:\d+\), blocked .* in read of /.*/fifo;.*\[RANK_BLOCKED\]",
    "child": r"rank 1 \(.*is in wait_for_child \(worker\.py:\d+\).*which has ended.*\[RANK_CHILD_ENDED\]",
    "traceback": r"rank 1 \(.*has not exited: ValueError: batch 7 is empty;.*\[RANK_TRACEBACK\]",
    "other": r"rank 1 \(.*waits in broadcast \(worker\.py:\d+\), while 3 ranks wait in all_reduce.*\[COLLECTIVES_DIFFER\]",
    "key": r"rank 1 \(.*is in wait_for_key \(worker\.py:\d+\).*epoch/3', which no rank has set.*\[RANK_NEEDS_KEY\]",
    "all_wait": r"all 4 ranks wait in all_reduce \(worker\.py:\d+\).*\[ALL_RANKS_WAIT\]",
    "stop": r"rank 1 was stopped by SIGSTOP|rank 1: stopped \(state T\).*\[RANK_STOPPED\]",
    "slow": None,
}


def start(way, nodes, node, port, folder):
    argv = [f"{BUILD}/ddprun", f"--nnodes={nodes}", f"--node_rank={node}", f"--nproc_per_node={4 // nodes}", f"--master_port={port}",
            "--master_addr=127.0.0.1", f"--hang_timeout={LIMIT_S}s", "--grace=1s", "--env=OMP_NUM_THREADS=1", "--no_python", PYTHON,
            "-u", f"{ROOT}/tests/data/hangs/worker.py", way, f"{folder}/fifo", folder]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=open(f"{folder}/stderr{node}", "w"))


def wait_for(condition, until):
    while not condition() and time.time() < until:
        time.sleep(0.1)
    return condition()


def trial(way, nodes, port):
    """Return what is wrong, "" = nothing, and the seconds from the limit to the last node's report."""
    with tempfile.TemporaryDirectory(prefix="ddp-hangs-") as folder:
        jobs = [start(way, nodes, node, port, folder) for node in range(nodes)]
        marks = [f"{folder}/{rank}" for rank in range(4)]
        reports = [f"{folder}/stderr{node}" for node in range(nodes)]
        pattern = re.compile(WAYS[way] or r"\[RANK_|\[COLLECTIVES|\[ALL_RANKS")
        began = wait_for(lambda: all(map(os.path.exists, marks)), time.time() + GIVE_UP_S)
        since = max(map(os.path.getmtime, marks)) if began else 0
        patience = 40 if WAYS[way] is None else GIVE_UP_S
        told = began and wait_for(lambda: all(pattern.search(open(r).read()) for r in reports), time.time() + patience)
        late = time.time() - since - LIMIT_S
        for job in jobs:
            job.send_signal(signal.SIGTERM)
        for job in jobs:
            job.wait()
        text = "".join(open(r).read() for r in reports)
    if not began:
        return "the job did not begin: " + text[-500:], 0
    if WAYS[way] is None:
        return ("a report without a hang: " + text[-500:] if told else ""), 0
    if not told:
        return "no such report: " + text[-800:], 0
    return (f"{late:.1f} s after the limit" if late > DEADLINE_S else ""), late


def main():
    n = int(sys.argv[1])
    ways = sys.argv[2:] or list(WAYS)
    plan = [(way, nodes) for _ in range(n) for way in ways for nodes in (1, 2)]
    good, worst, bad = {}, {}, 0
    together = int(os.environ.get("JOBS") or max(1, (os.cpu_count() or 1) // 2))
    with concurrent.futures.ThreadPoolExecutor(together) as pool:
        trials = [pool.submit(trial, way, nodes, 21000 + i % 2000) for i, (way, nodes) in enumerate(plan)]
        for key, done in zip(plan, trials):
            wrong, late = done.result()
            good[key] = good.get(key, 0) + (wrong == "")
            worst[key] = max(worst.get(key, 0), late)
            if wrong:
                bad += 1
                print(f"{key[0]}, {key[1]} node(s): {wrong}", flush=True)
    print(f"{'CLASS':<12}{'NODES':>6}{'RIGHT':>10}{'LATEST':>10}")
    for (way, nodes), count in sorted(good.items()):
        print(f"{way:<12}{nodes:>6}{f'{count}/{n}':>10}{worst[way, nodes]:>8.1f} s")
    sys.exit(bad > 0)


main()
