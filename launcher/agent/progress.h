/* progress.h -- detects progress in the output of a node's workers. A line that appears again with other numbers is a
 * sign of progress. The module is pure: the caller passes the bytes and the time. */
#ifndef LAUNCHER_AGENT_PROGRESS_H
#define LAUNCHER_AGENT_PROGRESS_H

#include "base/buf.h"

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    PROGRESS_SEEN = 5,        /* a pattern is usual if its count `seen` is at least this number */
    PROGRESS_PATTERNS = 64,   /* entries in each stream's table of patterns */
    PROGRESS_LINE_MAX = 512,  /* bytes of a line that are examined */
    PROGRESS_READ_MAX = 1024, /* only this many bytes at the end of one read from stdout are examined */
    /* only this many bytes at the end of one read from stderr are examined; a whole traceback fits */
    PROGRESS_ERRORS_MAX = 4096,
    PROGRESS_ERROR_MAX = 160, /* size of a stored error text, in bytes with the NUL */
};

/* The pattern of a line, as one entry of a hash table. A zeroed entry is free.
 *
 * "step 7 loss 0.31" and "step 8 loss 0.30" have the same pattern. A line that equals the latest line of its pattern
 * does not count. A pattern is usual when PROGRESS_SEEN of its lines have counted. From then on each line that counts
 * shows progress. */
struct progress_pattern {
    uint64_t hash; /* hash of the line without its numbers */
    uint64_t line; /* hash of the latest line with this pattern */
    /* Number of lines with this pattern, at most 2 * PROGRESS_SEEN. A line of another pattern that has the same entry
     * lowers this number by 1. If the number is already 0, the other pattern takes over the entry. */
    uint32_t seen;
};

struct progress_stream {
    struct progress_pattern patterns[PROGRESS_PATTERNS];
    char line[PROGRESS_LINE_MAX]; /* the incomplete last line */
    uint32_t len;                 /* bytes in `line`, below PROGRESS_LINE_MAX */
    bool skips;                   /* ignore the rest of the current line */
    bool in_trace;                /* inside a Python traceback */
};

struct progress_rank {
    struct progress_stream streams[2]; /* stdout and stderr */
    char error[PROGRESS_ERROR_MAX]; /* error of the latest traceback, deleted by later progress; "" if none */
    bool has_news;                  /* `error` has changed; the caller sends `error` and clears this flag */
};

/* Set `regex` and `n`, zero the other fields, and free the struct with progress_reset(). */
struct progress {
    /* The regular expression of --progress, borrowed. Only lines that match show progress. If NULL, repeated patterns
     * of lines show progress. */
    const regex_t *regex;
    /* The struct owns this array, which is indexed by local rank. The pointer is NULL before the first output of an
     * attempt, because clearing the 4 KiB of each rank would delay the start of the workers. */
    struct progress_rank *ranks;
    int n;             /* number of ranks */
    uint64_t moved_ms; /* time of the latest progress; 0 if no progress yet */
};

/* Forget all output before a new attempt, and free its memory. */
void progress_reset(struct progress *p);

/* Examine the output of a worker. `which` is 0 for stdout, 1 for stderr. If memory is short, ignore the output. */
void progress_add(struct progress *p, int local_rank, int which, struct slice bytes, uint64_t now_ms);

#endif
