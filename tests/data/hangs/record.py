#!/usr/bin/env python3
"""Record the stacks of a hung job: record.py DDPRUN PY_SPY PYTHON WAY > WAY.json

Each rank is sampled twice. A sample has py-spy's output as it is, and of each thread in /proc the state, the number of its
system call and its CPU time, and the children of the process."""
import json
import os
import subprocess
import sys
import tempfile
import time


def threads(pid):
    rows = []
    for tid in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):
        base = f"/proc/{pid}/task/{tid}"
        stat = open(base + "/stat").read().rpartition(")")[2].split()
        call = open(base + "/syscall").read().split()[0]
        rows.append({"tid": tid, "state": stat[0], "syscall": call, "cpu_ms": (int(stat[11]) + int(stat[12])) * 10})
    return rows


def children(pid):
    rows = []
    for child in open(f"/proc/{pid}/task/{pid}/children").read().split():
        state = open(f"/proc/{child}/stat").read().rpartition(")")[2].split()[0]
        rows.append({"pid": int(child), "state": state})
    return rows


def sample(py_spy, pid):
    text = subprocess.run([py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid)], capture_output=True, check=True).stdout
    return {"threads": threads(pid), "children": children(pid), "py_spy": json.loads(text)}


def main():
    ddprun, py_spy, python, way = sys.argv[1:]
    worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
    with tempfile.TemporaryDirectory() as folder:
        job = subprocess.Popen([ddprun, "--nproc_per_node=3", "--standalone", "--grace=1s", "--env=OMP_NUM_THREADS=1",
                                python, "-u", worker, way, folder + "/fifo", folder], stdout=sys.stderr)
        files = [f"{folder}/{way}.{rank}" for rank in range(3)]
        while not all(os.path.exists(f) and os.path.getsize(f) for f in files):
            if job.poll() is not None:
                sys.exit("the job has ended")
            time.sleep(0.1)
        pids = [int(open(f).read()) for f in files]
        time.sleep(2)
        ranks = [{"rank": rank, "pid": pid, "samples": []} for rank, pid in enumerate(pids)]
        for i in range(2):
            began = time.time()
            for rank, pid in zip(ranks, pids):
                rank["samples"].append(sample(py_spy, pid))
            if i == 0:
                time.sleep(3 - (time.time() - began))
        job.terminate()
        job.wait()
    json.dump({"way": way, "apart_ms": 3000, "ranks": ranks}, sys.stdout, separators=(",", ":"))
    print()


main()
