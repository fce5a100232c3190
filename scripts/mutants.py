#!/usr/bin/env python3
"""mutants.py [-n N] [--seed SEED] [--budget SECONDS] [WORD...] -- measures how many random faults the tests find.

    scripts/mutants.py -n 50 --seed 7 launcher/contain launcher/output

A mutant has one changed operator, constant or condition, or one removed statement, in a C file of the product whose path contains a
WORD (without a WORD: in any C file of the product). Each mutant is built in a copy of the tree (build/mutants); the checkout is
never changed. The suites that link the file run first, then the end-to-end suites that start a program with the file in it, until
one fails or the budget is spent. A mutant whose object code equals the original is not counted. Run `make test-programs` first, or
use `make mutants`.

The exit status is 0 even if mutants survive. The same seed and tree give the same mutants.
"""
import argparse
import collections
import glob
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

KINDS = ("unit", "sim", "socket", "e2e")
ENDINGS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
           "true": "false", "false": "true"}
Mutant = collections.namedtuple("Mutant", "path line start end text")


def code_only(text):
    """Return `text` with comments, literals and preprocessor lines blanked, so that offsets stay the same."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:\\\n|[^\n])*'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S | re.M)


def closing(code, at):
    """Return the offset of the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += {"(": 1, ")": -1}.get(code[i], 0)
        if depth == 0:
            return i
    return -1


def mutants_of(path):
    """Yield every mutant of a file. Constants and operators outside functions (sizes, tables) take part, too."""
    with open(path) as f:
        text = f.read()
    code = code_only(text)

    def mutant(start, end, new):
        return Mutant(path, text.count("\n", 0, start) + 1, start, end, new)

    for m in re.finditer(r" (<=|>=|==|!=|&&|\|\||<|>|\+|-) |\b(true|false)\b", code):
        group = 1 if m.group(1) else 2
        yield mutant(m.start(group), m.end(group), ENDINGS[m.group(group)])
    for m in re.finditer(r"(?<![\w.])(\d+)(?![\w.])", code):
        yield mutant(m.start(), m.end(), str(int(m.group(), 10) + 1) if not m.group().startswith("0") else "1")
    for m in re.finditer(r"\b(?:if|while) (\()", code):
        end = closing(code, m.start(1))
        if end > 0:
            yield mutant(m.start(1), end + 1, "(!" + text[m.start(1):end + 1] + ")")
    # Remove a call or an assignment that is a whole statement on one line. A declaration does not match, because it has two words
    # before the `=`.
    for m in re.finditer(r"^[ \t]+((?!return\b|else\b|goto\b|case\b)\*?[a-z_][\w.>\[\]-]*(?: [-+*|&]?= [^\n;]*|\([^\n;]*\)|\+\+|--);|break;|continue;)$",
                         code, re.M):
        yield mutant(m.start(1), m.end(1), ";")


