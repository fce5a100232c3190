/* ranks.c -- see ranks.h. Ranks are forked, so a failed expectation is reported through shared memory and not by
 * Criterion. */
#include "ranks.h"

#include "core/half.h"
#include "run.h"
#include "server/server.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_S = 150 };

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

static void set_environment(const struct rank *me)
{
    set_number("RANK", me->rank);
    set_number("WORLD_SIZE", me->world);
    set_number("LOCAL_RANK", me->rank);
    set_number("LOCAL_WORLD_SIZE", me->world);
    set_number("MASTER_PORT", me->port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("DDPRUN_STORE", me->flags & RANKS_DDPRUN_STORE ? 1 : 0);
}

/* Wait until all ranks and the store exist, so that no rank's timeout begins before another rank exists. */
static void wait_for_all(const struct rank *me)
{
    const struct rank *first = me - me->rank;
    const int started = me->flags & RANKS_SKIP_LAST ? me->world - 1 : me->world;
    for (int r = 0; r < started; r++)
        while (__atomic_load_n(&first[r].pid, __ATOMIC_ACQUIRE) == 0)
            usleep(500);
    while (__atomic_load_n(&me->port, __ATOMIC_ACQUIRE) == 0)
        usleep(500);
}

static pid_t start_rank(struct rank *me, rank_main rank_function)
{
    pid_t parent = getpid(), pid = fork();
    cr_assert(pid >= 0, "fork failed");
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    alarm(LIMIT_S);
    __atomic_store_n(&me->pid, getpid(), __ATOMIC_RELEASE);
    wait_for_all(me);
    set_environment(me);
    rank_function(me);
    /* Use _exit to skip the exit handlers that Criterion has registered. This skips the check for leaks, too; the
     * separate program worker_probe checks the library for leaks. */
    _exit(0);
}

/* Start the server after all ranks. During a fork, the server's thread could hold AddressSanitizer's locks, and the new
 * rank would wait for these locks forever. */
struct ranks ranks_run(int n, rank_main main, unsigned flags, const void *user)
{
    const struct store_server_options options = { .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT };
    struct ranks ranks = { .n = n };
    struct store_server *server = NULL;
    struct ddp_err err;
    pid_t pids[RANKS_MAX];
    int started = flags & RANKS_SKIP_LAST ? n - 1 : n;

    ranks.rank = mmap(NULL, sizeof(struct rank) * (size_t)n, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(ranks.rank != MAP_FAILED && n <= RANKS_MAX);
    for (int r = 0; r < n; r++)
        ranks.rank[r] = (struct rank){ .rank = r, .world = n, .flags = flags, .user = user };
    for (int r = 0; r < started; r++)
        pids[r] = start_rank(&ranks.rank[r], main);
    cr_assert_eq(store_server_start(&options, &server, &err), DDP_OK, "%s", err.msg);
    for (int r = 0; r < started; r++)
        __atomic_store_n(&ranks.rank[r].port, store_server_port(server), __ATOMIC_RELEASE);
    for (int r = 0; r < started; r++)
        waitpid(pids[r], &ranks.rank[r].exit_status, 0);
    store_server_stop(server);
    return ranks;
}

void ranks_free(struct ranks *ranks)
{
    munmap(ranks->rank, sizeof(struct rank) * (size_t)ranks->n);
}

void ranks_expect_ok(const struct ranks *ranks)
{
    for (int r = 0; r < ranks->n; r++) {
        const struct rank *rank = &ranks->rank[r];
        cr_assert_str_empty(rank->failure, "rank %d: %s", r, rank->failure);
        cr_assert_eq(rank->exit_status, 0, "rank %d ended with wait status %d", r, rank->exit_status);
    }
}

void ranks_all_well(int n, rank_main main, unsigned flags, const void *user)
{
    struct ranks ranks = ranks_run(n, main, flags, user);
    ranks_expect_ok(&ranks);
    ranks_free(&ranks);
}

void ranks_expect_error(const struct ranks *ranks, int rank, ddp_status status, const char *const parts[])
{
    const struct rank *r = &ranks->rank[rank];
    cr_assert_str_empty(r->failure, "rank %d: %s", rank, r->failure);
    cr_assert_eq(r->status, status, "rank %d: %s expected, got %s: %s", rank, ddp_status_name(status),
                 ddp_status_name(r->status), r->words);
    for (size_t i = 0; parts[i] != NULL; i++)
        cr_assert(has_parts(r->words, parts[i]), "rank %d: \"%s\" is not in \"%s\"", rank, parts[i],
                  r->words);
}

ddp_ctx *rank_init(struct rank *me, const ddp_options *options)
{
    ddp_ctx *ctx = NULL;
    rank_expect_ok(me, ddp_init_from_env(options, &ctx));
    return ctx;
}

void rank_keep(struct rank *me, ddp_status status)
{
    me->status = status;
    snprintf(me->words, sizeof(me->words), "%s", status == DDP_OK ? "" : ddp_last_error());
}

void rank_expect(struct rank *me, bool truth, const char *fmt, ...)
{
    va_list ap;
    if (truth)
        return;
    va_start(ap, fmt);
    vsnprintf(me->failure, sizeof(me->failure), fmt, ap);
    va_end(ap);
    _exit(1);
}

int rank_open_files(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir != NULL && readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

/* --- pretend gpu ------------------------------------------------------------------------------------------ */

const ddp_options nccl_options = { .size = sizeof(ddp_options), .device = DDP_DEVICE_LOCAL };
const ddp_options staged_options = { .size = sizeof(ddp_options),
                                     .backend = "cpu",
                                     .device = DDP_DEVICE_LOCAL };

void pretend_gpu(void)
{
    setenv("DDP_CUDA_LIBRARY", bin("libddp_cuda.so"), 1);
    setenv("DDP_CUDART_LIBRARY", bin("tests/fake/libfake_gpu.so"), 1);
    setenv("DDP_CUDA_DRIVER_LIBRARY", bin("tests/fake/libfake_gpu.so"), 1);
    setenv("DDP_CUBLASLT_LIBRARY", bin("tests/fake/libfake_gpu.so"), 1);
    setenv("DDP_TRAIN_KERNELS", bin("tests/fake"), 1);
    setenv("DDP_NCCL_LIBRARY", bin("tests/fake/libfake_gpu.so"), 1);
}

/* --- trials ----------------------------------------------------------------------------------------------- */

static const char *const kind_names[] = { "all_reduce", "reduce",  "broadcast",     "all_gather",
                                          "gather",     "scatter", "reduce_scatter" };

/* --- values --------------------------------------------------------------------------------------------- */

/* Return 1 or 2, sometimes negated. The product of 7 such numbers stays below 256. */
static double value_of(ddp_dtype dtype, int rank, size_t i)
{
    double value = 1 + (double)((i + (size_t)rank * 3 + i / 7) % 2);
    return dtype != DDP_U8 && (i + (size_t)rank) % 5 == 0 ? -value : value;
}

static double combined(ddp_dtype dtype, ddp_op op, int world, size_t i)
{
    double result = value_of(dtype, 0, i);
    for (int r = 1; r < world; r++) {
        double x = value_of(dtype, r, i);
        switch (op) {
        case DDP_MIN:
            result = x < result ? x : result;
            break;
        case DDP_MAX:
            result = x > result ? x : result;
            break;
        case DDP_PROD:
            result *= x;
            break;
        default:
            result += x;
        }
    }
    return op == DDP_AVG ? result / world : result;
}

/* --- one trial ------------------------------------------------------------------------------------------ */

static size_t in_count(const struct trial *t, int world)
{
    return t->kind == SCATTER || t->kind == REDUCE_SCATTER ? t->n * (size_t)world : t->n;
}

static size_t out_count(const struct trial *t, int world)
{
    return t->kind == ALL_GATHER || t->kind == GATHER ? t->n * (size_t)world : t->n;
}

/* Return the expected element i of this rank's output. */
static double expected(const struct trial *t, const struct rank *me, size_t i)
{
    switch (t->kind) {
    case ALL_REDUCE:
    case REDUCE:
        return combined(t->dtype, t->op, me->world, i);
    case BROADCAST:
        return value_of(t->dtype, t->root, i);
    case SCATTER:
        return value_of(t->dtype, t->root, (size_t)me->rank * t->n + i);
    case REDUCE_SCATTER:
        return combined(t->dtype, t->op, me->world, (size_t)me->rank * t->n + i);
    default:
        return value_of(t->dtype, (int)(i / t->n), i % t->n);
    }
}

static void choose_blocks(const struct trial_room *room, const struct trial *t, char **in, char **out)
{
    bool shared = t->memory == SHARED || (t->memory == MIXED && room->me->rank > 0);
    size_t bytes = t->n * ddp_dtype_size(t->dtype), skip = (size_t)room->me->rank * bytes;

    *in = shared || t->memory == IN_SHARED ? room->shared_in : room->private_in;
    *out = shared ? room->shared_out : room->private_out;
    if (!t->in_place)
        return;
    /* input and output share one block. If one of them is smaller than the block, it is this rank's part of the
     * block. */
    *out = *in;
    if (t->kind == ALL_GATHER || t->kind == GATHER)
        *in = *out + skip;
    if (t->kind == SCATTER || t->kind == REDUCE_SCATTER)
        *out = *in + skip;
}

static ddp_status call(ddp_group *g, const struct trial *t, const void *in, void *out, ddp_work **work)
{
    switch (t->kind) {
    case ALL_REDUCE:
        return ddp_all_reduce(g, in, out, t->n, t->dtype, t->op, NULL, work);
    case REDUCE:
        return ddp_reduce(g, in, out, t->n, t->dtype, t->op, t->root, NULL, work);
    case BROADCAST:
        return ddp_broadcast(g, out, t->n, t->dtype, t->root, NULL, work);
    case ALL_GATHER:
        return ddp_all_gather(g, in, out, t->n, t->dtype, NULL, work);
    case GATHER:
        return ddp_gather(g, in, out, t->n, t->dtype, t->root, NULL, work);
    case SCATTER:
        return ddp_scatter(g, in, out, t->n, t->dtype, t->root, NULL, work);
    default:
        return ddp_reduce_scatter(g, in, out, t->n, t->dtype, t->op, NULL, work);
    }
}

/* The results of value_of repeat after this number of elements. */
enum { PERIOD = 70 };

/* Fill `elements` up to `n` elements with copies of the first PERIOD elements. */
static void repeat(char *elements, size_t size, size_t n)
{
    const size_t bytes = n * size;
    for (size_t done = PERIOD * size; done < bytes; done *= 2)
        memcpy(elements + done, elements, done < bytes - done ? done : bytes - done);
}

/* Return the length of the longest beginning of `size` bytes at `out` that repeats the `period` bytes at `must`. */
static size_t equal_bytes(const char *out, const char *must, size_t period, size_t size)
{
    size_t done = 0;
    while (done < size) {
        const size_t n = size - done < period ? size - done : period;
        if (memcmp(out + done, must, n) != 0)
            break;
        done += n;
    }
    return done;
}

static void check_output(const struct trial_room *room, const struct trial *t, const char *out)
{
    const size_t size = ddp_dtype_size(t->dtype), all = out_count(t, room->me->world);
    struct rank *me = room->me;
    uint64_t must[PERIOD];

    if ((t->kind == REDUCE || t->kind == GATHER) && me->rank != t->root)
        return;
    for (size_t from = 0; from < all; from += t->n) { /* the part of a rank */
        for (size_t k = 0; k < PERIOD && k < t->n; k++)
            one_value_store(must, k, t->dtype, expected(t, me, from + k));
        const char *part = out + from * size;
        for (size_t i = equal_bytes(part, (const char *)must, PERIOD * size, t->n * size) / size; i < t->n;
             i++)
            if (memcmp(part + i * size, (const char *)must + i % PERIOD * size, size) != 0)
                rank_expect(me, false,
                            "%s %s %s x %zu, memory %d, in place %d, root %d: element %zu is wrong",
                            kind_names[t->kind], ddp_dtype_name(t->dtype), ddp_op_name(t->op), t->n,
                            t->memory, t->in_place, t->root, from + i);
    }
}

void trial_run(const struct trial_room *room, const struct trial *t)
{
    char *in, *out;
    choose_blocks(room, t, &in, &out);
    rank_expect(room->me, in_count(t, room->me->world) * ddp_dtype_size(t->dtype) <= room->bytes, "room");
    memset(out, 0xee, t->n * ddp_dtype_size(t->dtype));
    if (t->kind == BROADCAST)
        in = out;
    for (size_t i = 0; i < PERIOD && i < in_count(t, room->me->world); i++)
        one_value_store(in, i, t->dtype, value_of(t->dtype, room->me->rank, i));
    repeat(in, ddp_dtype_size(t->dtype), in_count(t, room->me->world));
    ddp_work *work = NULL;
    rank_expect_ok(room->me, call(ddp_world(room->ctx), t, in, out, room->device ? &work : NULL));
    if (work != NULL)
        rank_expect_ok(room->me, ddp_work_sync(work, 0));
    ddp_work_free(work);
    check_output(room, t, out);
}

/* --- lists of trials ------------------------------------------------------------------------------------ */

static const ddp_options *options_used;

void trials_use(const ddp_options *options)
{
    options_used = options;
}

struct trial_room room_open(struct rank *me, size_t bytes)
{
    struct trial_room room = { .me = me, .ctx = rank_init(me, options_used), .bytes = bytes };
    room.device = ddp_device(room.ctx) >= 0;
    room.private_in = malloc(bytes);
    room.private_out = malloc(bytes);
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(room.ctx), bytes, &room.shared_in));
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(room.ctx), bytes, &room.shared_out));
    return room;
}

