/* Every collective with real processes: types, operations, sizes, roots, private and shared memory, exact
 * values.
 *
 * Inputs are small integers chosen so that every sum and product is exact in every type; each rank
 * computes what the result must be from the rule alone, and compares every element. */
#include "half.h"
#include "ranks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, GATHER, SCATTER, REDUCE_SCATTER, KINDS };
enum memory { PRIVATE, SHARED, IN_SHARED, MIXED, MEMORIES }; /* MIXED: rank 0 private, the others shared */

static const char *const kind_names[] = { "all_reduce", "reduce",  "broadcast",     "all_gather",
                                          "gather",     "scatter", "reduce_scatter" };

struct trial {
    enum kind kind;
    ddp_dtype dtype;
    ddp_op op;
    size_t n;
    int root;
    enum memory memory;
    bool in_place;
};

/* Four blocks of a rank: in and out, private and shared. */
struct room {
    struct rank *me;
    ddp_ctx *ctx;
    char *private_in, *private_out;
    void *shared_in, *shared_out;
    size_t bytes;
};

/* --- values --------------------------------------------------------------------------------------------- */

static void put(void *block, size_t i, ddp_dtype dtype, double value)
{
    switch (dtype) {
    case DDP_F32:
        ((float *)block)[i] = (float)value;
        break;
    case DDP_F64:
        ((double *)block)[i] = value;
        break;
    case DDP_F16:
        ((uint16_t *)block)[i] = f32_to_f16((float)value);
        break;
    case DDP_BF16:
        ((uint16_t *)block)[i] = f32_to_bf16((float)value);
        break;
    case DDP_I32:
        ((int32_t *)block)[i] = (int32_t)value;
        break;
    case DDP_I64:
        ((int64_t *)block)[i] = (int64_t)value;
        break;
    case DDP_U8:
        ((uint8_t *)block)[i] = (uint8_t)value;
        break;
    }
}

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

static ddp_status call(ddp_group *g, const struct trial *t, const void *in, void *out)
{
    switch (t->kind) {
    case ALL_REDUCE:
        return ddp_all_reduce(g, in, out, t->n, t->dtype, t->op, NULL, NULL);
    case REDUCE:
        return ddp_reduce(g, in, out, t->n, t->dtype, t->op, t->root, NULL, NULL);
    case BROADCAST:
        return ddp_broadcast(g, out, t->n, t->dtype, t->root, NULL, NULL);
    case ALL_GATHER:
        return ddp_all_gather(g, in, out, t->n, t->dtype, NULL, NULL);
    case GATHER:
        return ddp_gather(g, in, out, t->n, t->dtype, t->root, NULL, NULL);
    case SCATTER:
        return ddp_scatter(g, in, out, t->n, t->dtype, t->root, NULL, NULL);
    default:
        return ddp_reduce_scatter(g, in, out, t->n, t->dtype, t->op, NULL, NULL);
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
        put(&must, 0, t->dtype, expected(t, me, i));
        rank_expect(me, memcmp(out + i * size, &must, size) == 0,
                    "%s %s %s x %zu, memory %d, in place %d, root %d: element %zu is wrong",
                    kind_names[t->kind], ddp_dtype_name(t->dtype), ddp_op_name(t->op), t->n, t->memory,
                    t->in_place, t->root, i);
    }
}

static void run_trial(const struct room *room, const struct trial *t)
{
    char *in, *out;
    choose_blocks(room, t, &in, &out);
    rank_expect(room->me, in_count(t, room->me->world) * ddp_dtype_size(t->dtype) <= room->bytes, "room");
    memset(out, 0xee, t->n * ddp_dtype_size(t->dtype));
    if (t->kind == BROADCAST)
        in = out;
    for (size_t i = 0; i < in_count(t, room->me->world); i++)
        put(in, i, t->dtype, value_of(t->dtype, room->me->rank, i));
    rank_expect_ok(room->me, call(ddp_world(room->ctx), t, in, out));
    check_output(room, t, out);
}

/* --- lists of trials ------------------------------------------------------------------------------------ */

