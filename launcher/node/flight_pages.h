/* flight_pages.h -- the memory that this node shares with its workers: a page of record/flight.h for each, in an
 * unnamed memory file. Created anew for each attempt, so that a process of an old attempt cannot write into it. */
#ifndef LAUNCHER_NODE_FLIGHT_PAGES_H
#define LAUNCHER_NODE_FLIGHT_PAGES_H

#include "record/flight.h"

/* Zeroed: no pages. */
struct rank_pages {
    int n, fd; /* descriptor, if n > 0 */
    void *base;
};

/* Without memory or descriptors no page exists, and workers run without one. */
void rank_pages_open(struct rank_pages *pages, int n);
void rank_pages_close(struct rank_pages *pages);

/* Address of worker 0's page; pid 0 without pages. */
struct flight_page rank_pages_first(const struct rank_pages *pages);

/* The records of worker `i` so far; NULL before its first one, or without pages. */
const struct flight *rank_page(const struct rank_pages *pages, int i);

#endif
