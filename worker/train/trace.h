/* trace.h -- the format of Chrome's trace viewer (chrome://tracing, ui.perfetto.dev), one JSON object a line. Pure.
 *
 *     [
 *     {"name":"process_name","ph":"M","pid":0,"args":{"name":"rank 0"}},
 *     {"name":"forward","ph":"X","pid":0,"tid":0,"ts":12,"dur":340,"args":{"step":1}},
 *
 * The viewers take a list that is not closed, so that the file of a run that was killed can be looked at, too. */
#ifndef TRAIN_TRACE_H
#define TRAIN_TRACE_H

#include <stddef.h>
#include <stdint.h>

enum { TRACE_LINE = 256 }; /* room for any line that is made here */

/* Both write a line with its newline and NUL into `to`, and return its length without NUL. */
size_t trace_rank(char to[TRACE_LINE], int rank);
size_t trace_piece(char to[TRACE_LINE], int rank, const char *name, uint64_t begin_us, uint64_t us,
                   uint64_t step);

/* Before the first line, and behind the last one. The last line's comma needs something to follow it. */
extern const char trace_begin[], trace_end[];

#endif
