/* zero1_same.h -- do all ranks share out the same optimiser? */
#ifndef WORKER_ZERO1_SAME_H
#define WORKER_ZERO1_SAME_H

#include "ddp/group.h"
#include "ddp/optim.h"

/* Collective. DDP_ERR_MISMATCH on all ranks names the first number that differs, and both sides. */
ddp_status zero1_same_optim(ddp_group *group, const ddp_optim *optim);

#endif
