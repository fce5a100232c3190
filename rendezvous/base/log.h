/* log.h -- writes lines: messages for an operator to stderr ("ddprun: warning: ..."), and lines of an event log to a
 * file. A slow reader or disk does not block the program. Each line is one write(2), because lines of two processes
 * must not mix. */
#ifndef RENDEZVOUS_BASE_LOG_H
#define RENDEZVOUS_BASE_LOG_H

#include "base/buf.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Set the program's name and the level. main calls this function once, before any thread starts. `program` must remain
 * valid until the process exits. A line is printed only if its level is not above `level`: with LOG_WARN, errors and
 * warnings are printed. */
void log_setup(const char *program, enum log_level level);

/* Print "PROGRAM: LEVEL: TEXT" and a newline on stderr. If stderr is a full pipe, wait at most 1 s, then drop the line.
 * Pure modules do not call this function, but return text. */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Set whether a user reads the messages on a terminal. Without this call, stderr decides: it is a terminal or not. */
void log_on_terminal(bool is_terminal);

/* Return true at the first call if a user reads the messages on a terminal. At every other call, return false. If the
 * result is true, the caller prints "(ddprun explain CODE)" at the end of its message. Every message that contains a
 * code asks this function, so a run has one hint, at the end of its first message with a code. */
bool log_hint_is_due(void);

/* Print the hint "PROGRAM:   (ddprun explain CODE)" on stderr if log_hint_is_due() returns true. Call this function
 * after a message with this code. Print nothing if `code` is NULL or "". */
void log_explain(const char *code);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)

/* Open /dev/null for each descriptor from 0 to 2 that is closed. Otherwise the next file or socket would get such a
 * number, and text for stdout would be written to this file or socket. */
void keep_standard_fds(void);

/* Write `text` to stdout, flush stdout and free `text`. After an error print the reason on stderr and return false, so
 * that the program can exit with an error. `made` is false if memory was short for `text`. */
bool print_stdout(bool made, struct buf *text);

enum { RATE_LIMIT_MS = 1000 }; /* shortest time between two lines of one kind */

/* A limit of one log line per second, because a port scanner could fill the disk. A zeroed struct is the initial
 * state. */
struct rate_limit {
    uint64_t next_ms;  /* when the next line may be written */
    unsigned left_out; /* lines that were left out since the last written line */
};

/* Return true if a line may be written now, and set *left_out to the number of lines that were left out since the
 * previous written line. If the function returns false, this line counts as left out. */
static inline bool rate_limit_pass(struct rate_limit *limit, uint64_t now_ms, unsigned *left_out)
{
    if (now_ms < limit->next_ms) {
        limit->left_out++;
        return false;
    }
    *left_out = limit->left_out;
    *limit = (struct rate_limit){ .next_ms = now_ms + RATE_LIMIT_MS };
    return true;
}

/* --- lines of a file -------------------------------------------------------------------------------------- */

/* A file to which a separate thread appends whole lines, so that callers never wait.
 *
 * Every line is one write, so several processes may append to the same file, and a reader of the file sees no partial
 * line. A line is dropped, and counted, if the disk rejects the line or is too slow. After an error, later lines are
 * still written, because the disk may have space again. */
struct line_file;

/* Open a file for appending. A missing file is created with mode 0600. A pipe must have a reader. Return NULL, with
 * the errno in *error, if the file cannot be opened. The first line_file_append() starts the thread that writes. The
 * caller owns the file. */
struct line_file *line_file_open(const char *path, int *error);

/* Queue a copy of one line or several lines, each with its newline. Any thread may call this function, which never
 * blocks on the file. */
void line_file_append(struct line_file *f, struct slice line);

struct line_file_state {
    int error;                 /* errno of the first lost line, or 0; ENOBUFS if the disk was too slow */
    uint64_t lost;             /* number of lost lines */
    char why[WRITE_ERROR_MAX]; /* result of write_error_text() for a disk error; "" for another error */
};
struct line_file_state line_file_state(struct line_file *f);

enum { LINE_FILE_CLOSE_MS = 2000 }; /* the usual `limit_ms` of line_file_close when a program exits */
/* Wait at most `limit_ms` until all lines are written, then close the file and free `f`. If this takes longer, the
 * thread, the file and `f` remain until the process exits. Return the last state. NULL is allowed. */
struct line_file_state line_file_close(struct line_file *f, uint64_t limit_ms);

#endif
