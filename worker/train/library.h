/* library.h -- converts an error of libddp into an error of train. A collective of libddp returns only a status, and
 * the text of the error is in ddp_last_error(). Functions of train pass the text in a struct ddp_err, which main.c
 * prints. */
#ifndef TRAIN_LIBRARY_H
#define TRAIN_LIBRARY_H

#include "ddp/context.h"
#include "ddp/error.h"

#include <stdio.h>

/* Return `status`, the result of a call of libddp. After a failure, set *err to libddp's text without its prefix
 * "rank N: ", because main.c adds this prefix to every error. */
static inline ddp_status library(ddp_status status, struct ddp_err *err)
{
    int skip = 0;
    if (status == DDP_OK)
        return DDP_OK;
    sscanf(ddp_last_error(), "rank %*d: %n", &skip);
    return ddp_fail(err, status, "%s", ddp_last_error() + skip);
}

#endif
