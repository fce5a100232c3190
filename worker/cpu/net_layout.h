/* net_layout.h -- which rank is on which host, and what follows from it: who talks to whom, and which nodes of the
 * reduction tree (reduce.h) a host can combine by itself. Pure.
 *
 * A host is a number, given in the order of its lowest rank. The work of a collective is shared out among
 * `lanes`: lane k is the k-th part of everything, and on every host one rank serves it, so that each lane is a
 * mesh of one connection for each pair of hosts. With as many lanes as ranks on the largest host, every
 * rank has a share; on a smaller host a rank serves several lanes.
 *
 * Pieces: the tree is walked from the top; a node whose ranks are all on one host is a piece of that host.
 * Six ranks on hosts of three: {0,1} {2} | {3} {4,5}. Ranks of a host may lie anywhere; that only makes more
 * and smaller pieces. */
#ifndef WORKER_NET_LAYOUT_H
#define WORKER_NET_LAYOUT_H

#include "reducer/reduce.h"

#include <stdbool.h>

/* Hosts are joined by a mesh, and numbered in 16 bits. */
enum { NET_HOSTS_MAX = 4096, NET_WORLD_MAX = 65536 };

struct net_layout {
    int world, hosts, lanes;
    int most;                    /* ranks of the largest host */
    uint16_t *host_of;           /* of each rank */
    int *local_of;               /* its number among the ranks of its host */
    int *members;                /* ranks, host after host */
    int *start;                  /* host h has members[start[h] .. start[h + 1]) */
    struct reduce_piece *pieces; /* in the order of the tree */
    int *pieces_of;              /* how many each host has */
    int piece_count;
};

/* From the host number of each of `world` ranks (copied). False: no memory. Free in any case. */
bool net_layout_open(struct net_layout *layout, const uint16_t *host_of, int world, int hosts,
                     int most_lanes);
void net_layout_close(struct net_layout *layout);

/* The rank that serves `lane` at `host`. */
int net_server(const struct net_layout *layout, int host, int lane);

/* Whose piece is it? */
int net_piece_host(const struct net_layout *layout, int piece);

#endif
