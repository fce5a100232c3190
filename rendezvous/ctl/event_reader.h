/* event_reader.h -- the lines of event logs as one list in the order of the store's clock.
 *
 * Logs come from several nodes, and from runs that died in the middle of a line. What is no event is told with file
 * and line and passed over; what stands in two logs is taken once; lines from before a node knew the store's clock get
 * their place by that node's own, and those of a node that never reached the store by the wall clocks. */
#ifndef RENDEZVOUS_EVENT_READER_H
#define RENDEZVOUS_EVENT_READER_H

#include "base/buf.h"
#include "base/events.h"

#include <cjson/cJSON.h>

enum { TIMELINE_EVENTS_MAX = 500000, TIMELINE_LINE_MAX = 1 << 20 };

/* A ddprun: a node for as long as that lives. */
struct timeline_agent {
    char *host; /* owned */
    int pid;
    bool is_chosen; /* it belongs to the life of the job that is drawn */
    bool has_offset;
    int64_t ahead_ms; /* of the store's clock over its own */
};

struct timeline_event {
    enum event_kind kind;
    bool is_chosen;
    bool by_store;
    size_t agent;  /* index: who is told of, or tells; SIZE_MAX = about the whole job */
    size_t order;  /* as it was read */
    double n;      /* of the store's */
    int64_t at_ms; /* by the store's clock */
    cJSON *o;      /* owned */
};

struct timeline_events {
    struct timeline_event *list; /* owned */
    size_t n, room;
    struct timeline_agent *agents; /* owned */
    size_t n_agents, agents_room;
    char *job, *instance; /* of what is drawn; owned; NULL = not known */
    size_t other_lives;   /* lines of other jobs, or of other lives of this one */
    bool no_memory, is_full;
    /* One sentence about a line that is passed over, with its place. NULL = nobody asks. */
    void (*complain)(void *user, const char *file, size_t line, const char *what);
    void *user;
};

/* Add the lines of one log. */
void timeline_read(struct timeline_events *events, const char *file, struct slice text);
/* After the last log: choose, place, sort. `job` NULL = the latest one. The chosen ones are the first `n` then. False when
 * there is none, or memory was short. */
bool timeline_settle(struct timeline_events *events, const char *job);
void timeline_events_free(struct timeline_events *events);

/* A member of an event: "" and -1 when it is missing, or of another type. */
const char *timeline_text(const struct timeline_event *event, const char *name);
int64_t timeline_number(const struct timeline_event *event, const char *name);
/* The same for milliseconds, with a limit that leaves room to calculate. */
int64_t timeline_time(const struct timeline_event *event, const char *name);

#endif
