/* net_layout.c -- see net_layout.h.
 *
 * Every rank computes the same from the same numbers, so nothing of it is sent. All arrays are sized by the
 * world and made at once; the walks below are linear, or O(n log n) for the tree, and done once in a run. */
#include "cpu/net_layout.h"

#include <stdlib.h>
#include <string.h>

/* Ranks in order, host after host: first count, then place. A counting sort. The counts stand one place
 * further on, so that summing them up turns them into beginnings. */
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

/* The walk of the tree, with reduce.c's rule for the left part. A node of one rank is always a piece. The
 * same rule, because the order of additions decides the last bits: pieces joined along another tree would
 * give another sum than on one host. */
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

/* A host with fewer ranks than lanes goes round again: some of its ranks serve two. */
int net_server(const struct net_layout *layout, int host, int lane)
{
    return member(layout, host, lane % ranks_of(layout, host));
}

int net_piece_host(const struct net_layout *layout, int piece)
{
    return layout->host_of[layout->pieces[piece].first];
}
