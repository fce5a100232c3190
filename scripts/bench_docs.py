#!/usr/bin/env python3
"""bench_docs.py [BENCH.md [DOC.md]] -- copies numbers from build/bench.md into the tables and lines of docs/benchmarks.md.

A row or line that was not measured, or was skipped, keeps its numbers and is listed on stderr, because not every machine can measure
everything.
"""

# A table is updated if the line before it is `<!-- bench: N -->`: its first N cells identify a row. Columns are matched by their
# headings and rows by these cells, both without versions and parentheses. So the page may have fewer rows and columns than
# BENCH.md. The headings get the versions of BENCH.md. A line after `<!-- bench: line -->` is replaced by the line of BENCH.md that
# has the same text up to the first number.

import re
import sys


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
    """Change the marked lines; return how many were replaced, and the lines that were not. Keep the line about the machine
    and the peers if some rows keep their numbers."""
    replaced, missing = 0, []
    for at in (i + 1 for i, line in enumerate(doc) if line.strip() == "<!-- bench: line -->"):
        start = re.split(r"\b\d", doc[at])[0]
        fresh = next((line for line in bench if line.startswith(start)), None)
        if fresh is None or (start == "Measured on " and not is_whole):
            missing.append(doc[at])
        else:
            doc[at], replaced = fresh, replaced + 1
    return replaced, missing


def update_tables(doc, bench):
    """Change the marked tables; return how many rows were replaced, and the rows that were not. A heading with versions
    changes only if all its rows do."""
    found, replaced, missing = measured(bench), 0, []
    for head_at, head, rows in tables(doc):
        marker = re.fullmatch(r"<!-- bench: (\d+) -->", doc[head_at - 1].strip()) if head_at > 0 else None
        if marker is None:
            continue
        keys = int(marker[1])
        fresh = [new_row(head, row, keys, found.get(name(head[0]), [])) for _, row in rows]
        for (i, row), new in zip(rows, fresh):
            if new is None:
                missing.append(" | ".join(row[:keys]))
            else:
                doc[i], replaced = "|" + "|".join(new[1]) + "|", replaced + 1
        if all(fresh):
            doc[head_at] = "|" + "|".join(fresh[0][0]) + "|"
    return replaced, missing


def main():
    bench_path = sys.argv[1] if len(sys.argv) > 1 else "build/bench.md"
    doc_path = sys.argv[2] if len(sys.argv) > 2 else "docs/benchmarks.md"
    try:
        bench = open(bench_path, encoding="utf-8").read().split("\n")
    except OSError as error:
        sys.exit(f"bench_docs.py: {bench_path}: {error.strerror}; run `make bench` first")
    doc = open(doc_path, encoding="utf-8").read().split("\n")
    rows, kept_rows = update_tables(doc, bench)
    lines, kept_lines = update_lines(doc, bench, not kept_rows)
    replaced, missing = rows + lines, kept_rows + kept_lines
    open(doc_path, "w", encoding="utf-8").write("\n".join(doc))
    for row in missing:
        print(f"bench_docs.py: not measured: {row}", file=sys.stderr)
    print(f"{doc_path}: {replaced} rows and lines replaced, {len(missing)} kept")


if __name__ == "__main__":
    main()