void room_close(struct trial_room *room)
{
    rank_expect_ok(room->me, ddp_shared_free(ddp_world(room->ctx), room->shared_out));
    rank_expect_ok(room->me, ddp_finalize(room->ctx));
    free(room->private_in);
    free(room->private_out);
}

/* Return true if a trial may use this memory. With a device, a call must not have buffers in two kinds of memory. */
static bool goes_with(const struct trial_room *room, int memory)
{
    return !room->device || memory == PRIVATE || memory == SHARED;
}

/* Return the last operation to try. Kinds without a reduction ignore the operation, so such kinds are tried only with
 * the first operation. */
static int last_op(enum kind kind)
{
    return kind == ALL_REDUCE ? DDP_PROD : kind == REDUCE_SCATTER ? DDP_AVG : DDP_SUM;
}

void trials_of_all_types(struct rank *me, unsigned one_in)
{
    static const size_t sizes[] = { 0, 1, 7, 5003 };
    struct trial_room room = room_open(me, 7 * 5003 * 8);
    unsigned number = 0;

    for (int kind = 0; kind < KINDS; kind++)
        for (int dtype = 0; dtype <= DDP_U8; dtype++)
            for (int op = 0; op <= last_op((enum kind)kind); op++)
                for (int s = 0; s < 4; s++)
                    for (int memory = 0; memory < MEMORIES; memory++)
                        if (number++ % one_in == 0 && goes_with(&room, memory))
                            trial_run(&room, &(struct trial){ (enum kind)kind, (ddp_dtype)dtype, (ddp_op)op,
                                                              sizes[s], s % me->world, (enum memory)memory,
                                                              s % 2 == 1 });
    room_close(&room);
}

