/* writer.h -- a thread that writes, so that a slow terminal or disk never holds the event loop.
 *
 * A writer has slots, one per file. What is put into a slot is copied, comes out in order and in
 * full: the thread takes all that is waiting in a slot and writes it to the end before it looks at
 * the next slot, so whatever was put in one piece never mixes with another piece, even when two
 * slots are the same terminal. Nothing is dropped here: the caller asks writer_queued and stops
 * reading when it is too much. The thread starts with the first bytes. */
#ifndef LAUNCHER_WRITER_H
#define LAUNCHER_WRITER_H

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

struct writer;

/* Called on the writer's thread after it has written something; must be short and safe there
 * (uv_async_send). */
typedef void (*writer_progress)(void *user);

/* NULL when memory is short. */
struct writer *writer_new(writer_progress progress, void *user);

/* A slot for `fd`; with `owned` it is closed by writer_end or writer_free. Returns its number, -1 when
 * memory is short. */
int writer_add(struct writer *w, int fd, bool owned);

/* Queue bytes. When memory is short or the thread cannot be started they are lost and the slot has
 * failed. */
void writer_put(struct writer *w, int slot, struct slice bytes);

/* No more for this slot: it is closed when all is written, and its number may then be given anew. */
void writer_end(struct writer *w, int slot);

/* Bytes that are not yet written, those in the hands of the thread included. */
uint64_t writer_queued(struct writer *w);

/* errno of the first failed write of a slot, 0 = none. What is put into a failed slot is thrown
 * away. */
int writer_error(struct writer *w, int slot);

/* Stop, without waiting for what is still queued, close owned files, free. NULL is allowed. */
void writer_free(struct writer *w);

#endif
