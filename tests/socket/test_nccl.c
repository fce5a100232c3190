/* Tests of two backends with real processes: NCCL, and cpu with device buffers. NCCL and CUDA are fakes
 * (tests/fake/fake_gpu.h). The tests check the results of the calls, and the errors of the ranks after faults. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEP_MS = 500, INIT_MS = 2000 };

static void some_types(struct rank *me)
{
    pretend_gpu();
    trials_use(me->user);
    trials_of_all_types(me, 3);
}

static void large_counts(struct rank *me)
{
    pretend_gpu();
    trials_use(me->user);
    trials_of_large_counts(me);
}

static void expect_all_well(int world, rank_main main, unsigned flags, const ddp_options *options)
{
    struct ranks ranks = ranks_run(world, main, flags, options);
    ranks_expect_ok(&ranks);
    ranks_free(&ranks);
}

Test(nccl, two_ranks_agree_on_every_type_and_operation, .timeout = 120)
{
    expect_all_well(2, some_types, RANKS_PLAIN_STORE, &nccl_options);
}

Test(nccl, four_ranks_agree_on_every_type_and_operation, .timeout = 120)
{
    expect_all_well(4, some_types, RANKS_DDPRUN_STORE, &nccl_options);
}

Test(nccl, three_ranks_move_large_counts, .timeout = 120)
{
    expect_all_well(3, large_counts, RANKS_PLAIN_STORE, &nccl_options);
}

Test(nccl, a_world_of_one_needs_no_nccl, .timeout = 120)
{
    setenv("FAKE_NCCL_VERSION", "21000", 1);
    expect_all_well(1, some_types, RANKS_PLAIN_STORE, &nccl_options);
}

Test(staged, three_ranks_agree_on_every_type_and_operation, .timeout = 120)
{
    expect_all_well(3, some_types, RANKS_PLAIN_STORE, &staged_options);
}

/* CUDA limits the distance between two rows of a copy; in this test the limit is 1 MB. A rank's part of a large count
 * may be longer than this limit. */
Test(staged, two_ranks_move_large_counts, .timeout = 120)
{
    setenv("FAKE_CUDA_PITCH", "1000000", 1);
    expect_all_well(2, large_counts, RANKS_PLAIN_STORE, &staged_options);
}

static float *device_floats(struct rank *me, ddp_ctx *ctx, size_t n)
{
    void *block;
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(ctx), n * sizeof(float), &block));
    return block;
}

static ddp_status sum(ddp_ctx *ctx, float *x, size_t n, ddp_work **work)
{
    return ddp_all_reduce(ddp_world(ctx), x, x, n, DDP_F32, DDP_SUM, NULL, work);
}

