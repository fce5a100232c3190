#!/usr/bin/env python3
"""bench_docs.py [BENCH.md [DOC.md]] -- writes docs/benchmarks.md from the text below and the numbers of build/bench.md.

A row or line that was not measured, or was skipped, keeps the numbers of DOC.md and is listed on stderr, because not every machine can
measure everything.
"""

# `@table N` begins a table whose first N cells identify a row. Columns are matched by their headings and rows by these cells, both
# without versions and parentheses. So the page has fewer rows and columns than BENCH.md. The first heading has the method and the
# number of rounds in parentheses, and the headings have the versions of BENCH.md. `@line` begins a line of BENCH.md that starts with
# the given text.

import re
import sys

PAGE = """\
# Benchmarks

    $ make bench        # measures against installed peers and writes this page
    $ make bench-docs   # writes this page from build/bench.md
    $ make probes       # asks launchers the same questions

@line
Measured on

Programs take turns: trust ratios, not times.

## Launch

@table 1
|launch and end of /bin/true, uid 0|ddprun|mpiexec.hydra|bare spawn and wait|
|-|-:|-:|-:|
|1 worker from C|
|4 workers from C|
|256 workers from C|

`scripts/bench.sh launches`:

@line
Launches:

@table 1
|4 Python workers that only print|ddprun|torchrun|
|-|-:|-:|
|from start to end, median of 5|

`scripts/bench.sh ssh` on one machine:

@table 1
|start over ssh, 2 workers each|8 hosts|64 hosts|
|-|-:|-:|
|as many ssh at once|
|ddprun, last worker|
|mpirun.openmpi, last worker|

## Reaction to a failure

@table 1
|a worker exits: SIGTERM has reached, of 64 others|trials|the first, p50 / p99|the last, p50 / p99|not all within the limit|
|-|-:|-:|-:|-:|
|ddprun|
|mpiexec.hydra|
|mpirun.openmpi|
|torchrun|

## Output

@table 1
|torn lines|ddprun|mpiexec.hydra -prepend-rank|mpirun.openmpi --tag-output|torchrun|srun -l|
|-|-|-|-|-|-|
|16 workers × 2000 lines, each written in three pieces|

## The store

Against PyTorch's server (`PYTHON=... scripts/bench_torch.sh throughput`):

@table 2
|requests per second of a client in C|connections|ddp-rendezvous|TCPStore|ratio|
|-|-:|-:|-:|-:|
|ADD, each answered before the next|64|
|ADD, each answered before the next|1000|
|SET of 128 bytes, 63 in a row and an ADD|64|
|GET of 128 bytes, 64 in a row|64|

@line
Through PyTorch's Python client the ratio is

All ranks of a group at once:

@table 1
|init_process_group("gloo")|ddp-rendezvous|TCPStore|
|-|-:|-:|
|2 ranks|
|32 ranks|

## Thousands of agents

`scripts/bench.sh agents` simulates agents:

@table 1
|agents and ranks of one machine|measured|
|-|-|
|4,000 agents: from the first connection to the last agent's round|
|12,288 agents with 8 ranks each: joined, ranks registered|
|the store's memory at most, then|
|a worker has failed: until the last of 1,000 agents receives the stop|

## The search for hangs

`scripts/bench.sh hangs`, with Python workers:

@line
An agent of

@line
Stacks of

## Collectives

All ranks run on one host. Arena is memory of `ddp_shared_alloc`.

@line
all_reduce, f32 sum in place, median of

@table 2
|ranks|bytes|arena|private|Open MPI|
|-:|-:|-:|-:|-:|
|2|16 MiB|
|4|4 KiB|
|4|1 MiB|
|4|16 MiB|

`ddp-bench` measures and checks every collective in nccl-tests' columns: `ddprun --nproc_per_node=2 ddp-bench -b 1M -f 4`.

## Training

`scripts/bench.sh train`, against the same model in PyTorch:

@line
train, a step of

@table 2
|model|batch of a worker|train|PyTorch DDP, Gloo|1 -> 2 workers|
|-|-:|-:|-:|-:|
|gpt2:tiny|16 x 64 tokens|
|resnet20|16 x picture|

## Other launchers

`make probes`; ddprun has `--grace=1s`:

@table 1
|what happens (4 workers)|right|ddprun|mpiexec.hydra|mpirun.openmpi|torchrun|
|-|-|-|-|-|-|
|rank 2 exits 9, rank 1 exits 7 later|
|rank 1 exits 52, rank 0 exits 1 two ms later|
|rank 1 is killed by SIGKILL|
|program not found|
|SIGKILL to the launcher's agent|
|left 3 s after SIGTERM: setsid + double fork|
|left 3 s after SIGKILL: setsid + double fork|
"""


