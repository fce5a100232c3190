/* patience.h -- waiting for what must come. A test waits for a condition and never for a time: how long a thing takes is the
 * machine's affair, and PATIENCE_MS is only reached by what never comes.
 *
 *     for (struct patience p = { 0 }; !condition && patience_left(&p);)
 *         continue;
 */
#ifndef TESTS_LIB_PATIENCE_H
#define TESTS_LIB_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

enum { PATIENCE_MS = 60000 };

/* { 0 }: the time begins with the first look. */
struct patience {
    uint64_t until_ms;
};

/* Rest for a few milliseconds; false when the time is over. */
bool patience_left(struct patience *p);

/* Read from a descriptor that is one's own until `text` stands in `seen`, which is a string that may hold some already. False
 * at the end of the file, when there is no more room, or when nothing has come for PATIENCE_MS. */
bool patience_read(int fd, char *seen, unsigned long size, const char *text);

#endif
