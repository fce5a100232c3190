/* hanging.h -- what a process that should have ended long ago, and all below it, is doing: for the words of a failed test,
 * because nobody can look any more when they are read. Without Criterion. */
#ifndef TESTS_LIB_HANGING_H
#define TESTS_LIB_HANGING_H

#include "base/buf.h"

#include <sys/types.h>

/* Append a line for each thread: name, numbers, state, and where it sleeps in the kernel. */
void hanging_describe(pid_t pid, struct buf *out);

#endif