class Copy:
    """A copy of the tree and its build folder, in which mutants are built and run."""

    def __init__(self, build):
        self.home = os.path.join(build, "mutants")
        self.tree = os.path.join(self.home, "tree")
        self.build = os.path.join(self.tree, "build")
        shutil.rmtree(self.tree, ignore_errors=True)
        os.makedirs(self.build)
        files = subprocess.run(["git", "ls-files", "-z"], check=True, stdout=subprocess.PIPE).stdout
        # cp keeps the dates, so that make does not rebuild everything.
        subprocess.run(["xargs", "-0", "cp", "-a", "--parents", "-t", self.tree], input=files, check=True)
        keep = [e.path for e in os.scandir(build) if e.name in ("obj", "tests") or not e.is_dir(follow_symlinks=False)]
        subprocess.run(["cp", "-a", "-t", self.build] + keep, check=True)
        self.log = open(os.path.join(self.home, "log"), "w")

    def make(self, *targets):
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "BUILD")}
        # WERROR is empty, because -Werror would reject mutants with unused variables.
        argv = ["make", "-s", "-C", self.tree, f"-j{os.cpu_count()}", "BUILD=build", "WERROR="] + \
            ([f"CC={os.environ['CC']}"] if "CC" in os.environ else []) + list(targets)
        return subprocess.run(argv, env=env, stdout=self.log, stderr=self.log).returncode == 0

    def run(self, suite, limit):
        """Run a suite; return (passed, seconds). As root, run it in a new PID namespace, so that a mutant leaves no process."""
        # Mount a private /tmp, too: Criterion names a socket in /tmp by its process id, and these ids repeat in each namespace.
        argv = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", 'mount -t tmpfs tmpfs /tmp && exec "$@"', "sh"] \
            if os.geteuid() == 0 else []
        argv += [f"build/tests/{suite}", f"--jobs={2 * os.cpu_count()}"]
        began = time.monotonic()
        p = subprocess.Popen(argv, cwd=self.tree, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)
        try:
            passed = p.wait(limit) == 0
        except subprocess.TimeoutExpired:
            passed = False
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()
        return passed, time.monotonic() - began

    def object_of(self, path):
        return os.path.join(self.build, "obj", path[:-2] + ".o")

    def fingerprint(self, path):
        """Return a hash of the file's object without debug information."""
        out = os.path.join(self.home, "stripped.o")
        subprocess.run(["objcopy", "--strip-debug", self.object_of(path), out], check=True)
        with open(out, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()

    def symbols(self, path, *options):
        """Return the names that a file defines. In a linked program hidden names are local."""
        out = subprocess.run(["nm", "--defined-only", *options, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        return {line.split()[-1] for line in out.splitlines() if line}


class Suites:
    """Which suites cover a file, and how long each takes."""

    def __init__(self, copy):
        self.copy, self.seconds = copy, {}
        tests = os.path.join(copy.build, "tests")
        self.all = [os.path.relpath(p, tests) for kind in KINDS for p in sorted(glob.glob(f"{tests}/{kind}/**/test_*", recursive=True))]
        self.linked = {s: copy.symbols(f"{tests}/{s}") for s in self.all}
        self.programs = {p: copy.symbols(os.path.join(copy.build, p)) for p in ("ddprun", "ddp-rendezvous", "ddpctl", "train", "ddp-bench")}

    def covering(self, path):
        """Return (suites, programs). Suites that link the file are first, then end-to-end suites, each sorted by shared words."""
        own = self.copy.symbols(self.copy.object_of(path), "-g")
        programs = [p for p, symbols in self.programs.items() if own & symbols] or (["ddprun"] if path == "launcher/main.c" else [])
        linked = [s for s in self.all if not s.startswith("e2e/") and own & self.linked[s]]
        words = set(re.split(r"[/_.]", path)) - {"c", "launcher", "rendezvous", "worker"}

        def shares(suite):
            return len(words & set(re.split(r"[/_]", suite)))
        linked.sort(key=lambda s: (-shares(s), KINDS.index(s.split("/")[0])))
        e2e = sorted((s for s in self.all if s.startswith("e2e/") and programs and "torch" not in s), key=lambda s: -shares(s))
        return linked + e2e, programs

    def time_of(self, suite, limit):
        """Return the seconds that a suite takes without a fault, or None if it fails or is slower than `limit`."""
        if suite not in self.seconds:
            passed, seconds = self.copy.run(suite, limit)
            self.seconds[suite] = seconds if passed else None
        return self.seconds[suite]


def judge(copy, suites, mutant, budget):
    """Return "killed by SUITE", "survived", "has no effect", or "does not compile"."""
    path = os.path.join(copy.tree, mutant.path)
    shutil.copystat(mutant.path, path)
    candidates, programs = suites.covering(mutant.path)
    before = copy.fingerprint(mutant.path)
    # Measure fault-free times first, while the copy is clean.
    left, chosen = budget, []
    for suite in candidates:
        seconds = suites.time_of(suite, budget / 2) if left > 0 else None
        if seconds is not None and seconds <= left:
            chosen.append(suite)
            left -= seconds
    with open(mutant.path) as f:
        text = f.read()
    try:
        with open(path, "w") as f:
            f.write(text[:mutant.start] + mutant.text + text[mutant.end:])
        if not copy.make(os.path.relpath(copy.object_of(mutant.path), copy.tree)):
            return "does not compile"
        if copy.fingerprint(mutant.path) == before:
            return "has no effect"
        # Build the programs only once, for all end-to-end suites.
        built = False
        for suite in chosen:
            targets = [f"build/tests/{suite}"]
            if suite.startswith("e2e/"):
                targets = [] if built else [f"build/{p}" for p in programs]
                built = True
            if targets and not copy.make(*targets):
                return "killed by the linker"
            limit = 3 * suites.seconds[suite] + 10
            # Run the suite twice, because a test may fail once by chance.
            if not copy.run(suite, limit)[0] and not copy.run(suite, limit)[0]:
                return f"killed by {suite}"
        return "survived" if chosen else "survived (no suite covers it within the budget)"
    finally:
        shutil.copy2(mutant.path, path)
        os.utime(path)
        copy.make(os.path.relpath(copy.object_of(mutant.path), copy.tree), *[f"build/{p}" for p in programs])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=100, help="number of mutants (default: 100)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31), help="seed of the choice (default: random)")
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests for each mutant (default: 60)")
    parser.add_argument("words", nargs="*", help="parts of paths")
    args = parser.parse_args()
    if args.n < 1:
        parser.error(f"-n {args.n}: must be at least 1")
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    files = subprocess.run(["git", "ls-files", "launcher/*.c", "rendezvous/*.c", "worker/*.c"], check=True, stdout=subprocess.PIPE,
                           text=True).stdout.split()
    files = [f for f in files if not args.words or any(w in f for w in args.words)]
    sites = [m for f in files for m in mutants_of(f)]
    if not sites:
        sys.exit(f"mutants.py: {' '.join(args.words)}: no C file of the product matches")
    build = os.environ.get("BUILD") or "build"
    if os.geteuid() == 0 and os.path.realpath(build).startswith("/tmp/"):
        sys.exit("mutants.py: the checkout is in /tmp, which the suites replace with a new one; move it elsewhere")
    if not os.path.exists(f"{build}/ddprun"):
        sys.exit(f"mutants.py: {build}/ddprun does not exist; run make test-programs")
    chosen = random.Random(args.seed).sample(sites, min(args.n, len(sites)))
    print(f"== {len(chosen)} of {len(sites)} mutants in {len(files)} files, seed {args.seed}", flush=True)
    copy = Copy(build)
    if not copy.make("test-programs"):
        sys.exit(f"mutants.py: the copy cannot be built; see {copy.home}/log")
    suites = Suites(copy)
    count = collections.Counter()
    survivors = []
    for mutant in chosen:
        with open(mutant.path) as f:
            text = f.read()
        what = f"{mutant.path}:{mutant.line}: {' '.join(text[mutant.start:mutant.end].split())} -> {' '.join(mutant.text.split())}"
        verdict = judge(copy, suites, mutant, args.budget)
        count["killed" if verdict.startswith("killed") else "survived" if verdict.startswith("survived") else verdict] += 1
        print(f"  {what}: {verdict}", flush=True)
        if verdict.startswith("survived"):
            survivors.append(f"  {what}\n      {text.splitlines()[mutant.line - 1].strip()}")
    shutil.rmtree(copy.tree)
    if survivors:
        print("== survivors")
        print("\n".join(survivors))
    effective = count["killed"] + count["survived"]
    print(f"== seed {args.seed}: {count['killed']} killed, {count['survived']} survived, {count['has no effect']} without effect, "
          f"{count['does not compile']} did not compile; kill rate {100 * count['killed'] / max(effective, 1):.0f} %")


main()
