/* hints.h -- last words of workers that everybody meets sooner or later, and what they mean. */
#ifndef LAUNCHER_HINTS_H
#define LAUNCHER_HINTS_H

#include "base/slice.h"

/* A sentence for what the worker wrote last, NULL when nothing in it is known. Of several the last line's counts. */
const char *hint_for(struct slice last_lines);

#endif
