/* timeline_core.h -- private to timeline*.c: a timeline while it is made. */
#ifndef RENDEZVOUS_TIMELINE_CORE_H
#define RENDEZVOUS_TIMELINE_CORE_H

#include "ctl/timeline.h"

enum { TIMELINE_RANKS_MAX = 1 << 17 };

/* A barrier whose end has not been told yet. */
struct making_open {
    const char *name; /* borrowed from its event */
    size_t row;       /* of the rank that opened it */
    int64_t since_ms;
};

struct making {
    struct timeline *t;
    const struct timeline_events *events;
    int64_t zero_ms, now_ms;
    uint32_t round;
    size_t last_joined; /* row of the node that joined last */
    size_t rows_room, bars_room, marks_room, bands_room;
    size_t *row_of_agent, *row_of_rank; /* owned; TIMELINE_JOB = none yet */
    struct making_open *open;           /* owned */
    size_t n_open, open_room;
    bool no_memory;
};

/* The row of a node, of a rank; made when it is new. TIMELINE_JOB when memory is short, or there is no such. */
size_t making_node(struct making *m, size_t agent);
size_t making_rank(struct making *m, int64_t rank);

/* Add a bar from `bar`, which has everything but the text; one without a length is left out. */
void making_bar(struct making *m, const struct timeline_bar *bar, const char *text);
/* The bar that is open in the row ends now. */
void making_close(struct making *m, size_t row, size_t waited_for, const char *text);
void making_mark(struct making *m, enum timeline_mark_kind kind, size_t row, const char *text);
void making_band(struct making *m);
/* The round is over, and with it every barrier that nobody has told the end of: who opened it has waited until now. */
void making_end_band(struct making *m);
void making_open_barrier(struct making *m, size_t row, const char *name);
void making_end_barrier(struct making *m, const char *name);

/* Close what is open, name and sort the rows, free what only the making needs. */
void making_finish(struct making *m);

#endif
