/* rank_set.h -- sets of ranks, as users write and read them: "0,2-5".
 *
 * A plain list of 256 workers is hard to read, so every set that is read or printed has this one form. A zeroed
 * struct is the empty set. */
#ifndef RENDEZVOUS_RECORD_RANK_SET_H
#define RENDEZVOUS_RECORD_RANK_SET_H

#include "base/buf.h"
#include "ddp/error.h"

struct rank_set {
    uint64_t *bits; /* owned by the set */
    int limit;      /* ranks are 0 to limit - 1 */
};

/* The empty set with room for ranks below `limit`. False when memory is short. */
bool rank_set_init(struct rank_set *set, int limit);
void rank_set_free(struct rank_set *set);

/* Ranks beyond the limit are not added, and are never in the set. */
void rank_set_add(struct rank_set *set, int rank);

bool rank_set_has(const struct rank_set *set, int rank);
int rank_set_highest(const struct rank_set *set); /* Return -1 when the set is empty. */

/* Parse "0,2-5" with ranks below `limit`; in any order, repetitions are allowed. DDP_OK: the set is replaced, free it
 * with rank_set_free. DDP_ERR_ARG: `err` has the correct form, the set is unchanged. DDP_ERR_NOMEM: the set is
 * unchanged, too. */
ddp_status rank_set_parse(struct rank_set *set, const char *text, int limit, struct ddp_err *err);

/* Parse one rank below `limit` from digits at *at and move past them. False if there are no digits or the number is
 * too large. */
bool rank_read(const char **at, int limit, int *rank);

/* Append ranks in that form: `rank_at` gives the i-th of `n`, rising, or -1 to skip it. Over `max` bytes the text is
 * cut after a whole entry, and ",..." follows. False when memory is short. */
typedef int (*rank_at_fn)(const void *user, int i);
bool rank_set_print_each(rank_at_fn rank_at, const void *user, int n, size_t max, struct buf *out);

#endif
