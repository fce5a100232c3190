#!/usr/bin/env python3
"""hangs.py [--jobs=J] N [WAY...] -- make every class of hang N times on one node and on two, and compare the reports with the truth.

`make hangs N=20 PYTHON="A B" JOBS=...` runs it. Each PYTHON has PyTorch (default /usr/bin/python3), and py-spy is beside it, in
$DDP_PY_SPY or in PATH. A trial is good if every node names the right rank, the right line or object and the right finding, at most
15 s after --hang_timeout. Several nodes are network namespaces (root) with a common secret. Most hangs can be ended, so a job has
several trials, one after the other: importing PyTorch takes more time than a trial. In the way `gpu` a stand-in for NVML lists this
script as a user of a GPU. The way `network` cuts the connection of two nodes of two or three. Exit 0 only if all are good."""
import argparse
import concurrent.futures
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

# way: what the report contains. The culprit is rank 1 of four; `none` must stay without a report.
WAYS = {
    "sleep": r"rank 1 \(.* load_batch \(worker\.py:LINE\) .*\[RANK_SLEEPS\]",
    "gil": r"rank 1 \(.* hold_gil \(worker\.py:LINE\).*\[RANK_SLEEPS\]",
    "loop": r"rank 1 \(.* spin \(worker\.py:LINE\) .*\[RANK_LOOPS\]",
    "lock": r"rank 1 \(.* take_lock \(worker\.py:LINE\).*\[RANK_IN_LOCK\]",
    "fifo": r"rank 1 \(.* read_fifo \(worker\.py:LINE\), .* read .*/fifo, .*\[RANK_BLOCKED\]",
    "file": r"rank 1 \(.* lock_file \(worker\.py:LINE\), .* flock .*/cache\.lock, .*\[RANK_BLOCKED\]",
    "socket": r"rank 1 \(.* read_socket \(worker\.py:LINE\), .* recvfrom .* 127\.0\.0\.1:\d+, .*\[RANK_BLOCKED\]",
    "pipe": r"rank 1 \(.* read_pipe \(worker\.py:LINE\), .* read .* pipe:\[\d+\], .*\[RANK_BLOCKED\]",
    "child": r"rank 1 \(.* wait_for_child \(worker\.py:LINE\).*\[RANK_CHILD_ENDED\]",
    "traceback": r"rank 1 \(.*: ValueError: batch 7 is empty;.*\[RANK_TRACEBACK\]",
    "other": r"rank 1 \(.* broadcast \(worker\.py:LINE\), .* 3 ranks .* all_reduce.*\[COLLECTIVES_DIFFER\]",
    "sequence": r"rank 1 \(.* all_reduce #9 .* ranks 0, 2-3 .* all_reduce #1 .*\[RANK_BEHIND\]",
    "key": r"rank 1 \(.* wait_for_key \(worker\.py:LINE\).*epoch/3'.*\[RANK_NEEDS_KEY\]",
    "all_wait": r"all 4 ranks .* all_reduce \(worker\.py:LINE\).*\[ALL_RANKS_WAIT\]",
    "network": r"all \d ranks .* all_reduce \(worker\.py:LINE\).* PAIR \(rank \d .*\[ALL_RANKS_WAIT\]",
    "gpu": r"GPU 1 of .* pid PID .*31 GiB.*\[GPU_BUSY\]",
    "stop": r"rank 1 .* SIGSTOP|rank 1: stopped \(state T\).*\[RANK_STOPPED\]",
    "debugger": r"rank 1: stopped \(state T\).*\[RANK_STOPPED\]",
    "exit": r"rank 1 .*exited with code 0.*\[RANK_EXITED_EARLY\]",
    "spawn": r"process_group.*\[(?:RANK_REPEATED|GROUP_TOO_LARGE)\]",
    "slow": None,
}
LAST = ("exit", "traceback", "key", "other", "all_wait", "debugger")  # the job cannot go on after these
ALONE = ("sequence", "network", "spawn", "gpu", "slow")               # these need a job of their own


