/* main.c -- ddp-bench measures the speed of collectives as nccl-tests does, and prints the same columns, so that the
 * results of both can be compared. ddp-bench is a worker: `ddprun --nproc_per_node=4 ddp-bench`. */
#include "bench/bench_core.h"

#include "base/buf.h"
#include "base/limits.h"
#include "base/options.h"
#include "ddp/context.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A rank's buffers; --memory selects the kind of memory. */
struct bench_buffers {
    ddp_group *group;
    size_t bytes;   /* bytes of each buffer */
    void *in, *out; /* the buffers of a call */
    char *host;     /* host memory for the values: input copied to `in`, result copied from `out` */
    bool no_memory; /* true if malloc has failed; then ddp_last_error() has no text of this failure */
    bool shared;    /* true if `in` and `out` are from ddp_shared_alloc, false if from malloc */
};

struct bench_result {
    double us;      /* microseconds per call */
    uint64_t wrong; /* number of wrong elements on all ranks */
};

/* The values that are the same in all printed lines. */
struct bench_run {
    const struct bench_options *options;
    int world, device;
    const char *backend;
};

/* --- buffers -------------------------------------------------------------------------------------------- */

static ddp_status bench_buffers_open(struct bench_buffers *b, ddp_group *group, const struct bench_options *o)
{
    *b = (struct bench_buffers){ .group = group, .bytes = o->most, .shared = !o->private_memory };
    b->host = malloc(b->bytes);
    if (!b->shared) {
        b->in = malloc(b->bytes);
        b->out = malloc(b->bytes);
    }
    b->no_memory = b->host == NULL || (!b->shared && (b->in == NULL || b->out == NULL));
    ddp_status status = b->no_memory ? DDP_ERR_NOMEM : DDP_OK;
    if (b->shared && status == DDP_OK)
        status = ddp_shared_alloc(group, b->bytes, &b->in);
    if (b->shared && status == DDP_OK)
        status = ddp_shared_alloc(group, b->bytes, &b->out);
    return status;
}

static ddp_status bench_buffers_close(struct bench_buffers *b)
{
    ddp_status status = DDP_OK;
    free(b->host);
    if (!b->shared) {
        free(b->in);
        free(b->out);
        return DDP_OK;
    }
    status = ddp_shared_free(b->group, b->out);
    return status == DDP_OK ? ddp_shared_free(b->group, b->in) : status;
}

/* --- calls ---------------------------------------------------------------------------------------------- */

/* The buffers of a call. If the call is in place, the smaller buffer is this rank's part of the larger buffer. */
struct places {
    void *in, *out;
};

static struct places places_of(const struct bench_buffers *b, const struct bench_case *c, int rank)
{
    size_t skip = (size_t)rank * c->count * ddp_dtype_size(c->dtype);
    const struct bench_rule *rule = &bench_rules[c->kind];
    struct places p = { b->in, b->out };
    if (!c->in_place)
        return p;
    p.out = p.in;
    if (rule->in_parts)
        p.out = (char *)p.in + skip;
    if (rule->out_parts)
        p.in = (char *)p.out + skip;
    return p;
}

static ddp_status call(ddp_group *g, const struct bench_case *c, struct places p, ddp_work **work)
{
    switch (c->kind) {
    case BENCH_ALL_REDUCE:
        return ddp_all_reduce(g, p.in, p.out, c->count, c->dtype, c->op, NULL, work);
    case BENCH_REDUCE:
        return ddp_reduce(g, p.in, p.out, c->count, c->dtype, c->op, c->root, NULL, work);
    case BENCH_BROADCAST:
        return ddp_broadcast(g, p.out, c->count, c->dtype, c->root, NULL, work);
    case BENCH_ALL_GATHER:
        return ddp_all_gather(g, p.in, p.out, c->count, c->dtype, NULL, work);
    case BENCH_GATHER:
        return ddp_gather(g, p.in, p.out, c->count, c->dtype, c->root, NULL, work);
    case BENCH_SCATTER:
        return ddp_scatter(g, p.in, p.out, c->count, c->dtype, c->root, NULL, work);
    default:
        return ddp_reduce_scatter(g, p.in, p.out, c->count, c->dtype, c->op, NULL, work);
    }
}

/* Run a batch of calls, and wait only for the last call. If the backend can queue calls, the rank does not wait between
 * the calls of the batch. */
