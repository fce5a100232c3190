/* net_plan.c -- see net_plan.h.
 *
 * Ranks do not exchange sizes. The same functions compute how many bytes a rank sends and how many bytes its peer
 * expects, so both numbers are equal. */
#include "cpu/net_plan.h"

#include "core/call.h"

#include <stdlib.h>
#include <string.h>

/* The layout is made once per job, in O(n log n) steps for n ranks. */

/* Sort the ranks by host, so that start[h] is the index of the first member of host h. */
static void list_members(struct net_layout *l)
{
    for (int r = 0; r < l->world; r++)
        l->local_of[r] = l->start[l->host_of[r] + 1]++;
    for (int h = 0; h < l->hosts; h++) {
        l->most = l->start[h + 1] > l->most ? l->start[h + 1] : l->most;
        l->start[h + 1] += l->start[h];
    }
    for (int r = 0; r < l->world; r++)
        l->members[l->start[l->host_of[r]] + l->local_of[r]] = r;
}

static bool is_on_one_host(const struct net_layout *l, uint32_t first, uint32_t count)
{
    for (uint32_t r = first + 1; r < first + count; r++)
        if (l->host_of[r] != l->host_of[first])
            return false;
    return true;
}

/* List the pieces of the subtree with ranks [first, first + count). The tree must equal the tree of reduce.c, because
 * the order of additions determines the last bits of a sum. */
static void list_pieces(struct net_layout *l, uint32_t first, uint32_t count)
{
    uint32_t left = 1;

    if (is_on_one_host(l, first, count)) {
        l->pieces[l->piece_count++] = (struct reduce_piece){ first, count };
        l->pieces_of[l->host_of[first]]++;
        return;
    }
    while (left * 2 < count)
        left *= 2;
    list_pieces(l, first, left);
    list_pieces(l, first + left, count - left);
}

bool net_layout_open(struct net_layout *layout, const uint16_t *host_of, int world, int hosts, int most_lanes)
{
    struct net_layout *l = layout;
    size_t ranks = (size_t)world;

    *l = (struct net_layout){ .world = world, .hosts = hosts };
    l->host_of = malloc(ranks * sizeof(*l->host_of));
    l->local_of = calloc(ranks, sizeof(*l->local_of));
    l->members = calloc(ranks, sizeof(*l->members));
    l->start = calloc((size_t)hosts + 1, sizeof(*l->start));
    l->pieces = calloc(ranks, sizeof(*l->pieces));
    l->pieces_of = calloc((size_t)hosts, sizeof(*l->pieces_of));
    if (!l->host_of || !l->local_of || !l->members || !l->start || !l->pieces || !l->pieces_of)
        return false;
    memcpy(l->host_of, host_of, ranks * sizeof(*host_of));
    list_members(l);
    list_pieces(l, 0, (uint32_t)world);
    l->lanes = l->most < most_lanes ? l->most : most_lanes;
    return true;
}

void net_layout_close(struct net_layout *layout)
{
    free(layout->host_of);
    free(layout->local_of);
    free(layout->members);
    free(layout->start);
    free(layout->pieces);
    free(layout->pieces_of);
    *layout = (struct net_layout){ 0 };
}

static int ranks_of(const struct net_layout *layout, int host)
{
    return layout->start[host + 1] - layout->start[host];
}

static int member(const struct net_layout *layout, int host, int i)
{
    return layout->members[layout->start[host] + i];
}

/* Return the rank that serves a lane. On a host with fewer ranks than lanes, some ranks serve several lanes. */
int net_server(const struct net_layout *layout, int host, int lane)
{
    return member(layout, host, lane % ranks_of(layout, host));
}

int net_piece_host(const struct net_layout *layout, int piece)
{
    return layout->host_of[layout->pieces[piece].first];
}

/* --- phases of each kind of call -------------------------------------------------------------------------- */

/* Maximum number of bytes that a host sends in a small call. Up to this number, one phase is faster than two phases,
 * although a host may send more bytes in one phase. */
enum { SMALL = 32 << 10 };

