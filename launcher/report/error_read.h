/* error_read.h -- the files in which workers leave their errors. */
#ifndef LAUNCHER_ERROR_READ_H
#define LAUNCHER_ERROR_READ_H

#include "report/error_text.h"

/* Read and understand the file. What lies at `path` may be anything, also a FIFO or a link: nothing is
 * waited for, no link is followed, no more than ERROR_FILE_MAX bytes are read. DDP_OK: free with
 * error_text_free. DDP_ERR_CLOSED: there is no such file, which is the usual case. Else `err` names the
 * path and says what is wrong. */
ddp_status error_file_read(const char *path, struct error_text *out, struct ddp_err *err);

/* Write what lies at `from` to `to`, with the exit code in it: for a launcher around this one. What cannot be read or
 * written is left alone: the report has it all the same. */
void error_file_hand_on(const char *from, const char *to, int code);

/* Append the whole object that lies at `path` as a text, as error_text_whole does; false when there is none. Read as
 * above. */
bool error_file_whole(const char *path, struct buf *out);

#endif
