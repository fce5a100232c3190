/* progress.h -- signs of progress in the output of the workers of a node: lines that come again with other numbers. Pure.
 *
 * No program needs a change for it. "step 7 loss 0.31" and "step 8 loss 0.30" are one pattern; a pattern that was seen
 * PROGRESS_SEEN times belongs to the program's usual way, and each further line of it shows that the program moves. With a
 * regular expression only lines that match it count. Bytes and the time come in; of a flood only a part is looked at. */
#ifndef LAUNCHER_AGENT_PROGRESS_H
#define LAUNCHER_AGENT_PROGRESS_H

#include "base/buf.h"

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    PROGRESS_SEEN = 5,
    PROGRESS_PATTERNS = 64,     /* of a stream; the rarest give way */
    PROGRESS_LINE_MAX = 512,    /* bytes of a line that count */
    PROGRESS_READ_MAX = 1024,   /* bytes of a read that are looked at, the last ones; */
    PROGRESS_ERRORS_MAX = 4096, /* ... of stderr, for a whole traceback */
    PROGRESS_ERROR_MAX = 160,
};

struct progress_pattern {
    uint64_t hash;
    uint32_t seen;
};

struct progress_stream {
    struct progress_pattern patterns[PROGRESS_PATTERNS];
    char line[PROGRESS_LINE_MAX]; /* the unfinished one */
    uint32_t len;
    bool skips;    /* the rest of that line */
    bool in_trace; /* between the first line of a Python traceback and its last */
};

struct progress_rank {
    struct progress_stream streams[2]; /* stdout and stderr */
    char error[PROGRESS_ERROR_MAX];    /* last line of a traceback after which nothing has moved; "" = none */
    bool has_news;                     /* it has changed; for the caller to clear */
};

struct progress {
    const regex_t *regex;        /* borrowed; NULL = none */
    struct progress_rank *ranks; /* owned: by local rank */
    int n;
    uint64_t moved_ms; /* time of the last sign; 0 = no sign yet */
};

/* False when memory is short; free it in any case. */
bool progress_init(struct progress *p, int n, const regex_t *regex);
void progress_free(struct progress *p);

/* A new attempt. */
void progress_reset(struct progress *p);

/* Take what a worker has printed; `which` is 0 for stdout, 1 for stderr. */
void progress_feed(struct progress *p, int local_rank, int which, struct slice bytes, uint64_t now_ms);

#endif
