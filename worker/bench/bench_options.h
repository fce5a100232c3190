/* bench_options.h -- the command line of ddp-bench. Letters and long names are those of nccl-tests. Pure. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "base/options.h"
#include "bench/bench_core.h"

struct bench_options {
    size_t least, most, step, factor; /* bytes; step 0 = by factor */
    int iters, warmup, check;         /* check: 0 = no */
    bool json, help, help_man, version;
    bool all_kinds;
    enum bench_kind kind;
    ddp_dtype dtype;
    ddp_op op;
    int root;
    const char *backend; /* NULL = nccl with a GPU, else cpu */
    bool gpu;            /* buffers in the memory of one */
    bool private_memory; /* not of ddp_shared_alloc */
};

extern const struct option_table bench_option_table;

/* Defaults, then argv. */
ddp_status bench_options_parse(int argc, char *const argv[], struct bench_options *out, struct ddp_err *err);

#endif
