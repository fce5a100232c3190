/* hints.h -- last words of workers that everybody meets sooner or later, and what they mean. */
#ifndef LAUNCHER_HINTS_H
#define LAUNCHER_HINTS_H

#include "base/slice.h"

#include <stdbool.h>

/* A sentence for what the worker wrote last, NULL when nothing in it is known. Of several the last line's counts. */
const char *hint_for(struct slice last_lines);

/* Does a process group of PyTorch's (Gloo, NCCL) say last that the process at its other end is gone? */
bool hint_is_of_lost_rank(struct slice last_lines);

#endif