void trials_of_large_counts(struct rank *me)
{
    static const size_t n = 1000003;
    struct trial_room room = room_open(me, (size_t)me->world * 300007 * 4 + n * 4);

    for (int memory = 0; memory < MEMORIES; memory++) {
        if (!goes_with(&room, memory))
            continue;
        trial_run(&room, &(struct trial){ ALL_REDUCE, DDP_F32, DDP_AVG, n, 0, (enum memory)memory, true });
        trial_run(&room, &(struct trial){ ALL_REDUCE, DDP_BF16, DDP_MAX, n, 0, (enum memory)memory, false });
    }
    for (int kind = REDUCE; kind < KINDS; kind++)
        for (int root = 0; root < me->world; root++)
            for (int memory = 0; memory < MEMORIES; memory++)
                if (goes_with(&room, memory))
                    trial_run(&room, &(struct trial){ (enum kind)kind, DDP_F32, DDP_SUM, 100003, root,
                                                      (enum memory)memory, root % 2 == 0 });
    room_close(&room);
}

/* Return `hash` after adding `len` bytes as FNV-1a does. `hash` is the result of an earlier call or any first value. */
uint64_t trial_hash(uint64_t hash, const void *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return hash;
}

/* --- reducer model ---------------------------------------------------------------------------------------- */

