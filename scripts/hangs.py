#!/usr/bin/env python3
"""hangs.py [--jobs=J] [N] [WAY...] -- make every class of hang N times on one node and on two, and check that the reports are true.
hangs.py --quiet=MINUTES -- run healthy jobs on two nodes, with a pause each minute, and expect no verdict.
hangs.py --cost=SECONDS -- measure CPU and memory of an agent with and without the search, and the time of a sample of 64 workers.
"""

# `make hangs N=20 PYTHON="A B" JOBS=...` runs the classes of hang, `make hangs QUIET_MINUTES=120` the healthy jobs, and
# `make hangs COST_SECONDS=600` the measurement. Each PYTHON has PyTorch (default /usr/bin/python3), and py-spy is beside it, in
# $DDP_PY_SPY or in PATH. A trial is good if every node names the right rank, the right line or object and the right finding, and no
# other, at most 15 s after --hang_timeout. Exit 0 only if all trials are good. After Ctrl-C or SIGTERM, running trials finish and
# no other begins.
#
# Several nodes are network namespaces (root) with a common secret. A job has several trials, one after the other, because importing
# PyTorch takes more time than a trial. For `gpu` a stand-in for NVML lists this script as a user of a GPU. The way `disk` mounts a
# file system (root). The ways `network` and `broken` drop or reset the packets between two of two or three nodes. A step takes 1 s,
# with libddp 0.2 s; in `straggler`, rank 1 takes 20 % longer.

import argparse
import concurrent.futures
import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(ROOT, "build")))
PYTHONS = (os.environ.get("PYTHON") or "/usr/bin/python3").split()
WORKER = f"{ROOT}/tests/data/hangs/worker.py"
LIMIT_S, DEADLINE_S, BEGIN_S, GIVE_UP_S = 5, 15, 600, 120

