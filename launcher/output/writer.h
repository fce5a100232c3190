/* writer.h -- a thread that writes, so that a slow terminal or disk never holds the event loop.
 *
 * A writer has slots, one per target. Bytes put into a slot are copied and written in order and in full: the thread
 * writes everything that waits in a slot before it turns to the next one, so pieces never mix, even when two slots
 * are the same terminal.
 *
 * When a target does not accept its bytes, the policy decides. WRITER_BLOCK: nothing is lost; a full disk is retried,
 * and the caller checks writer_queued and stops reading when too much is queued. WRITER_DROP: bytes that do not fit
 * are counted, and a line marks where and how many are missing. A permanent error (EIO, EFBIG ...) drops bytes with
 * either policy. The thread starts with the first bytes. */
#ifndef LAUNCHER_OUTPUT_WRITER_H
#define LAUNCHER_OUTPUT_WRITER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* Write a final message to a descriptor whose reader may not read. */

/* Write all of it: 0, or the errno of the failure; ETIMEDOUT when nothing could be written for `unread_ms`. */
int patient_write(int fd, struct slice bytes, int unread_ms);

struct writer;

/* Called on the writer's thread after it has written something, and by writer_put when it begins to drop; it must be
 * short and safe there (uv_async_send). */
typedef void (*writer_progress)(void *user);

enum writer_policy { WRITER_BLOCK, WRITER_DROP };

/* The target of a slot's bytes. Both functions are called on the writer's thread only, and may block. */
struct writer_target {
    /* Write; return how many bytes were written, and the errno that stopped it. */
    size_t (*write)(void *user, const uint8_t *data, size_t len, int *error);
    void (*close)(void *user); /* NULL = nothing to close */
    void *user;
};

/* The state of a slot. */
struct writer_state {
    int error;        /* errno of the latest write, 0 when it succeeded */
    bool dropping;    /* new bytes are lost at the moment, or wait for a disk */
    uint64_t dropped; /* bytes lost since the start */
    int why;          /* errno that lost the latest of them, 0 = too slow */
    uint64_t queued;  /* bytes that are not yet written */
    bool closed;      /* after writer_end: everything is written or lost */
};

/* NULL when memory is short. */
struct writer *writer_new(writer_progress progress, void *user);

/* May be called at any time. `limit` is how many bytes may wait in a slot under WRITER_DROP. */
void writer_set_policy(struct writer *w, enum writer_policy policy, uint64_t limit);

/* Add a slot for `fd`; with `owned` writer_end or writer_free closes it. Return its number, -1 when memory is short. */
int writer_add(struct writer *w, int fd, bool owned);

/* The same for any target, which is closed at the end. */
int writer_add_target(struct writer *w, struct writer_target target);

/* Queue bytes. When memory is short or the thread cannot be started they are dropped. */
void writer_put(struct writer *w, int slot, struct slice bytes);

/* No more bytes for this slot: it is closed when all is written. */
void writer_end(struct writer *w, int slot);

/* Release a closed slot: its number may be reused. */
void writer_release(struct writer *w, int slot);

/* Return the bytes that are not yet written, including those that the thread is writing: of all slots, or of one. */
uint64_t writer_queued(struct writer *w);
struct writer_state writer_state(struct writer *w, int slot);

/* Return the bytes written until now, to detect progress. */
uint64_t writer_written(struct writer *w);

/* Stop without waiting for queued bytes, close owned targets, free. NULL is allowed. */
void writer_free(struct writer *w);

#endif
