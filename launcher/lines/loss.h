/* loss.h -- output that is missing somewhere. */
#ifndef LAUNCHER_LOSS_H
#define LAUNCHER_LOSS_H

#include <stdint.h>

struct loss {
    const char *name; /* "stdout", "stderr" or a path; borrowed */
    uint64_t bytes;
    int error; /* errno, 0 when it was too slow */
};

#endif