def cells(line):
    return [c.strip() for c in line.strip().strip("|").split("|")]


def name(cell):
    """Return a heading or a key without the parts that change between measurements: versions and text in parentheses."""
    return re.sub(r"\s+", " ", re.sub(r"\([^)]*\)|\b\d+\.\d+[.\w]*", "", cell)).strip()


def is_row(line):
    return line.lstrip().startswith("|")


def tables(lines):
    """Yield each table as (index of the heading, heading, rows). A row is (index, cells)."""
    i = 0
    while i < len(lines):
        if not (is_row(lines[i]) and i + 1 < len(lines) and re.match(r"\s*\|[\s:|-]+$", lines[i + 1])):
            i += 1
            continue
        head, rows = i, []
        i += 2
        while i < len(lines) and is_row(lines[i]):
            rows.append((i, cells(lines[i])))
            i += 1
        yield head, cells(lines[head]), rows


def measured(bench):
    """Return heading and rows of each table in BENCH.md, by the name of the table's first column."""
    found = {}
    for _, head, rows in tables(bench):
        found.setdefault(name(head[0]), []).append((head, [row for _, row in rows]))
    return found


def new_row(head, row, keys, candidates):
    """Return the heading with measured versions and `row` with measured numbers, or None if it was not measured."""
    wanted = [name(c) for c in row[:keys]]
    for bench_head, bench_rows in candidates:
        columns = {name(c): i for i, c in enumerate(bench_head)}
        for other in bench_rows:
            if [name(c) for c in other[:keys]] != wanted or any("skipped" in c or c == "failed" for c in other[keys:]):
                continue

            def copied(source, page):
                return [source[columns[name(h)]] if name(h) in columns and columns[name(h)] < len(source) else old
                        for h, old in zip(head, page)]
            return copied(bench_head, head), copied(other, row)
    return None


def update_lines(doc, bench, is_whole):
    """Change the marked lines. Return how many were replaced, and the lines that were not. Keep the line about the machine
    and the peers if some rows keep their numbers."""
    replaced, missing = 0, []
    for at in (i + 1 for i, line in enumerate(doc) if line == "@line"):
        start = re.split(r"\b\d", doc[at])[0].rstrip()
        fresh = next((line for line in bench if line.startswith(start)), None)
        if fresh is None or (start == "Measured on" and not is_whole):
            missing.append(doc[at])
        else:
            doc[at], replaced = fresh, replaced + 1
    return replaced, missing


def update_tables(doc, bench):
    """Change the marked tables. Return how many rows were replaced, and the rows that were not. A heading changes only if
    all its rows do."""
    found, replaced, missing = measured(bench), 0, []
    for head_at, head, rows in tables(doc):
        marker = re.fullmatch(r"@table (\d+)", doc[head_at - 1])
        if marker is None:
            continue
        keys = int(marker[1])
        rows = [(i, row + [""] * (len(head) - len(row))) for i, row in rows]
        fresh = [new_row(head, row, keys, found.get(name(head[0]), [])) for _, row in rows]
        for (i, row), new in zip(rows, fresh):
            if new is None:
                missing.append(" | ".join(row[:keys]))
            else:
                doc[i], replaced = "|" + "|".join(new[1]) + "|", replaced + 1
        if all(fresh):
            doc[head_at] = "|" + "|".join(fresh[0][0]) + "|"
    return replaced, missing


def update(doc, source, is_whole=False):
    rows, kept_rows = update_tables(doc, source)
    lines, kept_lines = update_lines(doc, source, is_whole or not kept_rows)
    return rows + lines, kept_rows + kept_lines


def main():
    bench_path = sys.argv[1] if len(sys.argv) > 1 else "build/bench.md"
    doc_path = sys.argv[2] if len(sys.argv) > 2 else "docs/benchmarks.md"
    old = open(doc_path, encoding="utf-8").read().split("\n")
    try:
        bench = open(bench_path, encoding="utf-8").read().split("\n")
    except OSError as error:
        sys.exit(f"bench_docs.py: {bench_path}: {error.strerror}; run `make bench` first")
    doc = PAGE.split("\n")
    _, unknown = update(doc, old, is_whole=True)
    replaced, missing = update(doc, bench)
    if set(unknown) & set(missing):
        sys.exit(f"bench_docs.py: neither {bench_path} nor {doc_path} has: " + "; ".join(row for row in unknown if row in missing))
    open(doc_path, "w", encoding="utf-8").write("\n".join(line for line in doc if not re.match("@(line|table [0-9]+)$", line)))
    for row in missing:
        print(f"bench_docs.py: not measured: {row}", file=sys.stderr)
    print(f"{doc_path}: {replaced} rows and lines replaced, {len(missing)} kept")


if __name__ == "__main__":
    main()
