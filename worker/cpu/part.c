/* part.c -- see part.h. */
#include "cpu/part.h"

/* Parts end at PART_LINE, so that two ranks never write into one cache line. Division first: total * which
 * could overflow. The remainder is spread, so parts differ by one line at most. */
void part_of(size_t total, size_t element_bytes, int which, int count, size_t *at, size_t *n)
{
    size_t line = PART_LINE / element_bytes;
    size_t lines = (total + line - 1) / line, w = (size_t)count, r = (size_t)which;
    size_t from = lines / w * r + lines % w * r / w, to = lines / w * (r + 1) + lines % w * (r + 1) / w;

    *at = from * line < total ? from * line : total;
    *n = (to * line < total ? to * line : total) - *at;
}
