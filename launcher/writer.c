/* writer.c -- see writer.h.
 *
 * Each slot has two buffers: `waiting` grows under the lock, `going` belongs to the thread while it
 * writes. They are swapped, so the lock is never held across a write, and a burst goes out with one
 * system call. */
#include "writer.h"

#include "base/buf.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* One file. `waiting` belongs to the lock, `going` to the thread; everything else changes under the
 * lock alone. */
struct slot {
    int fd;
    bool owned;
    bool ended;         /* to be closed behind the last byte */
    bool free;          /* ended and closed */
    int error;          /* errno of the first failed write; later bytes are thrown away */
    struct buf waiting; /* under the lock */
    struct buf going;   /* the thread's */
};

struct writer {
    pthread_mutex_t lock;
    pthread_cond_t work; /* something is waiting, or it is time to stop */
    pthread_t thread;
    bool started, stopping;
    writer_progress progress;
    void *user;
    uint64_t queued;
    struct slot **slots; /* pointers, so that a slot stays where it is when the table grows */
    int n_slots;
};

/* --- the thread ----------------------------------------------------------------------------------------- */

/* Write all of it; 0, or the errno that ended it. A descriptor that someone made non-blocking is
 * waited for. Only in here may the thread be cancelled: it holds no lock and has nothing to free. */
static int write_all(int fd, const uint8_t *data, size_t len)
{
    int old, error = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    for (size_t done = 0; done < len && error == 0;) {
        ssize_t n = write(fd, data + done, len - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno == EAGAIN)
            poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, -1);
        else if (errno != EINTR)
            error = errno;
    }
    pthread_setcancelstate(old, NULL);
    return error;
}

/* The next slot with something to write, looking on from `from` so that none is starved; NULL when
 * there is none. */
static struct slot *next_slot(const struct writer *w, int from)
{
    for (int i = 0; i < w->n_slots; i++) {
        struct slot *s = w->slots[(from + i) % w->n_slots];
        if (s->waiting.len > 0 || (s->ended && !s->free))
            return s;
    }
    return NULL;
}

/* With the lock held, nothing is waiting. It is left meanwhile, because close(2) may wait for a server. */
static void close_slot(struct writer *w, struct slot *s)
{
    pthread_mutex_unlock(&w->lock);
    if (s->owned)
        close(s->fd);
    pthread_mutex_lock(&w->lock);
    s->owned = false;
    buf_free(&s->waiting);
    buf_free(&s->going);
    s->free = true;
}

/* Called and left with the lock held; open while writing. */
static void write_slot(struct writer *w, struct slot *s)
{
    struct buf take = s->waiting;
    s->waiting = s->going;
    s->going = take;
    int fd = s->error == 0 ? s->fd : -1;

    pthread_mutex_unlock(&w->lock);
    int error = fd >= 0 ? write_all(fd, take.data, take.len) : 0;
    pthread_mutex_lock(&w->lock);

    if (s->error == 0)
        s->error = error;
    w->queued -= take.len;
    s->going.len = 0;
}

/* Progress is told with the lock held: it only wakes the loop up, and the loop then finds the
 * numbers as they are. */
static void *writer_main(void *arg)
{
    struct writer *w = arg;
    int turn = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_mutex_lock(&w->lock);
    while (!w->stopping) {
        struct slot *s = next_slot(w, turn++);
        if (s == NULL) {
            pthread_cond_wait(&w->work, &w->lock);
            continue;
        }
        if (s->waiting.len > 0)
            write_slot(w, s);
        else
            close_slot(w, s);
        w->progress(w->user);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* --- the caller's side ---------------------------------------------------------------------------------- */

/* No thread yet: most jobs of a script that only asks for the exit code never write a byte. */
struct writer *writer_new(writer_progress progress, void *user)
{
    struct writer *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    w->progress = progress;
    w->user = user;
    return w;
}

/* With the lock held: the number of a slot that nobody uses, -1 when memory is short. A slot never moves,
 * only the table of pointers to them does. */
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

/* May be called while the thread runs. */
int writer_add(struct writer *w, int fd, bool owned)
{
    pthread_mutex_lock(&w->lock);
    int n = free_slot(w);
    if (n >= 0)
        *w->slots[n] = (struct slot){ .fd = fd, .owned = owned };
    pthread_mutex_unlock(&w->lock);
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

/* With the lock held. */
static bool start_thread(struct writer *w)
{
    sigset_t all, before;
    if (w->started)
        return true;
    sigfillset(&all); /* signals belong to the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    w->started = pthread_create(&w->thread, NULL, writer_main, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w->started;
}

/* The caller is the event loop, so this never waits for the file: at worst for the lock, which
 * nobody holds for long. Only where there is no room for a thread (ulimit -u) it does, because to be slow is
 * better than to lose what a worker has said. */
void writer_put(struct writer *w, int slot, struct slice bytes)
{
    pthread_mutex_lock(&w->lock);
    struct slot *s = w->slots[slot];
    if (!start_thread(w))
        s->error = s->error != 0 ? s->error : write_all(s->fd, bytes.data, bytes.len);
    else if (!buf_append(&s->waiting, bytes.data, bytes.len))
        s->error = ENOMEM;
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

int writer_error(struct writer *w, int slot)
{
    pthread_mutex_lock(&w->lock);
    int error = w->slots[slot]->error;
    pthread_mutex_unlock(&w->lock);
    return error;
}

/* A thread that hangs in write(2) is cancelled there; elsewhere it sees `stopping`. */
static void stop_thread(struct writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    bool writing = w->queued > 0;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    if (writing)
        pthread_cancel(w->thread);
    pthread_join(w->thread, NULL);
}

void writer_free(struct writer *w)
{
    if (w == NULL)
        return;
    if (w->started)
        stop_thread(w);
    for (int i = 0; i < w->n_slots; i++) {
        if (w->slots[i]->owned)
            close(w->slots[i]->fd);
        buf_free(&w->slots[i]->waiting);
        buf_free(&w->slots[i]->going);
        free(w->slots[i]);
    }
    free(w->slots);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
