/* writer.h -- a thread that writes, so that a slow terminal or disk never blocks the event loop.
 *
 * A writer has slots, one per target. Bytes put into a slot are copied, and are written in order and completely. The
 * thread writes all bytes of one slot before the next slot. So pieces never mix, even when two slots are the same
 * terminal.
 *
 * The policy decides what happens when a target does not accept its bytes. With WRITER_BLOCK no byte is lost: a write
 * to a full disk is retried, and the caller checks writer_queued and stops reading when too many bytes are queued.
 * With WRITER_DROP, bytes that do not fit are dropped and counted, and a line in the output shows the place and the
 * number of missing bytes. A permanent error (EIO, EFBIG ...) drops bytes with either policy. The thread is created
 * with the first bytes. */
#ifndef LAUNCHER_OUTPUT_WRITER_H
#define LAUNCHER_OUTPUT_WRITER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* Final messages, for a descriptor whose reader may not read. */

/* Write all bytes. Return 0 or an errno. ETIMEDOUT means that no byte could be written for `unread_ms`. */
int patient_write(int fd, struct slice bytes, int unread_ms);

struct writer;

/* Called on the writer's thread after each write, and by writer_put when it begins to drop bytes. The callback must
 * be short, and safe on another thread (wakeup_ring). */
typedef void (*writer_progress)(void *user);

enum writer_policy { WRITER_BLOCK, WRITER_DROP };

/* The target of a slot's bytes. Both functions are called on the writer's thread only, and may block. */
struct writer_target {
    /* Write, return the number of written bytes, and set *error to the errno or 0. */
    size_t (*write)(void *user, const uint8_t *data, size_t len, int *error);
    void (*close)(void *user); /* NULL = nothing to close */
    void *user;
};

/* The state of a slot. */
struct writer_state {
    int error;        /* errno of the latest write, 0 = success */
    bool dropping;    /* new bytes are lost at the moment, or wait for a full disk */
    uint64_t dropped; /* bytes lost since the start */
    int why;          /* errno of the latest loss, 0 = too slow */
    uint64_t queued;  /* bytes that are not yet written */
    bool closed;      /* writer_end was called, and everything is written or lost */
};

/* Return a new writer, or NULL when memory is short. */
struct writer *writer_new(writer_progress progress, void *user);

/* Set the policy, at any time. `limit` is how many bytes may wait in a slot under WRITER_DROP. */
void writer_set_policy(struct writer *w, enum writer_policy policy, uint64_t limit);

/* Add a slot for `fd`. If `owned`, writer_end or writer_free closes `fd`. Return the slot's number, or -1 when memory
 * is short. */
int writer_add(struct writer *w, int fd, bool owned);

/* Add a slot for any target, which is closed at the end. */
int writer_add_target(struct writer *w, struct writer_target target);

/* Queue bytes. When memory is short, the bytes are dropped. If no thread can be created, this function writes the
 * bytes. */
void writer_put(struct writer *w, int slot, struct slice bytes);

/* End a slot, which is closed as soon as all its bytes are written. */
void writer_end(struct writer *w, int slot);

/* Release a closed slot, so that its number may be reused. */
void writer_release(struct writer *w, int slot);

/* Return the number of unwritten bytes of all slots, including bytes that the thread is writing. */
uint64_t writer_queued(struct writer *w);

/* Return the state of one slot. */
struct writer_state writer_state(struct writer *w, int slot);

/* Return the bytes written until now, to detect progress. */
uint64_t writer_written(struct writer *w);

/* Stop without waiting for queued bytes, close owned targets, and free the writer. NULL is allowed. */
void writer_free(struct writer *w);

#endif
