/* peers.h -- the other ranks as processes: who of them has ended?
 *
 * Each rank holds a pidfd of every other one. The kernel makes it readable at the moment the process ends,
 * and it can never mean another process that got the same number later. Works without a launcher. */
#ifndef WORKER_PEERS_H
#define WORKER_PEERS_H

#include "ddp/error.h"

#include <stdint.h>

struct pollfd;

struct peers {
    struct pollfd *fds; /* one for each rank; our own is -1, which poll ignores */
    int world;
};

/* `pids[r]` is rank r's, `rank` our own. DDP_ERR_PEER_LOST names a rank that has ended already. */
ddp_status peers_open(struct peers *peers, const int32_t *pids, int world, int rank, struct ddp_err *err);

/* The lowest rank that has ended, or -1. Never waits. */
int peers_ended(const struct peers *peers);

void peers_close(struct peers *peers);

/* What a process is up to, in words for a message: "runs", "sleeps", "is stopped by a signal" ... Never
 * NULL. */
const char *peers_state(int32_t pid);

#endif
