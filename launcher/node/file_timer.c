/* file_timer.c -- see file_timer.h. Each client opens the FIFO, writes a line and closes the FIFO again. All times are
 * from the wall clock, because the clients use the wall clock. */
#include "node/file_timer.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/text.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The timers, in no order. The table is searched from the front, because a job has few timers. A zeroed struct is an
 * empty table. */
struct timer_table {
    struct timer_row *rows;     /* owned */
    size_t n, room;             /* number of timers, and number of timers that fit into `rows` */
    char line[TIMER_LINE_SIZE]; /* received part of the next line */
    size_t len;                 /* bytes in `line` */
    bool too_long;              /* drop the rest of the current line, which is too long */
};

static void timer_table_free(struct timer_table *t)
{
    free(t->rows);
    *t = (struct timer_table){ 0 };
}

/* --- a request ---------------------------------------------------------------------------------------------- */

/* Get an integer member that fits into an int. */
static bool get_int(const cJSON *o, const char *name, int *to)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o, name);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= INT_MIN && item->valuedouble <= INT_MAX))
        return false;
    *to = (int)item->valuedouble;
    return true;
}

/* Get the name of the timer, and replace control characters, because the name is printed. */
static bool get_scope(const cJSON *o, char scope[TIMER_SHOWN])
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "scope_id"));
    if (text == NULL)
        return false;
    text_copy(scope, TIMER_SHOWN, text);
    text_disarm(scope, strlen(scope), '\0');
    return true;
}

/* Read a request into *row. Return false if a member is missing or has a wrong type. Unknown members are ignored,
 * because newer versions of PyTorch may add members. */
static bool handle_request(const cJSON *o, struct timer_row *row)
{
    const cJSON *when = cJSON_GetObjectItemCaseSensitive(o, "expiration_time");
    if (!get_int(o, "pid", &row->pid) || row->pid <= 0 || !get_int(o, "signal", &row->signal) ||
        !get_scope(o, row->scope) || !cJSON_IsNumber(when))
        return false;
    row->expires = when->valuedouble;
    return true;
}

/* --- the table ---------------------------------------------------------------------------------------------- */

/* Return the index of the timer with this process and scope, or t->n. */
static size_t timer_find(const struct timer_table *t, const struct timer_row *like)
{
    size_t i = 0;
    while (i < t->n && (t->rows[i].pid != like->pid || strcmp(t->rows[i].scope, like->scope) != 0))
        i++;
    return i;
}

/* Remove a timer. The last timer moves to index `i`, so `i` is then the index of another timer. */
static void forget(struct timer_table *t, size_t i)
{
    t->rows[i] = t->rows[--t->n];
}

/* Make room for one more timer. A worker may write any number of lines to the FIFO, so TIMERS_MAX limits the memory. */
static bool make_room(struct timer_table *t)
{
    const size_t room = t->room > 0 ? 2 * t->room : 16;
    if (t->n < t->room)
        return true;
    struct timer_row *rows = room <= TIMERS_MAX ? realloc(t->rows, room * sizeof(*rows)) : NULL;
    if (rows == NULL)
        return false;
    t->rows = rows;
    t->room = room;
    return true;
}

/* Set, replace or release a timer. Ignore the release of an unknown timer: a client may release a timer twice, or this
 * process has already removed the expired timer. Return false if the table is full. */
static bool apply(struct timer_table *t, const struct timer_row *row)
{
    const size_t at = timer_find(t, row);
    if (row->expires < 0) {
        if (at < t->n)
            forget(t, at);
        return true;
    }
    if (at == t->n && !make_room(t))
        return false;
    t->rows[at] = *row;
    t->n += at == t->n;
    return true;
}

/* Handle the collected line, and begin a new line. Return false if the line is invalid or the timer cannot be kept. */
static bool handle_line(struct timer_table *t)
{
    struct timer_row row;
    cJSON *o = t->too_long ? NULL : cJSON_ParseWithLength(t->line, t->len);
    const bool ok = handle_request(o, &row) && apply(t, &row);
    cJSON_Delete(o);
    t->len = 0;
    t->too_long = false;
    return ok;
}

/* Process bytes that were read. Return the number of lines that were invalid or could not be kept. */
static size_t timer_table_add(struct timer_table *t, const char *bytes, size_t n)
{
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n')
            wrong += !handle_line(t);
        else if (t->len == sizeof(t->line))
            t->too_long = true;
        else
            t->line[t->len++] = bytes[i];
    }
    return wrong;
}

/* Get the time at which the next timer expires. Return false if the table is empty. */
static bool timer_table_next(const struct timer_table *t, double *expires)
{
    for (size_t i = 0; i < t->n; i++)
        if (i == 0 || t->rows[i].expires < *expires)
            *expires = t->rows[i].expires;
    return t->n > 0;
}

/* Return true if timer `a` has precedence over timer `b`. A timer with a signal precedes a timer without a signal.
 * Otherwise the timer that expires earlier has precedence. */
static bool is_better(const struct timer_row *a, const struct timer_row *b)
{
    if ((a->signal > 0) != (b->signal > 0))
        return a->signal > 0;
    return a->expires < b->expires;
}

/* Find a process with an expired timer, and remove all timers of this process, as torchrun does. Set *row to the
 * expired timer of this process that has precedence (is_better). Return false if no timer has expired. The caller
 * repeats the call, because timers of several processes may have expired. */
