"""encrypt.py DDPRUN -- measure the cost of --encrypt between two hosts: the start of a job, and a worker's requests
to the store.

The hosts are this network namespace and a second one, joined by a veth pair. Jobs with and without --encrypt take
turns; both use a secret. The worker of the second host uses PyTorch's own client."""
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS, TRIPS, BULK = 9, 2000, 64
KEY, SMALL, LARGE = "value", b"v" * 128, b"v" * (1 << 20)
SH = 'ip link set lo up; while ! ip link set host1 up 2>/dev/null; do sleep 0.01; done; ip addr add 10.91.0.2/24 dev host1; echo up; exec sleep 1000'


def requests():
    """Print the median time of an ADD in µs and the rate of SETs of 1 MiB in MiB/s. Rank 0 only waits in the
    store."""
    from torch.distributed import TCPStore
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False)
    if os.environ["RANK"] == "0":
        store.wait(["end"])
        return
    store.set(KEY, SMALL)
    times = []
    for _ in range(TRIPS):
        began = time.monotonic_ns()
        store.add("counter", 1)
        times.append((time.monotonic_ns() - began) / 1000)
    began = time.monotonic()
    for _ in range(BULK):
        store.set(KEY, LARGE)
    store.add("counter", 1)  # the reply shows that all values have arrived
    print(json.dumps({"add_us": statistics.median(times), "set_mib_s": BULK / (time.monotonic() - began)}), flush=True)
    store.set("end", b"")


def job(ddprun, other, secret, options, command):
    """Run a job on both hosts. Return its duration in seconds and the output of the second host."""
    common = [ddprun, "--nnodes=2", "--master_addr=10.91.0.1", "--nproc_per_node=1", f"--secret_file={secret}", "--no_python", *options]
    began = time.monotonic()
    first = subprocess.Popen([*common, "--node_rank=0", *command], stdout=subprocess.DEVNULL)
    second = subprocess.run(["nsenter", "-t", str(other), "-n", *common, "--node_rank=1", *command], stdout=subprocess.PIPE, text=True)
    if first.wait() != 0 or second.returncode != 0:
        sys.exit("encrypt.py: a job failed")
    return time.monotonic() - began, second.stdout


def main(ddprun):
    other = subprocess.Popen(["unshare", "--net", "sh", "-c", SH], stdout=subprocess.PIPE, text=True)
    try:
        while os.readlink(f"/proc/{other.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        subprocess.run(["ip", "link", "add", "name", "host0", "type", "veth", "peer", "name", "host1", "netns", str(other.pid)], check=True)
        subprocess.run("ip link set host0 up && ip addr add 10.91.0.1/24 dev host0", shell=True, check=True)
        other.stdout.readline()
        measure(ddprun, other.pid)
    finally:
        other.kill()


def measure(ddprun, other):
    results = {option: {"start": [], "add_us": [], "set_mib_s": []} for option in ("", "--encrypt")}
    with tempfile.NamedTemporaryFile("w") as secret:
        secret.write(secrets.token_hex(32) + "\n")
        secret.flush()
        for _ in range(ROUNDS):
            for option, result in results.items():
                options = [option] if option else []
                result["start"].append(1000 * job(ddprun, other, secret.name, options, ["true"])[0])
                _, text = job(ddprun, other, secret.name, options, [sys.executable, __file__])
                for name, value in json.loads(text[text.index("{"):]).items():
                    result[name].append(value)
    plain, encrypted = ({name: statistics.median(values) for name, values in result.items()} for result in results.values())
    print("| two hosts | with a secret | with --encrypt | ratio |\n|---|---:|---:|---:|")
    for what, name, unit in (("start and end of `true` on both", "start", "ms"), ("ADD of a PyTorch worker, answered", "add_us", "µs"),
                             ("SET of 1 MiB", "set_mib_s", "MiB/s")):
        print(f"| {what} | {plain[name]:.1f} {unit} | {encrypted[name]:.1f} {unit} | {encrypted[name] / plain[name]:.2f} |")


requests() if "RANK" in os.environ else main(*sys.argv[1:])
