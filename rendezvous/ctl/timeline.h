/* timeline.h -- who was where when, and who waited for whom: events as rows, bars, marks and bands.
 *
 *              |  round 1  |        |  round 2        |      bands
 *     node 0   wwwrrrrrrrrrss.bbbbbb.rrrrrrrrrrrrrrrrr       rows of bars: waits, runs, stops, backs off
 *     rank 0      rrrrrrrr|          rrrrrBBBBBrrrrrr        B: in a barrier, for rank 1
 *     rank 1      rrrrrrr X          rrrrrrrrrrrrrrrr        X: a mark, here a failure
 *
 * Pure. Two printers draw it: timeline_html.c and timeline_trace.c. Times are ms from the first event. */
#ifndef RENDEZVOUS_TIMELINE_H
#define RENDEZVOUS_TIMELINE_H

#include "ctl/timeline_events.h"

/* Name, word (a class in the page, a category in the trace), what the one in the row does. */
#define TIMELINE_BARS(X)                                      \
    X(LOOKING, "looking", "looks for the store")              \
    X(WAITING, "waiting", "waits for other nodes")            \
    X(SPARE, "spare", "waits to be taken in")                 \
    X(RUNNING, "running", "runs")                             \
    X(STOPPING, "stopping", "stops its workers")              \
    X(STOPPED, "stopped", "waits for the end of other nodes") \
    X(BACKOFF, "backoff", "waits for the next round")         \
    X(BARRIER, "barrier", "waits in a barrier")

#define TIMELINE_MARKS(X)                  \
    X(ENDED, "ended", "ended")             \
    X(FAILED, "failed", "failed")          \
    X(STOP, "stop", "the round stops")     \
    X(RESTART, "restart", "starts again")  \
    X(NODE, "node", "left, lost, refused") \
    X(SIGNAL, "signal", "signal")          \
    X(FINDING, "finding", "finding")

enum timeline_bar_kind {
#define X(name, word, words) TIMELINE_##name,
    TIMELINE_BARS(X)
#undef X
        TIMELINE_N_BARS
};

enum timeline_mark_kind {
#define X(name, word, words) TIMELINE_MARK_##name,
    TIMELINE_MARKS(X)
#undef X
        TIMELINE_N_MARKS
};

#define TIMELINE_JOB SIZE_MAX /* in place of a row: the whole job */

struct timeline_bar {
    enum timeline_bar_kind kind;
    size_t row, waited_for; /* TIMELINE_JOB = nobody in particular */
    int64_t from_ms, to_ms;
    uint32_t round; /* 0 = before the first */
    char *text;     /* owned: a sentence */
};

struct timeline_mark {
    enum timeline_mark_kind kind;
    size_t row;
    int64_t at_ms;
    char *text; /* owned */
};

struct timeline_band {
    uint32_t round;
    int64_t from_ms, to_ms;
};

struct timeline_row {
    bool is_rank;
    int64_t number;    /* rank, or node rank; -1 = none yet */
    size_t node;       /* of a rank: the row of the node it ran on last */
    size_t drawn_with; /* itself, or the row that stands for it and others like it */
    uint32_t alike;    /* rows that it stands for, itself among them */
    char *name;        /* owned */
    /* While it is made: the bar that is open. */
    bool open;
    enum timeline_bar_kind kind;
    int64_t since_ms;
    uint32_t round; /* that it began in */
    uint64_t store_id;
    size_t agent;
};

struct timeline {
    const char *job; /* borrowed from the events, which must live as long */
    int64_t end_ms;
    struct timeline_row *rows; /* nodes, then ranks, each by number */
    size_t n_rows;
    struct timeline_bar *bars;
    size_t n_bars;
    struct timeline_mark *marks; /* by time */
    size_t n_marks;
    struct timeline_band *bands;
    size_t n_bands;
};

const char *timeline_bar_word(enum timeline_bar_kind kind);
const char *timeline_bar_words(enum timeline_bar_kind kind);
const char *timeline_mark_word(enum timeline_mark_kind kind);
const char *timeline_mark_words(enum timeline_mark_kind kind);

/* From settled events. False when memory is short; free it in any case. */
bool timeline_make(struct timeline *t, const struct timeline_events *events);
void timeline_free(struct timeline *t);

/* timeline_fold.c: rows with the same bars at the same times, as far as a picture shows, are drawn as one, when there are
 * more than `most` nodes, or ranks. False when memory is short. */
bool timeline_fold(struct timeline *t, size_t most);

/* Append one self-contained page. False when memory is short. */
bool timeline_html(const struct timeline *t, struct buf *out);
/* Append a trace for chrome://tracing and Perfetto: JSON, times in µs, a process for each node. */
bool timeline_trace(const struct timeline *t, struct buf *out);

#endif