# This pattern matches findings about a hang, but no finding about a rank that is still starting.
FINDING = re.compile(r"(?m)^ddprun: (?!.*, but (?:has not reached|never connected)).*\[(?:RANK_|COLLECTIVES_|ALL_RANKS_)\w+\]$")
# For each way: a pattern that the report contains, or None if there must be no report. The culprit is rank 1 of four.
WAYS = {
    "sleep": r"rank 1 \(.* load_batch \(worker\.py:LINE\) .*\[RANK_SLEEPS\]",
    "zombie": r"rank 1 \(.* sleep_beside_child \(worker\.py:LINE\) .*\[RANK_SLEEPS\]",
    "gil": r"rank 1 \(.* hold_gil \(worker\.py:LINE\).*\[RANK_SLEEPS\]",
    "buffers": r"rank 1 \(.* sync_buffers \(worker\.py:LINE\) .*\[RANK_SLEEPS\]",
    "async": r"rank 1 \(.* wait_for_work \(worker\.py:LINE\) .*\[RANK_SLEEPS\]",
    "loop": r"rank 1 \(.* spin \(worker\.py:LINE\) .*\[RANK_LOOPS\]",
    "busy_zombie": r"rank 1 \(.* spin_beside_child \(worker\.py:LINE\) .*\[RANK_LOOPS\]",
    "calls": r"rank 1 \(.* calls_in_turn \(worker\.py:LINE\) .*\[RANK_LOOPS\]",
    "lock": r"rank 1 \(.* take_lock \(worker\.py:LINE\).*\[RANK_IN_LOCK\]",
    "fifo": r"rank 1 \(.* read_fifo \(worker\.py:LINE\), .* read .*/fifo, .*\[RANK_BLOCKED\]",
    "file": r"rank 1 \(.* lock_file \(worker\.py:LINE\), .* flock .*/cache\.lock, .*\[RANK_BLOCKED\]",
    "socket": r"rank 1 \(.* read_socket \(worker\.py:LINE\), .* recvfrom .* 127\.0\.0\.1:\d+, .*\[RANK_BLOCKED\]",
    "connect": r"rank 1 \(.* connect_socket \(worker\.py:LINE\), .* poll .* attempt to 127\.0\.0\.1:\d+, .*\[RANK_BLOCKED\]",
    "pipe": r"rank 1 \(.* read_pipe \(worker\.py:LINE\), .* read .* pipe:\[\d+\], .*\[RANK_BLOCKED\]",
    "disk": r"rank 1 \(.* read_disk \(worker\.py:LINE\), .* read .*/disk/data, .*\[RANK_BLOCKED\]",
    "child": r"rank 1 \(.* wait_for_child \(worker\.py:LINE\).*\[RANK_CHILD_ENDED\]",
    "loader": r"rank 1 \(.* wait_for_loader \(worker\.py:LINE\) .* child process \d+, .* fill .*/batches\.fifo;.*\[RANK_WAITS_FOR_CHILD\]",
    "program": r"rank 1 \(.* run_program \(worker\.py:LINE\) .* child process \d+ \(sleep\), .*\[RANK_WAITS_FOR_CHILD\]",
    "traceback": r"rank 1 \(.*: ValueError: batch 7 is empty;.*\[RANK_TRACEBACK\]",
    "other": r"rank 1 \(.* broadcast \(worker\.py:LINE\), .* 3 ranks .* all_reduce.*\[COLLECTIVES_DIFFER\]",
    "sequence": r"rank 1 \(.* all_reduce #9 .* ranks 0, 2-3 .* all_reduce #1 .*\[RANK_BEHIND\]",
    "key": r"rank 1 \(.* wait_for_key \(worker\.py:LINE\).*epoch/3'.*\[RANK_NEEDS_KEY\]",
    "part": r"rank 1 \(.* wait_for_part \(worker\.py:LINE\).*part/0'.* rank 0 should .*\[RANK_NEEDS_KEY\]",
    "all_wait": r"all 4 ranks .* all_reduce \(worker\.py:LINE\).*\[ALL_RANKS_WAIT\]",
    "network": r"all \d ranks .* all_reduce \(worker\.py:LINE\).* PAIR \(rank \d .*\[ALL_RANKS_WAIT\]",
    "broken": r"(?m)^ddprun: the connection .*NODES.* \[CONNECTION_BROKE\]",
    "gpu": r"GPU 1 of .* pid PID .*31 GiB.*\[GPU_BUSY\]",
    "stop": r"rank 1(?: .* SIGSTOP;|: stopped \(state T\)).*\[RANK_STOPPED\]",
    "debugger": r"rank 1: stopped \(state t\).*\[RANK_STOPPED\]",
    "exit": r"rank 1 .*exited with code 0.*\[RANK_EXITED_EARLY\]",
    "spawn": r"process_group.* pid \d+, .* by rank 1; .*\[GROUP_TOO_LARGE\]|rank 0 .* init_process_group.*\[RANK_REPEATED\]",
    "straggler": r"rank 1 \(.* is slow: .*PLACE.*\[RANK_SLOW\]",
    "slow": None,
    "equal": None,
}
# For some ways: a pattern of a second finding that is right, too.
ALSO = {
    "gpu": r"all 4 ranks .*\[ALL_RANKS_WAIT\]",            # the ranks wait for each other, because the GPU itself is a stand-in
    "spawn": r"rank 1 \(.* main \(worker\.py:LINE\).*\[RANK_(?:BLOCKED|WAITS_FOR_CHILD)\]",  # rank 1 waits for its processes and joins no group
    "straggler": r"rank 1 \(.* is slow: .*\[RANK_SLOW\]",  # the first samples do not name a place yet
}
QUIET_S = {"slow": 40, "equal": 600}                                  # how long a job without a report is watched
PROFILED = ("straggler", "equal")
LIMITS = {"straggler": (0, 60), "broken": (0, 15), "stop": (0, 15), "debugger": (0, 15),
          "calls": (LIMIT_S, 75)}                                     # other than LIMIT_S and DEADLINE_S