static const struct net_way ways[CALL_KINDS] = {
#define WAY(c, f, s, gives, takes, root_takes)                                      \
    {                                                                               \
        .columns = c, .first = f, .second = s, .gathers = gives, .scatters = takes, \
        .only_root_takes = root_takes                                               \
    }
    [CALL_ALL_REDUCE] = WAY(NET_PER_HOST, NET_REDUCE, NET_TO_ALL, false, false, false),
    [CALL_BROADCAST] = WAY(NET_PER_HOST, NET_SPREAD, NET_TO_OTHERS, false, false, false),
    [CALL_REDUCE] = WAY(NET_AT_ROOT, NET_REDUCE, NET_NO_SECOND, false, false, true),
    [CALL_REDUCE_SCATTER] = WAY(NET_PER_RANK, NET_REDUCE, NET_NO_SECOND, false, true, false),
    [CALL_SCATTER] = WAY(NET_PER_RANK, NET_SPREAD, NET_NO_SECOND, false, true, false),
    [CALL_ALL_GATHER] = WAY(NET_PER_RANK, NET_NO_FIRST, NET_TO_ALL, true, false, false),
    [CALL_GATHER] = WAY(NET_PER_RANK, NET_NO_FIRST, NET_TO_ROOT, true, false, true),
#undef WAY
};

/* --- sizes of a step ------------------------------------------------------------------------------------- */

/* Return the number of elements in all columns of a step. If each rank has its own column, `n` is the number in
 * one column. */
static size_t all_of(const struct net_way *way, size_t n)
{
    return way->columns == NET_PER_RANK ? n * (size_t)way->layout->world : n;
}

/* Return an upper limit of the number of elements that one host owns in a step of `n` elements. The shares of two hosts
 * differ by at most PART_LINE bytes, which hold at most PART_LINE elements. */
static size_t own_of(const struct net_way *way, size_t n)
{
    switch (way->columns) {
    case NET_PER_HOST:
        return n / (size_t)way->layout->hosts + PART_LINE;
    case NET_PER_RANK:
        return n * (size_t)way->layout->most;
    default:
        return n;
    }
}

/* Return the size in bytes of all pieces, own and received, of a rank that serves all lanes. Assume that the rank is
 * on the host with the most pieces. */
static size_t pieces_bytes(const struct net_way *way, size_t n)
{
    const struct net_layout *l = way->layout;
    size_t most = 0;
    for (int h = 0; h < l->hosts; h++)
        most = (size_t)l->pieces_of[h] > most ? (size_t)l->pieces_of[h] : most;
    return (most * all_of(way, n) + (size_t)l->piece_count * own_of(way, n)) * way->partial;
}

/* Return how many elements one step handles (net_way.per_step). The values of a step must fit into `slot_bytes`. The
 * pieces of a step, as unfinished values (reduce.h), must fit into `area_bytes`. Round down to whole units of PART_LINE
 * bytes. */
static size_t fit(const struct net_way *way, size_t slot_bytes, size_t area_bytes)
{
    size_t line = PART_LINE / way->element, n = slot_bytes / way->element;
    if (way->columns == NET_PER_RANK)
        n /= (size_t)way->layout->world;
    while (way->first == NET_REDUCE && n > 1 && pieces_bytes(way, n) > area_bytes)
        n /= 2;
    /* Round down to whole units of PART_LINE bytes, because all parts (part_of) are then nearly equal. */
    return n > line ? n / line * line : n;
}

/* Return the size in bytes of the smallest area in which a step of one element fits. Assume 8 bytes for an unfinished
 * value (reduce.h), the maximum of all types. */
size_t net_area_least(const struct net_layout *layout)
{
    const struct net_way per_rank = { .layout = layout, .columns = NET_PER_RANK, .partial = 8 };
    const struct net_way per_host = { .layout = layout, .columns = NET_PER_HOST, .partial = 8 };
    size_t a = pieces_bytes(&per_rank, 1), b = pieces_bytes(&per_host, 1);
    return a > b ? a : b;
}

/* --- path of a call ------------------------------------------------------------------------------------- */

/* Return true if a host sends at most SMALL bytes when it sends all values to every other host. */
static bool is_small(const struct net_way *way)
{
    return all_of(way, way->n) * way->element * (size_t)(way->layout->hosts - 1) <= SMALL;
}

/* Plan a call. A small call uses one lane, because each lane needs its own system calls. If a small call would have one
 * column for each host, it gets a single column that all hosts own (NET_FOR_ALL). A host may then send more bytes, but
 * in one phase instead of two. */
