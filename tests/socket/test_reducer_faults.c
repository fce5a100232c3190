/* Tests of the reducer's hooks and errors. In the tests of errors, threads or memory are short, a rank has other
 * options, a step is not ended, or a rank dies. */
#include "base/limits.h"
#include "procstat.h"
#include "ranks.h"
#include "run.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- requests that the machine rejects ------------------------------------------------------------------ */

/* The linker redirects these functions to __wrap functions. */

int __real_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *user);

static bool no_threads;
static int refused;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *user)
{
    if (!no_threads)
        return __real_pthread_create(thread, attr, run, user);
    refused++;
    return EAGAIN;
}

/* Return enough cores for a thread of each rank. */
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    if (!no_threads)
        return __real_sched_getaffinity(pid, size, set);
    CPU_ZERO(set);
    for (int core = 0; core < 2 * RANKS_MAX; core++)
        CPU_SET(core, set);
    return 0;
}

/* Run where no thread can start. With DDP_OVERLAP_ON, ddp_reducer_create fails. Otherwise the reducer computes the same
 * averages without a thread. */
static void no_thread(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    ddp_param params[MODEL_PARAMS];
    ddp_reducer *reducer = NULL;
    ddp_reducer_options options = toy_options();
    no_threads = true;
    reducer = toy_open(me, ctx, &options);
    rank_expect(me, refused == 1, "%d threads asked for", refused);
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    toy_backward(me, reducer, 0);
    rank_expect_ok(me, ddp_reducer_finish(reducer));
    model_expect_average(me, reducer, &options, 0, 0);
    rank_expect_ok(me, ddp_reducer_free(reducer));
    toy_params(params);
    options.overlap = DDP_OVERLAP_ON;
    ddp_status status = ddp_reducer_create(ddp_world(ctx), params, MODEL_PARAMS, &options, &reducer);
    char limit[RLIMIT_TEXT_MAX];
    rank_expect(me, status == DDP_ERR_LIMIT && reducer == NULL, "%s", ddp_last_error());
    rank_expect(me, strstr(ddp_last_error(), rlimit_text(RLIMIT_NPROC, limit)) != NULL, "%s",
                ddp_last_error());
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_faults, a_thread_that_nobody_asked_for_may_be_missing, .timeout = 30)
{
    model_run_on("ab", no_thread);
}

/* Let the rebuild of the buckets fail for lack of memory. In the new order of rank 0's gradients, parameters 3 and 5
 * share a bucket. This bucket is larger than all buckets before the rebuild, so it needs more memory. */
static void no_memory_for_rebuild(struct rank *me)
{
    static const size_t order[MODEL_PARAMS] = { 0, 3, 5, 1, 4, 2 };
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    options.compress = 1;
    options.wire = DDP_BF16;
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    for (size_t k = 0; k < MODEL_PARAMS; k++)
        rank_expect_ok(me, ddp_reducer_ready(reducer, order[k]));
    rank_expect_ok(me, ddp_reducer_finish(reducer));
    limits_cut_files(0);
    rank_expect(me, ddp_reducer_forward(reducer) == DDP_ERR_NOMEM, "%s", ddp_last_error());
    limits_cut_files(RLIM_INFINITY);
    rank_expect(me, ddp_reducer_forward(reducer) == DDP_ERR_NOMEM, "forward again: %s", ddp_last_error());
    for (size_t k = 0; k < MODEL_PARAMS; k++)
        ddp_reducer_ready(reducer, order[k]);
    rank_expect(me, ddp_reducer_finish(reducer) == DDP_ERR_NOMEM, "finish: %s", ddp_last_error());
    rank_expect(me, strstr(ddp_last_error(), "shared memory") != NULL, "%s", ddp_last_error());
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_faults, a_rebuild_that_fails_ends_the_reducer, .timeout = 30)
{
    model_run_on("aa", no_memory_for_rebuild);
}

