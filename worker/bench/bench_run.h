/* bench_run.h -- one collective is called and timed. */
#ifndef WORKER_BENCH_BENCH_RUN_H
#define WORKER_BENCH_BENCH_RUN_H

#include "bench/bench_core.h"

#include <stdio.h>

/* Buffers of a rank; the library's or ours, as the options say. */
struct bench_buffers {
    ddp_group *group;
    size_t bytes;   /* of each */
    void *in, *out; /* the call's */
    char *host;     /* to fill and to compare; what `in` and `out` are copied from and to */
    bool shared;
};

struct bench_result {
    double us;      /* of one call */
    uint64_t wrong; /* elements on all ranks */
};

ddp_status bench_buffers_open(struct bench_buffers *b, ddp_group *group, const struct bench_options *o);
ddp_status bench_buffers_close(struct bench_buffers *b);

/* Collective. */
ddp_status bench_measure(const struct bench_buffers *b, int rank, const struct bench_case *c,
                         const struct bench_options *o, struct bench_result *result);

/* --- bench print ------------------------------------------------------------------------------------------ */

/* Results as nccl-tests' table, or as JSON lines. */

/* The common part of all lines. */
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
