/* reducer_verify.h -- do all ranks have the same parameters? */
#ifndef WORKER_REDUCER_VERIFY_H
#define WORKER_REDUCER_VERIFY_H

#include "ddp/reducer.h"

/* Collective. DDP_ERR_MISMATCH on every rank, naming the first rank that differs from rank 0, and the
 * parameter. */
ddp_status reducer_verify(ddp_group *group, const ddp_param *params, size_t n);

#endif
