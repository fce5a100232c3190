/* writer.c -- see writer.h. Each slot has two buffers: `waiting` grows under the lock, and `going` belongs to the
 * thread while it writes. Before each write, the thread swaps the buffers. So no write holds the lock, and one system
 * call writes many lines. */
#include "output/writer.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/timed_call.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Each write has at most PIPE_BUF bytes, because a larger write to a writable pipe could block. */

/* Write some of the bytes, and return the number of bytes written. Return 0 if no byte was written and the caller must
 * try again. Return -1 after an error. If `fd` accepts no byte until the time `end_ms`, return -1 with the errno
 * ETIMEDOUT. */
static ssize_t write_some(int fd, const char *at, size_t len, uint64_t end_ms)
{
    struct pollfd ready = { .fd = fd, .events = POLLOUT };
    const uint64_t now = clock_ms();
    const int n_ready = poll(&ready, 1, now < end_ms ? (int)(end_ms - now) : 0);
    if (n_ready == 0)
        errno = ETIMEDOUT;
    const ssize_t n = n_ready > 0 ? write(fd, at, len < PIPE_BUF ? len : PIPE_BUF) : -1;
    if (n >= 0 || (errno != EINTR && errno != EAGAIN))
        return n;
    poll(NULL, 0, 1); /* poll can report a terminal as writable although write returns EAGAIN */
    return 0;
}

int write_timeout(int fd, struct slice bytes, int unread_ms)
{
    const char *at = bytes.data;
    size_t left = bytes.len;
    uint64_t end_ms = clock_ms() + (uint64_t)unread_ms;
    while (left > 0) {
        const ssize_t n = write_some(fd, at, left, end_ms);
        if (n < 0)
            return errno;
        if (n > 0)
            end_ms = clock_ms() + (uint64_t)unread_ms;
        at += n;
        left -= (size_t)n;
    }
    return 0;
}

enum {
    KEEP_BYTES = 64 * 1024,   /* an empty buffer that has more memory than this is freed */
    PIECE_BYTES = 128 * 1024, /* maximum size of one write */
    RETRY_MS = 250,           /* delay before the next write to a full disk */
    JOIN_MS = 300             /* writer_free waits at most this time for the thread */
};

/* A target and its bytes. The lock protects every member except `going`, which the thread owns. */
struct slot {
    struct writer_target target;
    int fd;       /* the descriptor, if writer_add added the slot; target.user then points to this member */
    bool ended;   /* the target must be closed after the last byte */
    bool closed;  /* the target is closed */
    bool free;    /* the owner has released the slot for another target */
    bool dead;    /* the reader of the target is gone, so bytes are dropped */
    bool midline; /* the last written byte was not a newline */
    int error;    /* errno of the latest write */
    uint64_t retry_ms; /* when the write to a full disk is retried */
    uint64_t dropped;
    int why;          /* errno of the latest loss; 0 if the target was too slow */
    uint64_t hole[3]; /* lost bytes before `going`, before `waiting` and after `waiting` */
    struct buf waiting;
    struct buf going; /* bytes that the thread writes; the first `at` bytes are already written */
    size_t at;
};

/* Indices of slot.hole. A hole is a place in the stream where bytes were lost. slot.hole contains the number of lost
 * bytes at each place. A slot has at most three holes, because the writer drops all new bytes while there is a hole
 * after `waiting`. When the target accepts bytes again, the writer writes a line that reports the hole (a mark). The
 * bytes of marks are not counted. So the numbers of written, queued and dropped bytes add up to the number of bytes
 * that writer_append has received. */
enum { BEFORE_GOING, BEFORE_WAITING, BEHIND };

struct writer {
    pthread_mutex_t lock;
    pthread_cond_t work; /* signalled for new work, when `stopping` is set, and when the thread ends */
    pthread_t thread;
    bool started, stopping, ended;
    enum writer_policy policy;
    uint64_t limit; /* limit of queued bytes per slot, for WRITER_DROP */
    writer_progress progress;
    void *user;
    uint64_t queued, written;
    struct slot **slots; /* pointers, because a slot must not move when the table grows */
    int n_slots;
};

/* --- descriptors ---------------------------------------------------------------------------------------- */

size_t writer_write_fd(int fd, const uint8_t *data, size_t len, int *error)
{
    size_t done = 0;
    *error = 0;
    while (done < len && *error == 0) {
        ssize_t n = write(fd, data + done, len - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno == EAGAIN)
            poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, -1);
        else if (errno != EINTR)
            *error = errno;
    }
    return done;
}

static size_t fd_write(void *user, const uint8_t *data, size_t len, int *error)
{
    return writer_write_fd(*(const int *)user, data, len, error);
}

