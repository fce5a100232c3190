/* shm_join.h -- the ranks of one host find their control page. */
#ifndef WORKER_SHM_JOIN_H
#define WORKER_SHM_JOIN_H

#include "bootstrap.h"
#include "cpu/shm_control.h"

/* Collective, through the store. DDP_OK: *out holds the control page and the slots, pids filled in.
 * DDP_ERR_UNSUPPORTED names two ranks on different hosts. */
ddp_status shm_join(const struct bootstrap *bootstrap, struct segment *out, struct ddp_err *err);

/* All ranks are known to have the page: take back what was needed to find it. */
ddp_status shm_joined(const struct bootstrap *bootstrap, struct segment *segment, struct ddp_err *err);

/* This rank gives up before all have the page. Rank 0, before it closes the page, lets those who come late
 * know why; the others find that in the page itself. */
void shm_take_back(const struct bootstrap *bootstrap, const struct ddp_err *reason);

#endif
