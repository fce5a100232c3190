/* flight_pages.h -- the memory that this node shares with its workers: a page of base/flight.h for each, in a memory file without a
 * name. Made anew for each attempt, so that what is left of an old one cannot write into it. */
#ifndef LAUNCHER_NODE_FLIGHT_PAGES_H
#define LAUNCHER_NODE_FLIGHT_PAGES_H

#include "base/flight.h"

/* Zeroed: there are none. */
struct rank_pages {
    int n, fd; /* descriptor, if n > 0 */
    void *base;
};

/* Without memory or descriptors there are none, and workers go on without. */
void rank_pages_open(struct rank_pages *pages, int n);
void rank_pages_close(struct rank_pages *pages);

/* Where worker 0 finds its page; pid 0 when there are none. */
struct flight_page rank_pages_first(const struct rank_pages *pages);

/* What worker `i` has written so far; NULL when it has not begun, or there are none. */
const struct flight *rank_page(const struct rank_pages *pages, int i);

#endif
