/* last_error.c -- see last_error.h. Thread-local, so it is not state that two contexts could share by
 * accident. */
#include "core/last_error.h"

#include "base/not_null.h"
#include "ddp/context.h"

#include <string.h>

static _Thread_local char words[sizeof(((struct ddp_err *)0)->msg)];

ddp_status last_error_keep(const struct ddp_err *err)
{
    memcpy(words, err->msg, sizeof(words));
    words[sizeof(words) - 1] = '\0';
    return err->code;
}

ddp_status last_error_null(const char *call, const char *argument)
{
    struct ddp_err err;
    null_argument(&err, call, argument);
    return last_error_keep(&err);
}

const char *ddp_last_error(void)
{
    return words;
}
