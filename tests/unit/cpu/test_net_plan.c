/* Tests of the plans for many layouts of ranks on hosts, without a network. A result that is joined from pieces has the
 * same bits as a result that is computed in one step. Every value of every collective arrives exactly once at every
 * host that needs the value. Steps fit into their buffers. */
#include "cpu/net_plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD_MOST = 33, N = 521 };

static double room[WORLD_MOST][N]; /* a row of values for each rank; smaller types fill only a part */

static void fill(ddp_dtype dtype)
{
    unsigned char *bytes = (unsigned char *)room;
    srand(11);
    for (size_t i = 0; i < sizeof(room); i++)
        bytes[i] = (unsigned char)rand();
    /* Random bits would give mostly huge or tiny floats, so take floats from a small range instead. */
    for (int r = 0; r < WORLD_MOST; r++)
        for (int i = 0; i < N; i++) {
            float f = (float)(rand() % 20001 - 10000) / (float)(1 + rand() % 300);
            if (dtype == DDP_F32)
                ((float *)room[r])[i] = f;
            if (dtype == DDP_F64)
                room[r][i] = f / 3.0;
            if (dtype == DDP_F16)
                ((uint16_t *)room[r])[i] = (uint16_t)(rand() % 0x5000 | (rand() & 1) << 15);
            if (dtype == DDP_BF16)
                ((uint16_t *)room[r])[i] = (uint16_t)(0x3e00 + rand() % 0x400 + ((rand() & 1) << 15));
        }
}

/* Check that a result that is joined from pieces has the same bits as a result that is computed in one step. */
static void check_bits(const struct net_layout *l, ddp_dtype dtype, ddp_op op)
{
    static double partial[WORLD_MOST][N];
    static char once[N * 8], joined[N * 8];
    const void *in[WORLD_MOST], *partials[WORLD_MOST];
    void *out = once;

    for (int r = 0; r < l->world; r++)
        in[r] = room[r];
    for (int p = 0; p < l->piece_count; p++) {
        reduce_piece(dtype, op, in + l->pieces[p].first, l->pieces[p].count, N, partial[p]);
        partials[p] = partial[p];
    }
    reduce_range(dtype, op, in, (size_t)l->world, 0, N, &out, 1);
    reduce_join(dtype, op, l->pieces, (size_t)l->world, partials, N, joined);
    cr_assert_eq(memcmp(once, joined, N * ddp_dtype_size(dtype)), 0, "world %d, %d hosts, %s %s", l->world,
                 l->hosts, ddp_dtype_name(dtype), ddp_op_name(op));
}

/* A function of this type checks one layout of ranks on hosts. for_layouts calls this function for many layouts of
 * `world` ranks. For each `size` from 1 to `world`, for_layouts makes three layouts: hosts with `size` consecutive
 * ranks, `size` hosts with alternating ranks, and at most `size` hosts with random ranks. For at most 7 ranks,
 * for_layouts also tries every way to divide the ranks into hosts with consecutive ranks. */
typedef void (*check_fn)(const struct net_layout *layout, const void *user);

static void with_layout(const uint16_t *host_of, int world, check_fn check, const void *user)
{
    uint16_t number[WORLD_MOST], seen[WORLD_MOST];
    int hosts = 0;
    /* Number the hosts in the order of their lowest ranks. */
    for (int r = 0; r < world; r++) {
        int h = 0;
        while (h < hosts && seen[h] != host_of[r])
            h++;
        if (h == hosts)
            seen[hosts++] = host_of[r];
        number[r] = (uint16_t)h;
    }
    struct net_layout l;
    cr_assert(net_layout_open(&l, number, world, hosts, 8));
    check(&l, user);
    net_layout_close(&l);
}