/* Return how many memory files of the library are mapped in this process. */
static int mapped_blocks(void)
{
    char line[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        n += strstr(line, "memfd:ddp") != NULL;
    if (maps != NULL)
        fclose(maps);
    return n;
}

/* Let shared memory be short. The memory has room for the gradients, but not for the buffers that rank 0 sends. */
static void no_memory_for_buffers(struct rank *me)
{
    static float big[1 << 20];
    const ddp_param buffer = { .name = "big", .data = big, .count = 1 << 20, .dtype = DDP_F32 };
    ddp_ctx *ctx = toy_join(me);
    ddp_param params[MODEL_PARAMS];
    ddp_reducer *reducer = NULL;
    ddp_reducer_options options = toy_options();
    options.buffers = &buffer;
    options.buffer_count = 1;
    toy_params(params);
    const int before = mapped_blocks();
    limits_cut_files(1 << 20);
    ddp_status status = ddp_reducer_create(ddp_world(ctx), params, MODEL_PARAMS, &options, &reducer);
    rank_expect(me, status == DDP_ERR_NOMEM && strstr(ddp_last_error(), "shared memory") != NULL, "%s: %s",
                ddp_status_name(status), ddp_last_error());
    rank_expect(
        me, strstr(ddp_last_error(), "cannot ") == NULL || strstr(ddp_last_error(), " 1048576 bytes") != NULL,
        "%s", ddp_last_error());
    rank_expect(me, mapped_blocks() == before, "%d blocks mapped, %d before", mapped_blocks(), before);
    limits_cut_files(RLIM_INFINITY);
    rank_expect_ok(me, ddp_reducer_create(ddp_world(ctx), params, MODEL_PARAMS, &options, &reducer));
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_faults, a_create_that_fails_gives_back_what_it_had, .timeout = 30)
{
    model_run_on("aa", no_memory_for_buffers);
}

/* --- hooks ---------------------------------------------------------------------------------------------- */

struct hook_log {
    size_t calls, lasts;
};

/* Reduce to the largest value of all ranks. The gradients of the ranks differ, so this value is never the average that
 * the reducer computes without a hook. */
static ddp_status largest(void *user, ddp_group *group, const ddp_bucket *bucket)
{
    struct hook_log *seen_by_hook = user;
    seen_by_hook->calls++;
    seen_by_hook->lasts += bucket->last != 0;
    return ddp_all_reduce(group, bucket->grads, bucket->grads, bucket->count, bucket->dtype, DDP_MAX, NULL,
                          NULL);
}

static void hook(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    for (int thread = DDP_OVERLAP_OFF; thread <= DDP_OVERLAP_ON; thread++) {
        struct hook_log log = { 0, 0 };
        ddp_reducer_options options = toy_options();
        options.overlap = (ddp_overlap)thread;
        options.hook = largest;
        options.hook_user = &log;
        ddp_reducer *reducer = toy_open(me, ctx, &options);
        rank_expect_ok(me, ddp_reducer_forward(reducer));
        toy_backward(me, reducer, 0);
        rank_expect_ok(me, ddp_reducer_finish(reducer));
        double most = -100;
        for (int r = 0; r < me->world; r++)
            most = toy_gradient(r, 0, 4, 5) > most ? toy_gradient(r, 0, 4, 5) : most;
        rank_expect(me, toy_get(reducer, 4, 5) == most, "%g", toy_get(reducer, 4, 5));
        rank_expect(me, log.calls == ddp_reducer_buckets(reducer) && log.lasts == 1, "%zu calls", log.calls);
        rank_expect_ok(me, ddp_reducer_free(reducer));
    }
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_faults, a_hook_does_what_it_likes, .timeout = 30)
{
    model_run_on("aaa", hook);
    model_run_on("ab", hook);
}

static ddp_status third_fails(void *user, ddp_group *group, const ddp_bucket *bucket)
{
    (void)user;
    return bucket->index < 2 ? ddp_barrier(group, 0) : DDP_ERR_LIMIT;
}

/* Let a hook fail. The error stays until the reducer is freed, because the gradients of this step are half reduced. */
static void hook_fails(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    options.overlap = DDP_OVERLAP_ON;
    options.hook = third_fails;
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    toy_backward(me, reducer, 0);
    rank_expect(me, ddp_reducer_finish(reducer) == DDP_ERR_LIMIT, "%s", ddp_last_error());
    rank_expect(me, ddp_reducer_forward(reducer) == DDP_ERR_LIMIT, "%s", ddp_last_error());
    rank_expect(me, strstr(ddp_last_error(), "bucket 2") != NULL, "%s", ddp_last_error());
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_faults, a_hook_that_fails_ends_the_step, .timeout = 30)
{
    model_run_on("aa", hook_fails);
}

/* --- misuse and loss ------------------------------------------------------------------------------------ */

/* Pass other options on the last rank. */
static void other_options(struct rank *me)
{
    ddp_param params[MODEL_PARAMS];
    ddp_reducer *reducer = NULL;
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    toy_params(params);
    options.find_unused = me->rank == 2;
    rank_keep(me, ddp_reducer_create(ddp_world(ctx), params, MODEL_PARAMS, &options, &reducer));
    rank_expect(me,
                me->status == DDP_ERR_MISMATCH && has_parts(me->words, "find_unused |rank 0 has 0, |2 has 1"),
                "%s", me->words);
    options.find_unused = 0;
    options.buffers = &(ddp_param){ .name = "bn.mean", .data = model_mean, .count = 33, .dtype = DDP_F32 };
    options.buffer_count = me->rank == 1 ? 1 : 0;
    rank_keep(me, ddp_reducer_create(ddp_world(ctx), params, MODEL_PARAMS, &options, &reducer));
    rank_expect(me,
                strstr(me->words, "buffer 0 differs") != NULL &&
                    strstr(me->words, "rank 1 has \"bn.mean\" (f32 x 33)") != NULL,
                "%s", me->words);
    options.buffer_count = 0;
    params[3].shape = me->rank == 2 ? (const size_t[]){ 10, 20 } : model_fc2_shape;
    rank_keep(me, ddp_reducer_create(ddp_world(ctx), params, MODEL_PARAMS, &options, &reducer));
    rank_expect(me,
                strstr(me->words, "parameter 3 differs: rank 0 has \"fc2.weight\" (f32 20x10), rank 2 has "
                                  "\"fc2.weight\" (f32 10x20)") != NULL,
                "%s", me->words);
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_faults, buffers_shapes_and_options_are_compared, .timeout = 30)
{
    model_run_on("aab", other_options);
}

static void forward_too_early(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    rank_expect_ok(me, ddp_reducer_ready(reducer, 5));
    ddp_status status = ddp_reducer_forward(reducer);
    char must[64];
    snprintf(must, sizeof(must), "rank %d: reducer: forward ", me->rank);
    rank_expect(me,
                status == DDP_ERR_ARG && strncmp(ddp_last_error(), must, strlen(must)) == 0 &&
                    strstr(ddp_last_error(), "bucket: 1 of 4;") != NULL &&
                    strstr(ddp_last_error(), "; 5 of 6 parameters") != NULL &&
                    strstr(ddp_last_error(), ": #0 \"fc1.weight\" (bucket ") != NULL,
                "%s", ddp_last_error());
    for (size_t p = 0; p < 5; p++)
        rank_expect_ok(me, ddp_reducer_ready(reducer, p));
    rank_expect_ok(me, ddp_reducer_finish(reducer));
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_faults, forward_before_finish_is_named_and_can_be_repaired, .timeout = 30)
{
    model_run_on("aa", forward_too_early);
}

/* Call other collectives between ready and finish. These collectives run after the buckets in progress. */
static void collective_between(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    options.overlap = DDP_OVERLAP_ON;
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    for (int step = 0; step < 20; step++) {
        float loss = 1;
        rank_expect_ok(me, ddp_reducer_forward(reducer));
        toy_clear(reducer);
        for (size_t p = MODEL_PARAMS; p-- > 0;) {
            toy_accumulate(reducer, me->rank, step, p);
            rank_expect_ok(me, ddp_reducer_ready(reducer, p));
            if (p == 3)
                rank_expect_ok(me,
                               ddp_all_reduce(ddp_world(ctx), &loss, &loss, 1, DDP_F32, DDP_SUM, NULL, NULL));
        }
        rank_expect_ok(me, ddp_reducer_finish(reducer));
        rank_expect(me, loss == (float)me->world, "%g", (double)loss);
        model_expect_average(me, reducer, &options, step, step);
    }
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_faults, other_collectives_wait_for_the_buckets_under_way, .timeout = 60)
{
    model_run_on("aa", collective_between);
    model_run_on("ab", collective_between);
}

/* Lose rank 1 during a step. The reducer's thread detects the loss, and ddp_reducer_finish returns the error. */
static void lose_a_rank(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    options.overlap = DDP_OVERLAP_ON;
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    if (me->rank == 1)
        _exit(0);
    for (size_t p = 0; p < MODEL_PARAMS; p++)
        rank_expect_ok(me, ddp_reducer_ready(reducer, p));
    ddp_status status = ddp_reducer_finish(reducer);
    rank_expect(me, status == DDP_ERR_PEER_LOST && strstr(ddp_last_error(), "rank 1") != NULL, "%s: %s",
                ddp_status_name(status), ddp_last_error());
    ddp_reducer_free(reducer);
    ddp_finalize(ctx);
}

Test(reducer_faults, a_rank_that_dies_while_the_thread_waits_for_it_is_named, .timeout = 60)
{
    model_run_on("aaa", lose_a_rank);
    model_run_on("aab", lose_a_rank);
}
