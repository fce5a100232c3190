/* log.c -- see log.h.
 *
 * A line is built on the stack and written with one write(2), without stdio. So there is no lock, no buffer that a
 * fork would copy, and no allocation. A long line is cut, so that logging never fails. */
#include "base/log.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/timed_call.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATIENCE_MS = 1000 }; /* longest wait for the reader of a full pipe */

/* main sets this struct before any thread starts, so it needs no lock. */
static struct {
    const char *program;
    enum log_level level;
    enum { ASK_STDERR, TERMINAL, NO_TERMINAL } reader;
} log_state = { "ddprun", LOG_INFO, ASK_STDERR };

void log_setup(const char *program, enum log_level level)
{
    log_state.program = program;
    log_state.level = level;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    static const char *const prefix[] = { "error: ", "warning: ", "", "debug: " };
    char line[4096];
    if (level > log_state.level)
        return;
    int used = snprintf(line, sizeof(line), "%s: %s", log_state.program, prefix[level]);
    va_list ap;
    va_start(ap, fmt);
    int more = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, fmt, ap);
    va_end(ap);
    size_t len = (size_t)used + (more < 0 ? 0 : (size_t)more);
    if (len > sizeof(line) - 2)
        len = sizeof(line) - 2;
    text_disarm(line, len, '\t'); /* names, keys and paths of other users may contain control bytes */
    line[len++] = '\n';
    /* Check before the write, because a write to a full pipe would block this thread. */
    struct pollfd ready = { .fd = STDERR_FILENO, .events = POLLOUT };
    const uint64_t until_ms = clock_ms() + PATIENCE_MS;
    int n;
    do {
        const uint64_t now_ms = clock_ms();
        n = poll(&ready, 1, now_ms < until_ms ? (int)(until_ms - now_ms) : 0);
    } while (n < 0 && errno == EINTR && clock_ms() < until_ms);
    if (n <= 0 || write(STDERR_FILENO, line, len) < 0)
        return; /* the line is lost, because there is no other place to report it */
}

void log_on_terminal(bool is_terminal)
{
    log_state.reader = is_terminal ? TERMINAL : NO_TERMINAL;
}

bool log_hint_is_due(void)
{
    static atomic_flag was_due = ATOMIC_FLAG_INIT;
    const bool is_terminal =
        log_state.reader == ASK_STDERR ? isatty(STDERR_FILENO) == 1 : log_state.reader == TERMINAL;
    return is_terminal && !atomic_flag_test_and_set(&was_due);
}

void log_explain(const char *code)
{
    if (code != NULL && code[0] != '\0' && log_hint_is_due())
        log_info("  (ddprun explain %s)", code);
}

void keep_standard_fds(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
        continue;
    if (fd >= 0)
        close(fd);
}

bool print_stdout(bool made, struct buf *text)
{
    char why[WRITE_ERROR_MAX];
    const bool ok = made && (text->len == 0 || fwrite(text->data, 1, text->len, stdout) == text->len) &&
                    fflush(stdout) == 0;
    if (!ok)
        log_error("standard output: write: %s",
                  made ? write_error_text(errno, "/proc/self/fd/1", why) : "out of memory" MEMORY_REMEDY);
    buf_free(text);
    return ok;
}

/* --- lines of a file -------------------------------------------------------------------------------------- */

enum { QUEUE_BYTES = 4 << 20 }; /* room for about 20,000 lines */

struct line_file {
    int fd; /* owned; after the writing thread has started, only that thread uses it */
    pthread_t thread;
    pthread_mutex_t mutex;     /* protects all following members */
    pthread_cond_t more, done; /* threads wait on `more` until there are lines or `ends` is true, and on
                                * `done` until `has_ended` is true */
    struct buf queue;          /* whole lines that the thread has not fetched yet */
    struct line_file_state state;
    bool has_thread; /* the thread was started */
    bool ends;       /* line_file_close was called, so the thread ends after the last line */
    bool has_ended;  /* the thread has written all lines and does not use the struct any more */
};

/* --- the thread ----------------------------------------------------------------------------------------- */

/* Write the line with one write. Return 0 or an errno. If only a part of the line was written, set *torn to true. The
 * next call then first writes a newline, so that the next line does not continue the incomplete line. */
static int write_line(int fd, const char *line, size_t len, bool *torn)
{
    while (*torn) {
        const ssize_t n = write(fd, "\n", 1);
        if (n < 0 && errno != EINTR)
            return errno;
        *torn = n != 1;
    }
    ssize_t n;
    do
        n = write(fd, line, len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)len)
        return 0;
    *torn = n > 0;
    return n < 0 ? errno : ENOSPC;
}

/* Count a lost line. Format the text of the first error here, in the thread that writes the file. Formatting reads the
 * free space of the disk, and other threads must not wait for the disk. */