def sh(command):
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Network:
    """Nodes in network namespaces on one bridge, which is in a namespace of its own."""

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

    def cut(self):
        """Drop all packets of the last two nodes to each other, except those of the store."""
        a, b = len(self.names) - 2, len(self.names) - 1
        for node, peer in ((a, b), (b, a)):
            sh(f"ip netns exec {self.names[node]} nft 'add table inet f; add chain inet f in {{ type filter hook input priority 0; }}; "
               f"add rule inet f in tcp sport {self.port} accept; add rule inet f in tcp dport {self.port} accept; "
               f"add rule inet f in ip saddr {self.address(peer)} tcp dport 1-65535 drop'")

    def pair(self):
        a, b = self.names[-2:]
        return f"(?:{a} and {b}|{b} and {a})"

    def close(self):
        for name in self.names + [self.hub]:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def start(python, ways, nodes, node, port, folder, network):
    argv = [f"{BUILD}/ddprun", f"--nnodes={nodes}", f"--node_rank={node}", f"--nproc_per_node={max(1, 4 // nodes)}",
            f"--master_port={port}", f"--master_addr={network.address(0) if network else '127.0.0.1'}", f"--hang_timeout={LIMIT_S}s",
            "--grace=1s", "--env=OMP_NUM_THREADS=1", "--no_python", python, "-u", WORKER, ",".join(ways), f"{folder}/fifo", folder]
    if ways == ["sequence"]:
        argv[1:1] = [f"--log_dir={folder}/logs{node}", "--flight_recorder", "--env=TORCH_FR_BUFFER_SIZE=2000"]
    if ways == ["gpu"]:
        argv[1:1] = ["--share_gpu"]
    if network:
        argv[1:1] = [f"--secret_file={folder}/secret", "--env=GLOO_SOCKET_IFNAME=eth0"]
        argv = network.command(node) + argv
    folders = [os.environ["PATH"], os.environ.get("DDP_PY_SPY", "")]
    env = dict(os.environ, PATH=":".join(filter(None, folders)))
    if ways == ["gpu"] and node == 0:
        env.update(LD_LIBRARY_PATH=f"{BUILD}/tests/fake/nvml", FAKE_NVML=f"{folder}/gpus")
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=open(f"{folder}/stderr{node}", "w"), env=env)


def wait_for(condition, until):
    while not condition() and time.time() < until:
        time.sleep(0.1)
    return condition()


def lines_of(way):
    """Return a pattern of the lines in worker.py in which rank 1 hangs."""
    rows = [str(n) for n, row in enumerate(open(WORKER), 1) if row.endswith(f"# line of {way}\n")]
    return f"(?:{'|'.join(rows)})"


def pattern_of(way, network):
    pattern = WAYS[way] or r"\[RANK_|\[COLLECTIVES|\[ALL_RANKS"
    values = {"PAIR": network.pair() if network else "", "PID": str(os.getpid()), "LINE": lines_of(way)}
    for name, value in values.items():
        pattern = pattern.replace(name, value)
    return re.compile(pattern)


def run_trial(way, ranks, reports, folder, network, begin_s):
    """Wait for the hang and its report. Return what is wrong, "" = nothing, and the seconds from the limit to the last node's
    report."""
    marks = [f"{folder}/{way}.{rank}" for rank in range(ranks)]
    ends = [os.path.getsize(r) for r in reports]
    texts = lambda: [open(r, "rb").read()[end:].decode(errors="replace") for r, end in zip(reports, ends)]
    pattern = pattern_of(way, network)
    if not wait_for(lambda: all(map(os.path.exists, marks)), time.time() + begin_s):
        return "it did not begin: " + "".join(texts())[-500:], 0
    since = max(map(os.path.getmtime, marks))
    if way == "network":
        time.sleep(2)
        network.cut()
        since = time.time()
    if way == "gpu":
        open(f"{folder}/gpus", "w").write(f"process 1 {os.getpid()} 31744\n")
    told = wait_for(lambda: all(map(pattern.search, texts())), time.time() + (40 if WAYS[way] is None else GIVE_UP_S))
    late = time.time() - since - LIMIT_S
    text = "".join(texts())
    if WAYS[way] is None:
        return "a report without a hang: " + text[-500:] if told else "", 0
    if not told:
        return "no such report: " + text[-1500:], 0
    return f"{late:.1f} s after the limit" if late > DEADLINE_S else "", late


