/* lacks.h -- what this kernel or container cannot do, and what we do instead. */
#ifndef LAUNCHER_LACKS_H
#define LAUNCHER_LACKS_H

#include <stdbool.h>
#include <stddef.h>

/* The n-th sentence, NULL behind the last. `grave`: it should be said also to those who did not ask, and
 * `only_grave` looks for nothing else. Looks each time. */
const char *lacks_words(size_t n, bool only_grave, bool *grave);

#endif