static void for_layouts(int world, check_fn check, const void *user)
{
    uint16_t host_of[WORLD_MOST] = { 0 };
    for (unsigned cuts = 0; world <= 7 && cuts < 1u << (world - 1); cuts++) {
        for (int r = 1; r < world; r++)
            host_of[r] = (uint16_t)(host_of[r - 1] + (cuts >> (r - 1) & 1));
        with_layout(host_of, world, check, user);
    }
    for (int size = 1; size <= world; size++) {
        for (int r = 0; r < world; r++)
            host_of[r] = (uint16_t)(r / size);
        with_layout(host_of, world, check, user);
        for (int r = 0; r < world; r++)
            host_of[r] = (uint16_t)(r % size);
        with_layout(host_of, world, check, user);
        for (int r = 0; r < world; r++)
            host_of[r] = (uint16_t)(rand() % size);
        with_layout(host_of, world, check, user);
    }
}

struct reduction {
    ddp_dtype dtype;
    ddp_op op;
};

static void check_reduction(const struct net_layout *l, const void *user)
{
    const struct reduction *r = user;
    check_bits(l, r->dtype, r->op);
}

Test(net_plan, pieces_of_hosts_give_the_bits_of_one_host_for_every_type_and_operation)
{
    for (int dtype = 0; dtype <= DDP_U8; dtype++) {
        fill((ddp_dtype)dtype);
        for (int op = 0; op <= DDP_PROD; op++)
            for (int world = 1; world <= 9; world++)
                for_layouts(world, check_reduction, &(struct reduction){ (ddp_dtype)dtype, (ddp_op)op });
    }
}

Test(net_plan, pieces_of_hosts_give_the_bits_of_one_host_for_every_world_up_to_33)
{
    static const struct reduction some[] = { { DDP_F32, DDP_SUM },
                                             { DDP_F32, DDP_AVG },
                                             { DDP_BF16, DDP_AVG } };
    for (int i = 0; i < 3; i++) {
        fill(some[i].dtype);
        for (int world = 10; world <= WORLD_MOST; world++)
            for_layouts(world, check_reduction, &some[i]);
    }
}

Test(net_plan, equal_hosts_of_a_power_of_two_have_one_piece_each)
{
    uint16_t host_of[32];
    struct net_layout l;
    for (int r = 0; r < 32; r++)
        host_of[r] = (uint16_t)(r / 8);
    cr_assert(net_layout_open(&l, host_of, 32, 4, 4));
    cr_assert_eq(l.piece_count, 4);
    cr_assert_eq(l.lanes, 4);
    for (int h = 0; h < 4; h++) {
        cr_assert_eq(l.pieces_of[h], 1);
        cr_assert_eq(l.pieces[h].first, (uint32_t)h * 8);
        cr_assert_eq(net_server(&l, h, 3), h * 8 + 3);
    }
    net_layout_close(&l);
}

Test(net_plan, a_small_host_serves_several_lanes)
{
    const uint16_t host_of[] = { 0, 0, 0, 1, 0, 1 };
    struct net_layout l;
    cr_assert(net_layout_open(&l, host_of, 6, 2, 8));
    cr_assert_eq(l.lanes, 4);
    cr_assert_eq(net_server(&l, 0, 3), 4);
    cr_assert_eq(net_server(&l, 1, 0), 3);
    cr_assert_eq(net_server(&l, 1, 1), 5);
    cr_assert_eq(net_server(&l, 1, 2), 3);
    cr_assert_eq(l.local_of[4], 3);
    net_layout_close(&l);
}

/* --- targets of values ---------------------------------------------------------------------------------- */

enum { SLOT = 16384, AREA = 1 << 18 };

/* Check that after both phases every host that needs a column has this column: the host owned it, or received it
 * exactly once. */
static void check_column(const struct net_way *way, const struct net_column *column, const char *word)
{
    const struct net_layout *l = way->layout;
    for (int h = 0; h < l->hosts; h++) {
        int first = 0, second = 0;
        for (int from = 0; from < l->hosts; from++) {
            first += net_goes_first(way, column, from, h);
            second += net_goes_second(way, column, from, h);
        }
        if (way->first == NET_REDUCE)
            cr_assert_eq(first, net_owns(column, h) ? l->hosts - 1 : 0, "%s", word);
        if (way->first == NET_SPREAD)
            cr_assert_eq(first, net_owns(column, h) && h != way->root_host, "%s", word);
        if (net_wants(way, column, h))
            cr_assert_eq(net_holds(way, column, h) + second, 1, "%s: host %d of %d", word, h, l->hosts);
        else
            cr_assert_eq(second, 0, "%s", word);
    }
}