LIBDDP = "libddp"                                                     # in place of a Python: a job of still_worker.c
LAST = ("exit", "traceback", "other", "all_wait")                     # after these ways the job cannot continue
ALONE = ("sequence", "network", "broken", "spawn", "gpu") + PROFILED  # each needs a separate job


def sh(command):
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                   start_new_session=True)


class Network:
    """Nodes in network namespaces on one bridge, which is in a separate namespace."""

    def __init__(self, nodes, port):
        self.names = [f"hangs{port}-n{i}" for i in range(nodes)]
        self.hub, self.port = f"hangs{port}", port
        sh(f"ip netns add {self.hub}; ip -n {self.hub} link add br0 type bridge; ip -n {self.hub} link set br0 up")
        for i, name in enumerate(self.names):
            sh(f"ip netns add {name} && ip -n {self.hub} link add p{i} type veth peer name eth0 netns {name} && "
               f"ip -n {self.hub} link set p{i} master br0 up && ip -n {name} link set lo up && ip -n {name} link set eth0 up && "
               f"ip -n {name} addr add {self.address(i)}/24 dev eth0")

    def address(self, i):
        return f"10.9.7.{i + 1}"

    def command(self, i):
        return ["ip", "netns", "exec", self.names[i], "unshare", "--uts", "sh", "-c",
                f'hostname {self.names[i]}; exec "$0" "$@"']

    def cut(self, verdict, both=True):
        """Drop or reject all packets from the last node to the node before it, except packets of the store. If `both` is true, do
        the same in the other direction."""
        a, b = len(self.names) - 2, len(self.names) - 1
        for node, peer in ((a, b), (b, a)) if both else ((a, b),):
            sh(f"ip netns exec {self.names[node]} nft 'add table inet f; add chain inet f in {{ type filter hook input priority 0; }}; "
               f"add rule inet f in tcp sport {self.port} accept; add rule inet f in tcp dport {self.port} accept; "
               f"add rule inet f in ip saddr {self.address(peer)} {verdict}'")

    def pair(self, before="", after=""):
        a, b = (before + name + after for name in self.names[-2:])
        return f"(?:{a} and {b}|{b} and {a})"

    def close(self):
        for name in self.names + [self.hub]:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def start(python, ways, nodes, node, port, folder, network):
    argv = [f"{BUILD}/ddprun", f"--nnodes={nodes}", f"--node_rank={node}", f"--nproc_per_node={max(1, 4 // nodes)}",
            f"--master_port={port}", f"--master_addr={network.address(0) if network else '127.0.0.1'}", "--grace=1s",
            "--env=OMP_NUM_THREADS=1", "--no_python", python, "-u", WORKER, ",".join(ways), f"{folder}/fifo", folder]
    if python == LIBDDP:
        argv[argv.index("--no_python"):] = [f"{BUILD}/tests/prog/still_worker", "slow", "1"]
    if ways[0] in PROFILED:
        argv[1:1] = ["--profile_ranks", f"--env=SLOWER={20 * (ways == ['straggler'])}", "--env=STEP_SECONDS=1"]
    elif ways[0] != "pauses":
        argv[1:1] = [f"--hang_timeout={LIMIT_S}s"]
    if ways == ["sequence"]:
        argv[1:1] = [f"--log_dir={folder}/logs{node}", "--flight_recorder", "--env=TORCH_FR_BUFFER_SIZE=2000"]
    if ways == ["gpu"]:
        argv[1:1] = ["--share_gpu"]
    if os.geteuid() == 0 and os.path.exists("/proc/self/autogroup"):
        argv[1:1] = ["--env=IMPORT_NICE=8"]
    if network:
        argv[1:1] = [f"--secret_file={folder}/secret", "--env=GLOO_SOCKET_IFNAME=eth0"]
        argv = network.command(node) + argv
    folders = [os.environ["PATH"], os.environ.get("DDP_PY_SPY", "")]
    env = dict(os.environ, PATH=":".join(filter(None, folders)))
    if ways == ["gpu"] and node == 0:
        env.update(LD_LIBRARY_PATH=f"{BUILD}/tests/fake/nvml", FAKE_NVML=f"{folder}/gpus")
    return subprocess.Popen(argv, stdout=open(f"{folder}/stdout{node}", "w"), stderr=open(f"{folder}/stderr{node}", "w"), env=env,
                            start_new_session=True)


