/* main.c -- ddp-bench measures the speed of collectives and prints nccl-tests' columns. ddp-bench is a worker:
 * `ddprun --nproc_per_node=4 ddp-bench`. */
#include "bench/bench_run.h"

#include "base/buf.h"
#include "base/version.h"
#include "ddp/context.h"

#include <string.h>

static int print_info(const struct bench_options *o)
{
    struct buf out = { 0 };
    bool ok = o->help_man ? options_man(&bench_option_table, &out)
              : o->help   ? options_help(&bench_option_table, &out)
                          : version_print(&out, "ddp-bench", build_commit, o->json);
    if (o->help && !o->help_man)
        printf("Usage: ddprun --nproc_per_node=N ddp-bench [OPTIONS]\n\nMeasures the speed of libddp's "
               "collectives and "
               "checks their values, "
               "in the columns of nccl-tests.\n\n");
    if (ok)
        fwrite(out.data, 1, out.len, stdout);
    buf_free(&out);
    return ok ? 0 : 1;
}

static int fail(const char *words)
{
    fprintf(stderr, "ddp-bench: %s\n", words);
    return 1;
}

/* Return the context's options. Use no GPU with private memory, or with the cpu backend on host memory. */
static ddp_options context_options(const struct bench_options *o)
{
    ddp_options options = DDP_OPTIONS_INIT;
    bool cpu = o->backend != NULL && strcmp(o->backend, "cpu") == 0;
    bool host = o->private_memory || (cpu && !o->gpu);
    options.backend = o->backend;
    options.device = host ? DDP_DEVICE_NONE : o->backend == NULL ? DDP_DEVICE_AUTO : DDP_DEVICE_LOCAL;
    return options;
}

/* Print the last error of the library or of this program. */
static void fail_by(ddp_status status)
{
    const char *words = ddp_last_error();
    fail(words[0] != '\0' ? words : ddp_status_name(status));
}

struct bench {
    struct bench_run run;
    struct bench_buffers buffers;
    int rank;
    FILE *out; /* on rank 0; NULL elsewhere */
    int rows;  /* number of sizes that were measured */
};

static ddp_status run_size(const struct bench *b, struct bench_case *c, uint64_t *wrong, double *busbw)
{
    struct bench_result results[2] = { { 0, 0 }, { 0, 0 } };
    ddp_status status = DDP_OK;
    for (int i = 0; i < 2 && status == DDP_OK; i++) {
        c->in_place = i == 1;
        status = bench_measure(&b->buffers, b->rank, c, b->run.options, &results[i]);
        *wrong += results[i].wrong;
        *busbw += bench_busbw(c->kind, c->world, bench_algbw(bench_bytes(c), results[i].us)) / 2;
    }
    if (status == DDP_OK && b->out != NULL)
        bench_print_row(b->out, &b->run, c, results);
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
    if (status == DDP_OK && b->out != NULL)
        bench_print_foot(b->out, &b->run, wrong_here, sizes > 0 ? busbw / sizes : 0);
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
        fprintf(stderr, "ddp-bench: --root=%d: must be between 0 and %d\n", o->root, b.run.world - 1);
        ddp_finalize(ctx);
        return 2;
    }
    status = run_all(&b, &wrong);
    if (status != DDP_OK)
        fail_by(status);
    ddp_status end = ddp_finalize(ctx);
    if (status == DDP_OK && end != DDP_OK)
        fail_by(end);
    if (status == DDP_OK && b.rows == 0)
        return fail("nothing was measured, because no size has an element for each rank; use a larger "
                    "--maxbytes") +
               1;
    return status != DDP_OK ? ddp_exit_code(status) : end != DDP_OK ? ddp_exit_code(end) : wrong > 0;
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
