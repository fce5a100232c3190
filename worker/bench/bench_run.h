/* bench_run.h -- calls one collective and measures its time. */
#ifndef WORKER_BENCH_BENCH_RUN_H
#define WORKER_BENCH_BENCH_RUN_H

#include "bench/bench_core.h"

#include <stdio.h>

/* A rank's buffers, from ddp_shared_alloc or from ddp-bench, as the options request. */
struct bench_buffers {
    ddp_group *group;
    size_t bytes;   /* bytes of each buffer */
    void *in, *out; /* the buffers of a call */
    char *host;     /* host memory to fill and to compare: copied to `in` and from `out` */
    bool shared;
};

struct bench_result {
    double us;      /* microseconds per call */
    uint64_t wrong; /* number of wrong elements on all ranks */
};

ddp_status bench_buffers_open(struct bench_buffers *b, ddp_group *group, const struct bench_options *o);
ddp_status bench_buffers_close(struct bench_buffers *b);

/* Measure one case; collective. */
ddp_status bench_measure(const struct bench_buffers *b, int rank, const struct bench_case *c,
                         const struct bench_options *o, struct bench_result *result);

/* --- bench print ------------------------------------------------------------------------------------------ */

/* Print results as nccl-tests' table, or as JSON lines. */

/* The members that all lines share. */
struct bench_run {
    const struct bench_options *options;
    int world, device;
    const char *backend;
};

void bench_print_head(FILE *to, const struct bench_run *run, enum bench_kind kind);

/* Print the results for one size: out of place and in place. */
void bench_print_row(FILE *to, const struct bench_run *run, const struct bench_case *c,
                     const struct bench_result results[2]);
void bench_print_foot(FILE *to, const struct bench_run *run, uint64_t wrong, double busbw);

#endif