def wait_for(condition, until):
    while not condition() and time.time() < until:
        time.sleep(0.1)
    return condition()


def lines_of(way):
    """Return a pattern of the lines in worker.py in which rank 1 hangs."""
    rows = [str(n) for n, row in enumerate(open(WORKER), 1) if row.endswith(f"# line of {way}\n")]
    return f"(?:{'|'.join(rows)})"


def pattern_of(way, network, python=None, table=WAYS):
    pattern = table.get(way) or (FINDING.pattern if table is WAYS else "(?!)")
    place = r"; it spends extra time in load \(worker\.py:LINE\) "
    values = {"PAIR": network.pair() if network else "", "PID": str(os.getpid()), "PLACE": "" if python == LIBDDP else place,
              "NODES": network.pair(r"node \d \(", r"\)") if network else "", "LINE": lines_of(way)}
    for name, value in values.items():
        pattern = pattern.replace(name, value)
    return re.compile(pattern)


def other_finding(text, *patterns):
    """Return the first finding that matches none of the patterns; "" = none."""
    return next((line for line in FINDING.findall(text) if not any(p.search(line) for p in patterns)), "")


def run_trial(python, way, after, ranks, reports, folder, network, begin_s):
    """Wait for the hang and its report. Return the error, or "", and the seconds from the limit to the last node's report.
    `after` is the next way of the job, or "". A way without a report ends when the next way begins."""
    marks = [f"{folder}/{way}.{rank}" for rank in range(ranks)]
    outputs = [r.replace("stderr", "stdout") for r in reports]
    ends = [os.path.getsize(r) for r in reports]
    texts = lambda: [open(r, "rb").read()[end:].decode(errors="replace") for r, end in zip(reports, ends)]
    has_begun = lambda: all(map(os.path.exists, marks))
    if python == LIBDDP:
        marks = outputs
        has_begun = lambda: sum(open(o).read().count("has made") for o in outputs) == ranks
    pattern = pattern_of(way, network, python)
    if not wait_for(has_begun, time.time() + begin_s):
        return "it did not begin: " + "".join(texts())[-500:], 0
    since = max(map(os.path.getmtime, marks))
    if way in ("network", "broken"):
        time.sleep(2)
        if way == "network":
            network.cut("tcp dport 1-65535 drop")
        else:  # only one direction: in a ring, the rank that cannot send waits, but the rank that cannot receive fails
            network.cut("tcp flags & rst == 0 reject with tcp reset", both=False)
        since = time.time()
    if way == "gpu":
        open(f"{folder}/gpus", "w").write(f"process 1 {os.getpid()} 31744\n")
    is_over = lambda: WAYS[way] is None and after and os.path.exists(f"{folder}/{after}.1")
    wait_for(lambda: all(map(pattern.search, texts())) or is_over(), time.time() + QUIET_S.get(way, GIVE_UP_S))
    told = (any if WAYS[way] is None else all)(map(pattern.search, texts()))
    limit_s, deadline_s = LIMITS.get(way, (LIMIT_S, DEADLINE_S))
    if way in ("spawn", "sequence"):  # a process has created the mark again
        since = max(map(os.path.getmtime, marks))
    late = time.time() - since - limit_s
    text = "".join(texts())
    if WAYS[way] is None:
        return "a report without a hang: " + text[-500:] if told else "", 0
    if not told:
        return "no such report: " + text[-1500:], 0
    other = other_finding(text, pattern, pattern_of(way, network, python, ALSO))
    if other:
        return f"another finding: {other}", 0
    return f"{late:.1f} s after the limit: {text[-1500:]}" if late > deadline_s else "", late