/* Call a function of the fake CUDA that has no parameters. */
static unsigned ask_cuda(const char *function)
{
    void *cuda = dlopen(getenv("DDP_CUDART_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    unsigned (*ask)(void) = NULL;
    void *found = cuda != NULL ? dlsym(cuda, function) : NULL;
    memcpy(&ask, &found, sizeof(ask));
    return ask != NULL ? ask() : 999;
}

/* Return CUDA's last error. A program checks this error after it has launched a kernel. */
static unsigned error_of_cuda(void)
{
    return ask_cuda("cudaGetLastError");
}

/* Expect that an all-reduce returns while NCCL is still busy, because the host must not wait. */
static void do_not_wait(struct rank *me)
{
    enum { CALLS = 300 };
    pretend_gpu();
    setenv("FAKE_NCCL_SHUT", "1", 1);
    setenv("FAKE_NCCL_LAZY", "1", 1);
    ddp_work *work = NULL;
    ddp_ctx *ctx = rank_init(me, &nccl_options);
    float *x = device_floats(me, ctx, 1);
    rank_expect_ok(me, sum(ctx, x, 1, &work));
    rank_expect(me, !ddp_work_done(work), "done before it can have begun");
    rank_expect(me, ddp_work_sync(work, 1) == DDP_IN_PROGRESS, "not under way");
    rank_expect(me, error_of_cuda() == 0, "CUDA is left with an error");
    rank_expect_ok(me, ddp_work_wait(work));
    setenv("FAKE_NCCL_SHUT", "0", 1);
    rank_expect_ok(me, ddp_work_sync(work, 0));
    ddp_work_free(work);
    x[0] = me->rank == 0;
    for (int i = 0; i < CALLS; i++) /* more calls than may be in progress at once */
        rank_expect_ok(me, sum(ctx, x, 1, NULL));
    rank_expect_ok(me, sum(ctx, x, 1, &work));
    rank_expect_ok(me, ddp_work_sync(work, 0));
    ddp_work_free(work);
    rank_expect(me, ddp_device(ctx) == me->rank, "device %d", ddp_device(ctx));
    rank_expect(me, x[0] > 1e38f, "x is %g", (double)x[0]);
    const char *iface = getenv("NCCL_SOCKET_IFNAME");
    rank_expect(me, iface != NULL && strcmp(iface, "=lo") == 0, "NCCL_SOCKET_IFNAME=%s", iface ? iface : "");
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(nccl, calls_are_put_on_a_stream_and_the_host_goes_on, .timeout = 120)
{
    expect_all_well(2, do_not_wait, RANKS_PLAIN_STORE, NULL);
}

struct copier {
    struct rank *me;
    ddp_ctx *ctx;
    const float *from;
    float to;
    unsigned device; /* current device of the thread after the copy */
};

static void *copy_in_a_thread(void *user)
{
    struct copier *c = user;
    rank_expect_ok(c->me, ddp_copy(ddp_world(c->ctx), &c->to, c->from, sizeof(c->to), NULL));
    c->device = ask_cuda("fake_device");
    return NULL;
}

/* Reduce a value in host memory. The all-reduce asks CUDA whether this value is in device memory. */
static void *reduce_in_a_thread(void *user)
{
    struct copier *c = user;
    c->to = 0;
    rank_expect_ok(c->me, sum(c->ctx, &c->to, 1, NULL));
    c->device = ask_cuda("fake_device");
    return NULL;
}

static void expect_the_groups_device(struct rank *me, void *(*call)(void *user))
{
    pretend_gpu();
    pthread_t thread;
    ddp_ctx *ctx = rank_init(me, me->user);
    struct copier c = { .me = me, .ctx = ctx, .from = device_floats(me, ctx, 1), .to = 1 };
    rank_expect(me, pthread_create(&thread, NULL, call, &c) == 0, "no thread");
    pthread_join(thread, NULL);
    rank_expect(me, c.to == 0 && c.device == (unsigned)me->rank, "%g on device %u", (double)c.to, c.device);
    rank_expect_ok(me, ddp_finalize(ctx));
}

static void copy_on_the_groups_device(struct rank *me)
{
    expect_the_groups_device(me, copy_in_a_thread);
}

static void reduce_on_the_groups_device(struct rank *me)
{
    expect_the_groups_device(me, reduce_in_a_thread);
}

/* The current device of a new thread is 0. */
Test(nccl, a_new_thread_copies_on_the_groups_device, .timeout = 120)
{
    expect_all_well(2, copy_on_the_groups_device, RANKS_PLAIN_STORE, &nccl_options);
}

Test(nccl, a_new_thread_reduces_on_the_groups_device, .timeout = 120)
{
    expect_all_well(2, reduce_on_the_groups_device, RANKS_PLAIN_STORE, &nccl_options);
}

static void mix_memories(struct rank *me)
{
    pretend_gpu();
    float host = 1;
    ddp_ctx *ctx = rank_init(me, &nccl_options);
    float *x = device_floats(me, ctx, 1);
    ddp_status status = ddp_all_reduce(ddp_world(ctx), &host, x, 1, DDP_F32, DDP_SUM, NULL, NULL);
    rank_expect(me, status == DDP_ERR_ARG && strstr(ddp_last_error(), "`in` is in host "), "%s",
                ddp_last_error());
    rank_expect_ok(me, sum(ctx, &host, 1, NULL)); /* this sum goes through the cpu communicator */
    rank_expect(me, host == 2, "host is %g", (double)host);
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(nccl, both_buffers_lie_in_one_kind_of_memory, .timeout = 120)
{
    expect_all_well(2, mix_memories, RANKS_PLAIN_STORE, NULL);
}

/* Make six calls, or fewer if a call fails. Rank `dies` is killed before its fourth call; if `dies` is -1, no rank is
 * killed. `step_ms` is the timeout of a call; 0 means the default. Then make one more call. The additional call and
 * ddp_finalize must return the same status as the call before them. */
static void call_until_it_fails(struct rank *me, int dies, uint32_t step_ms)
{
    pretend_gpu();
    ddp_options options = nccl_options;
    options.step_timeout_ms = step_ms;
    ddp_ctx *ctx = rank_init(me, &options);
    float *x = device_floats(me, ctx, 1000);
    ddp_work *work = NULL;
    ddp_status status = DDP_OK;
    for (int i = 0; i < 6 && status == DDP_OK; i++) {
        if (i == 3 && me->rank == dies)
            raise(SIGKILL);
        status = sum(ctx, x, 1000, &work);
        if (status == DDP_OK)
            status = ddp_work_sync(work, 0);
        ddp_work_free(work);
        work = NULL;
    }
    rank_keep(me, status);
    ddp_status again = sum(ctx, x, 1000, NULL);
    rank_expect(me, again == status && strcmp(ddp_last_error(), me->words) == 0, "then: %s; now: %s",
                me->words, ddp_last_error());
    rank_expect(me, ddp_finalize(ctx) == status, "finalize: %s", ddp_last_error());
}

static void call_on(struct rank *me)
{
    call_until_it_fails(me, -1, 0);
}

static void call_with_little_time(struct rank *me)
{
    call_until_it_fails(me, -1, STEP_MS);
}

static void rank_2_dies(struct rank *me)
{
    call_until_it_fails(me, 2, 0);
}

static void expect_of_all(const struct ranks *run, int but, ddp_status status, const char *a, const char *b)
{
    for (int r = 0; r < run->n; r++)
        if (r != but)
            ranks_expect_error(run, r, status, (const char *const[]){ a, b, NULL });
}

Test(nccl, a_call_that_does_not_end_is_named_on_all_ranks, .timeout = 120)
{
    setenv("FAKE_NCCL_HANG", "1:1", 1);
    struct ranks run = ranks_run(3, call_with_little_time, RANKS_PLAIN_STORE, NULL);
    expect_of_all(&run, -1, DDP_ERR_TIMEOUT, "all_reduce #1 (f32 x 1000, sum) on", "calls done: 0");
    ranks_free(&run);
}

Test(nccl, an_error_of_nccl_reaches_all_ranks_with_its_text, .timeout = 120)
{
    setenv("FAKE_NCCL_ERROR", "1:4:6", 1);
    struct ranks run = ranks_run(3, call_on, RANKS_PLAIN_STORE, NULL);
    expect_of_all(&run, -1, DDP_ERR_PEER_LOST, "at rank 1: all_reduce #4 (f32 x 1000, sum): ncclRemoteError",
                  "NCCL reports: the cable was pulled");
    ranks_free(&run);
}

Test(nccl, a_call_that_nccl_rejects_fails_on_all_ranks, .timeout = 120)
{
    setenv("FAKE_NCCL_REJECT", "0:4", 1);
    struct ranks run = ranks_run(2, call_on, RANKS_PLAIN_STORE, NULL);
    expect_of_all(&run, -1, DDP_ERR_NCCL, "all_reduce #4", "ncclInvalidArgument");
    ranks_free(&run);
}

Test(nccl, a_rank_that_dies_is_named, .timeout = 120)
{
    struct ranks run = ranks_run(4, rank_2_dies, RANKS_PLAIN_STORE, NULL);
    char who[64];
    snprintf(who, sizeof(who), "rank 2 (pid %d", run.rank[2].pid);
    expect_of_all(&run, 2, DDP_ERR_PEER_LOST, who, "has ended");
    ranks_free(&run);
}

static void call_with_an_error_on_rank_0(struct rank *me, const char *code)
{
    pretend_gpu();
    if (me->rank == 0)
        setenv("FAKE_CUDA_POINTER", code, 1);
    ddp_ctx *ctx = rank_init(me, me->user);
    float *x = device_floats(me, ctx, 1000);
    ddp_work *work = NULL;
    ddp_status status = sum(ctx, x, 1000, &work);
    if (status == DDP_OK)
        status = ddp_work_sync(work, 0);
    ddp_work_free(work);
    rank_keep(me, status);
    ddp_finalize(ctx);
}

static void rank_0_has_a_fault(struct rank *me)
{
    call_with_an_error_on_rank_0(me, "700"); /* cudaErrorIllegalAddress */
}

static void rank_0_has_no_memory(struct rank *me)
{
    call_with_an_error_on_rank_0(me, "2"); /* cudaErrorMemoryAllocation */
}

/* Expect DDP_ERR_CUDA on all ranks. After a fault of a kernel, CUDA does not report whether a buffer is in device
 * memory. So no rank may assume host memory and run the call on the CPU. A lack of memory within a call is not
 * DDP_ERR_NOMEM: the ranks may be at different calls, so the error must break the context. */
static void expect_a_fault(const ddp_options *options)
{
    const rank_main mains[] = { rank_0_has_a_fault, rank_0_has_no_memory };
    for (int i = 0; i < 2; i++) {
        struct ranks run = ranks_run(2, mains[i], RANKS_PLAIN_STORE, options);
        expect_of_all(&run, -1, DDP_ERR_CUDA, "at rank 0: all_reduce", "cudaErrorOfTheFake");
        ranks_free(&run);
    }
}

Test(nccl, an_earlier_error_of_cuda_reaches_all_ranks, .timeout = 120)
{
    expect_a_fault(&nccl_options);
}

Test(staged, an_earlier_error_of_cuda_reaches_all_ranks, .timeout = 120)
{
    expect_a_fault(&staged_options);
}

/* Gather values in four chunks. Rank 0 cannot copy the first chunk back to its GPU. */
static void rank_0_cannot_copy(struct rank *me)
{
    enum { N = 400003 };
    pretend_gpu();
    if (me->rank == 0)
        setenv("FAKE_CUDA_PITCH", "1000", 1);
    ddp_ctx *ctx = rank_init(me, &staged_options);
    const float *in = device_floats(me, ctx, N);
    float *out = device_floats(me, ctx, (size_t)me->world * N);
    rank_keep(me, ddp_all_gather(ddp_world(ctx), in, out, N, DDP_F32, NULL, NULL));
    ddp_finalize(ctx);
}

Test(staged, an_error_of_cuda_within_a_call_reaches_all_ranks, .timeout = 120)
{
    struct ranks run = ranks_run(2, rank_0_cannot_copy, RANKS_PLAIN_STORE, NULL);
    expect_of_all(&run, -1, DDP_ERR_CUDA, "all_gather", "cudaErrorOfTheFake");
    ranks_free(&run);
}

static void give_up(struct rank *me)
{
    pretend_gpu();
    ddp_ctx *ctx = rank_init(me, &nccl_options);
    float *x = device_floats(me, ctx, 1000);
    ddp_work *work = NULL;
    ddp_status status = DDP_OK;
    if (me->rank == 1)
        ddp_abort(ctx, 7, "loss is nan");
    else
        status = sum(ctx, x, 1000, &work);
    if (work != NULL)
        status = ddp_work_sync(work, 30000);
    ddp_work_free(work);
    rank_keep(me, me->rank == 1 ? ddp_finalize(ctx) : status);
    if (me->rank != 1)
        ddp_finalize(ctx);
}

Test(nccl, who_gives_up_frees_the_others, .timeout = 120)
{
    struct ranks run = ranks_run(2, give_up, RANKS_PLAIN_STORE, NULL);
    expect_of_all(&run, -1, DDP_ERR_ABORTED, "rank 1 gave", "loss is nan");
    ranks_free(&run);
}

/* Allocate memory on rank 0, but call all_reduce on rank 1. The ranks also exchange the statuses of an allocation by
 * such an all_reduce. Even so, the mismatch must be detected. */
static void allocate_on_rank_0(struct rank *me)
{
    pretend_gpu();
    int32_t one = 1;
    void *memory;
    ddp_group *g = ddp_world(rank_init(me, me->user));
    rank_keep(me, me->rank == 0 ? ddp_shared_alloc(g, 64, &memory)
                                : ddp_all_reduce(g, &one, &one, 1, DDP_I32, DDP_MAX, NULL, NULL));
}

static void allocate_different_sizes(struct rank *me)
{
    pretend_gpu();
    void *memory;
    ddp_ctx *ctx = rank_init(me, me->user);
    rank_keep(me, ddp_shared_alloc(ddp_world(ctx), me->rank == 0 ? 64 : 128, &memory));
}

static void free_different_blocks(struct rank *me)
{
    pretend_gpu();
    ddp_ctx *ctx = rank_init(me, me->user);
    float *a = device_floats(me, ctx, 8), *b = device_floats(me, ctx, 8);
    rank_expect(me, ddp_shared_free(ddp_world(ctx), a + 2) == DDP_ERR_ARG, "freed a part");
    rank_expect_ok(me, ddp_shared_free(ddp_world(ctx), a));
    rank_expect(me, ddp_shared_free(ddp_world(ctx), a) == DDP_ERR_ARG, "freed twice");
    float *c = device_floats(me, ctx, 8);
    rank_keep(me, ddp_shared_free(ddp_world(ctx), me->rank == 0 ? b : c));
}

static void expect_mismatches(const ddp_options *options)
{
    static const struct {
        rank_main main;
        const char *a, *b;
    } cases[] = { { allocate_on_rank_0, "shared_alloc", "all_reduce" },
                  { allocate_different_sizes, "(64 bytes)", "(128 bytes)" },
                  { free_different_blocks, "shared_free", "" } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ranks run = ranks_run(2, cases[i].main, RANKS_PLAIN_STORE, options);
        expect_of_all(&run, -1, DDP_ERR_MISMATCH, cases[i].a, cases[i].b);
        ranks_free(&run);
    }
}

Test(nccl, different_calls_for_device_memory_are_named, .timeout = 120)
{
    expect_mismatches(&nccl_options);
}

Test(staged, different_calls_for_device_memory_are_named, .timeout = 120)
{
    expect_mismatches(&staged_options);
}

static void init_within(struct rank *me, uint32_t ms)
{
    ddp_options options = nccl_options;
    ddp_ctx *ctx = NULL;
    options.init_timeout_ms = ms;
    pretend_gpu();
    rank_keep(me, ddp_init_from_env(&options, &ctx));
    if (ctx != NULL)
        ddp_finalize(ctx);
}

static void init_only(struct rank *me)
{
    init_within(me, 0);
}

static void init_with_little_time(struct rank *me)
{
    init_within(me, INIT_MS);
}

static void expect_init(int world, rank_main main, ddp_status status, const char *a, const char *b)
{
    struct ranks run = ranks_run(world, main, RANKS_PLAIN_STORE, NULL);
    expect_of_all(&run, -1, status, a, b);
    ranks_free(&run);
}

Test(nccl, ranks_that_never_come_together_are_a_time_out, .timeout = 120)
{
    setenv("FAKE_NCCL_INIT", "hang", 1);
    expect_init(2, init_with_little_time, DDP_ERR_TIMEOUT, "2 ranks", "NCCL_SOCKET_IFNAME (=lo)");
}

static void die_in_init(struct rank *me)
{
    setenv("FAKE_NCCL_INIT", me->rank == 1 ? "die" : "hang", 1);
    init_within(me, 0);
}

Test(nccl, a_rank_that_dies_while_nccl_connects_is_named, .timeout = 120)
{
    struct ranks run = ranks_run(2, die_in_init, RANKS_PLAIN_STORE, NULL);
    ranks_expect_error(&run, 0, DDP_ERR_PEER_LOST, (const char *const[]){ "rank 1 (pid", "has ended", NULL });
    ranks_free(&run);
}

Test(nccl, an_old_nccl_is_refused_with_both_versions, .timeout = 120)
{
    setenv("FAKE_NCCL_VERSION", "21205", 1);
    expect_init(2, init_only, DDP_ERR_UNSUPPORTED, "NCCL 2.12.5 is", "DDP_NCCL_LIBRARY");
}

static void versions_differ(struct rank *me)
{
    setenv("FAKE_NCCL_VERSION", me->rank == 1 ? "22703" : "22809", 1);
    init_only(me);
}

Test(nccl, different_versions_are_named, .timeout = 120)
{
    expect_init(2, versions_differ, DDP_ERR_MISMATCH, "NCCL 2.28.9", "NCCL 2.27.3");
}

static void one_gpu(struct rank *me)
{
    setenv("LOCAL_RANK", "0", 1);
    init_only(me);
}

Test(nccl, two_ranks_on_one_gpu_are_named, .timeout = 120)
{
    expect_init(2, one_gpu, DDP_ERR_ARG, "(device 0, 0000:01:00.0)", "--share_gpu");
}

static void share_one_gpu(struct rank *me)
{
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    setenv("DDP_SHARE_GPU", "1", 1);
    pretend_gpu();
    ddp_ctx *ctx = rank_init(me, &nccl_options);
    float *x = device_floats(me, ctx, 1);
    x[0] = 1;
    ddp_work *work = NULL;
    rank_expect_ok(me, sum(ctx, x, 1, &work));
    rank_expect_ok(me, ddp_work_sync(work, 0));
    ddp_work_free(work);
    rank_expect(me, x[0] == (float)me->world && ddp_device(ctx) == 0, "x is %g on device %d", (double)x[0],
                ddp_device(ctx));
    char host[64];
    snprintf(host, sizeof(host), "ddprun-ddp/none/0-%d", me->rank);
    rank_expect(me, strcmp(getenv("NCCL_HOSTID"), host) == 0, "NCCL_HOSTID=%s", getenv("NCCL_HOSTID"));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(nccl, several_ranks_share_a_gpu_when_told_to, .timeout = 120)
{
    expect_all_well(3, share_one_gpu, RANKS_PLAIN_STORE, NULL);
}

static void rank_1_has_no_nccl(struct rank *me)
{
    ddp_ctx *ctx = NULL;
    pretend_gpu();
    if (me->rank == 1)
        setenv("DDP_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
    rank_keep(me, ddp_init_from_env(&nccl_options, &ctx));
}

Test(nccl, a_library_that_is_missing_on_one_rank_is_told_to_all, .timeout = 120)
{
    expect_init(2, rank_1_has_no_nccl, DDP_ERR_UNSUPPORTED, "DDP_NCCL_LIBRARY=/nowhere/libnccl.so.2",
                "shared object");
}

static void no_device(struct rank *me)
{
    ddp_options options = nccl_options;
    ddp_ctx *ctx = NULL;
    pretend_gpu();
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    rank_expect(me, ddp_init_from_env(&options, &ctx) == DDP_ERR_UNSUPPORTED, "a device?");
    rank_expect(me, strstr(ddp_last_error(), "CUDA_VISIBLE_DEVICES") != NULL, "%s", ddp_last_error());
    setenv("FAKE_CUDA_DRIVER", "0", 1);
    rank_expect(me, ddp_init_from_env(&options, &ctx) == DDP_ERR_UNSUPPORTED, "a driver?");
    rank_expect(me, strstr(ddp_last_error(), "NVIDIA driver") != NULL, "%s", ddp_last_error());
    options.device = DDP_DEVICE_AUTO;
    rank_expect_ok(me, ddp_init_from_env(&options, &ctx));
    rank_expect(me, ddp_device(ctx) == -1, "device %d", ddp_device(ctx));
    rank_expect_ok(me, ddp_finalize(ctx));
    setenv("DDP_CUDA_LIBRARY", "/nowhere/libddp_cuda.so", 1);
    options.device = 0;
    rank_expect(me, ddp_init_from_env(&options, &ctx) == DDP_ERR_UNSUPPORTED, "a library?");
    rank_expect(me, strstr(ddp_last_error(), "/nowhere/libddp_cuda.so") != NULL, "%s", ddp_last_error());
}

Test(nccl, without_a_gpu_it_is_said_what_is_missing, .timeout = 120)
{
    expect_all_well(1, no_device, RANKS_PLAIN_STORE, NULL);
}

/* The reducer with gradients in device memory (tests/fake/fake_gpu.h). The tests check averages (also after the buckets
 * were rebuilt), buffers, unused parameters, and that the host does not wait too early. */

enum { PARAMS = 5, COUNT = 3000 };

struct model {
    struct rank *me;
    ddp_ctx *ctx;
    float *memory; /* device memory: parameters, then a buffer */
    ddp_param params[PARAMS + 1];
    ddp_reducer *reducer;
};

static void *block(struct rank *me, ddp_ctx *ctx, size_t bytes)
{
    void *memory;
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(ctx), bytes, &memory));
    return memory;
}

/* Create a model. The ranks have different parameters, and all ranks must get the parameters of rank 0. */
static struct model model_open(struct rank *me, const ddp_options *context, ddp_reducer_options options)
{
    static const char *const names[] = { "a", "b", "c", "d", "e", "mean" };
    pretend_gpu();
    struct model m = { .me = me, .ctx = rank_init(me, context) };
    m.memory = block(me, m.ctx, (PARAMS + 1) * COUNT * sizeof(float));
    for (int i = 0; i <= PARAMS; i++) {
        m.params[i] =
            (ddp_param){ .name = names[i], .data = m.memory + i * COUNT, .count = COUNT, .dtype = DDP_F32 };
        m.memory[i * COUNT] = (float)(10 * me->rank + i);
    }
    options.first_bucket_bytes = 8000;
    options.bucket_cap_bytes = 20000;
    options.buffers = &m.params[PARAMS];
    options.buffer_count = 1;
    rank_expect_ok(me, ddp_reducer_create(ddp_world(m.ctx), m.params, PARAMS, &options, &m.reducer));
    return m;
}

static void model_close(struct model *m)
{
    rank_expect_ok(m->me, ddp_reducer_free(m->reducer));
    rank_expect_ok(m->me, ddp_finalize(m->ctx));
}

/* Read a value from device memory after all earlier work on the stream. */
static float value(struct model *m, const float *at)
{
    float x = -1;
    rank_expect_ok(m->me, ddp_copy(ddp_world(m->ctx), &x, at, sizeof(x), NULL));
    return x;
}

/* Run one step without ddp_reducer_finish. The parameters become ready in the order e, d, b, a, c. Parameter `unused`
 * does not become ready. */
static void backward(struct model *m, int number, int unused)
{
    static const int order[] = { 4, 3, 1, 0, 2 };
    rank_expect_ok(m->me, ddp_reducer_forward(m->reducer));
    for (int k = 0; k < PARAMS; k++) {
        int i = order[k];
        float *grad = ddp_reducer_grad(m->reducer, (size_t)i), values[COUNT];
        if (i == unused)
            continue;
        for (int j = 0; j < COUNT; j++)
            values[j] = (float)(number * 100 + i + m->me->rank * 2);
        rank_expect_ok(m->me, ddp_copy(ddp_world(m->ctx), grad, values, sizeof(values), NULL));
        rank_expect_ok(m->me, ddp_reducer_ready(m->reducer, (size_t)i));
    }
}

static void step(struct model *m, int number, int unused)
{
    backward(m, number, unused);
    rank_expect_ok(m->me, ddp_reducer_finish(m->reducer));
}

static void expect_average(struct model *m, int number, int i)
{
    const float *grad = ddp_reducer_grad(m->reducer, (size_t)i);
    float want = (float)(number * 100 + i) + (float)(m->me->world - 1);
    float first = value(m, grad), last = value(m, grad + COUNT - 1);
    rank_expect(m->me, first == want && last == want, "step %d, %s: %g and %g, %g expected", number,
                m->params[i].name, (double)first, (double)last, (double)want);
}

static void averages(struct rank *me)
{
    struct model m = model_open(me, me->user, (ddp_reducer_options)DDP_REDUCER_OPTIONS_INIT);
    rank_expect(me, ddp_reducer_buckets(m.reducer) > 2, "%zu buckets", ddp_reducer_buckets(m.reducer));
    for (int i = 0; i <= PARAMS; i++)
        rank_expect(me, value(&m, m.params[i].data) == (float)i, "parameter %d is not rank 0's", i);
    for (int number = 1; number <= 3; number++) {
        float mean = (float)(number + me->rank);
        rank_expect_ok(me, ddp_copy(ddp_world(m.ctx), m.params[PARAMS].data, &mean, sizeof(mean), NULL));
        step(&m, number, -1);
        for (int i = 0; i < PARAMS; i++)
            expect_average(&m, number, i);
        rank_expect(me, value(&m, m.params[PARAMS].data) == (float)number, "the buffer is not rank 0's");
    }
    model_close(&m);
}

static void run(int n, rank_main main, const ddp_options *options)
{
    struct ranks ranks = ranks_run(n, main, RANKS_PLAIN_STORE, options);
    ranks_expect_ok(&ranks);
    ranks_free(&ranks);
}

Test(reducer_gpu, averages_are_there_when_the_stream_is_so_far, .timeout = 120)
{
    run(2, averages, &nccl_options);
}

Test(reducer_gpu, a_world_of_one_averages_with_itself, .timeout = 120)
{
    run(1, averages, &nccl_options);
}

Test(reducer_gpu, device_gradients_go_through_the_cpu_backend, .timeout = 120)
{
    run(3, averages, &staged_options);
}

static void unused(struct rank *me)
{
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.find_unused = 1;
    struct model m = model_open(me, me->user, options);
    step(&m, 1, -1);
    step(&m, 2, 1); /* no rank uses b, so its gradient stays */
    expect_average(&m, 1, 1);
    expect_average(&m, 2, 0);
    rank_expect(me, !ddp_reducer_used(m.reducer, 1) && ddp_reducer_used(m.reducer, 0), "who used what");
    model_close(&m);
}

Test(reducer_gpu, what_nobody_uses_keeps_its_gradient, .timeout = 120)
{
    run(2, unused, &nccl_options);
}

/* Expect that the host finishes a step although NCCL has not begun an all-reduce. */
static void goes_on(struct rank *me)
{
    setenv("FAKE_NCCL_SHUT", "0", 1); /* create the variable before the threads that read it */
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.keep_buffers = 1; /* otherwise the stream would wait for a broadcast of the buffers */
    struct model m = model_open(me, &nccl_options, options);
    const float *grad = ddp_reducer_grad(m.reducer, 4); /* a gradient of the first bucket */
    setenv("FAKE_NCCL_SHUT", "1", 1);
    step(&m, 1, -1);
    rank_expect(me, *grad == (float)(100 + 4 + me->rank * 2), "the first bucket was waited for");
    setenv("FAKE_NCCL_SHUT", "0", 1);
    expect_average(&m, 1, 4);
    model_close(&m);
}

Test(reducer_gpu, the_host_waits_for_no_bucket, .timeout = 120)
{
    run(2, goes_on, NULL);
}

/* Abort the job after all buckets were launched without an error, and before the stream waits for the last bucket. */
static void gives_up_before_the_end(struct rank *me)
{
    setenv("FAKE_NCCL_SHUT", "0", 1); /* create the variable before the threads that read it */
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.keep_buffers = 1;
    struct model m = model_open(me, &nccl_options, options);
    setenv("FAKE_NCCL_SHUT", "1", 1); /* let the all-reduce wait, because the backend checks for an abort only
                                       * while calls run */
    backward(&m, 1, -1);
    ddp_work *work = NULL;
    rank_expect_ok(me, sum(m.ctx, m.params[PARAMS].data, COUNT, &work));
    ddp_abort(m.ctx, 7, "loss is nan");
    while (ddp_work_wait(work) == DDP_OK) /* until a thread of the backend detects the abort */
        usleep(1000);
    ddp_work_free(work);
    ddp_status status = ddp_reducer_finish(m.reducer);
    rank_expect(me, status == DDP_ERR_ABORTED && strstr(ddp_last_error(), "loss is nan") != NULL,
                "finish: %s: %s", ddp_status_name(status), ddp_last_error());
    status = ddp_reducer_forward(m.reducer);
    rank_expect(me, status == DDP_ERR_ABORTED, "forward: %s", ddp_status_name(status));
    ddp_reducer_free(m.reducer);
    ddp_finalize(m.ctx);
}

Test(reducer_gpu, a_last_bucket_that_fails_is_an_error_of_the_step, .timeout = 120)
{
    run(2, gives_up_before_the_end, NULL);
}

static void not_there(struct rank *me)
{
    pretend_gpu();
    ddp_ctx *ctx = rank_init(me, &nccl_options);
    float x = 0;
    const ddp_param p = { .name = "x", .data = &x, .count = 1, .dtype = DDP_F32 };
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    ddp_reducer *reducer;
    options.predivide = 2;
    rank_expect(me, ddp_reducer_create(ddp_world(ctx), &p, 1, &options, &reducer) == DDP_ERR_UNSUPPORTED,
                "created");
    rank_expect(me, strstr(ddp_last_error(), "predivide is") != NULL, "%s", ddp_last_error());
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_gpu, an_option_that_needs_the_host_is_named, .timeout = 120)
{
    run(1, not_there, NULL);
}