const size_t model_counts[MODEL_PARAMS] = { 300, 7, 9, 200, 64, 500 };
const size_t model_fc2_shape[2] = { 20, 10 };
float model_w[MODEL_PARAMS][500];
double model_scale[9];
float model_mean[33], model_seen[1];

void toy_params(ddp_param params[MODEL_PARAMS])
{
    static const char *const names[MODEL_PARAMS] = { "fc1.weight", "fc1.bias", "scale",
                                                     "fc2.weight", "fc2.bias", "head" };
    for (size_t i = 0; i < MODEL_PARAMS; i++)
        params[i] =
            (ddp_param){ .name = names[i], .data = model_w[i], .count = model_counts[i], .dtype = DDP_F32 };
    params[2].data = model_scale;
    params[2].dtype = DDP_F64;
    params[3].shape = model_fc2_shape;
    params[3].dims = 2;
}

ddp_reducer_options toy_options(void)
{
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.first_bucket_bytes = 1200;
    options.bucket_cap_bytes = 1000;
    return options;
}

/* Join the other ranks. me->user is a text with one letter for each rank. Ranks with the same letter are on the same
 * host. */
ddp_ctx *toy_join(struct rank *me)
{
    const char name[] = { ((const char *)me->user)[me->rank], '\0' };
    setenv("DDP_TEST_HOST", name, 1);
    return rank_init(me, NULL);
}

