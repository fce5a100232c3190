/* version.h -- the output of --version of all programs, and the versions that work together. */
#ifndef BASE_VERSION_H
#define BASE_VERSION_H

#include "base/buf.h"

#include <stdbool.h>

/* The commit that a program is built from, or "unknown". Libraries do not contain this variable, so a new commit does
 * not relink the tests. */
extern const char build_commit[];

/* Append "PROGRAM 0.1.0 (commit, architecture, C library)", or the same facts as a JSON object, and a newline. Return
 * false if memory is short. */
bool version_print(struct buf *out, const char *program, const char *commit, bool json);

/* Return true if nodes, or a node and a store, of these versions work together, because major and minor numbers are
 * equal. */
bool version_matches(const char *a, const char *b);

#endif
