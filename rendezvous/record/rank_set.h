/* rank_set.h -- sets of ranks, as users write and read them: "0,2-5".
 *
 * A list of 256 single workers is hard to read, so all sets are read and printed in this form. A zeroed struct is the
 * empty set. */
#ifndef RENDEZVOUS_RECORD_RANK_SET_H
#define RENDEZVOUS_RECORD_RANK_SET_H

#include "base/buf.h"
#include "ddp/error.h"

struct rank_set {
    uint64_t *bits; /* owned by the set */
    int limit;      /* ranks are 0 to limit - 1 */
};

/* Create an empty set for ranks below `limit`. Return false if memory is short. */
bool rank_set_init(struct rank_set *set, int limit);
void rank_set_free(struct rank_set *set);

/* Add a rank. A rank that is not below the limit is ignored. */
void rank_set_add(struct rank_set *set, int rank);

bool rank_set_has(const struct rank_set *set, int rank);
/* Return the highest rank, or -1 if the set is empty. */
int rank_set_highest(const struct rank_set *set);

/* Parse "0,2-5" with ranks below `limit`. Any order and repetitions are allowed. After DDP_OK, the set is replaced,
 * and the caller frees the set with rank_set_free. After DDP_ERR_ARG, `err` shows the correct form. After DDP_ERR_ARG
 * or DDP_ERR_NOMEM, the set is unchanged. */
ddp_status rank_set_parse(struct rank_set *set, const char *text, int limit, struct ddp_err *err);

/* Parse one rank below `limit` from the digits at *at, and move *at past the digits. Return false if *at has no
 * digit, or if the number is too large. */
bool rank_read(const char **at, int limit, int *rank);

/* Append ranks in the form "0,2-5". `rank_at` returns the i-th of `n` ranks in rising order, or -1 to leave this rank
 * out. If the text exceeds `max` bytes, it is cut after a whole entry and ends with ",...". Return false if memory is
 * short. */
typedef int (*rank_at_fn)(const void *user, int i);
bool rank_set_print_each(rank_at_fn rank_at, const void *user, int n, size_t max, struct buf *out);

#endif