void model_run_on(const char *hosts, rank_main main)
{
    ranks_all_well((int)strlen(hosts), main, RANKS_PLAIN_STORE, hosts);
}

ddp_reducer *toy_open(struct rank *me, ddp_ctx *ctx, const ddp_reducer_options *options)
{
    ddp_param params[MODEL_PARAMS];
    ddp_reducer *reducer = NULL;
    toy_params(params);
    rank_expect_ok(me, ddp_reducer_create(ddp_world(ctx), params, MODEL_PARAMS, options, &reducer));
    return reducer;
}

/* --- gradients ------------------------------------------------------------------------------------------------- */

double toy_gradient(int rank, int step, size_t p, size_t e)
{
    return (double)(((size_t)rank * 7 + (size_t)step * 11 + p * 3 + e * 5) % 41) - 20;
}

double toy_get(ddp_reducer *reducer, size_t p, size_t e)
{
    const void *grad = ddp_reducer_grad(reducer, p);
    return p == 2 ? ((const double *)grad)[e] : (double)((const float *)grad)[e];
}

void toy_set(ddp_reducer *reducer, size_t p, size_t e, double value)
{
    void *grad = ddp_reducer_grad(reducer, p);
    if (p == 2)
        ((double *)grad)[e] = value;
    else
        ((float *)grad)[e] = (float)value;
}

void toy_clear(ddp_reducer *reducer)
{
    for (size_t p = 0; p < MODEL_PARAMS; p++)
        memset(ddp_reducer_grad(reducer, p), 0, model_counts[p] * (p == 2 ? 8 : 4));
}

void toy_accumulate(ddp_reducer *reducer, int rank, int step, size_t p)
{
    for (size_t e = 0; e < model_counts[p]; e++)
        toy_set(reducer, p, e, toy_get(reducer, p, e) + toy_gradient(rank, step, p, e));
}

/* Run the backward pass, in an order that differs between ranks and steps. */
void toy_backward(struct rank *me, ddp_reducer *reducer, int step)
{
    for (size_t k = 0; k < MODEL_PARAMS; k++) {
        size_t p = (5 * k + (size_t)me->rank + (size_t)step) % MODEL_PARAMS;
        toy_accumulate(reducer, me->rank, step, p);
        rank_expect_ok(me, ddp_reducer_ready(reducer, p));
    }
}

/* Return the result of the reducer for a gradient: apply the reducer's options to the sum over all ranks. */
double toy_averaged(const ddp_reducer_options *o, size_t p, double sum, double divisor)
{
    bool small = p != 2;
    if (o->predivide > 0)
        sum = sum / o->predivide * (o->predivide / divisor);
    else
        sum = small ? (double)((float)sum / (float)divisor) : sum / divisor;
    if (small && o->compress && o->predivide == 0)
        return (double)(o->wire == DDP_F16 ? f16_to_f32(f32_to_f16((float)sum))
                                           : bf16_to_f32(f32_to_bf16((float)sum)));
    return small ? (double)(float)sum : sum;
}

void model_expect_average(struct rank *me, ddp_reducer *reducer, const ddp_reducer_options *o, int first,
                          int last)
{
    for (size_t p = 0; p < MODEL_PARAMS; p++) {
        for (size_t e = 0; e < model_counts[p]; e++) {
            double sum = 0;
            for (int step = first; step <= last; step++)
                for (int r = 0; r < me->world; r++)
                    sum += toy_gradient(r, step, p, e);
            double must = toy_averaged(o, p, sum, me->world), is = toy_get(reducer, p, e);
            rank_expect(me, is == must, "step %d parameter %zu element %zu: %.9g, %.9g expected", last, p, e,
                        is, must);
        }
    }
}