def run_trials(ways, nodes, folder, network):
    """Return what is wrong and the seconds of each trial."""
    ranks = nodes * max(1, 4 // nodes)
    reports = [f"{folder}/stderr{node}" for node in range(nodes)]
    results = []
    for way in ways:
        wrong, late = run_trial(way, ranks, reports, folder, network, GIVE_UP_S if results else BEGIN_S)
        results.append((wrong, late))
        if wrong.startswith(("it did not", "no such")):
            break
        if way != ways[-1]:
            os.kill(int(open(f"{folder}/{way}.1").read()), signal.SIGCONT if way == "stop" else signal.SIGUSR1)
    return results + [("not tried: the trial before it failed", 0)] * (len(ways) - len(results))


def run(python, ways, nodes, port):
    network = Network(nodes, port) if nodes > 1 else None
    jobs = []
    try:
        with tempfile.TemporaryDirectory(prefix="ddp-hangs-") as folder:
            subprocess.run([f"{BUILD}/ddprun", f"--make_secret={folder}/secret"], check=True, stdout=subprocess.DEVNULL)
            jobs = [start(python, ways, nodes, node, port, folder, network) for node in range(nodes)]
            try:
                return run_trials(ways, nodes, folder, network)
            finally:
                for job in jobs:
                    job.send_signal(signal.SIGTERM)
                for job in jobs:
                    job.wait()
    finally:
        if network:
            network.close()


def divide(ways):
    """Divide the ways into jobs. Each job ends with a way of LAST, if there are any."""
    jobs = [[way] for way in ways if way in LAST] or [[]]
    for i, way in enumerate(way for way in ways if way not in LAST + ALONE):
        jobs[i % len(jobs)].insert(0, way)
    return [job for job in jobs if job] + [[way] for way in ways if way in ALONE]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("JOBS") or 1), help="trials at the same time (default: 1)")
    parser.add_argument("n", type=int, help="trials of each class")
    parser.add_argument("ways", nargs="*", choices=[[], *WAYS], metavar="WAY", help="classes (default: all)")
    args = parser.parse_args()
    plan = [(python, ways, nodes) for _ in range(args.n) for python in PYTHONS for ways in divide(args.ways or list(WAYS))
            for nodes in ((2, 3) if ways == ["network"] else (1, 2))]
    versions = {python: subprocess.run([python, "-c", "import torch; print(torch.__version__)"], check=True, capture_output=True,
                                       text=True).stdout.strip() for python in PYTHONS}
    good, worst, bad = {}, {}, 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = [pool.submit(run, *row, 21000 + i % 2000) for i, row in enumerate(plan)]
        for (python, ways, nodes), job in zip(plan, jobs):
            for way, (wrong, late) in zip(ways, job.result()):
                key = (versions[python], way, nodes)
                good[key] = good.get(key, 0) + (wrong == "")
                worst[key] = max(worst.get(key, 0), late)
                if wrong:
                    bad += 1
                    print(f"torch {key[0]}, {way}, {nodes} node(s), in {','.join(ways)}: {wrong}", flush=True)
    print(f"{'TORCH':<16}{'CLASS':<12}{'NODES':>6}{'RIGHT':>10}{'LATEST':>10}")
    for key, count in sorted(good.items()):
        print(f"{key[0]:<16}{key[1]:<12}{key[2]:>6}{f'{count}/{args.n}':>10}{worst[key]:>8.1f} s")
    sys.exit(bad > 0)


main()
