/* writer.h -- a thread that writes, so that a slow terminal or disk never blocks the event loop. The thread writes all
 * queued bytes of one slot before bytes of the next slot. So the lines of two slots never mix, even on the same
 * terminal. */
#ifndef LAUNCHER_OUTPUT_WRITER_H
#define LAUNCHER_OUTPUT_WRITER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* Write all bytes in the calling thread, for the final messages of ddprun. Return 0 if all bytes were written, and
 * otherwise an errno. The errno is ETIMEDOUT if the descriptor has accepted no byte for `unread_ms`, for example
 * because the reader is stopped. */
int write_timeout(int fd, struct slice bytes, int unread_ms);

/* A writer has slots, one per target. Bytes of a slot are copied and written in order. */
struct writer;

/* The writer calls this callback after each write of its thread, and when a new gap of lost bytes begins. The callback
 * may run on the writer's thread, so the callback must be short and thread-safe, for example wakeup_ring. */
typedef void (*writer_progress)(void *user);

/* The policy for a target that accepts no bytes. With WRITER_BLOCK no byte is lost, because a write to a full disk is
 * retried, and the caller stops reading when writer_queued is high. With WRITER_DROP, bytes above the limit and bytes
 * that a full disk rejects are dropped and counted. A line in the output reports the number of dropped bytes. A
 * permanent error, such as EIO or EFBIG, drops bytes with either policy. */
enum writer_policy { WRITER_BLOCK, WRITER_DROP };

/* The destination of the bytes of a slot. The writer's thread calls both functions, which may block. The memory at
 * `user` must stay valid until the writer has called `close`, or until writer_free. */
struct writer_target {
    /* Write bytes. Return the number of bytes written, and set *error to an errno or 0. */
    size_t (*write)(void *user, const uint8_t *data, size_t len, int *error);
    void (*close)(void *user); /* NULL if there is nothing to close */
    void *user;
};

/* The state of a slot. */
struct writer_state {
    int error; /* errno of the latest write; 0 after a success */
    /* True if the writer drops new bytes. Also true if queued bytes wait because the disk or the quota is full. */
    bool dropping;
    uint64_t dropped; /* bytes lost since the start */
    int why;          /* errno when bytes were last lost; 0 if the target was too slow */
    uint64_t queued;  /* bytes that are not written yet */
    bool closed;      /* the target was closed, as writer_end requested */
};

/* Write bytes to a descriptor. If a non-blocking descriptor is not writable, wait until the descriptor is writable.
 * Return the number of bytes written, and set *error to an errno or 0. */
size_t writer_write_fd(int fd, const uint8_t *data, size_t len, int *error);

/* Return a new writer, which the caller owns, or NULL when memory is short. The writer starts its thread when the first
 * bytes are queued. */
struct writer *writer_new(writer_progress progress, void *user);

/* Set the policy. The policy may be changed at any time. `limit` is the number of bytes that WRITER_DROP queues per
 * slot. */
void writer_set_policy(struct writer *w, enum writer_policy policy, uint64_t limit);

/* Add a slot for `fd`. If `owned` is true, the writer closes `fd` after writer_end. Return the slot's number, or -1
 * when memory is short. */
int writer_add(struct writer *w, int fd, bool owned);

/* Add a slot for `target`. The writer closes the target after writer_end. Return the slot's number, or -1 when memory
 * is short. */
int writer_add_target(struct writer *w, struct writer_target target);

/* Queue bytes for a slot. When memory is short, drop the bytes. If the writer's thread cannot be created, write the
 * bytes in the calling thread. */
void writer_append(struct writer *w, int slot, struct slice bytes);

/* End a slot: the writer closes the slot's target after it has written the last byte. */
void writer_end(struct writer *w, int slot);

/* Release a closed slot, so that its number may be reused. */
void writer_release(struct writer *w, int slot);

/* Return how many bytes of all slots are not written yet. */
uint64_t writer_queued(struct writer *w);

/* Return the state of one slot. */
struct writer_state writer_state(struct writer *w, int slot);

/* Return how many bytes were written so far. A change of this number means progress. */
uint64_t writer_written(struct writer *w);

/* Stop without waiting for queued bytes, close owned targets, and free the writer. `w` may be NULL. */
void writer_free(struct writer *w);

#endif