static ddp_status call_often(ddp_group *g, const struct bench_case *c, struct places p, int times)
{
    ddp_work *work = NULL;
    ddp_status status = DDP_OK;
    for (int i = 1; i < times && status == DDP_OK; i++)
        status = call(g, c, p, NULL);
    if (status == DDP_OK)
        status = call(g, c, p, &work);
    if (work != NULL)
        status = ddp_work_sync(work, 0);
    ddp_work_free(work);
    return status;
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Set *us to the time of the slowest rank for a batch of calls, divided by the number of calls. All ranks must call
 * this function. The order follows nccl-tests: some calls to warm up, a barrier, then the batch. */
static ddp_status time_calls(ddp_group *g, const struct bench_case *c, struct places p,
                             const struct bench_options *o, double *us)
{
    ddp_status status = o->warmup > 0 ? call_often(g, c, p, o->warmup) : DDP_OK;
    if (status == DDP_OK)
        status = ddp_barrier(g, 0);
    double start = now_us();
    if (status == DDP_OK)
        status = call_often(g, c, p, o->iters);
    *us = (now_us() - start) / o->iters;
    return status == DDP_OK ? ddp_all_reduce(g, us, us, 1, DDP_F64, DDP_MAX, NULL, NULL) : status;
}

/* --- values --------------------------------------------------------------------------------------------- */

/* Run one call with known values. Set *wrong to the number of wrong elements of all ranks. All ranks must call this
 * function. */
static ddp_status compare(const struct bench_buffers *b, int rank, const struct bench_case *c,
                          struct places p, uint64_t *wrong)
{
    size_t size = ddp_dtype_size(c->dtype);
    void *from = c->kind == BENCH_BROADCAST ? p.out : p.in; /* a broadcast uses only the buffer `out` */
    int64_t count = 0;
    bench_fill(c, rank, b->host);
    ddp_status status = ddp_copy(b->group, from, b->host, bench_in_count(c) * size, NULL);
    if (status == DDP_OK)
        status = call_often(b->group, c, p, 1);
    if (status == DDP_OK)
        status = ddp_copy(b->group, b->host, p.out, bench_out_count(c) * size, NULL);
    if (status == DDP_OK)
        count = (int64_t)bench_wrong(c, rank, b->host);
    if (status == DDP_OK)
        status = ddp_all_reduce(b->group, &count, &count, 1, DDP_I64, DDP_SUM, NULL, NULL);
    *wrong = (uint64_t)count;
    return status;
}

/* Measure one case. Zero the buffers first, because arithmetic on accidental contents may be slower. Afterwards a
 * separate call checks the values. */
static ddp_status bench_measure(const struct bench_buffers *b, int rank, const struct bench_case *c,
                                const struct bench_options *o, struct bench_result *result)
{
    struct places p = places_of(b, c, rank);
    memset(b->host, 0, b->bytes);
    ddp_status status = ddp_copy(b->group, b->in, b->host, b->bytes, NULL);
    if (status == DDP_OK)
        status = ddp_copy(b->group, b->out, b->host, b->bytes, NULL);
    if (status == DDP_OK)
        status = time_calls(b->group, c, p, o, &result->us);
    result->wrong = 0;
    return status == DDP_OK && o->check ? compare(b, rank, c, p, &result->wrong) : status;
}

/* --- bench print ------------------------------------------------------------------------------------------ */

static const char *memory_of(const struct bench_run *run)
{
    return run->device >= 0 ? "gpu" : run->options->private_memory ? "private" : "arena";
}

static void bench_print_head(FILE *to, const struct bench_run *run, enum bench_kind kind)
{
    const struct bench_options *o = run->options;
    if (o->json)
        return;
    fprintf(to,
            "# ddp-bench %s: %s, backend %s, %s memory, %d rank%s, %d warmup %d iters, validation %d\n"
            "#\n"
            "# %58s  %s\n"
            "# %10s %12s %7s %6s %6s %9s %7s %7s %6s %9s %7s %7s %6s\n"
            "# %10s %12s %7s %6s %6s %9s %7s %7s %6s %9s %7s %7s %6s\n",
            DDP_VERSION, bench_rules[kind].name, run->backend, memory_of(run), run->world,
            run->world == 1 ? "" : "s", o->warmup, o->iters, o->check != 0, "out-of-place",
            "                        in-place", "size", "count", "type", "redop", "root", "time", "algbw",
            "busbw", "#wrong", "time", "algbw", "busbw", "#wrong", "(B)", "(elements)", "", "", "", "(us)",
            "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

/* Print a result. If the values were not compared, print "N/A" instead of the number of wrong values, because 0 would
 * mean that all values are correct. */
static void print_result(FILE *to, const struct bench_run *run, const struct bench_case *c,
                         const struct bench_result *r)
{
    double algbw = bench_algbw(bench_bytes(c), r->us);
    fprintf(to, " %9.2f %7.2f %7.2f", r->us, algbw, bench_busbw(c->kind, c->world, algbw));
    if (run->options->check)
        fprintf(to, " %6" PRIu64, r->wrong);
    else
        fprintf(to, " %6s", "N/A");
}

static void print_json(FILE *to, const struct bench_run *run, const struct bench_case *c,
                       const struct bench_result *r, bool in_place)
{
    double algbw = bench_algbw(bench_bytes(c), r->us);
    fprintf(to,
            "{\"bench\":\"%s\",\"backend\":\"%s\",\"memory\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"count\":%zu,"
            "\"type\":\"%s\",\"redop\":",
            bench_rules[c->kind].name, run->backend, memory_of(run), c->world, bench_bytes(c), c->count,
            ddp_dtype_name(c->dtype));
    fprintf(to, bench_rules[c->kind].reduces ? "\"%s\"" : "null", ddp_op_name(c->op));
    fprintf(to, ",\"root\":%d,\"in_place\":%s,\"us\":%.3f,\"algbw\":%.4f,\"busbw\":%.4f,\"wrong\":",
            bench_rules[c->kind].rooted ? c->root : -1, in_place ? "true" : "false", r->us, algbw,
            bench_busbw(c->kind, c->world, algbw));
    if (run->options->check)
        fprintf(to, "%" PRIu64 "}\n", r->wrong);
    else
        fprintf(to, "null}\n");
}

static void bench_print_row(FILE *to, const struct bench_run *run, const struct bench_case *c,
                            const struct bench_result results[2])
{
    if (run->options->json) {
        print_json(to, run, c, &results[0], false);
        print_json(to, run, c, &results[1], true);
        return;
    }
    fprintf(to, "  %10zu %12zu %7s %6s %6d", bench_bytes(c), c->count, ddp_dtype_name(c->dtype),
            bench_rules[c->kind].reduces ? ddp_op_name(c->op) : "none",
            bench_rules[c->kind].rooted ? c->root : -1);
    print_result(to, run, c, &results[0]);
    print_result(to, run, c, &results[1]);
    fputc('\n', to);
}

static void bench_print_foot(FILE *to, const struct bench_run *run, uint64_t wrong, double busbw)
{
    if (run->options->json)
        return;
    fprintf(to, "# Out of bounds values : %" PRIu64 " %s\n# Avg bus bandwidth    : %.3f GB/s\n\n", wrong,
            !run->options->check ? "(not checked)"
            : wrong == 0         ? "OK"
                                 : "FAILED",
            busbw);
}

/* --- main ----------------------------------------------------------------------------------------------- */

/* Flush stdout. After an error print the reason and return false. */
static bool flush_stdout(void)
{
    char why[WRITE_ERROR_MAX];
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    fprintf(stderr, "ddp-bench: error: standard output: write: %s\n",
            write_error_text(errno, "/proc/self/fd/1", why));
    return false;
}

static int print_info(const struct bench_options *o)
{
    struct buf out = { 0 };
    bool ok = o->help_man ? options_man(&bench_option_table, &out)
              : o->help   ? options_help(&bench_option_table, &out)
                          : version_print(&out, "ddp-bench", build_commit, o->json);
    if (o->help && !o->help_man)
        printf("Usage: ddprun --nproc_per_node=N ddp-bench [OPTIONS]\n\nMeasure the speed of libddp's "
               "collectives and check their values. The output has the columns of nccl-tests.\n\n");
    if (ok)
        fwrite(out.data, 1, out.len, stdout);
    ok = flush_stdout() && ok;
    buf_free(&out);
    return ok ? 0 : 1;
}

static int fail(const char *words)
{
    fprintf(stderr, "ddp-bench: error: %s\n", words);
    return 1;
}

/* Return the context's options. The backend "nccl" always uses the GPU of the local rank. The backend "cpu" uses this
 * GPU only if --memory is "gpu". Without --backend, use this GPU if it is usable and --memory is not "private". */
static ddp_options context_options(const struct bench_options *o)
{
    ddp_options options = DDP_OPTIONS_INIT;
    bool cpu = o->backend != NULL && strcmp(o->backend, "cpu") == 0;
    bool host = o->private_memory || (cpu && !o->gpu);
    options.backend = o->backend;
    options.device = host ? DDP_DEVICE_NONE : o->backend == NULL ? DDP_DEVICE_AUTO : DDP_DEVICE_LOCAL;
    return options;
}

/* Print the last error of libddp, or the name of `status` if there is no text. */
static void fail_by(ddp_status status)
{
    const char *words = ddp_last_error();
    fail(words[0] != '\0' ? words : ddp_status_name(status));
}

struct bench {
    struct bench_run run;
    struct bench_buffers buffers;
    int rank;
    FILE *out; /* output of rank 0; NULL on other ranks */
    bool lost; /* true after a write to `out` has failed */
    int rows;  /* number of sizes that were measured */
};

/* Flush the output, so that a stopped run keeps its rows. After an error this rank continues, because the other ranks
 * wait for its calls. */
static void flush_rows(struct bench *b)
{
    b->lost = b->lost || !flush_stdout();
}

static ddp_status run_size(struct bench *b, struct bench_case *c, uint64_t *wrong, double *busbw)
{
    struct bench_result results[2] = { { 0, 0 }, { 0, 0 } };
    ddp_status status = DDP_OK;
    for (int i = 0; i < 2 && status == DDP_OK; i++) {
        c->in_place = i == 1;
        status = bench_measure(&b->buffers, b->rank, c, b->run.options, &results[i]);
        *wrong += results[i].wrong;
        *busbw += bench_busbw(c->kind, c->world, bench_algbw(bench_bytes(c), results[i].us)) / 2;
    }
    if (status == DDP_OK && b->out != NULL) {
        bench_print_row(b->out, &b->run, c, results);
        flush_rows(b);
    }
    return status;
}

/* Measure all sizes of one collective. Sizes with less than one element for each rank are skipped. */
static ddp_status run_kind(struct bench *b, enum bench_kind kind, uint64_t *wrong)
{
    const struct bench_options *o = b->run.options;
    uint64_t wrong_here = 0;
    double busbw = 0;
    int sizes = 0;
    ddp_status status = DDP_OK;
    if (b->out != NULL)
        bench_print_head(b->out, &b->run, kind);
    for (size_t bytes = o->least; bytes <= o->most && status == DDP_OK;
         bytes = bench_next(bytes, o->step, o->factor)) {
        struct bench_case c = { kind,    o->dtype,     o->op,
                                o->root, b->run.world, bench_count(kind, o->dtype, b->run.world, bytes),
                                false };
        if (c.count == 0)
            continue;
        status = run_size(b, &c, &wrong_here, &busbw);
        sizes++;
    }
    if (status == DDP_OK && b->out != NULL) {
        bench_print_foot(b->out, &b->run, wrong_here, sizes > 0 ? busbw / sizes : 0);
        flush_rows(b);
    }
    *wrong += wrong_here;
    b->rows += sizes;
    return status;
}

static ddp_status run_all(struct bench *b, uint64_t *wrong)
{
    const struct bench_options *o = b->run.options;
    ddp_status status = bench_buffers_open(&b->buffers, b->buffers.group, o);
    for (int k = 0; k < BENCH_KINDS && status == DDP_OK; k++)
        if (o->all_kinds || o->kind == (enum bench_kind)k)
            status = run_kind(b, (enum bench_kind)k, wrong);
    return status == DDP_OK ? bench_buffers_close(&b->buffers) : status;
}

static int run_bench(const struct bench_options *o)
{
    const ddp_options options = context_options(o);
    struct bench b = { 0 };
    uint64_t wrong = 0;
    ddp_ctx *ctx;
    ddp_status status = ddp_init_from_env(&options, &ctx);
    if (status != DDP_OK) {
        fail(ddp_last_error());
        return ddp_exit_code(status);
    }
    const char *backend = o->backend != NULL ? o->backend : ddp_device(ctx) >= 0 ? "nccl" : "cpu";
    b.run = (struct bench_run){ o, ddp_world_size(ctx), ddp_device(ctx), backend };
    b.buffers.group = ddp_world(ctx);
    b.rank = ddp_rank(ctx);
    b.out = b.rank == 0 ? stdout : NULL;
    if (o->root >= b.run.world) {
        fprintf(stderr, "ddp-bench: error: --root=%d: expected %s%d%s\n", o->root,
                b.run.world > 1 ? "a number from 0 to " : "", b.run.world - 1,
                b.run.world > 1 ? "" : ", because the job has one rank");
        ddp_finalize(ctx);
        return 2;
    }
    status = run_all(&b, &wrong);
    if (b.buffers.no_memory)
        fprintf(stderr,
                "ddp-bench: error: --maxbytes=%zu: cannot allocate the buffers: out of memory; use a "
                "smaller --maxbytes, or fewer workers on this host\n",
                o->most);
    else if (status != DDP_OK)
        fail_by(status);
    ddp_status end = ddp_finalize(ctx);
    if (status == DDP_OK && end != DDP_OK)
        fail_by(end);
    if (status == DDP_OK && b.rows == 0)
        return fail("--maxbytes: nothing to measure: every size has less than one element for each rank; use "
                    "a "
                    "larger --maxbytes") +
               1;
    if (status != DDP_OK || end != DDP_OK)
        return ddp_exit_code(status != DDP_OK ? status : end);
    return wrong > 0 || b.lost;
}

int main(int argc, char **argv)
{
    struct bench_options options;
    struct ddp_err err = { 0 };
    if (bench_options_parse(argc, argv, &options, &err) != DDP_OK)
        return fail(err.msg) + 1;
    if (options.help || options.help_man || options.version)
        return print_info(&options);
    return run_bench(&options);
}
