/* lines_seen.h -- what became of the lines of tests/prog/torn_writer. */
#ifndef TESTS_LIB_LINES_SEEN_H
#define TESTS_LIB_LINES_SEEN_H

#include <stdbool.h>

struct lines_seen {
    int whole, torn; /* torn: also lost ones' successors, and those out of their worker's order */
};

/* Cuts `text` into lines. They have the prefix "[rank] ", in colour if `coloured`. */
struct lines_seen lines_seen(char *text, bool coloured);

#endif
