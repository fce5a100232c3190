/* last_error.c -- see last_error.h. Thread-local, so it is not state that two contexts could share by
 * accident. */
#include "last_error.h"

#include "ddp/context.h"

#include <string.h>

static _Thread_local char words[sizeof(((struct ddp_err *)0)->msg)];

ddp_status last_error_keep(const struct ddp_err *err)
{
    memcpy(words, err->msg, sizeof(words));
    words[sizeof(words) - 1] = '\0';
    return err->code;
}

const char *ddp_last_error(void)
{
    return words;
}
