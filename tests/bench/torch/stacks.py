"""stacks.py DDPRUN DDPCTL -- measure the cost of the hang search: one sample of 64 workers, and the agent while no
hang is suspected.

A worker runs plain Python or has imported PyTorch. It prints a line each second. py-spy must be in PATH. The agent's
CPU time and memory are measured with the search and with --hang_timeout=off."""
import os
import statistics
import subprocess
import sys
import threading
import time

DDPRUN, DDPCTL = sys.argv[1:]
JOB = f"bench-{os.getpid()}"
WORKER = """
import sys, time
{imports}
step = 0
while True:
    print("step", step, "loss", 1 / (step + 1), flush=True)
    step += 1
    time.sleep(1)
"""


def start(n, imports, *options):
    job = subprocess.Popen([DDPRUN, "--standalone", f"--rdzv_id={JOB}", f"--nproc_per_node={n}", "--grace=1s", "--env=OMP_NUM_THREADS=1", *options,
                            "--no_python", sys.executable, "-c", WORKER.format(imports=imports)], stdout=subprocess.PIPE, text=True)
    ready = set()
    for line in job.stdout:
        ready.add(line.split("]")[0])
        if len(ready) == n:
            break
    threading.Thread(target=job.stdout.read, daemon=True).start()
    return job


def end(job):
    job.terminate()
    job.wait()


def agent_of(job):
    with open(f"/proc/{job.pid}/task/{job.pid}/children") as f:
        return f.read().split()[0]


def sample(n, imports):
    job = start(n, imports)
    times = []
    for _ in range(5):
        began = time.monotonic()
        text = subprocess.run([DDPCTL, "--job", JOB, "stacks"], stdout=subprocess.PIPE, text=True, check=True).stdout
        times.append(time.monotonic() - began)
        if "py-spy did not answer" in text or "<module>" not in text:
            times[-1] = float("inf")
    end(job)
    return 1000 * statistics.median(times)


def idle(seconds, *options):
    """Return the agent's CPU use in percent of one CPU, and its memory in KiB."""
    job = start(8, "", *options)
    agent = agent_of(job)

    def cpu_ns():
        return sum(int(open(f"/proc/{agent}/task/{tid}/schedstat").read().split()[0]) for tid in os.listdir(f"/proc/{agent}/task"))

    time.sleep(3)
    before, began = cpu_ns(), time.monotonic()
    time.sleep(seconds)
    percent = 100 * (cpu_ns() - before) / 1e9 / (time.monotonic() - began)
    memory = next(int(line.split()[1]) for line in open(f"/proc/{agent}/smaps_rollup") if line.startswith("Private_Dirty"))
    end(job)
    return percent, memory


def main():
    print("| cost of the search for hangs | measured |")
    print("|---|---|")
    for what, imports in (("64 workers of plain Python", ""), ("64 workers with PyTorch", "import torch")):
        ms = sample(64, imports)
        print(f"| `ddpctl stacks` of {what} | {ms:.0f} ms |", flush=True)
    with_search, without = [idle(20) for _ in range(3)], [idle(20, "--hang_timeout=off") for _ in range(3)]
    cpu, memory = (statistics.median(x[i] for x in with_search) for i in (0, 1))
    cpu_off, memory_off = (statistics.median(x[i] for x in without) for i in (0, 1))
    print(f"| agent of 8 workers that print a line each second | {cpu:.3f} % of a CPU, {memory} KiB; "
          f"with --hang_timeout=off {cpu_off:.3f} %, {memory_off} KiB |")


main()