static struct room open_room(struct rank *me, size_t bytes)
{
    struct room room = { .me = me, .ctx = rank_init(me, NULL), .bytes = bytes };
    room.private_in = malloc(bytes);
    room.private_out = malloc(bytes);
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(room.ctx), bytes, &room.shared_in));
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(room.ctx), bytes, &room.shared_out));
    return room;
}

static void close_room(struct room *room)
{
    rank_expect_ok(room->me, ddp_shared_free(ddp_world(room->ctx), room->shared_out));
    rank_expect_ok(room->me, ddp_finalize(room->ctx));
    free(room->private_in);
    free(room->private_out);
}

static void all_types_and_operations(struct rank *me)
{
    static const size_t sizes[] = { 0, 1, 7, 5003 };
    struct room room = open_room(me, 7 * 5003 * 8);

    for (int kind = 0; kind < KINDS; kind++)
        for (int dtype = 0; dtype <= DDP_U8; dtype++)
            for (int op = 0; op <= (kind == ALL_REDUCE       ? DDP_PROD
                                    : kind == REDUCE_SCATTER ? DDP_AVG
                                                             : 0);
                 op++)
                for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
                    for (int memory = 0; memory < MEMORIES; memory++)
                        run_trial(&room,
                                  &(struct trial){ (enum kind)kind, (ddp_dtype)dtype, (ddp_op)op, sizes[s],
                                                   (int)s % me->world, (enum memory)memory, s % 2 == 1 });
    close_room(&room);
}

/* Many steps through the slots, every root, in place and not. */
static void large_counts(struct rank *me)
{
    static const size_t n = 1000003;
    struct room room = open_room(me, (size_t)me->world * 300007 * 4 + n * 4);

    for (int memory = 0; memory < MEMORIES; memory++) {
        run_trial(&room, &(struct trial){ ALL_REDUCE, DDP_F32, DDP_AVG, n, 0, (enum memory)memory, true });
        run_trial(&room, &(struct trial){ ALL_REDUCE, DDP_BF16, DDP_MAX, n, 0, (enum memory)memory, false });
    }
    for (int kind = REDUCE; kind < KINDS; kind++)
        for (int root = 0; root < me->world; root++)
            for (int memory = 0; memory < MEMORIES; memory++)
                run_trial(&room, &(struct trial){ (enum kind)kind, DDP_F32, DDP_SUM, 100003, root,
                                                  (enum memory)memory, root % 2 == 0 });
    close_room(&room);
}

static void expect_all_well(int world, rank_main main, unsigned flags)
{
    struct ranks ranks = ranks_run(world, main, flags, NULL);
    ranks_expect_ok(&ranks);
    ranks_free(&ranks);
}

Test(collectives, two_ranks_agree_on_every_type_and_operation, .timeout = 180)
{
    expect_all_well(2, all_types_and_operations, RANKS_PLAIN_STORE);
}

Test(collectives, three_ranks_agree_on_every_type_and_operation, .timeout = 180)
{
    expect_all_well(3, all_types_and_operations, RANKS_PLAIN_STORE);
}

Test(collectives, four_ranks_agree_on_every_type_and_operation, .timeout = 180)
{
    expect_all_well(4, all_types_and_operations, RANKS_PLAIN_STORE);
}

Test(collectives, seven_ranks_agree_on_every_type_and_operation, .timeout = 180)
{
    expect_all_well(7, all_types_and_operations, RANKS_PLAIN_STORE);
}

Test(collectives, a_world_of_one_needs_no_one, .timeout = 180)
{
    expect_all_well(1, all_types_and_operations, RANKS_PLAIN_STORE);
    expect_all_well(1, large_counts, RANKS_PLAIN_STORE);
}

Test(collectives, three_ranks_move_large_counts, .timeout = 180)
{
    expect_all_well(3, large_counts, RANKS_PLAIN_STORE);
}

Test(collectives, four_ranks_move_large_counts, .timeout = 180)
{
    expect_all_well(4, large_counts, RANKS_PLAIN_STORE);
}

/* --- the same bits every time --------------------------------------------------------------------------- */

static uint64_t fnv(uint64_t hash, const void *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
    return hash;
}

