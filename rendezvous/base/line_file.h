/* line_file.h -- a file that whole lines are appended to, by a thread of its own: who has a line to write never waits.
 *
 * Every line is one write, so several processes may append to the same file, and whoever reads it while it grows sees
 * no half of one. What the disk is too slow for, or does not take, is lost and counted; the first error is kept for
 * whoever wants to tell the user, and later lines are tried all the same: there may be room again. */
#ifndef BASE_LINE_FILE_H
#define BASE_LINE_FILE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct line_file;

/* Open for appending, made with mode 0600 if it is not there; a pipe must have a reader. NULL: `*error` is the errno. The thread
 * starts with the first line. */
struct line_file *line_file_open(const char *path, int *error);

/* Queue a copy of one line or several, each with its newline. Any thread may call it; it never blocks on the file. */
void line_file_put(struct line_file *f, struct slice line);

struct line_file_state {
    int error;     /* errno of the first line that could not be written, 0 = none; ENOBUFS: it was too slow */
    uint64_t lost; /* lines */
};
struct line_file_state line_file_state(struct line_file *f);

enum { LINE_FILE_CLOSE_MS = 2000 }; /* for a slow disk, when a program is about to end */
/* Wait at most `limit_ms` until all is written, close, free. A file that hangs keeps its memory and its thread until the
 * process ends. NULL is allowed. Returns the last state. */
struct line_file_state line_file_close(struct line_file *f, uint64_t limit_ms);

#endif
