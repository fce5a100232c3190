#!/usr/bin/env python3
"""Print which gradients PyTorch puts into one bucket, for the tables of tests/unit/reducer/test_buckets.c.

python3 tests/interop/torch_buckets.py > tests/unit/reducer/torch_buckets.h
"""
import random

import torch
import torch.distributed as dist

MIB = 1 << 20
F32, F64 = torch.float32, torch.float64


def gpt():
    sizes = [50257 * 64, 1024 * 64]
    for _ in range(4):
        sizes += [64, 64, 64 * 192, 192, 64 * 64, 64, 64, 64, 64 * 256, 256, 256 * 64, 64]
    return sizes + [64, 64]


def shuffled(n):
    order = list(range(n))
    random.Random(7).shuffle(order)
    return order


MIXED = [(50, F32), (25, F64), (50, F32), (25, F64), (50, F32), (25, F64)]
SIX = [100, 400, 10, 20, 30, 2]
# Each row: name, elements of each parameter (float, or with a type), limits, order of readiness or None. One case is
# left out: two types whose last buckets are both open when the order of readiness ends. Their order in PyTorch is
# that of a hash table.
CASES = [
    ("mlp", [156800, 200, 40000, 200, 2000, 10], (MIB, 25 * MIB), None),
    ("huge", [7000000, 10, 300000, 10, 7000000, 5], (MIB, 25 * MIB), None),
    ("six", SIX, (1000, 200), None),
    ("two_types", MIXED, (400, 400), None),
    ("two_types_small_first", MIXED, (200, 400), None),
    ("gpt", gpt(), (MIB, 25 * MIB), None),
    ("gpt_small_buckets", gpt(), (1 << 16, 1 << 17), None),
    ("six_backward", SIX, (1000, 200), [5, 4, 3, 2, 1, 0]),
    ("six_ready", SIX, (100, 200), [1, 5, 0, 3, 2, 4]),
    ("two_types_ready", MIXED, (200, 400), [5, 3, 1, 4, 2, 0]),
    ("gpt_backward", gpt(), (1 << 16, 1 << 17), list(range(52))[::-1]),
    ("gpt_shuffled", gpt(), (1 << 16, 1 << 17), shuffled(52)),
]


def assign(tensors, limits, order):
    rule = dist._compute_bucket_assignment_by_size
    if order is None:
        answer = rule(tensors, list(limits))
    else:
        answer = rule([tensors[i] for i in order], list(limits), [False] * len(order), order)
    buckets = answer[0] if isinstance(answer, tuple) else answer
    return buckets if order is not None else list(reversed(buckets))


def lines(words, indent):
    """Print the words as C string literals of at most 90 characters."""
    text = " ".join(words)
    while text:
        cut = len(text) if len(text) <= 90 else text.rindex(" ", 0, 90) + 1
        print(f'{indent}"{text[:cut]}"')
        text = text[cut:]


print("/* torch_buckets.h -- made by tests/interop/torch_buckets.py with PyTorch " + torch.__version__.split("a")[0])
print(" * (dist._compute_bucket_assignment_by_size, reversed where no order of readiness is given).")
print(" *")
print(" * elements of each parameter (d = double), limits, order of readiness (\"\" = none), buckets as they are reduced */")
print("static const struct torch_case torch_cases[] = {")
for name, sizes, limits, order in CASES:
    sized = [(s, F32) if isinstance(s, int) else s for s in sizes]
    tensors = [torch.empty(n, dtype=t) for n, t in sized]
    print(f"    {{\n        \"{name}\",")
    lines([f"{n}{'d' if t is F64 else ''}" for n, t in sized], " " * 8)
    print(f"        , {limits[0]}, {limits[1]},")
    lines([str(i) for i in order] if order else [], " " * 8) if order else print('        ""')
    print("        ,")
    lines(["[" + " ".join(map(str, b)) + "]" for b in assign(tensors, limits, order)], " " * 8)
    print("    },")
print("};")
