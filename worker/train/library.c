/* library.c -- see library.h.
 *
 * libddp keeps its words per thread and puts "rank N: " in front; this program puts the rank in front of every
 * error itself, in main.c, so here the library's is taken off again. */
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
