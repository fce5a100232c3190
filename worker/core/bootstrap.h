/* bootstrap.h -- the ranks exchange their addresses through the store before the backend connects them. Each rank
 * writes a card with its identity and its host, and rank 0 reads all cards and publishes data for all ranks. So the
 * number of messages grows with the number of ranks, not with the number of pairs of ranks. */
#ifndef WORKER_CORE_BOOTSTRAP_H
#define WORKER_CORE_BOOTSTRAP_H

#include "ddp/store.h"

#include <stdbool.h>

/* This rank, the store, the prefix of the keys in the store, and the deadline. Each rank writes its card to
 * <prefix>/rank/<r>. Rank 0 waits for all cards, and then stores data for all ranks in <prefix>/<what>.
 *
 *     ddp/<job>/<attempt>/rank/0     "4711 4026531836 6f1c...-boot-id node7"
 *     ddp/<job>/<attempt>/rank/1     ...
 *     ddp/<job>/<attempt>/hosts      "+" and the data of rank 0, or "-" and the reason for a failure
 *
 * The prefix has the job and the attempt, so no rank reads keys of an earlier attempt. */
struct bootstrap {
    struct ddp_store *store; /* borrowed, connected */
    const char *prefix;      /* borrowed: "ddp/<job>/<attempt>" */
    /* borrowed, only for tests: name of a host that this rank claims to be on; "": the real host */
    const char *test_host;
    int rank, world_size;
    bool ddprun_store;    /* true if the store is ddprun's, which has named barriers */
    uint32_t timeout_ms;  /* timeout of the whole start */
    uint64_t deadline_ms; /* deadline of the whole start (clock_ms) */
    /* Open another connection to the store, on any thread. The caller closes it. */
    ddp_status (*reconnect)(void *user, uint32_t timeout_ms, struct ddp_store **out, struct ddp_err *err);
    void *user; /* the first argument of `reconnect` */
};

enum { BOOTSTRAP_KEY = 640 }; /* size of the longest key in bytes, with the NUL */

struct bootstrap_card {
    int32_t pid;
    uint64_t pid_namespace; /* two processes in different pid namespaces may have the same pid */
    char boot_id[40];       /* identifies the running kernel of a host */
    char host[64];
};

/* Write the card of this rank, and wait until all ranks have written their cards. Rank 0 passes an array `cards` with
 * room for world_size cards, and receives all cards. The other ranks pass NULL. DDP_ERR_TIMEOUT names the missing
 * ranks. DDP_ERR_MISMATCH names a rank that two processes use: the second process gets this error, because the card
 * of the first process is already there. */
ddp_status bootstrap_meet(const struct bootstrap *bootstrap, struct bootstrap_card *cards,
                          struct ddp_err *err);

/* Read the card of a rank. Call bootstrap_meet first. */
ddp_status bootstrap_card(const struct bootstrap *bootstrap, int rank, struct bootstrap_card *card,
                          struct ddp_err *err);

/* Publish `len` bytes under the name `what`, for all ranks that call bootstrap_fetch. bootstrap_publish_error makes
 * bootstrap_fetch fail with `reason` instead. Only one rank may publish under a name. If only the ranks of one host
 * fetch `what`, the lowest of these ranks publishes. Return DDP_ERR_MISMATCH if `what` already has another value. */
ddp_status bootstrap_publish(const struct bootstrap *bootstrap, const char *what, const void *data,
                             size_t len, struct ddp_err *err);
void bootstrap_publish_error(const struct bootstrap *bootstrap, const char *what,
                             const struct ddp_err *reason);

/* Wait for the published bytes, and copy them to `data`. Return DDP_ERR_CORRUPT if the published bytes are not exactly
 * `len` bytes. If an error was published, fail with this error. */
ddp_status bootstrap_fetch(const struct bootstrap *bootstrap, const char *what, void *data, size_t len,
                           struct ddp_err *err);

/* Return true if `what` is already published. Never wait. If the store does not answer, return false. */
bool bootstrap_is_published(const struct bootstrap *bootstrap, const char *what);

/* Delete the key of `what` (bootstrap_clear), or the card of this rank (bootstrap_clear_card). The writer of `what`
 * calls bootstrap_clear after all ranks have fetched `what`. Every rank calls bootstrap_clear_card after all ranks have
 * read the cards that they need. */
ddp_status bootstrap_clear(const struct bootstrap *bootstrap, const char *what, struct ddp_err *err);
ddp_status bootstrap_clear_card(const struct bootstrap *bootstrap, struct ddp_err *err);

/* Return the time until the deadline in ms, at least 1. */
uint32_t bootstrap_remaining_ms(const struct bootstrap *bootstrap);

#endif
