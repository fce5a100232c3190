/* decimal.h -- counters as PyTorch keeps them: decimal text, read by the rules of C++ stoll. */
#ifndef RENDEZVOUS_DECIMAL_H
#define RENDEZVOUS_DECIMAL_H

#include "base/slice.h"

#include <stdint.h>

enum { DECIMAL_MAX = 24 }; /* "-9223372036854775808" and room */

/* Blanks, a sign, digits; stops at the first other byte ("12ab" is 12). False with no digit or past 64
 * bits. */
bool decimal_parse(struct slice text, int64_t *value);

/* Writes into `text` (DECIMAL_MAX bytes, the caller's) and returns a view of it. */
struct slice decimal_print(int64_t value, char *text);

#endif