def release(way, folder):
    """End a hang. Rank 0 sets the key for which rank 1 waits, a debugger detaches, and a read fails when its server is killed."""
    pid = int(open(f"{folder}/{way}.{0 if way in ('key', 'part') else 1}").read())
    if way == "debugger":
        pid = int(re.search(r"TracerPid:\s+(\d+)", open(f"/proc/{pid}/status").read())[1])
    if way == "disk":
        pid = int(open(f"/proc/{pid}/task/{pid}/children").read())
    os.kill(pid, {"stop": signal.SIGCONT, "disk": signal.SIGKILL}.get(way, signal.SIGUSR1))


def run_trials(python, ways, nodes, folder, network):
    """Return the error and the seconds of each trial."""
    ranks = nodes * max(1, 4 // nodes)
    reports = [f"{folder}/stderr{node}" for node in range(nodes)]
    results = []
    for way, after in itertools.zip_longest(ways, ways[1:], fillvalue=""):
        wrong, late = run_trial(python, way, after, ranks, reports, folder, network, GIVE_UP_S if results else BEGIN_S)
        results.append((wrong, late))
        if wrong.startswith(("it did not", "no such")):
            break
        if after and WAYS[way] is not None:
            release(way, folder)
    return results + [("not tried: the trial before it failed", 0)] * (len(ways) - len(results))


@contextlib.contextmanager
def job_of(python, ways, nodes, port):
    """Start a job. Yield the folder of its files and its network, and stop the job at the end."""
    network = Network(nodes, port) if nodes > 1 else None
    jobs = []
    try:
        with tempfile.TemporaryDirectory(prefix="ddp-hangs-") as folder:
            subprocess.run([f"{BUILD}/ddprun", f"--make_secret={folder}/secret"], check=True, stdout=subprocess.DEVNULL)
            jobs = [start(python, ways, nodes, node, port, folder, network) for node in range(nodes)]
            try:
                yield folder, network
            finally:
                for job in jobs:
                    job.send_signal(signal.SIGTERM)
                for job in jobs:
                    job.wait()
    finally:
        if network:
            network.close()


def run(python, ways, nodes, port):
    with job_of(python, ways, nodes, port) as (folder, network):
        return run_trials(python, ways, nodes, folder, network)


def watch_quiet(seconds, folder):
    """Wait for the hang at the end of the healthy job. Return its number of steps, and its pauses of more than 5 s."""
    pauses, size, moved = [], 0, 0
    until = time.time() + BEGIN_S + seconds
    while not os.path.exists(f"{folder}/sleep.1") and time.time() < until:
        time.sleep(0.1)
        now = os.path.getsize(f"{folder}/stdout0")
        if now == size:
            continue
        if moved and time.time() - moved > 5:
            pauses.append(time.time() - moved)
        size, moved = now, time.time()
    return open(f"{folder}/stdout0").read().count("[0] step "), pauses


def run_quiet(python, minutes, port):
    """Run a healthy job on two nodes for some minutes, then let rank 1 hang. Return its steps, its pauses, its verdicts, what the
    nodes have printed until the hang, and the seconds from the limit to the report of the hang (None = no report)."""
    os.environ["HANG_SECONDS"] = str(minutes * 60)
    with job_of(python, ["pauses", "sleep"], 2, port) as (folder, network):
        reports = [f"{folder}/stderr{node}" for node in range(2)]
        steps, pauses = watch_quiet(minutes * 60, folder)
        text = "".join(open(r).read() for r in reports)
        verdicts = pattern_of("slow", None).findall(text)
        limit_s = max(30, 5 * max(pauses, default=0))
        is_found = lambda: all(pattern_of("sleep", None).search(open(r).read()) for r in reports)
        if not os.path.exists(f"{folder}/sleep.1") or not wait_for(is_found, time.time() + limit_s + GIVE_UP_S):
            return steps, pauses, verdicts, "".join(open(r).read() for r in reports), None
        return steps, pauses, verdicts, text, time.time() - os.path.getmtime(f"{folder}/sleep.1") - limit_s


def print_quiet(minutes):
    """Print the verdicts about healthy jobs. Exit 0 if there are none, and the hang at the end is reported in time."""
    bad = 0
    print(f"{'TORCH':<16}{'NODES':>6}{'MINUTES':>9}{'STEPS':>8}{'PAUSES':>8}{'LONGEST':>10}{'VERDICTS':>10}{'THEN A HANG':>14}")
    with concurrent.futures.ThreadPoolExecutor(len(PYTHONS)) as pool:
        rows = [pool.submit(run_quiet, python, minutes, 23100 + i) for i, python in enumerate(PYTHONS)]
        for python, row in zip(PYTHONS, rows):
            steps, pauses, verdicts, text, late = row.result()
            is_bad = bool(verdicts) or late is None or late > DEADLINE_S
            bad += is_bad
            print(f"{version_of(python):<16}{2:>6}{minutes:>9g}{steps:>8}{len(pauses):>8}{max(pauses, default=0):>8.1f} s"
                  f"{len(verdicts):>10}{'no report' if late is None else f'{late:.1f} s':>14}", flush=True)
            if is_bad:
                print(text, flush=True)
    sys.exit(bad > 0)


STEPS = """
import time
step = 0
while True:
    step += 1
    print(f"step {step} loss {1 / step:.3f}", flush=True)
    time.sleep(1)
"""


def start_steps(workers, option, port):
    """Start Python programs without PyTorch that print a step each second."""
    argv = [f"{BUILD}/ddprun", f"--nproc_per_node={workers}", f"--master_port={port}", option, "--no_python", sys.executable, "-c", STEPS]
    env = dict(os.environ, PATH=":".join(filter(None, [os.environ["PATH"], os.environ.get("DDP_PY_SPY", "")])))
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=env)


