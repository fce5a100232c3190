/* library.h -- the text of libddp's last error, for errors of train. */
#ifndef TRAIN_LIBRARY_H
#define TRAIN_LIBRARY_H

#include "ddp/context.h"
#include "ddp/error.h"

#include <stdio.h>

/* Return `status` of a call of libddp. After a failure *err gets libddp's text without the prefix "rank N: ", which
 * main.c adds to every error. */
static inline ddp_status library(ddp_status status, struct ddp_err *err)
{
    int skip = 0;
    if (status == DDP_OK)
        return DDP_OK;
    sscanf(ddp_last_error(), "rank %*d: %n", &skip);
    return ddp_fail(err, status, "%s", ddp_last_error() + skip);
}

#endif