struct net_way net_way_of(const struct net_layout *layout, const struct call *call, size_t slot_bytes,
                          size_t area_bytes)
{
    struct net_way way = ways[call->kind];

    way.layout = layout;
    way.lanes = 1;
    if (call_rules[call->kind].in == AT_NONE || call->n == 0)
        return way;
    way.root = call->root;
    way.root_host = layout->host_of[call->root];
    way.element = ddp_dtype_size(call->dtype);
    way.partial = reduce_partial_size(call->dtype);
    way.n = (size_t)call->n;
    if (!is_small(&way)) {
        way.lanes = layout->lanes;
    } else if (way.columns == NET_PER_HOST) {
        /* One phase is faster than two. */
        way.columns = NET_FOR_ALL;
        way.second = NET_NO_SECOND;
    }
    way.per_step = fit(&way, slot_bytes, area_bytes);
    return way;
}

size_t net_steps(const struct net_way *way)
{
    return way->n == 0 ? 0 : (way->n + way->per_step - 1) / way->per_step;
}

/* --- columns -------------------------------------------------------------------------------------------- */

int net_column_count(const struct net_way *way)
{
    switch (way->columns) {
    case NET_PER_HOST:
        return way->layout->hosts;
    case NET_PER_RANK:
        return way->layout->world;
    default:
        return 1;
    }
}

struct net_column net_column_at(const struct net_way *way, size_t n, int column)
{
    struct net_column out = { { 0, n }, NET_EVERYBODY };

    switch (way->columns) {
    case NET_PER_HOST:
        out.owner = column;
        part_of(n, way->element, column, way->layout->hosts, &out.range.at, &out.range.n);
        break;
    case NET_PER_RANK:
        out.owner = way->layout->host_of[column];
        out.range.at = n * (size_t)column;
        break;
    case NET_AT_ROOT:
        out.owner = way->root_host;
        break;
    case NET_FOR_ALL:
        break;
    }
    return out;
}

struct net_range net_lane_part(const struct net_way *way, const struct net_column *column, int lane)
{
    struct net_range part;
    part_of(column->range.n, way->element, lane, way->lanes, &part.at, &part.n);
    part.at += column->range.at;
    return part;
}

bool net_owns(const struct net_column *column, int host)
{
    return column->owner == NET_EVERYBODY || column->owner == host;
}

/* Return true if `host` has the finished values of the column after the first phase. In a broadcast the root's host has
 * all columns from the beginning. */
bool net_holds(const struct net_way *way, const struct net_column *column, int host)
{
    return net_owns(column, host) ||
           (way->first == NET_SPREAD && way->second != NET_NO_SECOND && host == way->root_host);
}

bool net_goes_first(const struct net_way *way, const struct net_column *column, int from, int to)
{
    if (from == to || !net_owns(column, to))
        return false;
    return way->first == NET_REDUCE || (way->first == NET_SPREAD && from == way->root_host);
}

bool net_goes_second(const struct net_way *way, const struct net_column *column, int from, int to)
{
    return way->second != NET_NO_SECOND && from != to && column->owner == from &&
           !net_holds(way, column, to) && net_wants(way, column, to);
}

bool net_wants(const struct net_way *way, const struct net_column *column, int host)
{
    return way->second == NET_NO_SECOND ? net_owns(column, host)
           : way->second == NET_TO_ROOT ? host == way->root_host
                                        : true;
}

/* --- location ------------------------------------------------------------------------------------------- */

/* Return the index of the column's first element in the caller's input. The step begins at element `at`. */
size_t net_in_place(const struct net_way *way, const struct net_column *column, int c, size_t at)
{
    if (way->gathers)
        return at;
    return way->columns == NET_PER_RANK ? (size_t)c * way->n + at : column->range.at + at;
}

size_t net_slot_place(const struct net_way *way, const struct net_column *column)
{
    return way->gathers ? 0 : column->range.at;
}

size_t net_out_place(const struct net_way *way, const struct net_column *column, int c, size_t at)
{
    if (way->scatters)
        return at;
    return way->columns == NET_PER_RANK ? (size_t)c * way->n + at : column->range.at + at;
}