def agent_of(job):
    """Return the pid of the agent, which is the child of the guardian."""
    found = lambda: open(f"/proc/{job.pid}/task/{job.pid}/children").read().split()
    return int(wait_for(found, time.time() + BEGIN_S)[0])


def cpu_s(pid):
    return sum(int(open(f"/proc/{pid}/task/{tid}/schedstat").read().split()[0]) for tid in os.listdir(f"/proc/{pid}/task")) / 1e9


def rss_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read())[1])


def print_cost(seconds):
    """Print what the search costs an agent with 8 workers, and how long a sample of 64 workers takes."""
    jobs = {option: start_steps(8, f"--hang_timeout={option}", 23200 + i) for i, option in enumerate(("5m", "off"))}
    try:
        agents = {option: agent_of(job) for option, job in jobs.items()}
        time.sleep(20)
        before = {option: cpu_s(pid) for option, pid in agents.items()}
        time.sleep(seconds)
        cost = {option: f"{100 * (cpu_s(pid) - before[option]) / seconds:.3f} % of a CPU and {rss_kib(pid):,} KiB" for option, pid in agents.items()}
        print(f"An agent of 8 workers takes {cost['5m']}, with `--hang_timeout=off` {cost['off']} (one run of {seconds:g} s).", flush=True)
    finally:
        for job in jobs.values():
            job.send_signal(signal.SIGTERM)
            job.wait()
    job = start_steps(64, "--grace=1s", 23210)
    ask = [f"{BUILD}/ddpctl", "--addr=127.0.0.1:23210", "stacks", "--json"]
    try:
        agent_of(job)
        time.sleep(20)
        times, samples = [], 10
        for _ in range(samples):
            began = time.time()
            text = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
            times.append(time.time() - began)
        print(f"Stacks of 64 workers take {min(times):.2f} to {max(times):.2f} s ({samples} samples).")
        print(f"{text.count(chr(34) + 'rank' + chr(34))} ranks, {'with' if 'frames' in text else 'without'} frames")
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait()


