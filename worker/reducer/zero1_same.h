/* zero1_same.h -- do all ranks share out the same optimiser? */
#ifndef WORKER_REDUCER_ZERO1_SAME_H
#define WORKER_REDUCER_ZERO1_SAME_H

#include "ddp/group.h"
#include "ddp/optim.h"
#include "ddp/reducer.h"

/* Collective. DDP_ERR_MISMATCH on all ranks names the first number that differs, and both sides. */
ddp_status zero1_same_optim(ddp_group *group, const ddp_optim *optim);

/* The same for what does not decay: a flag for each of n parameters, NULL = all decay. It names the first parameter. */
ddp_status zero1_same_decay(ddp_group *group, const unsigned char *no_decay, const ddp_param *params,
                            size_t n);

#endif
