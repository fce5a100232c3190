/* not_null.h -- the first check of a public function. A NULL argument returns DDP_ERR_ARG, unless the function's
 * comment allows NULL. The check is a macro, so that the text can name the function and the argument: "ddp_store_set:
 * `store` is NULL". */
#ifndef RENDEZVOUS_NOT_NULL_H
#define RENDEZVOUS_NOT_NULL_H

#include "ddp/error.h"

#include <stddef.h>

/* Keep the text of each failure for ddp_last_error(). libddp sets this pointer when libddp is loaded
 * (worker/core/error.c). The pointer is NULL in programs without ddp_last_error(). */
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
