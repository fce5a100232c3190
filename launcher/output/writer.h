/* writer.h -- a thread that writes, so that a slow terminal or disk never blocks the event loop. The lines of two
 * slots never mix, even on the same terminal. */
#ifndef LAUNCHER_OUTPUT_WRITER_H
#define LAUNCHER_OUTPUT_WRITER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* Write all bytes in the calling thread. Return 0 or an errno: ETIMEDOUT if the descriptor has accepted no byte for
 * `unread_ms`. */
int write_timeout(int fd, struct slice bytes, int unread_ms);

/* A writer has slots, one per target. Bytes of a slot are copied and written in order. */
struct writer;

/* Called after each write, and when a new gap of lost bytes begins. It must be short and thread-safe, because it may
 * run on the writer's thread. */
typedef void (*writer_progress)(void *user);

/* The policy for a target that accepts no bytes. A permanent error, such as EIO or EFBIG, drops bytes with either
 * policy.
 *
 *   - WRITER_BLOCK: no byte is lost; a write to a full disk is retried, and the caller stops reading when writer_queued
 *     is high
 *   - WRITER_DROP: bytes are dropped above the limit or on a full disk; a line in the output reports their number */
enum writer_policy { WRITER_BLOCK, WRITER_DROP };

/* The target of a slot. The writer's thread calls both functions, which may block. */
struct writer_target {
    /* Return the number of bytes written, and set *error to an errno or 0. */
    size_t (*write)(void *user, const uint8_t *data, size_t len, int *error);
    void (*close)(void *user); /* may be NULL */
    void *user;
};

/* The state of a slot. */
struct writer_state {
    int error;        /* errno of the latest write; 0: success */
    bool dropping;    /* new bytes are dropped, or wait for a full disk */
    uint64_t dropped; /* bytes lost since the start */
    int why;          /* errno of the last loss; 0: too slow */
    uint64_t queued;  /* bytes that are not written yet */
    bool closed;      /* the target was closed after writer_end */
};

/* Write bytes, and wait if the descriptor is not writable. Return the number of bytes written, and set *error to an
 * errno or 0. */
size_t writer_write_fd(int fd, const uint8_t *data, size_t len, int *error);

/* Return a new writer, which the caller owns, or NULL when memory is short. */
struct writer *writer_new(writer_progress progress, void *user);

/* Set the policy, at any time. `limit` is the number of bytes that WRITER_DROP queues per slot. */
void writer_set_policy(struct writer *w, enum writer_policy policy, uint64_t limit);

/* Add a slot for `fd`, which is closed after writer_end if `owned`. Return the slot's number, or -1 when memory is
 * short. */
int writer_add(struct writer *w, int fd, bool owned);

/* Add a slot for `target`, which is closed after writer_end. Return the slot's number, or -1 when memory is short. */
int writer_add_target(struct writer *w, struct writer_target target);

/* Queue bytes for a slot. When memory is short, drop them. Without a thread, write them at once. */
void writer_append(struct writer *w, int slot, struct slice bytes);

/* End a slot: close its target after the last byte. */
void writer_end(struct writer *w, int slot);

/* Release a closed slot, so that its number may be reused. */
void writer_release(struct writer *w, int slot);

/* Return the number of bytes that are not written yet. */
uint64_t writer_queued(struct writer *w);

/* Return the state of one slot. */
struct writer_state writer_state(struct writer *w, int slot);

/* Return the number of written bytes, whose change means progress. */
uint64_t writer_written(struct writer *w);

/* Free the writer without waiting for queued bytes, and close owned targets. `w` may be NULL. */
void writer_free(struct writer *w);

#endif
