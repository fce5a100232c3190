/* bench_run.h -- one collective is called and timed. */
#ifndef BENCH_RUN_H
#define BENCH_RUN_H

#include "bench/bench_options.h"

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

#endif
