/* bench_core.h -- the measurements of ddp-bench: sizes, known values, and bandwidth by nccl-tests' formula. The module
 * is pure, so that tests check every value without a collective. */
#ifndef WORKER_BENCH_BENCH_CORE_H
#define WORKER_BENCH_BENCH_CORE_H

#include "base/options.h"
#include "ddp/group.h"

#include <stdbool.h>
#include <stdint.h>

/* The factor from algorithm bandwidth to bus bandwidth for n ranks. Bus bandwidth counts the smallest number of bytes
 * that each link must carry, so the bus bandwidths of jobs of different sizes can be compared. The factors are from
 * doc/PERFORMANCE.md of nccl-tests; the factors of gather and scatter are from src/gather.cu and src/scatter.cu of
 * nccl-tests. */
enum bench_factor {
    FACTOR_ONE,    /* 1 */
    FACTOR_TWICE,  /* 2 (n-1)/n */
    FACTOR_OTHERS, /* (n-1)/n */
};

/* Columns: kind, name, factor for the bus bandwidth, and four flags. The flags mean, in this order: the input has
 * a part for each rank; the output has a part for each rank; the call has an operation; the call has a root. */
#define BENCH_LIST(X)                                                            \
    X(ALL_REDUCE, "all_reduce", FACTOR_TWICE, false, false, true, false)         \
    X(ALL_GATHER, "all_gather", FACTOR_OTHERS, false, true, false, false)        \
    X(BROADCAST, "broadcast", FACTOR_ONE, false, false, false, true)             \
    X(REDUCE, "reduce", FACTOR_ONE, false, false, true, true)                    \
    X(REDUCE_SCATTER, "reduce_scatter", FACTOR_OTHERS, true, false, true, false) \
    X(GATHER, "gather", FACTOR_OTHERS, false, true, false, true)                 \
    X(SCATTER, "scatter", FACTOR_OTHERS, true, false, false, true)

enum bench_kind {
#define X(kind, name, factor, in, out, reduces, rooted) BENCH_##kind,
    BENCH_LIST(X)
#undef X
        BENCH_KINDS
};

struct bench_rule {
    const char *name;
    enum bench_factor factor;
    bool in_parts, out_parts, reduces, rooted;
};

extern const struct bench_rule bench_rules[BENCH_KINDS];

/* One measurement. */
struct bench_case {
    enum bench_kind kind;
    ddp_dtype dtype;
    ddp_op op;
    int root, world;
    size_t count; /* the `count` argument of the call, in elements */
    bool in_place;
};

/* Return the argument `count` of a call whose larger buffer has `bytes` bytes. The result is rounded down to whole
 * elements for each rank. */
size_t bench_count(enum bench_kind kind, ddp_dtype dtype, int world, size_t bytes);

/* Return the size of the input or the output in bytes, whichever is larger. ddp-bench prints this size. */
size_t bench_bytes(const struct bench_case *c);
/* Return the number of elements of the input (bench_in_count) or of the output (bench_out_count). */
size_t bench_in_count(const struct bench_case *c);
size_t bench_out_count(const struct bench_case *c);

/* Return the bandwidth in GB/s (1e9 bytes per second) of a call that moves `bytes` bytes in `us` microseconds. */
double bench_algbw(size_t bytes, double us);
/* Return `algbw` times the factor of the collective. */
double bench_busbw(enum bench_kind kind, int world, double algbw);

/* Return the next size: `bytes` plus `step`. If `step` is 0, return `bytes` times `factor`. Return SIZE_MAX if the
 * result does not fit. */
size_t bench_next(size_t bytes, size_t step, size_t factor);

/* Fill the input of rank `rank`. */
void bench_fill(const struct bench_case *c, int rank, void *in);
/* Return the number of wrong elements in the output of rank `rank`. Sums are exact in every type up to a world of 64.
 * An average may be off by two units in the last place, because NCCL divides before it adds. */
uint64_t bench_wrong(const struct bench_case *c, int rank, const void *out);

/* --- bench options ---------------------------------------------------------------------------------------- */

/* The command line of ddp-bench. An option that nccl-tests also has is spelled as in nccl-tests, such as --minbytes.
 * These functions are pure. */

/* Strings are borrowed from argv. */
struct bench_options {
    size_t least, most, step, factor; /* least, most: smallest and largest size in bytes; the next size is
                                       * size + step, or size * factor if `step` is 0 */
    int iters, warmup, check;         /* `check` is 1 to compare the values, else 0 */
    bool json, help, help_man, version;
    bool all_kinds;
    enum bench_kind kind;
    ddp_dtype dtype;
    ddp_op op;
    int root;
    const char *backend; /* NULL means "nccl" if the rank has a GPU, else "cpu" */
    const char *memory;  /* value of --memory; NULL without --memory */
    bool gpu;            /* true if buffers are in device memory */
    bool private_memory; /* true if buffers are not from ddp_shared_alloc */
};

extern const struct option_table bench_option_table;

/* Set the defaults, then parse argv. */
ddp_status bench_options_parse(int argc, char *const argv[], struct bench_options *out, struct ddp_err *err);

#endif
