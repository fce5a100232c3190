/* timeline.h -- what each node and rank did when, and for whom it waited: events as rows, bars, marks and bands.
 *
 *              |  round 1  |        |  round 2        |      bands
 *     node 0   wwwrrrrrrrrrss.bbbbbb.rrrrrrrrrrrrrrrrr       rows of bars: waits, runs, stops, backs off
 *     rank 0      rrrrrrrr|          rrrrrBBBBBrrrrrr        B: in a barrier, for rank 1
 *     rank 1      rrrrrrr X          rrrrrrrrrrrrrrrr        X: a mark, here a failure
 *
 * Pure. It is printed as a trace in JSON, and as a page that draws the trace. Times are ms from the first event. */
#ifndef RENDEZVOUS_TIMELINE_H
#define RENDEZVOUS_TIMELINE_H

#include "ctl/event_reader.h"

/* Name, category in the trace (in the page a class), description. */
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
    int64_t number; /* rank, or node rank; -1 = none yet */
    size_t node;    /* of a rank: the row of the node it ran on last */
    size_t made_as; /* its index before the rows were sorted */
    char *name;     /* owned */
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

/* From settled events. False when memory is short; free it in any case. */
bool timeline_make(struct timeline *t, const struct timeline_events *events);
void timeline_free(struct timeline *t);

/* Append the trace: the Trace Event Format of chrome://tracing and Perfetto, JSON, times in microseconds. A process is a node, its thread 0
 * the node itself, thread N+1 rank N; process 0 is the job with its attempts. A rank belongs to the node it ran on last, because a viewer
 * cannot move a thread. False when memory is short. */
bool timeline_trace(const struct timeline *t, struct buf *out);
/* Append `page`, which is timeline.html, with the trace in it. False when memory is short. */
bool timeline_html(const struct timeline *t, const char *page, struct buf *out);

#endif
