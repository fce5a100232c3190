#!/usr/bin/env python3
"""Record the stacks of a hung job: record.py DDPRUN PY_SPY PYTHON WAY > WAY.json

Each rank is sampled twice. A sample holds py-spy's unchanged output. It also holds the state, the system call number
and the CPU time of each thread, which come from /proc, and the children of the process.

With the way `pauses`, the healthy job of worker.py with four ranks is sampled once a second. Such a sample holds the
age of the last line of output. For each rank it holds the stack, the activity and the CPU time that the agent sends
to the store. HANG_SECONDS is the duration of the job in seconds."""
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


def children(py_spy, pid):
    rows = []
    for child in open(f"/proc/{pid}/task/{pid}/children").read().split():
        state = open(f"/proc/{child}/stat").read().rpartition(")")[2].split()[0]
        row = {"pid": int(child), "state": state}
        if state != "Z":
            row.update(name=open(f"/proc/{child}/comm").read().strip(), sample=sample(py_spy, int(child)))
        rows.append(row)
    return rows


def sample(py_spy, pid):
    text = subprocess.run([py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid)], capture_output=True).stdout
    return {"threads": threads(pid), "children": children(py_spy, pid), "py_spy": json.loads(text or "null")}


def index_of(rows, row):
    if row not in rows:
        rows.append(row)
    return rows.index(row)


def sample_of_store(ddprun, addr, record):
    """Return [stack, activity, CPU time] of each rank. Stack and activity are indices into lists of the record."""
    text = subprocess.run([os.path.dirname(ddprun) + "/ddpctl", addr, "stacks", "--json"], capture_output=True, check=True).stdout
    ranks = {}
    for row in json.loads(text)["stacks"]:
        frames = row.get("frames", [])
        for t in row["threads"]:
            if t.get("main") and frames:
                ranks[t["rank"]] = [index_of(record["stacks"], frames), index_of(record["does"], t["does"]), t["cpu_ms"]]
    return [ranks[rank] for rank in range(4)]


def record_pauses(ddprun, py_spy, python, worker):
    record = {"way": "pauses", "stacks": [], "does": [], "samples": []}
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, PATH=os.environ["PATH"] + ":" + os.path.dirname(py_spy))
        job = subprocess.Popen([ddprun, "--nproc_per_node=4", "--master_port=29471", "--grace=1s", "--env=OMP_NUM_THREADS=1",
                                python, "-u", worker, "pauses", folder + "/fifo", folder], stdout=open(folder + "/out", "w"), env=env)
        while not os.path.exists(folder + "/pauses.0"):
            if job.poll() is not None:
                sys.exit("the job has ended")
            time.sleep(0.1)
        due = time.time()
        while job.poll() is None:
            try:
                ranks = sample_of_store(ddprun, "--addr=127.0.0.1:29471", record)
            except (subprocess.CalledProcessError, KeyError):
                continue  # the job is ending
            record["samples"].append([int(1000 * max(0, time.time() - os.path.getmtime(folder + "/out"))), *ranks])
            due += 1
            time.sleep(max(0, due - time.time()))
    record["samples"] = record["samples"][:-3]  # the last samples may show the end of the job
    json.dump(record, sys.stdout, separators=(",", ":"))
    print()


def main():
    ddprun, py_spy, python, way = sys.argv[1:]
    worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
    if way == "pauses":
        record_pauses(ddprun, py_spy, python, worker)
        return
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