def version_of(python):
    if python == LIBDDP:
        return LIBDDP
    return subprocess.run([python, "-c", "import torch; print(torch.__version__)"], check=True, capture_output=True,
                          text=True).stdout.strip()


def divide(ways):
    """Divide the ways into jobs. Each job ends with a way of LAST, if there are any."""
    jobs = [[way] for way in ways if way in LAST] or [[]]
    for i, way in enumerate(way for way in ways if way not in LAST + ALONE):
        jobs[i % len(jobs)].insert(0, way)
    return [job for job in jobs if job] + [[way] for way in ways if way in ALONE]


def ended_of(jobs):
    """Yield each job when it has ended. After Ctrl-C, cancel the jobs that have not begun."""
    left = set(jobs)
    while left:
        try:
            ended, left = concurrent.futures.wait(left, return_when=concurrent.futures.FIRST_COMPLETED)
        except KeyboardInterrupt:
            print(f"interrupted: {sum(job.cancel() for job in left)} jobs were cancelled", flush=True)
            continue
        yield from ended


def results_of(plan, at_once):
    """Yield each row of the plan with its results; none = cancelled. `straggler` needs a sample each half second, so its
    jobs run at the end, two at a time."""
    is_last = lambda row: row[1] == ["straggler"]
    ports = itertools.cycle(range(21000, 23000))
    for rows, n in (([row for row in plan if not is_last(row)], at_once), ([*filter(is_last, plan)], min(at_once, 2))):
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            jobs = {pool.submit(run, *row, next(ports)): row for row in rows}
            for job in ended_of(jobs):
                yield jobs[job], [] if job.cancelled() else job.result()
            if any(job.cancelled() for job in jobs):
                return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("JOBS") or 1), help="trials at the same time (default: 1)")
    parser.add_argument("--quiet", type=float, metavar="MINUTES", help="run healthy jobs instead, and count verdicts")
    parser.add_argument("--cost", type=float, metavar="SECONDS", help="measure instead what the search costs an agent")
    parser.add_argument("n", type=int, nargs="?", default=1, help="trials of each class (default: 1)")
    parser.add_argument("ways", nargs="*", choices=[[], *WAYS], metavar="WAY", help="classes (default: all but equal)")
    args = parser.parse_args()
    if args.cost:
        print_cost(args.cost)
        return
    if args.quiet:
        print_quiet(args.quiet)
    plan = [(python, ways, nodes) for _ in range(args.n) for python in PYTHONS + [LIBDDP]
            for ways in divide(args.ways or [way for way in WAYS if way != "equal"]) if python != LIBDDP or ways[0] in PROFILED
            for nodes in ((2, 3) if ways[0] in ("network", "broken") else (1, 2))]
    versions = {python: version_of(python) for python in PYTHONS + [LIBDDP]}
    good, tried, worst, bad = {}, {}, {}, 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for (python, ways, nodes), results in results_of(plan, args.jobs):
        bad += not results
        for way, (wrong, late) in zip(ways, results):
            key = (versions[python], way, nodes)
            tried[key] = tried.get(key, 0) + 1
            good[key] = good.get(key, 0) + (wrong == "")
            worst[key] = max(worst.get(key, 0), late)
            if wrong:
                bad += 1
                print(f"torch {key[0]}, {way}, {nodes} node(s), in {','.join(ways)}: {wrong}", flush=True)
    print(f"{'TORCH':<16}{'CLASS':<12}{'NODES':>6}{'RIGHT':>10}{'LATEST':>10}")
    for key, count in sorted(good.items()):
        print(f"{key[0]:<16}{key[1]:<12}{key[2]:>6}{f'{count}/{tried[key]}':>10}{worst[key]:>8.1f} s")
    sys.exit(bad > 0)


main()
