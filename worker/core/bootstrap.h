/* bootstrap.h -- the ranks exchange their addresses through the store before the backend connects them. Only rank 0
 * reads all cards and publishes data, so the number of messages grows with the number of ranks, not of pairs. */
#ifndef WORKER_CORE_BOOTSTRAP_H
#define WORKER_CORE_BOOTSTRAP_H

#include "ddp/store.h"

#include <stdbool.h>

/* This rank, the store, the prefix of the keys, and the deadline. The prefix has the attempt, so no rank reads keys of
 * an earlier attempt. The keys:
 *
 *     ddp/<job>/<attempt>/rank/0     "4711 4026531836 6f1c...-boot-id node7"
 *     ddp/<job>/<attempt>/rank/1     ...
 *     ddp/<job>/<attempt>/hosts      "+" and the data of rank 0, or "-" and the reason for a failure */
struct bootstrap {
    struct ddp_store *store; /* borrowed, connected */
    const char *prefix;      /* borrowed: "ddp/<job>/<attempt>" */
    /* borrowed, only for tests: name of a host that this rank claims to be on; "": the real host */
    const char *test_host;
    int rank, world_size;
    bool ddprun_store;    /* the store is ddprun's, which has named barriers */
    uint32_t timeout_ms;  /* timeout of the whole start */
    uint64_t deadline_ms; /* deadline of the whole start (clock_ms) */
    /* Open another connection to the store, on any thread. The caller closes it. */
    ddp_status (*reconnect)(void *user, uint32_t timeout_ms, struct ddp_store **out, struct ddp_err *err);
    void *user; /* the first argument of `reconnect` */
};

enum { BOOTSTRAP_KEY = 640 }; /* size of the longest key in bytes, with the NUL */

struct bootstrap_card {
    int32_t pid;
    uint64_t pid_namespace; /* equal pids may be in different namespaces */
    char boot_id[40];       /* identifies the running kernel of a host */
    char host[64];
};

/* Write the card of this rank, and wait until all ranks have done so. `cards` is an array of world_size cards for rank
 * 0, NULL for others. Return DDP_ERR_TIMEOUT with the missing ranks, or DDP_ERR_MISMATCH if two processes use this
 * rank. */
ddp_status bootstrap_meet(const struct bootstrap *bootstrap, struct bootstrap_card *cards,
                          struct ddp_err *err);

/* Read the card of a rank. Call bootstrap_meet first. */
ddp_status bootstrap_card(const struct bootstrap *bootstrap, int rank, struct bootstrap_card *card,
                          struct ddp_err *err);

/* Publish `len` bytes (or the error `reason`) under the name `what`, for bootstrap_fetch on all ranks. Only one rank
 * may publish under a name; for a group within a host, the host's lowest rank. Return DDP_ERR_MISMATCH if `what`
 * already has another value. */
ddp_status bootstrap_publish(const struct bootstrap *bootstrap, const char *what, const void *data,
                             size_t len, struct ddp_err *err);
void bootstrap_publish_error(const struct bootstrap *bootstrap, const char *what,
                             const struct ddp_err *reason);

/* Wait for the published bytes, and copy them to `data`. Return DDP_ERR_CORRUPT if they are not exactly `len` bytes, or
 * the published error. */
ddp_status bootstrap_fetch(const struct bootstrap *bootstrap, const char *what, void *data, size_t len,
                           struct ddp_err *err);

/* Return true if `what` is already published, and false also if the store does not answer. Never wait for `what`. */
bool bootstrap_is_published(const struct bootstrap *bootstrap, const char *what);

/* Delete the key of `what` (its writer, after all ranks have fetched it), or the card of this rank (after all ranks
 * have read it). */
ddp_status bootstrap_clear(const struct bootstrap *bootstrap, const char *what, struct ddp_err *err);
ddp_status bootstrap_clear_card(const struct bootstrap *bootstrap, struct ddp_err *err);

/* Return the time until the deadline in ms, at least 1. */
uint32_t bootstrap_remaining_ms(const struct bootstrap *bootstrap);

#endif