static bool timer_table_remove(struct timer_table *t, double now, struct timer_row *row)
{
    bool found = false;
    for (size_t i = 0; i < t->n; i++) {
        const struct timer_row *r = &t->rows[i];
        if (r->expires > now || (found && (r->pid != row->pid || !is_better(r, row))))
            continue;
        *row = *r;
        found = true;
    }
    for (size_t i = t->n; found && i-- > 0;)
        if (t->rows[i].pid == row->pid)
            forget(t, i);
    return found;
}

enum {
    READ_MAX = 16384,   /* bytes that one turn of the loop reads */
    REST_MAX_MS = 60000 /* longest time between two checks of the wall clock */
};

struct file_timer {
    uv_poll_t poll;
    uv_timer_t timer;
    int open_handles; /* number of open handles, 2 or less; the last close callback frees this struct */
    int fd;           /* the FIFO, open for reading and writing; see listen_to() */
    const char *path; /* borrowed */
    struct file_timer_calls calls;
    struct timer_table table;
    bool wrong_noted; /* the user was warned about an invalid line */
};

static double now_s(void)
{
    return (double)clock_unix_us() / 1e6;
}

static void on_due(uv_timer_t *timer);

/* Let on_due() run when the next timer expires. Never wait longer than REST_MAX_MS, because the wall clock may be
 * changed during the wait. */
static void set_timer(struct file_timer *ft)
{
    double at;
    if (!timer_table_next(&ft->table, &at)) {
        uv_timer_stop(&ft->timer);
        return;
    }
    const double ms = (at - now_s()) * 1000;
    uv_timer_start(&ft->timer, on_due, ms < 0 ? 0 : ms < REST_MAX_MS ? (uint64_t)ms + 1 : REST_MAX_MS, 0);
}

/* Report all timers that have expired. */
static void on_due(uv_timer_t *timer)
{
    struct file_timer *ft = timer->data;
    struct timer_row row;
    while (timer_table_remove(&ft->table, now_s(), &row))
        ft->calls.expired(ft->calls.user, &row);
    set_timer(ft);
}

/* Warn about invalid lines, but only once. */
static void note_wrong(struct file_timer *ft, size_t wrong)
{
    char words[256];
    if (wrong == 0 || ft->wrong_noted)
        return;
    ft->wrong_noted = true;
    snprintf(words, sizeof(words),
             "warning: %.150s: ignored a line that is not a request of torch.distributed.elastic.timer",
             ft->path);
    ft->calls.note(ft->calls.user, words);
}

/* Read requests from the workers. At most READ_MAX bytes are read, so that a busy worker cannot block the loop. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct file_timer *ft = poll->data;
    char bytes[READ_MAX];
    (void)events;
    const ssize_t n = status == 0 ? read(ft->fd, bytes, sizeof(bytes)) : -1;
    if (n <= 0)
        return;
    note_wrong(ft, timer_table_add(&ft->table, bytes, (size_t)n));
    set_timer(ft);
}

/* The remedy if the FIFO cannot be created or opened. */
#define OTHER_PATH "set TORCHELASTIC_TIMER_FILE to another path"

/* Create the FIFO for this user only. Remove an existing FIFO first, which a killed job may have left. Keep any other
 * file, because the path may be a mistake of the user. */
static ddp_status make_fifo(const char *path, struct ddp_err *err)
{
    char why[WRITE_ERROR_MAX];
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISFIFO(st.st_mode))
        unlink(path);
    if (mkfifo(path, 0600) == 0)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_IO, "%.200s: cannot create the FIFO of the file timer: %s", path,
                    path_error_text(errno, path, OTHER_PATH, why));
}

/* Open the FIFO and begin to read. Open the FIFO for writing, too, because otherwise a read would return the end of
 * file when no worker has the FIFO open. */
static ddp_status listen_to(struct file_timer *ft, uv_loop_t *loop, struct ddp_err *err)
{
    char why[WRITE_ERROR_MAX];
    ft->fd = open(ft->path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    const int rc = ft->fd < 0 ? -errno : uv_poll_init(loop, &ft->poll, ft->fd);
    if (rc != 0)
        return ddp_fail(err, DDP_ERR_IO, "%.200s: cannot open the FIFO of the file timer: %s", ft->path,
                        path_error_text(-rc, ft->path, OTHER_PATH, why));
    uv_timer_init(loop, &ft->timer);
    ft->open_handles = 2;
    ft->poll.data = ft->timer.data = ft;
    uv_poll_start(&ft->poll, UV_READABLE, on_readable);
    return DDP_OK;
}

ddp_status file_timer_open(uv_loop_t *loop, const char *path, const struct file_timer_calls *calls,
                           struct file_timer **out, struct ddp_err *err)
{
    struct file_timer *ft = calloc(1, sizeof(*ft));
    if (ft == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "file timer: cannot start: out of memory");
    *ft = (struct file_timer){ .fd = -1, .path = path, .calls = *calls };
    ddp_status status = make_fifo(path, err);
    if (status == DDP_OK && (status = listen_to(ft, loop, err)) != DDP_OK)
        unlink(path);
    if (status == DDP_OK) {
        *out = ft;
        return DDP_OK;
    }
    if (ft->fd >= 0)
        close(ft->fd);
    free(ft);
    return status;
}

static void on_closed(uv_handle_t *handle)
{
    struct file_timer *ft = handle->data;
    if (--ft->open_handles > 0)
        return;
    timer_table_free(&ft->table);
    free(ft);
}

void file_timer_close(struct file_timer *ft)
{
    if (ft == NULL)
        return;
    uv_close((uv_handle_t *)&ft->poll, on_closed);
    uv_close((uv_handle_t *)&ft->timer, on_closed);
    close(ft->fd);
    unlink(ft->path);
}
