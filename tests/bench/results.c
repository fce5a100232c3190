/* results.c -- see results.h. */
#include "results.h"

#include <fcntl.h>

enum { RESULTS_FD = 3 };

FILE *results_open(void)
{
    return fcntl(RESULTS_FD, F_SETFD, FD_CLOEXEC) == 0 ? fdopen(RESULTS_FD, "w") : NULL;
}
