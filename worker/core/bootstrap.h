/* bootstrap.h -- the ranks meet through the store before the backend connects them.
 *
 * Each rank writes a card (its identity and host) to <prefix>/rank/<r>. Rank 0 waits for all cards, then writes the
 * data that all ranks need to <prefix>/<what>. So the number of messages grows with the ranks, not with the pairs of
 * ranks. The prefix contains the job and the attempt, so keys of an earlier attempt are never read. All keys are
 * deleted when all ranks have met. A second process with the same rank finds the card of the first process and fails.
 *
 *     ddp/<job>/<attempt>/rank/0     "4711 4026531836 6f1c...-boot-id node7"
 *     ddp/<job>/<attempt>/rank/1     ...
 *     ddp/<job>/<attempt>/hosts      "+" and the data of rank 0, or "-" and the reason for a failure
 *
 * Smaller groups use the same functions: the lowest rank of a host writes data for the other ranks of that host. */
#ifndef WORKER_CORE_BOOTSTRAP_H
#define WORKER_CORE_BOOTSTRAP_H

#include "ddp/store.h"

#include <stdbool.h>

struct bootstrap {
    struct ddp_store *store; /* borrowed, connected */
    const char *prefix;      /* borrowed: "ddp/<job>/<attempt>" */
    const char *test_host;   /* borrowed; if not "", this rank pretends to be on another host (for tests) */
    int rank, world_size;
    bool
        ddprun_store; /* the store is ddprun's, so it has named barriers that report the state of each missing rank */
    uint32_t timeout_ms;  /* limit of the whole start, for messages */
    uint64_t deadline_ms; /* the same limit as a deadline */
    /* Opens one more connection to the store, on any thread at any time. The caller closes the connection. */
    ddp_status (*reconnect)(void *user, uint32_t timeout_ms, struct ddp_store **out, struct ddp_err *err);
    void *user;
};

enum { BOOTSTRAP_KEY = 640 }; /* length of the longest key */

struct bootstrap_card {
    int32_t pid;
    uint64_t pid_namespace; /* in containers, two processes may have the same pid */
    char boot_id[40];       /* boot id: identifies a running kernel better than a host name */
    char host[64];
};

/* Write this rank's card and wait until all ranks have written theirs. Rank 0 passes an array of world_size `cards`
 * and gets all cards. The other ranks pass NULL. DDP_ERR_TIMEOUT names the missing ranks, DDP_ERR_MISMATCH a rank
 * that another process uses. */
ddp_status bootstrap_meet(const struct bootstrap *bootstrap, struct bootstrap_card *cards,
                          struct ddp_err *err);

/* Read the card of one rank, after all ranks have met. */
ddp_status bootstrap_card(const struct bootstrap *bootstrap, int rank, struct bootstrap_card *card,
                          struct ddp_err *err);

/* Publish `len` bytes for all ranks that fetch `what`. bootstrap_publish_error() makes bootstrap_fetch() fail with
 * `reason` on these ranks instead. Only one rank may publish: rank 0, or another rank that all ranks agree on. Return
 * DDP_ERR_MISMATCH if the key already had another value. */
ddp_status bootstrap_publish(const struct bootstrap *bootstrap, const char *what, const void *data,
                             size_t len, struct ddp_err *err);
void bootstrap_publish_error(const struct bootstrap *bootstrap, const char *what,
                             const struct ddp_err *reason);

/* Read into `data` exactly `len` bytes that another rank published. If the other rank published an error, fail with
 * that error. */
ddp_status bootstrap_fetch(const struct bootstrap *bootstrap, const char *what, void *data, size_t len,
                           struct ddp_err *err);

/* Return true if `what` has been published. If the store does not answer, return false. Returns at once. */
bool bootstrap_is_published(const struct bootstrap *bootstrap, const char *what);

/* Delete keys after all ranks have fetched `what`: the writer deletes `what`, and each rank deletes its own card. */
ddp_status bootstrap_clear(const struct bootstrap *bootstrap, const char *what, struct ddp_err *err);
ddp_status bootstrap_clear_card(const struct bootstrap *bootstrap, struct ddp_err *err);

/* Return the milliseconds until the deadline, at least 1. */
uint32_t bootstrap_remaining_ms(const struct bootstrap *bootstrap);

#endif
