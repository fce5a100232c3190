/* error_text.h -- what a worker left in its error file (TORCHELASTIC_ERROR_FILE), understood.
 *
 * torch's @record writes one of two shapes:
 *
 *     {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
 *     {"message": "no", "timestamp": 1700000000}
 *
 * The bytes come from the worker and may be anything: what is no such object is refused with a reason, never believed. */
#ifndef LAUNCHER_ERROR_TEXT_H
#define LAUNCHER_ERROR_TEXT_H

#include "base/buf.h"
#include "ddp/error.h"

enum { ERROR_FILE_MAX = 256 * 1024 };

struct error_text {
    char *message;    /* owned; UTF-8 without control characters except \n and \t */
    char *callstack;  /* owned; "" = none */
    uint64_t unix_ms; /* when it was recorded, as the worker says; 0 = it does not say */
};

/* DDP_OK: free with error_text_free. DDP_ERR_CORRUPT or DDP_ERR_LIMIT: not such a file, `err` says what is
 * wrong with it. DDP_ERR_NOMEM. */
ddp_status error_text_parse(struct slice bytes, struct error_text *out, struct ddp_err *err);

/* Append the same object with `code` as message.errorCode, as torchrun hands it on; a message that is a text has no
 * place for it. False: it is no object, or memory is short. */
bool error_text_with_code(struct slice bytes, int code, struct buf *out);

/* Append the same object on one line, as a text that ends with a NUL. False: it is no object, or memory is short. */
bool error_text_whole(struct slice bytes, struct buf *out);

void error_text_free(struct error_text *text);

#endif