static void fd_close(void *user)
{
    close(*(const int *)user);
}

/* --- the thread ----------------------------------------------------------------------------------------- */

/* Write to the target. The thread can be cancelled only here, where it holds no lock and no memory. */
static size_t write_all(struct slot *s, struct slice bytes, int *error)
{
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    size_t n = s->target.write(s->target.user, bytes.data, bytes.len, error);
    pthread_setcancelstate(old, NULL);
    if (n > 0)
        s->midline = ((const uint8_t *)bytes.data)[n - 1] != '\n';
    return n;
}

/* Write the line that reports lost bytes. Return 0 or an errno. */
static int mark_hole(struct slot *s)
{
    char text[128];
    int error, len = snprintf(text, sizeof(text), "%s[ddprun: %llu bytes are missing here]\n",
                              s->midline ? "\n" : "", (unsigned long long)s->hole[BEFORE_GOING]);
    write_all(s, slice_of(text, (size_t)len), &error);
    return error;
}

/* Return true if the slot has bytes to write or a target to close. */
static bool has_work(const struct slot *s)
{
    return s->going.len > 0 || s->waiting.len > 0 || (s->ended && !s->closed);
}

/* Return the next slot that has work now, or NULL. If the result is NULL, *wake_ms is the time of the next retry, or
 * UINT64_MAX if no retry is due. The search begins at slot `from`. The caller increases `from` each time, so that no
 * slot waits forever. `from` is unsigned, because its value wraps around in long jobs. */
static struct slot *next_slot(const struct writer *w, unsigned from, uint64_t *wake_ms)
{
    const uint64_t now = clock_ms();
    *wake_ms = UINT64_MAX;
    for (unsigned i = 0, n = (unsigned)w->n_slots; i < n; i++) {
        struct slot *s = w->slots[(from + i) % n];
        if (has_work(s) && s->retry_ms <= now)
            return s;
        if (has_work(s) && s->retry_ms < *wake_ms)
            *wake_ms = s->retry_ms;
    }
    return NULL;
}

/* Clear `going`, and free its memory if this memory is large, because 512 files could each keep a large buffer. */
static void empty(struct slot *s)
{
    s->at = s->going.len = 0;
    if (s->going.cap > KEEP_BYTES)
        buf_free(&s->going);
}

/* Close the target of a slot that has no queued bytes. The caller holds the lock. This function releases the lock
 * during the close, because close(2) may wait for a file server. */
static void close_slot(struct writer *w, struct slot *s)
{
    pthread_mutex_unlock(&w->lock);
    s->hole[BEFORE_GOING] += s->hole[BEFORE_WAITING] + s->hole[BEHIND];
    if (s->hole[BEFORE_GOING] > 0 && !s->dead)
        mark_hole(s);
    if (s->target.close != NULL)
        s->target.close(s->target.user);
    pthread_mutex_lock(&w->lock);
    s->target.close = NULL;
    buf_free(&s->waiting);
    buf_free(&s->going);
    s->closed = true;
}

/* Swap the buffers and move the counters of lost bytes. The swap neither copies nor allocates memory. */
static void swap_waiting(struct slot *s)
{
    struct buf empty_one = s->going;
    s->going = s->waiting;
    s->waiting = empty_one;
    s->hole[BEFORE_GOING] += s->hole[BEFORE_WAITING];
    s->hole[BEFORE_WAITING] = s->hole[BEHIND];
    s->hole[BEHIND] = 0;
}

/* Return true if the disk or the quota is full, because space may become free later. All other errors are
 * permanent. */
