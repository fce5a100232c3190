/* trials.c -- see trials.h. */
#include "trials.h"

#include "core/one_value.h"

#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = { "all_reduce", "reduce",  "broadcast",     "all_gather",
                                          "gather",     "scatter", "reduce_scatter" };

/* --- values --------------------------------------------------------------------------------------------- */

/* 1 or 2, sometimes negative where the type allows it: 7 of them multiplied stay below 256. */
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

/* What element i of this rank's output must be. */
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

static void choose_blocks(const struct room *room, const struct trial *t, char **in, char **out)
{
    bool shared = t->memory == SHARED || (t->memory == MIXED && room->me->rank > 0);
    size_t bytes = t->n * ddp_dtype_size(t->dtype), skip = (size_t)room->me->rank * bytes;

    *in = shared || t->memory == IN_SHARED ? room->shared_in : room->private_in;
    *out = shared ? room->shared_out : room->private_out;
    if (!t->in_place)
        return;
    /* A rank's own part of the larger block, where the sides differ. */
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

static void check_output(const struct room *room, const struct trial *t, const char *out)
{
    size_t size = ddp_dtype_size(t->dtype);
    struct rank *me = room->me;
    bool only_root = t->kind == REDUCE || t->kind == GATHER;

    if (only_root && me->rank != t->root)
        return;
    for (size_t i = 0; i < out_count(t, me->world); i++) {
        uint64_t must = 0;
        one_value_put(&must, 0, t->dtype, expected(t, me, i));
        rank_expect(me, memcmp(out + i * size, &must, size) == 0,
                    "%s %s %s x %zu, memory %d, in place %d, root %d: element %zu is wrong",
                    kind_names[t->kind], ddp_dtype_name(t->dtype), ddp_op_name(t->op), t->n, t->memory,
                    t->in_place, t->root, i);
    }
}

void trial_run(const struct room *room, const struct trial *t)
{
    char *in, *out;
    choose_blocks(room, t, &in, &out);
    rank_expect(room->me, in_count(t, room->me->world) * ddp_dtype_size(t->dtype) <= room->bytes, "room");
    memset(out, 0xee, t->n * ddp_dtype_size(t->dtype));
    if (t->kind == BROADCAST)
        in = out;
    for (size_t i = 0; i < in_count(t, room->me->world); i++)
        one_value_put(in, i, t->dtype, value_of(t->dtype, room->me->rank, i));
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

struct room room_open(struct rank *me, size_t bytes)
{
    struct room room = { .me = me, .ctx = rank_init(me, options_used), .bytes = bytes };
    room.device = ddp_device(room.ctx) >= 0;
    room.private_in = malloc(bytes);
    room.private_out = malloc(bytes);
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(room.ctx), bytes, &room.shared_in));
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(room.ctx), bytes, &room.shared_out));
    return room;
}

void room_close(struct room *room)
{
    rank_expect_ok(room->me, ddp_shared_free(ddp_world(room->ctx), room->shared_out));
    rank_expect_ok(room->me, ddp_finalize(room->ctx));
    free(room->private_in);
    free(room->private_out);
}

/* Buffers of a call in two kinds of memory are an error with a device. */
static bool goes_with(const struct room *room, int memory)
{
    return !room->device || memory == PRIVATE || memory == SHARED;
}

/* Reductions have operations; all others are tried with one. */
static int last_op(enum kind kind)
{
    return kind == ALL_REDUCE ? DDP_PROD : kind == REDUCE_SCATTER ? DDP_AVG : DDP_SUM;
}

void trials_of_all_types(struct rank *me, unsigned one_in)
{
    static const size_t sizes[] = { 0, 1, 7, 5003 };
    struct room room = room_open(me, 7 * 5003 * 8);
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

/* Many steps through the slots, every root, in place and not. */
void trials_of_large_counts(struct rank *me)
{
    static const size_t n = 1000003;
    struct room room = room_open(me, (size_t)me->world * 300007 * 4 + n * 4);

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

/* FNV-1a. Begin with 0xcbf29ce484222325. */
uint64_t trial_hash(uint64_t hash, const void *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return hash;
}
