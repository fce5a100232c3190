/* net_plan.h -- the table and the arithmetic of how a collective travels between hosts. Pure.
 *
 * A collective is done in steps that fit into the slots of shared memory. The elements of a step form
 * columns; a column has an owner, a host. There are at most two phases:
 *
 *     first    REDUCE  every host sends its pieces of a column (reduce.h, unfinished) to the owner, which joins them
 *              SPREAD  the root's host sends the column to its owner
 *     second   the owner sends the finished column to the hosts that want it
 *
 *                      columns                     first     second
 *     all_reduce       a share for each host       reduce    to all           2 (H-1)/H times the size, each way
 *     broadcast        a share for each host       spread    to all but the root's
 *     reduce           one, the root's host's      reduce    -
 *     reduce_scatter   one for each rank           reduce    -
 *     scatter          one for each rank           spread    -
 *     all_gather       one for each rank           -         to all
 *     gather           one for each rank           -         to the root's host
 *     small ones       one, of all hosts           as above  -                one trip instead of two
 *
 * Sender and receiver compute all sizes from the same call and the same layout, so no size is sent. Lane k has the
 * k-th part of every column. */
#ifndef WORKER_CPU_NET_PLAN_H
#define WORKER_CPU_NET_PLAN_H

#include "core/call.h"
#include "reducer/reduce.h"

#include <stdbool.h>

/* Which rank is on which host, which ranks connect, and which nodes of the reduction tree (reduce.h) a host can
 * combine by itself. Pure.
 *
 * A host is a number, assigned in the order of its lowest rank. The work of a collective is divided among `lanes`:
 * lane k is the k-th part of everything, and on every host one rank serves it, so that each lane is a mesh of one
 * connection for each pair of hosts. With as many lanes as ranks on the largest host, every rank has a share; on a
 * smaller host a rank serves several lanes.
 *
 * Pieces: the tree is walked from the top; a node whose ranks are all on one host is a piece of that host. Six ranks
 * on hosts of three: {0,1} {2} | {3} {4,5}. Ranks of a host may lie anywhere; that only makes more and smaller
 * pieces. */

/* Hosts are connected by a mesh, and numbered in 16 bits. */
enum { NET_HOSTS_MAX = 4096, NET_WORLD_MAX = 65536 };

struct net_layout {
    int world, hosts, lanes;
    int most;                    /* ranks of the largest host */
    uint16_t *host_of;           /* of each rank */
    int *local_of;               /* its number among the ranks of its host */
    int *members;                /* ranks, host after host */
    int *start;                  /* host h has members[start[h] .. start[h + 1]) */
    struct reduce_piece *pieces; /* pieces in the order of the tree */
    int *pieces_of;              /* how many each host has */
    int piece_count;
};

/* Build it from the host number of each of `world` ranks (copied). False: no memory. Free it in any case. */
bool net_layout_open(struct net_layout *layout, const uint16_t *host_of, int world, int hosts,
                     int most_lanes);
void net_layout_close(struct net_layout *layout);

/* Return the rank that serves `lane` at `host`. */
int net_server(const struct net_layout *layout, int host, int lane);

/* Return the host that owns a piece. */
int net_piece_host(const struct net_layout *layout, int piece);

/* --- targets ---------------------------------------------------------------------------------------------- */

enum net_columns { NET_PER_HOST, NET_PER_RANK, NET_AT_ROOT, NET_FOR_ALL };
enum net_first { NET_NO_FIRST, NET_REDUCE, NET_SPREAD };
enum net_second { NET_NO_SECOND, NET_TO_ALL, NET_TO_OTHERS /* but the root's host */, NET_TO_ROOT };

struct net_way {
    const struct net_layout *layout; /* borrowed */
    enum net_columns columns;
    enum net_first first;
    enum net_second second;
    bool gathers;  /* a rank gives its own column; otherwise its input has all columns */
    bool scatters; /* a rank takes its own column; otherwise all of them */
    bool only_root_takes;
    int root, root_host;
    int lanes;       /* lanes in use: a small call has one */
    size_t element;  /* bytes of a value */
    size_t partial;  /* bytes of an unfinished value */
    size_t n;        /* elements as the call counts them */
    size_t per_step; /* of these elements */
};

/* Elements [at, at + n) of a step, or of a column. */
struct net_range {
    size_t at, n;
};

struct net_column {
    struct net_range range; /* in the step's slots */
    int owner;              /* a host; NET_EVERYBODY */
};

enum { NET_EVERYBODY = -1 };

/* Plan how `call` travels, with slots of `slot_bytes` and buffers for pieces of `area_bytes`. A call without
 * elements, or one that moves none, has no steps. */
struct net_way net_way_of(const struct net_layout *layout, const struct call *call, size_t slot_bytes,
                          size_t area_bytes);
size_t net_steps(const struct net_way *way);

/* Return the least size of a rank's buffer for pieces, so that every call has a step that fits. */
size_t net_area_least(const struct net_layout *layout);

/* Return the columns of a step of `n` elements, and lane `lane`'s part of one. */
int net_column_count(const struct net_way *way);
struct net_column net_column_at(const struct net_way *way, size_t n, int column);
struct net_range net_lane_part(const struct net_way *way, const struct net_column *column, int lane);

/* True if `host` owns the column, or has its finished values after the first phase. */
bool net_owns(const struct net_column *column, int host);
bool net_holds(const struct net_way *way, const struct net_column *column, int host);

/* True if the column goes from one host to another in the first, in the second phase. */
bool net_goes_first(const struct net_way *way, const struct net_column *column, int from, int to);
bool net_goes_second(const struct net_way *way, const struct net_column *column, int from, int to);

/* True if `host` wants the finished column at all. */
bool net_wants(const struct net_way *way, const struct net_column *column, int host);

/* Return the place of element 0 of column number `c`, in elements: in a rank's input and output for step `at`, and in
 * the step's slot. */
size_t net_in_place(const struct net_way *way, const struct net_column *column, int c, size_t at);
size_t net_slot_place(const struct net_way *way, const struct net_column *column);
size_t net_out_place(const struct net_way *way, const struct net_column *column, int c, size_t at);

#endif
