/* reducer_verify.h -- do all ranks have the same model? */
#ifndef WORKER_REDUCER_REDUCER_VERIFY_H
#define WORKER_REDUCER_REDUCER_VERIFY_H

#include "ddp/reducer.h"

enum { MODEL_LISTS = 2 };

struct model {
    const ddp_param *list[MODEL_LISTS]; /* parameters, buffers */
    size_t count[MODEL_LISTS];
    const ddp_reducer_options *options; /* those of reducer_options.h are compared */
};

/* Collective. Compares counts, names, shapes and types with rank 0. DDP_ERR_MISMATCH on all ranks names the first
 * difference and the rank that has it. */
ddp_status reducer_verify(ddp_group *group, const struct model *model);

#endif
