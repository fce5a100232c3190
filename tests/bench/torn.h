/* torn.h -- tests whether a launcher keeps a line whole if a worker writes the line in pieces. Many workers write at
 * the same time, because lines of two workers mix only then. */
#ifndef TESTS_BENCH_TORN_H
#define TESTS_BENCH_TORN_H

#include "peers.h"

enum { TORN_WORKERS = 16, TORN_LINES = 2000, TORN_ALL = TORN_WORKERS * TORN_LINES };

struct torn_count {
    long whole, other; /* `whole`: complete lines of a worker, with or without a prefix; `other`: the rest */
    int jobs, hung;
};

/* Let the launcher `p` run one job of TORN_WORKERS workers that write TORN_LINES lines each. Add the results to `c`.
 * `writer` is the path of tests/prog/torn_writer. */
void torn_try(const struct peer *p, const char *writer, struct torn_count *c);

/* Return the number of lines that were torn or lost. */
long torn_lines(const struct torn_count *c);

#endif
