/* net_plan.h -- a pure module that computes which values each host sends to which host in a collective. Sender and
 * receiver compute all sizes from the same call and the same layout, so no size is sent. */
#ifndef WORKER_CPU_NET_PLAN_H
#define WORKER_CPU_NET_PLAN_H

#include "core/call.h"
#include "reducer/reduce.h"

#include <stdbool.h>

/* The layout of a job. Hosts are numbered in the order of their lowest ranks.
 *
 *   - A lane is a part of the work: lane k carries the k-th part of every column. On every host one rank serves lane k,
 *     with one connection to each other host.
 *   - A piece is a subtree of the reduction tree (reduce.h) whose ranks are all on one host. The subtree is as large as
 *     possible: a piece is never a part of another piece. With three ranks on each of two hosts, the pieces are
 *     {0,1} {2} | {3} {4,5}. */

/* Limits. Host numbers have 16 bits. Each lane needs a connection to every other host. */
enum { NET_HOSTS_MAX = 4096, NET_WORLD_MAX = 65536 };

/* The struct owns its arrays, which net_layout_close frees. */
struct net_layout {
    int world, hosts, lanes;
    int most;                    /* number of ranks on the largest host */
    uint16_t *host_of;           /* the host of each rank */
    int *local_of;               /* the local rank of each rank */
    int *members;                /* ranks, sorted by host */
    int *start;                  /* host h has members[start[h] .. start[h + 1]) */
    struct reduce_piece *pieces; /* all pieces, in the order of the reduction tree */
    int *pieces_of;              /* number of pieces of each host */
    int piece_count;
};

/* Build the layout. Copy host_of, which has the host number of each rank; `world` is the number of ranks. Return
 * false if memory is short. The caller must close the layout also after a failure. */
bool net_layout_open(struct net_layout *layout, const uint16_t *host_of, int world, int hosts,
                     int most_lanes);
void net_layout_close(struct net_layout *layout);

/* Return the rank that serves `lane` at `host`. */
int net_server(const struct net_layout *layout, int host, int lane);

/* Return the host that owns a piece. */
int net_piece_host(const struct net_layout *layout, int piece);

/* --- the plan of a call ----------------------------------------------------------------------------------- */

/* A collective has steps that fit into the slots of shared memory. The elements of a step are divided into
 * columns, each owned by one host. There are at most two phases:
 *
 *     first    REDUCE  every host sends its pieces of a column, as unfinished elements (reduce.h), to the owner
 *              SPREAD  the root's host sends the column to its owner
 *     second   the owner sends the finished column to the hosts that need it
 *
 *                      columns                          first     second
 *     all_reduce       one for each host                reduce    to all hosts
 *     broadcast        one for each host                spread    to all but the root's host
 *     reduce           one, owned by the root's host    reduce    -
 *     reduce_scatter   one for each rank                reduce    -
 *     scatter          one for each rank                spread    -
 *     all_gather       one for each rank                -         to all hosts
 *     gather           one for each rank                -         to the root's host
 *
 * In a small all_reduce or broadcast all hosts own the only column, and there is no second phase. */

/* How the elements of a step are divided into columns: one column for each host (NET_PER_HOST), one column for each
 * rank (NET_PER_RANK), or only one column. The only column belongs to the root's host (NET_AT_ROOT) or to all hosts
 * (NET_FOR_ALL). */
enum net_columns { NET_PER_HOST, NET_PER_RANK, NET_AT_ROOT, NET_FOR_ALL };
/* The first phase: none, REDUCE or SPREAD (see above). */
enum net_first { NET_NO_FIRST, NET_REDUCE, NET_SPREAD };
/* The second phase: none, or the hosts to which the owner of a column sends the finished column. */
enum net_second { NET_NO_SECOND, NET_TO_ALL, NET_TO_OTHERS /* all except the root's host */, NET_TO_ROOT };

/* The plan of a call, equal on all ranks. */
struct net_way {
    const struct net_layout *layout; /* borrowed */
    enum net_columns columns;
    enum net_first first;
    enum net_second second;
    bool gathers;         /* true if a rank's input is only its own column, not all columns */
    bool scatters;        /* true if a rank's output is only its own column, not all columns */
    bool only_root_takes; /* true if only the root gets a result */
    int root, root_host;  /* rank of the root, and its host */
    int lanes;            /* lanes in use; a small call uses one */
    size_t element;       /* bytes of a value */
    size_t partial;       /* bytes of an unfinished value (reduce.h) */
    size_t n;             /* number of elements of a buffer or of a rank's part, as in struct call */
    size_t per_step;      /* how many of the `n` elements one step handles */
};

/* Elements [at, at + n) of a step or of a column. */
struct net_range {
    size_t at, n;
};

struct net_column {
    struct net_range range; /* the elements of the column, as indexes into a slot */
    int owner;              /* a host, or NET_EVERYBODY */
};

enum { NET_EVERYBODY = -1 };

/* Plan a call. `slot_bytes` is the size of a slot, and `area_bytes` is the size of a rank's area for pieces. */
struct net_way net_way_of(const struct net_layout *layout, const struct call *call, size_t slot_bytes,
                          size_t area_bytes);
/* Return the number of steps; 0 if the call moves no elements. */
size_t net_steps(const struct net_way *way);

/* Return the minimum size of an area for pieces, in bytes: one step of any call must fit into the area. */
size_t net_area_least(const struct net_layout *layout);

/* Return the number of columns of a step. */
int net_column_count(const struct net_way *way);
/* Return column number `column` of a step of `n` elements. */
struct net_column net_column_at(const struct net_way *way, size_t n, int column);
/* Return the part of a column that `lane` carries. */
struct net_range net_lane_part(const struct net_way *way, const struct net_column *column, int lane);

/* Return true if `host` owns the column. */
bool net_owns(const struct net_column *column, int host);
/* Return true if `host` has the finished column after the first phase, as the column's owner or as the root's host. */
bool net_holds(const struct net_way *way, const struct net_column *column, int host);

/* Return true if host `from` sends the column to host `to`. net_goes_first describes the first phase, and
 * net_goes_second describes the second phase. */
bool net_goes_first(const struct net_way *way, const struct net_column *column, int from, int to);
bool net_goes_second(const struct net_way *way, const struct net_column *column, int from, int to);

/* Return true if `host` needs the finished column. */
bool net_wants(const struct net_way *way, const struct net_column *column, int host);

/* Return the index of the first element of column number `c`. The index is a place in a rank's input (net_in_place), in
 * a slot (net_slot_place), or in a rank's output (net_out_place). `at` is the first element of the step. */
size_t net_in_place(const struct net_way *way, const struct net_column *column, int c, size_t at);
size_t net_slot_place(const struct net_way *way, const struct net_column *column);
size_t net_out_place(const struct net_way *way, const struct net_column *column, int c, size_t at);

#endif
