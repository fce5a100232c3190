/* writer.h -- a thread that writes, so that a slow terminal or disk never holds the event loop.
 *
 * A writer has slots, one per target. What is put into a slot is copied and comes out in order and in full: the
 * thread takes all that is waiting in a slot and writes it to the end before it looks at the next slot, so
 * whatever was put in one piece never mixes with another piece, even when two slots are the same terminal.
 *
 * When a target does not take what is there for it, the policy decides. WRITER_BLOCK: nothing is lost; a full
 * disk is tried again and again, and the caller asks writer_queued and stops reading when it is too much.
 * WRITER_DROP: what does not fit is counted, and where bytes are missing a line says how many. An error that
 * time does not heal (EIO, EFBIG ...) drops with either. The thread starts with the first bytes. */
#ifndef LAUNCHER_OUTPUT_WRITER_H
#define LAUNCHER_OUTPUT_WRITER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* A last message, to a descriptor whose reader may not read. */

/* All of it: 0, or the errno that kept it from the rest; ETIMEDOUT when for `unread_ms` nothing could be written. */
int patient_write(int fd, struct slice bytes, int unread_ms);

struct writer;

/* Called on the writer's thread after it has written something, and by writer_put when it begins to drop;
 * must be short and safe there (uv_async_send). */
typedef void (*writer_progress)(void *user);

enum writer_policy { WRITER_BLOCK, WRITER_DROP };

/* Where a slot's bytes go. Both are called on the writer's thread only, and may block. */
struct writer_target {
    /* Write; returns how much was written, and the errno that kept it from the rest. */
    size_t (*write)(void *user, const uint8_t *data, size_t len, int *error);
    void (*close)(void *user); /* NULL = nothing to close */
    void *user;
};

/* How a slot does. */
struct writer_state {
    int error;        /* errno of the latest write, 0 when it went well */
    bool dropping;    /* what comes is lost at the moment, or waits for a disk */
    uint64_t dropped; /* bytes lost since the beginning */
    int why;          /* errno that lost the latest of them, 0 = too slow */
    uint64_t queued;  /* bytes that are not yet written */
    bool closed;      /* after writer_end: it is done with */
};

/* NULL when memory is short. */
struct writer *writer_new(writer_progress progress, void *user);

/* May be changed at any time. `limit` is how many bytes may wait in a slot under WRITER_DROP. */
void writer_set_policy(struct writer *w, enum writer_policy policy, uint64_t limit);

/* A slot for `fd`; with `owned` it is closed by writer_end or writer_free. Returns its number, -1 when
 * memory is short. */
int writer_add(struct writer *w, int fd, bool owned);

/* The same for any target, which is closed at the end. */
int writer_add_target(struct writer *w, struct writer_target target);

/* Queue bytes. When memory is short or the thread cannot be started they are dropped. */
void writer_put(struct writer *w, int slot, struct slice bytes);

/* No more for this slot: it is closed when all is written. */
void writer_end(struct writer *w, int slot);

/* A closed slot: its number may be given anew. */
void writer_release(struct writer *w, int slot);

/* Bytes that are not yet written, those in the hands of the thread included: of all slots, or of one. */
uint64_t writer_queued(struct writer *w);
struct writer_state writer_state(struct writer *w, int slot);

/* Bytes written until now, to see whether anything moves. */
uint64_t writer_written(struct writer *w);

/* Stop without waiting for queued bytes, close owned targets, free. NULL is allowed. */
void writer_free(struct writer *w);

#endif
