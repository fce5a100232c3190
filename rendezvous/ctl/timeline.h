/* timeline.h -- a pure module that draws the activity and the waits of each node and rank: events become rows, bars,
 * marks and bands.
 *
 *              |  round 1  |        |  round 2        |      bands
 *     node 0   wwwrrrrrrrrrss.bbbbbb.rrrrrrrrrrrrrrrrr       rows of bars: waiting, running, stopping, backoff
 *     rank 0      rrrrrrrr|          rrrrrBBBBBrrrrrr        B: waiting for rank 1 in a barrier
 *     rank 1      rrrrrrr X          rrrrrrrrrrrrrrrr        X: a mark, here a failure
 *
 * The output is a trace in JSON, or a page that draws the trace. Times are ms from the first event. */
#ifndef RENDEZVOUS_TIMELINE_H
#define RENDEZVOUS_TIMELINE_H

#include "base/buf.h"
#include "base/events.h"

#include <cjson/cJSON.h>

/* --- event_reader.c: the lines of event logs as one list in the order of the store's clock ------------------- */

/* Logs are from several nodes. A line that is not an event is skipped, and reported with file and line. The times of a
 * node are converted to the store's clock. */

enum { TIMELINE_EVENTS_MAX = 500000, TIMELINE_LINE_MAX = 1 << 20 };

/* One ddprun process, identified by its host and pid. */
struct timeline_agent {
    char *host; /* owned */
    int pid;
    bool is_chosen;   /* the timeline shows this process: it belongs to the chosen run of the job */
    bool has_offset;  /* ahead_ms is known */
    int64_t ahead_ms; /* the store's clock minus the process's own clock */
};

struct timeline_event {
    enum event_kind kind;
    bool is_chosen; /* the timeline shows this event: it belongs to the chosen run of the job */
    bool by_store;  /* the store, not a node, has logged the event */
    size_t agent;   /* index of the process that the event is about; SIZE_MAX if it is about the whole job */
    size_t order;   /* position in the order of reading */
    double n;       /* number that the store gave this event; only with by_store */
    int64_t at_ms;  /* on the store's clock */
    cJSON *o;       /* owned */
};

struct timeline_events {
    struct timeline_event *list; /* owned */
    size_t n, room;
    struct timeline_agent *agents; /* owned */
    size_t n_agents, agents_room;
    char *job, *instance;    /* owned: name and instance of the job that is drawn; NULL if unknown */
    size_t other_lives;      /* number of lines from other jobs and from other runs of this job */
    bool no_memory, is_full; /* is_full: lines after TIMELINE_EVENTS_MAX were skipped */
    /* Called for each skipped line, with its file, its number and the reason; may be NULL. */
    void (*complain)(void *user, const char *file, size_t line, const char *what);
    void *user;
};

/* Add the lines of one log. */
void timeline_read(struct timeline_events *events, const char *file, struct slice text);
/* Choose the events of one job. Drop all other events, convert the times to the store's clock, and sort. If `job` is
 * NULL, choose the latest job. Return false if no event was chosen, or if memory is short. Call this function after all
 * logs were read. */
bool timeline_choose(struct timeline_events *events, const char *job);
void timeline_events_free(struct timeline_events *events);

/* Return the member `name` of an event: its text (timeline_text) or its number (timeline_number). If the member is
 * missing or of another type, timeline_text returns "", and timeline_number returns -1. The event owns the text. */
const char *timeline_text(const struct timeline_event *event, const char *name);
int64_t timeline_number(const struct timeline_event *event, const char *name);
/* Return the member `name` of an event, a time in ms. Return -1 if the member is missing or not a valid number. Also
 * return -1 for a time above a century, because sums of such times could overflow. */
int64_t timeline_time(const struct timeline_event *event, const char *name);

/* --- the drawing ---------------------------------------------------------------------------------------- */

/* Columns: name, category in the trace (class in the page), description. */
#define TIMELINE_BARS(X)                                  \
    X(CONNECTING, "looking", "connects to the store")     \
    X(WAITING, "waiting", "waits for other nodes")        \
    X(SPARE, "spare", "waits to join")                    \
    X(RUNNING, "running", "runs")                         \
    X(STOPPING, "stopping", "stops its workers")          \
    X(STOPPED, "stopped", "waits until other nodes stop") \
    X(BACKOFF, "backoff", "waits for the next round")     \
    X(BARRIER, "barrier", "waits in a barrier")

#define TIMELINE_MARKS(X)                   \
    X(ENDED, "ended", "ended")              \
    X(FAILED, "failed", "failed")           \
    X(STOP, "stop", "the round stops")      \
    X(RESTART, "restart", "starts again")   \
    X(NODE, "node", "left, lost, rejected") \
    X(SIGNAL, "signal", "signal")           \
    X(FINDING, "finding", "finding")

enum timeline_bar_kind {
#define X(name, word, words) TIMELINE_##name,
    TIMELINE_BARS(X)
#undef X
};

enum timeline_mark_kind {
#define X(name, word, words) TIMELINE_MARK_##name,
    TIMELINE_MARKS(X)
#undef X
};

#define TIMELINE_JOB SIZE_MAX /* index for the whole job, which has no row */

struct timeline_bar {
    enum timeline_bar_kind kind;
    size_t row, waited_for; /* indexes: the bar's row, and the row that it waits for (TIMELINE_JOB = none) */
    int64_t from_ms, to_ms;
    uint32_t round; /* 0 before the first round */
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
    int64_t number; /* rank, or node rank; -1 if not known yet */
    size_t node;    /* for a rank: row of the node on which it ran last */
    size_t made_as; /* index before the rows were sorted */
    char *name;     /* owned */
    /* `kind`, `since_ms` and `round` describe the open bar of the row, if `open` is true. These members are used only
     * while the events are read. */
    bool open;
    bool leaves; /* the node leaves the job as soon as its workers have stopped */
    enum timeline_bar_kind kind;
    int64_t since_ms;
    uint32_t round; /* the round in which the bar began */
    uint64_t store_id;
    size_t agent;
};

struct timeline {
    const char *job; /* borrowed from the events, which must outlive the timeline */
    int64_t end_ms;
    struct timeline_row *rows; /* first the nodes, then the ranks, both sorted by number */
    size_t n_rows;
    struct timeline_bar *bars;
    size_t n_bars;
    struct timeline_mark *marks; /* sorted by time */
    size_t n_marks;
    struct timeline_band *bands;
    size_t n_bands;
};

/* Make a timeline from events that timeline_choose has chosen and sorted. Return false if memory is short. The
 * caller calls timeline_free in any case. */
bool timeline_make(struct timeline *t, const struct timeline_events *events);
void timeline_free(struct timeline *t);

/* Append the trace as JSON in the Trace Event Format of chrome://tracing and Perfetto, with times in microseconds. In
 * the trace, a node is a process. Its thread 0 is the node itself, and thread N + 1 is rank N. Process 0 is the job
 * with its attempts. A rank belongs to the node on which it ran last, because a viewer cannot move a thread. Return
 * false if memory is short. */
bool timeline_trace(const struct timeline *t, struct buf *out);
/* Append `page`, which is timeline.html, with the trace inserted. Return false if memory is short. */
bool timeline_html(const struct timeline *t, const char *page, struct buf *out);

#endif
