/* worker_probe.c -- a worker for tests that need a separate program: `worker_probe COMMAND [ARGUMENT...]`.
 *
 * ddprun, torchrun or a user may start the worker. The worker prints one line, "rank R: ...", and exits with 0. If
 * libddp returns an error, the worker prints the text of the error and exits with 3. This is a plain program, so it
 * also runs under ThreadSanitizer and LeakSanitizer. */
#include "ddp/ddp.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_LIBDDP = 3 };

static ddp_ctx *ctx;

/* Print the text of the error and exit with EXIT_LIBDDP if `status` is an error. */
static void must(ddp_status status)
{
    if (status == DDP_OK)
        return;
    printf("%s: %s\n", ddp_status_name(status), ddp_last_error());
    if (ctx != NULL)
        ddp_finalize(ctx);
    exit(EXIT_LIBDDP);
}

static int number(char **arguments, int missing)
{
    return arguments[0] != NULL ? atoi(arguments[0]) : missing;
}

static bool this_is(char **arguments)
{
    return arguments[0] != NULL && atoi(arguments[0]) == ddp_rank(ctx);
}

static void sum_into(float *x, size_t n)
{
    must(ddp_all_reduce(ddp_world(ctx), x, x, n, DDP_F32, DDP_SUM, NULL, NULL));
}

/* Run an all-reduce in private memory and an all-reduce in shared memory, and compare the results. Arguments:
 * [ELEMENTS]. */
static void run_allreduce(char **arguments)
{
    size_t n = (size_t)number(arguments, 100000);
    float *own = malloc(n * sizeof(*own) + 1), *shared;
    void *block;

    must(ddp_shared_alloc(ddp_world(ctx), n * sizeof(*own) + 1, &block));
    shared = block;
    for (size_t i = 0; i < n; i++)
        own[i] = shared[i] = (float)(i % 1000) / (float)(ddp_rank(ctx) + 3);
    sum_into(own, n);
    sum_into(shared, n);
    bool same = memcmp(own, shared, n * sizeof(*own)) == 0;
    printf("rank %d: all_reduce of %zu: %s\n", ddp_rank(ctx), n, same ? "ok" : "results differ");
    free(own);
}

/* Kill rank RANK between two collectives. Arguments: [RANK]. */
static void run_die(char **arguments)
{
    float x[1000] = { 0 };
    sum_into(x, 1000);
    if (this_is(arguments))
        raise(SIGKILL);
    sum_into(x, 1000);
    printf("rank %d: no rank has died\n", ddp_rank(ctx));
}

/* Stop rank RANK, so that the other ranks reach the step timeout (DDPRUN_STEP_TIMEOUT_MS). Arguments: [RANK]. */
static void run_hang(char **arguments)
{
    float x = 1;
    if (this_is(arguments))
        raise(SIGSTOP);
    sum_into(&x, 1);
    printf("rank %d: no rank hangs\n", ddp_rank(ctx));
}

/* Abort the job from rank RANK. Arguments: [RANK]. */
static void run_abort(char **arguments)
{
    float x = 1;
    if (this_is(arguments)) {
        ddp_abort(ctx, 9, "as requested");
        exit(9);
    }
    sum_into(&x, 1);
}

/* Enter a named barrier. RANK does not enter and stays until it is killed. Arguments: NAME [TIMEOUT_MS [RANK]]. */
static void run_barrier(char **arguments)
{
    const char *name = arguments[0] != NULL ? arguments[0] : "probe";
    char **rest = arguments[0] != NULL ? arguments + 1 : arguments;
    int timeout_ms = number(rest, 0);

    if (rest[0] != NULL && this_is(rest + 1)) {
        for (;;)
            pause();
    }
    must(ddp_barrier_named(ctx, name, (uint32_t)timeout_ms));
    printf("rank %d: passed %s\n", ddp_rank(ctx), name);
}

