/* bench_print.h -- results as nccl-tests' table, or as JSON lines. */
#ifndef BENCH_PRINT_H
#define BENCH_PRINT_H

#include "bench/bench_run.h"

#include <stdio.h>

/* What is the same for all lines. */
struct bench_run {
    const struct bench_options *options;
    int world, device;
    const char *backend;
};

void bench_print_head(FILE *to, const struct bench_run *run, enum bench_kind kind);

/* One size: out of place and in place. */
void bench_print_row(FILE *to, const struct bench_run *run, const struct bench_case *c,
                     const struct bench_result results[2]);
void bench_print_foot(FILE *to, const struct bench_run *run, uint64_t wrong, double busbw);

#endif
