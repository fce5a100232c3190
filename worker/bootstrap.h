/* bootstrap.h -- the ranks meet through the store, before they have anything better.
 *
 * Each rank leaves a card (who and where it is) under <prefix>/rank/<r>; rank 0 waits for all cards, then
 * gives the others what they need under <prefix>/<what>. That is two messages per rank, not one per pair
 * of ranks. The prefix holds job and attempt, so what an earlier attempt has left is never read, and
 * everything is deleted when all have met. A second process with the same rank finds a card that is not
 * its own, and says so.
 *
 *     ddp/<job>/<attempt>/rank/0     "4711 4026531836 6f1c...-boot-id node7"
 *     ddp/<job>/<attempt>/rank/1     ...
 *     ddp/<job>/<attempt>/shm        "+" and what rank 0 has to give, or "-" and why not */
#ifndef WORKER_BOOTSTRAP_H
#define WORKER_BOOTSTRAP_H

#include "ddp/store.h"

#include <stdbool.h>

struct bootstrap {
    struct ddp_store *store; /* borrowed, connected */
    const char *prefix;      /* borrowed: "ddp/<job>/<attempt>" */
    int rank, world_size;
    bool ddprun_store; /* named barriers are there: their time-out tells what is known of each missing rank */
    uint32_t timeout_ms;  /* of all of it, for messages */
    uint64_t deadline_ms; /* the same on the clock */
};

struct bootstrap_card {
    int32_t pid;
    uint64_t pid_namespace; /* containers: equal pids may be different processes */
    char boot_id[40];       /* which running kernel: better than a host name */
    char host[64];
};

/* Leave our card and wait until all ranks have left theirs. Rank 0 passes `cards` (world_size of them) and
 * gets them all; the others pass NULL. DDP_ERR_TIMEOUT names the missing ranks, DDP_ERR_MISMATCH a rank
 * that is taken. */
ddp_status bootstrap_meet(const struct bootstrap *bootstrap, struct bootstrap_card *cards,
                          struct ddp_err *err);

/* Rank 0: give `len` bytes to all others, or let all their bootstrap_take fail with `reason`. */
ddp_status bootstrap_give(const struct bootstrap *bootstrap, const char *what, const void *data, size_t len,
                          struct ddp_err *err);
void bootstrap_refuse(const struct bootstrap *bootstrap, const char *what, const struct ddp_err *reason);

/* The others: exactly `len` bytes into `data`, or rank 0's reason. */
ddp_status bootstrap_take(const struct bootstrap *bootstrap, const char *what, void *data, size_t len,
                          struct ddp_err *err);

/* Rank 0, when all have taken `what`: remove it and the cards from the store. The others: nothing. */
ddp_status bootstrap_clear(const struct bootstrap *bootstrap, const char *what, struct ddp_err *err);

/* Milliseconds until the deadline, at least 1. */
uint32_t bootstrap_left_ms(const struct bootstrap *bootstrap);

#endif