static bool may_pass(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

/* Handle a write error. With WRITER_BLOCK, if the disk or the quota is full, keep the unwritten bytes and try again
 * later. In all other cases, count these bytes as lost. The caller holds the lock. */
static void write_failed(struct writer *w, struct slot *s, int error)
{
    const uint64_t rest = s->going.len - s->at;
    s->dead = s->dead || error == EPIPE || error == EBADF;
    if (w->policy == WRITER_BLOCK && may_pass(error) && !s->dead) {
        s->retry_ms = clock_ms() + RETRY_MS;
        return;
    }
    s->dropped += rest;
    s->why = error;
    s->hole[BEFORE_GOING] += rest;
    w->queued -= rest;
    empty(s);
}

/* Write one piece and return 0 or an errno. The caller holds the lock. The lock is released during the write. */
static int write_piece(struct writer *w, struct slot *s)
{
    int error = 0;
    size_t n = 0, left = s->going.len - s->at;
    pthread_mutex_unlock(&w->lock);
    if (s->hole[BEFORE_GOING] > 0 && (error = mark_hole(s)) == 0)
        s->hole[BEFORE_GOING] = 0;
    if (error == 0)
        n = write_all(s, slice_of(s->going.data + s->at, left < PIECE_BYTES ? left : PIECE_BYTES), &error);
    pthread_mutex_lock(&w->lock);
    s->at += n;
    w->queued -= n;
    w->written += n;
    return error;
}

/* Write all bytes of the slot before any other slot is served, so that the lines of two slots do not mix. The caller
 * holds the lock. */
static void write_slot(struct writer *w, struct slot *s)
{
    int error = s->dead ? s->error : 0;
    if (s->going.len == 0)
        swap_waiting(s);
    while (error == 0 && s->at < s->going.len && !w->stopping) {
        error = write_piece(w, s);
        w->progress(w->user);
    }
    s->error = error;
    if (error != 0)
        write_failed(w, s, error);
    else if (s->at == s->going.len)
        empty(s);
}

/* Wait for a signal of `work`, or until `wake_ms`. The caller holds the lock. */
static void wait_for_work(struct writer *w, uint64_t wake_ms)
{
    const struct timespec at = { .tv_sec = (time_t)(wake_ms / 1000),
                                 .tv_nsec = (long)(wake_ms % 1000) * 1000000 };
    if (wake_ms == UINT64_MAX)
        pthread_cond_wait(&w->work, &w->lock);
    else
        pthread_cond_timedwait(&w->work, &w->lock, &at);
}

/* Record that the thread has ended or was cancelled. The caller does not hold the lock. */
static void record_end(void *arg)
{
    struct writer *w = arg;
    pthread_mutex_lock(&w->lock);
    w->ended = true;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
}

/* Write until the writer stops. `progress` may be called with the lock held, because this callback only wakes the
 * loop. */
static void *writer_main(void *arg)
{
    struct writer *w = arg;
    uint64_t wake_ms;
    unsigned turn = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cleanup_push(record_end, w);
    pthread_mutex_lock(&w->lock);
    while (!w->stopping) {
        struct slot *s = next_slot(w, turn++, &wake_ms);
        if (s == NULL) {
            wait_for_work(w, wake_ms);
            continue;
        }
        if (s->waiting.len > 0 || s->going.len > 0)
            write_slot(w, s);
        else
            close_slot(w, s);
        w->progress(w->user);
    }
    pthread_mutex_unlock(&w->lock);
    pthread_cleanup_pop(1);
    return NULL;
}

/* --- the caller's side ---------------------------------------------------------------------------------- */

/* Create a writer without a thread. The thread starts when the first bytes are queued, because many jobs write no
 * output. */
struct writer *writer_new(writer_progress progress, void *user)
{
    pthread_condattr_t monotonic;
    struct writer *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    w->progress = progress;
    w->user = user;
    w->limit = UINT64_MAX;
    return w;
}

void writer_set_policy(struct writer *w, enum writer_policy policy, uint64_t limit)
{
    pthread_mutex_lock(&w->lock);
    w->policy = policy;
    w->limit = limit;
    pthread_mutex_unlock(&w->lock);
}

/* Return the number of an unused slot, or -1 when memory is short. Slots never move; only the table of pointers
 * moves. The caller holds the lock. */
static int free_slot(struct writer *w)
{
    for (int i = 0; i < w->n_slots; i++)
        if (w->slots[i]->free)
            return i;
    struct slot **slots = realloc(w->slots, ((size_t)w->n_slots + 1) * sizeof(struct slot *));
    if (slots == NULL)
        return -1;
    w->slots = slots;
    slots[w->n_slots] = calloc(1, sizeof(struct slot));
    return slots[w->n_slots] != NULL ? w->n_slots++ : -1;
}

int writer_add_target(struct writer *w, struct writer_target target)
{
    pthread_mutex_lock(&w->lock);
    int n = free_slot(w);
    if (n >= 0)
        *w->slots[n] = (struct slot){ .target = target };
    pthread_mutex_unlock(&w->lock);
    return n;
}

/* Add a slot for a descriptor. A slot never moves in memory, so target.user can point into the slot. */
int writer_add(struct writer *w, int fd, bool owned)
{
    int n = writer_add_target(w, (struct writer_target){ fd_write, owned ? fd_close : NULL, NULL });
    if (n >= 0) {
        w->slots[n]->fd = fd;
        w->slots[n]->target.user = &w->slots[n]->fd;
    }
    return n;
}

void writer_end(struct writer *w, int slot)
{
    pthread_mutex_lock(&w->lock);
    struct slot *s = w->slots[slot];
    s->ended = true;
    if (!w->started)
        close_slot(w, s);
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
}

/* Release a closed slot. The owner has already read the final state of the slot. */
void writer_release(struct writer *w, int slot)
{
    pthread_mutex_lock(&w->lock);
    w->slots[slot]->free = true;
    pthread_mutex_unlock(&w->lock);
}

/* Return how many bytes are not written yet. The caller holds the lock, which protects `at` and the lengths. */
static uint64_t slot_queued(const struct slot *s)
{
    return s->waiting.len + s->going.len - s->at;
}

/* Count `len` new bytes as lost. If these bytes begin a new hole, wake the loop, which warns the user. The caller
 * holds the lock. */
static void writer_drop(struct writer *w, struct slot *s, size_t len)
{
    uint64_t *hole = &s->hole[s->waiting.len > 0 ? BEHIND : BEFORE_WAITING];
    if (*hole == 0)
        w->progress(w->user);
    *hole += len;
    s->dropped += len;
    s->why = s->error;
}

/* Write in the caller's thread. Keep the lock during the write, because without a writer's thread, no other thread
 * needs the lock. */
static void write_here(struct writer *w, struct slot *s, struct slice bytes)
{
    int error = s->error;
    size_t n = s->dead ? 0 : s->target.write(s->target.user, bytes.data, bytes.len, &error);
    w->written += n;
    s->error = error;
    s->dead = s->dead || error == EPIPE;
    if (n < bytes.len)
        writer_drop(w, s, bytes.len - n);
}

/* Queue bytes without waiting for the target, because the caller is the event loop. If no thread can be created
 * (ulimit -u), write the bytes here, because slow output is better than lost output. */
void writer_append(struct writer *w, int slot, struct slice bytes)
{
    pthread_mutex_lock(&w->lock);
    struct slot *s = w->slots[slot];
    const bool full = w->policy == WRITER_DROP && slot_queued(s) > w->limit;
    if (!w->started)
        w->started = thread_start(&w->thread, writer_main, w) == 0;
    if (!w->started)
        write_here(w, s, bytes);
    else if (s->hole[BEHIND] > 0 || full || !buf_append(&s->waiting, bytes.data, bytes.len))
        writer_drop(w, s, bytes.len);
    else
        w->queued += bytes.len;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
}

uint64_t writer_queued(struct writer *w)
{
    pthread_mutex_lock(&w->lock);
    uint64_t queued = w->queued;
    pthread_mutex_unlock(&w->lock);
    return queued;
}

uint64_t writer_written(struct writer *w)
{
    pthread_mutex_lock(&w->lock);
    uint64_t written = w->written;
    pthread_mutex_unlock(&w->lock);
    return written;
}

/* Return true if the latest write failed, or if the stream has a hole after bytes that are still queued. A hole between
 * `going` and `waiting` counts only until `going` is written, because the target then accepts bytes again. */
static bool is_dropping(const struct slot *s)
{
    return s->error != 0 || s->hole[BEHIND] > 0 || (s->hole[BEFORE_WAITING] > 0 && s->going.len > 0);
}

struct writer_state writer_state(struct writer *w, int slot)
{
    pthread_mutex_lock(&w->lock);
    const struct slot *s = w->slots[slot];
    struct writer_state state = { .error = s->error,
                                  .dropping = is_dropping(s),
                                  .dropped = s->dropped,
                                  .why = s->why,
                                  .queued = slot_queued(s),
                                  .closed = s->closed };
    pthread_mutex_unlock(&w->lock);
    return state;
}

/* End the thread. If bytes are queued, cancel the thread, because the thread may block in write(2). Return false if the
 * thread does not end within JOIN_MS, because a file system does not answer. */
static bool stop_thread(struct writer *w)
{
    const struct timespec limit = clock_after_us(JOIN_MS * 1000);
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->work);
    if (w->queued > 0)
        pthread_cancel(w->thread);
    int error = 0;
    while (!w->ended && error == 0)
        error = pthread_cond_timedwait(&w->work, &w->lock, &limit);
    const bool ended = w->ended;
    pthread_mutex_unlock(&w->lock);
    if (ended)
        pthread_join(w->thread, NULL);
    return ended;
}

static void no_progress(void *user)
{
    (void)user;
}

void writer_free(struct writer *w)
{
    if (w == NULL)
        return;
    if (w->started && !stop_thread(w)) {
        pthread_mutex_lock(&w->lock);
        w->progress = no_progress; /* the caller may free `user` now */
        pthread_mutex_unlock(&w->lock);
        pthread_detach(w->thread); /* the thread uses this memory until the process ends */
        return;
    }
    for (int i = 0; i < w->n_slots; i++) {
        struct slot *s = w->slots[i];
        if (s->target.close != NULL)
            s->target.close(s->target.user);
        buf_free(&s->waiting);
        buf_free(&s->going);
        free(s);
    }
    free(w->slots);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