/* Check a step: the columns are adjacent, the parts of the lanes are adjacent in their column, and all fit into the
 * slot. */
static void check_step(const struct net_way *way, size_t n, const char *word)
{
    size_t at = 0;
    for (int c = 0; c < net_column_count(way); c++) {
        struct net_column column = net_column_at(way, n, c);
        cr_assert_eq(column.range.at, at);
        at += column.range.n;
        size_t part_at = column.range.at;
        for (int lane = 0; lane < way->lanes; lane++) {
            struct net_range part = net_lane_part(way, &column, lane);
            cr_assert_eq(part.at, part_at);
            part_at += part.n;
        }
        cr_assert_eq(part_at, at);
        check_column(way, &column, word);
    }
    cr_assert_leq(at * way->element, (size_t)SLOT, "%s", word);
}

/* Return how many bytes of pieces one rank of host number `host` may hold at once. */
static size_t pieces_in_hand(const struct net_way *way, int host, size_t n)
{
    const struct net_layout *l = way->layout;
    size_t elements = 0;
    for (int c = 0; c < net_column_count(way); c++) {
        struct net_column column = net_column_at(way, n, c);
        elements += column.range.n * (size_t)l->pieces_of[host];
        if (net_owns(&column, host))
            elements += column.range.n * (size_t)(l->piece_count - l->pieces_of[host]);
    }
    return elements * way->partial;
}

static void check_call(const struct net_layout *l, const struct call *call)
{
    size_t area = net_area_least(l) > AREA ? net_area_least(l) : AREA;
    struct net_way way = net_way_of(l, call, SLOT, area);
    size_t steps = net_steps(&way);
    const char *word = call_rules[call->kind].word;

    cr_assert_gt(way.per_step, 0, "%s", word);
    cr_assert_geq(steps * way.per_step, (size_t)call->n);
    check_step(&way, way.per_step, word);
    check_step(&way, (size_t)call->n - (steps - 1) * way.per_step, word);
    for (int h = 0; h < l->hosts && way.first == NET_REDUCE; h++)
        cr_assert_leq(pieces_in_hand(&way, h, way.per_step), area, "%s", word);
}

/* Try each root of a small world, and three roots of a large world, because all roots would take a minute. */
static void check_ways(const struct net_layout *l, const void *user)
{
    const int next = l->world < 9 ? 1 : l->world / 2;
    static const uint64_t counts[] = { 1, 100, 20000 };
    static const ddp_dtype dtypes[] = { DDP_F32, DDP_U8, DDP_F64 };
    (void)user;
    for (int kind = CALL_ALL_REDUCE; kind <= CALL_REDUCE_SCATTER; kind++)
        for (int root = 0; root < (call_rules[kind].rooted ? l->world : 1); root += next)
            for (int c = 0; c < 3; c++)
                for (int d = 0; d < 3; d++)
                    check_call(l, &(struct call){ .kind = (enum call_kind)kind,
                                                  .n = counts[c],
                                                  .dtype = dtypes[d],
                                                  .root = root });
}

Test(net_plan, every_value_gets_where_it_is_wanted_once)
{
    for (int world = 2; world <= WORLD_MOST; world += world < 9 ? 1 : 8)
        for_layouts(world, check_ways, NULL);
}

Test(net_plan, a_call_that_moves_nothing_has_no_steps)
{
    const uint16_t host_of[] = { 0, 1 };
    struct net_layout l;
    cr_assert(net_layout_open(&l, host_of, 2, 2, 8));
    struct net_way barrier = net_way_of(&l, &(struct call){ .kind = CALL_BARRIER }, SLOT, AREA);
    struct net_way empty = net_way_of(&l, &(struct call){ .kind = CALL_ALL_REDUCE }, SLOT, AREA);
    cr_assert_eq(net_steps(&barrier), 0);
    cr_assert_eq(net_steps(&empty), 0);
    cr_assert_eq(barrier.lanes, 1);
    net_layout_close(&l);
}
