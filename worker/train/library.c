/* library.c -- see library.h. */
#include "library.h"

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