static void note_error(struct line_file *f, int error)
{
    char path[32], why[WRITE_ERROR_MAX] = "";
    pthread_mutex_lock(&f->mutex);
    const bool is_first = f->state.lost++ == 0;
    pthread_mutex_unlock(&f->mutex);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
    if (is_first)
        path_error_text(error, path, "use another path", why);
    pthread_mutex_lock(&f->mutex);
    if (f->state.error == 0) {
        f->state.error = error;
        memcpy(f->state.why, why, sizeof(why));
    }
    pthread_mutex_unlock(&f->mutex);
}

/* Write each line separately. With O_APPEND the kernel appends each write as a whole, so several processes may share
 * a file. */
static void write_all(struct line_file *f, const struct buf *lines, bool *torn)
{
    for (size_t at = 0; at < lines->len;) {
        const char *line = (const char *)lines->data + at;
        const size_t len = (size_t)((const char *)memchr(line, '\n', lines->len - at) + 1 - line);
        const int error = write_line(f->fd, line, len, torn);
        if (error != 0)
            note_error(f, error);
        at += len;
    }
}

/* Write queued lines until line_file_close. Under the lock, only exchange the queue for an empty buffer. Write without
 * the lock, so that callers never wait for the disk. Both buffers keep their memory. */
static void *run_writer(void *user)
{
    struct line_file *f = user;
    struct buf lines = { 0 };
    bool torn = false;
    pthread_mutex_lock(&f->mutex);
    while (f->queue.len > 0 || !f->ends) {
        if (f->queue.len == 0) {
            pthread_cond_wait(&f->more, &f->mutex);
            continue;
        }
        const struct buf empty = lines;
        lines = f->queue;
        f->queue = empty;
        pthread_mutex_unlock(&f->mutex);
        write_all(f, &lines, &torn);
        lines.len = 0;
        pthread_mutex_lock(&f->mutex);
    }
    f->has_ended = true;
    pthread_cond_signal(&f->done);
    pthread_mutex_unlock(&f->mutex);
    buf_free(&lines);
    return NULL;
}

/* --- the callers ---------------------------------------------------------------------------------------- */

/* Open the file. Because of O_NONBLOCK, the open of a pipe without a reader fails at once. Without O_NONBLOCK, the open
 * would wait for a reader. */
static int open_file(const char *path, int *error)
{
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (fd < 0 || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) != 0)
        *error = errno;
    return fd;
}

struct line_file *line_file_open(const char *path, int *error)
{
    pthread_condattr_t monotonic;
    struct line_file *f = calloc(1, sizeof(*f));
    *error = ENOMEM;
    if (f == NULL)
        return NULL;
    f->fd = open_file(path, error);
    if (f->fd < 0) {
        free(f);
        return NULL;
    }
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->more, NULL);
    pthread_cond_init(&f->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return f;
}

/* Queue the line. If the queue is full, drop the line and count it, because an event log must never delay its job.
 * Start the writing thread only for the first line: a daemon forks after line_file_open, and its child would not have
 * the thread. */
void line_file_append(struct line_file *f, struct slice line)
{
    pthread_mutex_lock(&f->mutex);
    if (!f->has_thread)
        f->has_thread = thread_start(&f->thread, run_writer, f) == 0; /* the new thread blocks SIGPIPE */
    const bool ok =
        f->has_thread && f->queue.len + line.len <= QUEUE_BYTES && buf_append(&f->queue, line.data, line.len);
    if (!ok) {
        f->state.lost++;
        if (f->state.error == 0)
            f->state.error = ENOBUFS;
    }
    pthread_cond_signal(&f->more);
    pthread_mutex_unlock(&f->mutex);
}

struct line_file_state line_file_state(struct line_file *f)
{
    pthread_mutex_lock(&f->mutex);
    const struct line_file_state state = f->state;
    pthread_mutex_unlock(&f->mutex);
    return state;
}

/* Wait until the thread has written all lines. Return false if this takes longer than `limit_ms`. Without the limit,
 * the program could not exit if the file is a full pipe whose reader is stopped. */
static bool end_thread(struct line_file *f, uint64_t limit_ms, struct line_file_state *state)
{
    const struct timespec until = clock_after_us(limit_ms * 1000);
    pthread_mutex_lock(&f->mutex);
    f->ends = true;
    pthread_cond_signal(&f->more);
    int rc = 0;
    while (f->has_thread && !f->has_ended && rc == 0)
        rc = pthread_cond_timedwait(&f->done, &f->mutex, &until);
    const bool ended = !f->has_thread || f->has_ended;
    *state = f->state;
    pthread_mutex_unlock(&f->mutex);
    return ended;
}

struct line_file_state line_file_close(struct line_file *f, uint64_t limit_ms)
{
    struct line_file_state state = { 0 };
    if (f == NULL)
        return state;
    if (!end_thread(f, limit_ms, &state)) {
        pthread_detach(f->thread);
        return (struct line_file_state){ .error = state.error != 0 ? state.error : ETIMEDOUT,
                                         .lost = state.lost + 1 };
    }
    if (f->has_thread)
        pthread_join(f->thread, NULL);
    close(f->fd);
    pthread_mutex_destroy(&f->mutex);
    pthread_cond_destroy(&f->more);
    pthread_cond_destroy(&f->done);
    buf_free(&f->queue);
    free(f);
    return state;
}
