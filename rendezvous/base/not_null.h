/* not_null.h -- NOT_NULL, the first check in a public function: if the argument is NULL, the function returns
 * DDP_ERR_ARG. NOT_NULL is a macro, so that the error text contains the names of the function and of the argument:
 * "ddp_store_set: `store` is NULL". */
#ifndef RENDEZVOUS_NOT_NULL_H
#define RENDEZVOUS_NOT_NULL_H

#include "ddp/error.h"

#include <stddef.h>

/* A function that keeps the text of each failure for ddp_last_error(). libddp sets this pointer when it is loaded
 * (worker/core/error.c). In a program without libddp, the pointer stays NULL. */
extern void (*error_keep)(const char *msg);

static inline ddp_status null_argument(struct ddp_err *err, const char *call, const char *argument)
{
    return ddp_fail(err, DDP_ERR_ARG, "%s: `%s` is NULL", call, argument);
}

#define NOT_NULL(argument, err)                             \
    do {                                                    \
        if ((argument) == NULL)                             \
            return null_argument(err, __func__, #argument); \
    } while (0)

#endif
