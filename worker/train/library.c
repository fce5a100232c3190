/* library.c -- see library.h.
 *
 * libddp keeps its last error per thread and begins it with "rank N: ". main.c also begins every error with the rank,
 * so the library's prefix is removed here. */
#include "train/library.h"

#include "ddp/context.h"

#include <stdio.h>

ddp_status library(ddp_status status, struct ddp_err *err)
{
    int skip = 0;
    if (status == DDP_OK)
        return DDP_OK;
    sscanf(ddp_last_error(), "rank %*d: %n", &skip);
    return ddp_fail(err, status, "%s", ddp_last_error() + skip);
}