/* Values whose sum depends on the order of additions, through private and through shared memory. */
static void sum_noise(struct rank *me)
{
    enum { N = 70001 };
    struct room room = open_room(me, N * 4);
    uint64_t hash[2] = { 0xcbf29ce484222325u, 0xcbf29ce484222325u };
    float *const in[2] = { (float *)room.private_in, room.shared_in };

    for (int memory = 0; memory < 2; memory++) {
        srand((unsigned)me->rank + 1);
        for (int i = 0; i < N; i++)
            in[memory][i] = (float)rand() / (float)(1 + rand() % 1000);
        rank_expect_ok(
            me, ddp_all_reduce(ddp_world(room.ctx), in[memory], in[memory], N, DDP_F32, DDP_AVG, NULL, NULL));
        hash[memory] = fnv(hash[memory], in[memory], N * 4);
    }
    rank_expect(me, hash[0] == hash[1], "the way through memory changes the bits");
    me->value = hash[0];
    close_room(&room);
}

Test(collectives, equal_runs_give_equal_bits_on_every_rank, .timeout = 180)
{
    uint64_t first = 0;
    for (int run = 0; run < 3; run++) {
        struct ranks ranks = ranks_run(4, sum_noise, RANKS_PLAIN_STORE, NULL);
        ranks_expect_ok(&ranks);
        if (run == 0)
            first = ranks.rank[0].value;
        for (int r = 0; r < 4; r++)
            cr_assert_eq(ranks.rank[r].value, first, "run %d rank %d", run, r);
        ranks_free(&ranks);
    }
}

/* --- arguments ------------------------------------------------------------------------------------------ */

static void refuse(struct rank *me, ddp_status status, const char *part)
{
    rank_expect(me, status == DDP_ERR_ARG && strstr(ddp_last_error(), part) != NULL,
                "%s expected, got %s: %s", part, ddp_status_name(status), ddp_last_error());
}

/* A wrong argument is found before any other rank is involved, so the job goes on. */
static void wrong_arguments(struct rank *me)
{
    float x[8] = { 0 }, one = 1;
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_group *g = ddp_world(ctx);

    refuse(me, ddp_all_reduce(g, NULL, x, 1, DDP_F32, DDP_SUM, NULL, NULL), "`in` is NULL");
    refuse(me, ddp_all_reduce(g, x, NULL, 1, DDP_F32, DDP_SUM, NULL, NULL), "`out` is NULL");
    refuse(me, ddp_all_reduce(g, x, x + 1, 4, DDP_F32, DDP_SUM, NULL, NULL), "overlap");
    refuse(me, ddp_all_reduce(g, x, x, 1, (ddp_dtype)40, DDP_SUM, NULL, NULL), "dtype 40");
    refuse(me, ddp_all_reduce(g, x, x, 1, DDP_F32, (ddp_op)9, NULL, NULL), "op 9");
    refuse(me, ddp_broadcast(g, x, 1, DDP_F32, me->world, NULL, NULL), "is not a rank");
    refuse(me, ddp_broadcast(g, x, SIZE_MAX / 4, DDP_F32, 0, NULL, NULL), "more than memory can hold");
    refuse(me, ddp_shared_free(g, x), "does not come from ddp_shared_alloc");
    rank_expect_ok(me, ddp_all_reduce(g, &one, &one, 1, DDP_F32, DDP_SUM, NULL, NULL));
    rank_expect(me, one == (float)me->world, "the job goes on");
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(collectives, wrong_arguments_are_refused_and_harm_nobody, .timeout = 180)
{
    expect_all_well(2, wrong_arguments, RANKS_PLAIN_STORE);
}

static void work_handles(struct rank *me)
{
    int32_t x = me->rank + 1;
    ddp_work *work = NULL;
    ddp_ctx *ctx = rank_init(me, NULL);
    rank_expect_ok(me, ddp_all_reduce(ddp_world(ctx), &x, &x, 1, DDP_I32, DDP_SUM, NULL, &work));
    rank_expect(me, work != NULL, "there is a handle");
    rank_expect_ok(me, ddp_work_wait(work));
    rank_expect(me, x == me->world * (me->world + 1) / 2, "x is %d", x);
    ddp_work_free(work);
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(collectives, a_work_handle_is_waited_for_and_freed, .timeout = 180)
{
    expect_all_well(3, work_handles, RANKS_PLAIN_STORE);
}
