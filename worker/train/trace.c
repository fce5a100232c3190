/* trace.c -- see trace.h. */
#include "train/trace.h"

#include <inttypes.h>
#include <stdio.h>

const char trace_begin[] = "[\n", trace_end[] = "{}]\n";

/* Names come from tables of this program: they need no escapes, and fit. */
static size_t fits(int len)
{
    return len < 0 ? 0 : len < TRACE_LINE ? (size_t)len : TRACE_LINE - 1;
}

size_t trace_rank(char to[TRACE_LINE], int rank)
{
    return fits(
        snprintf(to, TRACE_LINE,
                 "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}},\n",
                 rank, rank));
}

size_t trace_piece(char to[TRACE_LINE], int rank, const char *name, uint64_t begin_us, uint64_t us,
                   uint64_t step)
{
    return fits(snprintf(to, TRACE_LINE,
                         "{\"name\":\"%.40s\",\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"ts\":%" PRIu64
                         ",\"dur\":%" PRIu64 ",\"args\":{\"step\":%" PRIu64 "}},\n",
                         name, rank, begin_us, us, step));
}