/* Average the gradients of a small model. Arguments: [STEPS]. */
static void run_reducer(char **arguments)
{
    static float weight[300000], bias[10];
    const ddp_param params[] = { { .name = "weight", .data = weight, .count = 300000, .dtype = DDP_F32 },
                                 { .name = "bias", .data = bias, .count = 10, .dtype = DDP_F32 } };
    int steps = number(arguments, 3);
    ddp_reducer *reducer;

    must(ddp_reducer_create(ddp_world(ctx), params, 2, NULL, &reducer));
    for (int step = 0; step < steps; step++) {
        for (size_t p = 2; p-- > 0;) {
            float *grad = ddp_reducer_grad(reducer, p);
            for (size_t i = 0; i < params[p].count; i++)
                grad[i] = (float)(ddp_rank(ctx) * 2);
            must(ddp_reducer_ready(reducer, p));
        }
        must(ddp_reducer_finish(reducer));
    }
    float got = *(float *)ddp_reducer_grad(reducer, 0);
    printf("rank %d: average %g of %d buckets\n", ddp_rank(ctx), (double)got,
           (int)ddp_reducer_buckets(reducer));
    must(ddp_reducer_free(reducer));
}

enum { LAYERS = 20, LAYER = 5000 };

/* Run one step of a model with many buckets, and a collective in the middle. */
static void overlapped_step(ddp_reducer *reducer)
{
    float loss = 1;
    must(ddp_reducer_forward(reducer));
    for (size_t p = LAYERS; p-- > 0;) {
        float *grad = ddp_reducer_grad(reducer, p);
        for (size_t i = 0; i < LAYER; i++)
            grad[i] = (float)(ddp_rank(ctx) * 2);
        must(ddp_reducer_ready(reducer, p));
        if (p == LAYERS / 2)
            must(ddp_all_reduce(ddp_world(ctx), &loss, &loss, 1, DDP_F32, DDP_SUM, NULL, NULL));
    }
    must(ddp_reducer_finish(reducer));
}

/* Compute while the library's thread reduces. Arguments: [STEPS]. */
static void run_overlap(char **arguments)
{
    static float weights[LAYERS][LAYER];
    ddp_param params[LAYERS];
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    int steps = number(arguments, 50);
    ddp_reducer *reducer;

    for (int i = 0; i < LAYERS; i++)
        params[i] = (ddp_param){ .name = "layer", .data = weights[i], .count = LAYER, .dtype = DDP_F32 };
    options.first_bucket_bytes = options.bucket_cap_bytes = 40000;
    options.overlap = DDP_OVERLAP_ON;
    must(ddp_reducer_create(ddp_world(ctx), params, LAYERS, &options, &reducer));
    for (int step = 0; step < steps; step++)
        overlapped_step(reducer);
    printf("rank %d: average %g of %d buckets\n", ddp_rank(ctx),
           (double)((float *)ddp_reducer_grad(reducer, 7))[LAYER - 1], (int)ddp_reducer_buckets(reducer));
    must(ddp_reducer_free(reducer));
}

static void run_info(char **arguments)
{
    (void)arguments;
    printf("rank %d of %d, local rank %d of %d, attempt %d\n", ddp_rank(ctx), ddp_world_size(ctx),
           ddp_local_rank(ctx), ddp_local_world_size(ctx), ddp_restart_count(ctx));
}

static const struct {
    const char *name;
    void (*run)(char **arguments);
} commands[] = {
    { "info", run_info },       { "allreduce", run_allreduce }, { "reducer", run_reducer },
    { "overlap", run_overlap }, { "barrier", run_barrier },     { "die", run_die },
    { "hang", run_hang },       { "abort", run_abort },
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (argc < 2 || strcmp(commands[i].name, argv[1]) != 0)
            continue;
        must(ddp_init_from_env(NULL, &ctx));
        commands[i].run(argv + 2);
        ddp_status status = ddp_finalize(ctx);
        ctx = NULL;
        must(status);
        return 0;
    }
    fprintf(stderr, "usage: worker_probe info|allreduce|reducer|barrier|die|hang|abort [ARGUMENT...]\n");
    return 2;
}
