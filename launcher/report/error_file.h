/* error_file.h -- what a worker left in its error file (TORCHELASTIC_ERROR_FILE), understood.
 *
 * torch's @record writes one of two shapes:
 *
 *     {"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
 *     {"message": "no", "timestamp": 1700000000}
 *
 * The bytes come from the worker and may be anything: what is no such object is refused with a reason, never believed. */
#ifndef LAUNCHER_REPORT_ERROR_FILE_H
#define LAUNCHER_REPORT_ERROR_FILE_H

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

void error_text_free(struct error_text *text);

/* --- error read ------------------------------------------------------------------------------------------- */

/* The files in which workers leave their errors. */

/* Read and understand the file. What lies at `path` may be anything, also a FIFO or a link: nothing is
 * waited for, no link is followed, no more than ERROR_FILE_MAX bytes are read. DDP_OK: free with
 * error_text_free. DDP_ERR_CLOSED: there is no such file, which is the usual case. Else `err` names the
 * path and says what is wrong. */
ddp_status error_file_read(const char *path, struct error_text *out, struct ddp_err *err);

/* Write what lies at `from` to `to`, with the exit code in it: for a launcher around this one. What cannot be read or
 * written is left alone: the report has it all the same. */
void error_file_hand_on(const char *from, const char *to, int code);

#endif
