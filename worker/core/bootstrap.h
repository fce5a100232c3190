/* bootstrap.h -- the ranks meet through the store before the backend connects them.
 *
 * Each rank writes a card (its identity and place) to <prefix>/rank/<r>; rank 0 waits for all cards, then writes what
 * the others need to <prefix>/<what>. That is two messages per rank, not one per pair of ranks. The prefix holds job
 * and attempt, so keys of an earlier attempt are never read, and everything is deleted when all have met. A second
 * process with the same rank finds a card of another process, and fails.
 *
 *     ddp/<job>/<attempt>/rank/0     "4711 4026531836 6f1c...-boot-id node7"
 *     ddp/<job>/<attempt>/rank/1     ...
 *     ddp/<job>/<attempt>/hosts      "+" and the data of rank 0, or "-" and the reason for a failure
 *
 * Smaller groups use the same: the lowest rank of a host writes data for the others of that host. */
#ifndef WORKER_CORE_BOOTSTRAP_H
#define WORKER_CORE_BOOTSTRAP_H

#include "ddp/store.h"

#include <stdbool.h>

struct bootstrap {
    struct ddp_store *store; /* borrowed, connected */
    const char *prefix;      /* borrowed: "ddp/<job>/<attempt>" */
    const char *test_host;   /* borrowed; not "": pretend to be another host, for tests */
    int rank, world_size;
    bool
        ddprun_store; /* the store has named barriers, whose timeout reports the state of each missing rank */
    uint32_t timeout_ms;  /* limit of the whole start, for messages */
    uint64_t deadline_ms; /* the same as a deadline */
    /* One more connection to the store, for any thread at any time; the caller closes it. */
    ddp_status (*reconnect)(void *user, uint32_t timeout_ms, struct ddp_store **out, struct ddp_err *err);
    void *user;
};

enum { BOOTSTRAP_KEY = 640 }; /* length of the longest key */

struct bootstrap_card {
    int32_t pid;
    uint64_t pid_namespace; /* containers: equal pids may be different processes */
    char boot_id[40];       /* boot id: identifies a running kernel better than a host name */
    char host[64];
};

/* Write our card and wait until all ranks have written theirs. Rank 0 passes `cards` (world_size of them) and gets
 * them all; the others pass NULL. DDP_ERR_TIMEOUT names the missing ranks, DDP_ERR_MISMATCH a rank that is taken. */
ddp_status bootstrap_meet(const struct bootstrap *bootstrap, struct bootstrap_card *cards,
                          struct ddp_err *err);

/* Read the card of one rank, once all have met. */
ddp_status bootstrap_card(const struct bootstrap *bootstrap, int rank, struct bootstrap_card *card,
                          struct ddp_err *err);

/* Write `len` bytes for all ranks that fetch `what`, or make all their bootstrap_fetch fail with `reason`. One rank
 * writes: rank 0 unless all know another one. DDP_ERR_MISMATCH: the key had another value. */
ddp_status bootstrap_publish(const struct bootstrap *bootstrap, const char *what, const void *data,
                             size_t len, struct ddp_err *err);
void bootstrap_publish_error(const struct bootstrap *bootstrap, const char *what,
                             const struct ddp_err *reason);

/* The other ranks: read exactly `len` bytes into `data`, or get the writer's reason. */
ddp_status bootstrap_fetch(const struct bootstrap *bootstrap, const char *what, void *data, size_t len,
                           struct ddp_err *err);

/* True if `what` has been written. False also when the store does not answer. Never waits. */
bool bootstrap_is_published(const struct bootstrap *bootstrap, const char *what);

/* Call it when all have fetched `what`: the writer removes it from the store, and each rank its card. */
ddp_status bootstrap_clear(const struct bootstrap *bootstrap, const char *what, struct ddp_err *err);
ddp_status bootstrap_clear_card(const struct bootstrap *bootstrap, struct ddp_err *err);

/* Return the milliseconds until the deadline, at least 1. */
uint32_t bootstrap_remaining_ms(const struct bootstrap *bootstrap);

#endif
