/* version.h -- what --version prints, for all programs, and which versions work together. */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

#include "base/buf.h"

#include <stdbool.h>

/* The commit that a program is built from, or "unknown". The Makefile links it into programs and into no library, so that a new
 * commit compiles one line and relinks no test. */
extern const char build_commit[];

/* Append "PROGRAM 0.1.0 (commit, architecture, C library)", or the same as a JSON object, and a newline. False when memory is short. */
bool version_print(struct buf *out, const char *program, const char *commit, bool json);

/* True if nodes, or a node and a store, of these versions work together: major and minor number are the same. */
bool version_matches(const char *a, const char *b);

#endif
