/* error.c -- the texts behind include/ddp/error.h. */
#include "ddp/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *ddp_status_name(ddp_status status)
{
    switch (status) {
#define X(name, value, text) \
    case DDP_##name:         \
        return "DDP_" #name;
        DDP_STATUS_LIST(X)
#undef X
    }
    return "DDP_STATUS_?";
}

const char *ddp_status_text(ddp_status status)
{
    switch (status) {
#define X(name, value, text) \
    case DDP_##name:         \
        return text;
        DDP_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

ddp_status ddp_fail(struct ddp_err *err, ddp_status code, const char *fmt, ...)
{
    if (err == NULL)
        return code;
    va_list ap;
    va_start(ap, fmt);
    err->code = code;
    vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    return code;
}

ddp_status ddp_wrap(struct ddp_err *err, const char *fmt, ...)
{
    char front[sizeof(err->msg)];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(front, sizeof(front), fmt, ap);
    va_end(ap);
    if (n < 0)
        return err->code;
    size_t used = (size_t)n < sizeof(front) ? (size_t)n : sizeof(front) - 1;
    if (used + 2 < sizeof(front)) {
        memcpy(front + used, ": ", 3);
        used += 2;
        size_t room = sizeof(front) - used - 1;
        size_t rest = strnlen(err->msg, room);
        memcpy(front + used, err->msg, rest);
        front[used + rest] = '\0';
    }
    memcpy(err->msg, front, sizeof(front));
    return err->code;
}
