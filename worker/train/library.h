/* library.h -- converts an error of libddp, whose text is in ddp_last_error(), into an error of train in a struct
 * ddp_err, which main.c prints. */
#ifndef TRAIN_LIBRARY_H
#define TRAIN_LIBRARY_H

#include "ddp/context.h"
#include "ddp/error.h"

#include <stdio.h>

/* Return `status`, the result of a call of libddp. After a failure, set *err to its text without the prefix "rank
 * N: ", which main.c adds. */
static inline ddp_status library(ddp_status status, struct ddp_err *err)
{
    int skip = 0;
    if (status == DDP_OK)
        return DDP_OK;
    sscanf(ddp_last_error(), "rank %*d: %n", &skip);
    return ddp_fail(err, status, "%s", ddp_last_error() + skip);
}

#endif
