/* sinks.c -- see sinks.h.
 *
 * Why not one thread for everything: a terminal in which the user holds the text (Ctrl-S) must not
 * stop the log files. Why not one thread for each file: 256 workers would make 512 of them, and
 * files rarely block.
 *
 * Memory: all queues together are kept near QUEUED_BYTES, so each sink has its share of that. A sink
 * that is stuck fills its own share and holds only those who write to it. */
#include "output/sinks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    QUEUED_BYTES = 16 << 20, /* in all sinks */
    SHARE_MAX = 1 << 20,     /* more would only be lag */
    SHARE_MIN = 64 * 1024,   /* a read's worth */
    LOW_PART = 4             /* reading goes on when this part of a share is left */
};

struct sink {
    struct writer *writer; /* one of the three below; NULL = not in use */
    int slot;
    char *name;            /* owned */
    struct log_file *file; /* the writer's; only to ask it for news. NULL for stdout and stderr. */
    bool ended;
    bool told_failed, told_recovered;
};

struct sinks {
    struct writer *out, *err, *files; /* err may be out */
    enum writer_policy policy;
    struct sink *list;
    int n, files_open;
    struct loss *past; /* what files had lost when they were closed; the names are owned */
    size_t n_past;
};

/* "2>&1", or both on one terminal. Two threads writing there would tear lines: a pipe keeps only
 * short writes whole. */
static bool same_file(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* --- opening -------------------------------------------------------------------------------------------- */

/* How much may wait for one sink. */
static uint64_t share(const struct sinks *s)
{
    const uint64_t each = QUEUED_BYTES / (uint64_t)(SINK_FILES + s->files_open);
    return each > SHARE_MAX ? SHARE_MAX : each < SHARE_MIN ? SHARE_MIN : each;
}

/* Each time that a file comes: the same memory is then shared by more. */
static void set_policy(struct sinks *s)
{
    writer_set_policy(s->out, s->policy, share(s));
    writer_set_policy(s->err, s->policy, share(s));
    writer_set_policy(s->files, s->policy, share(s));
}

/* A place in the list; -1 when memory is short. */
static int free_place(struct sinks *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->list[i].writer == NULL)
            return i;
    struct sink *list = realloc(s->list, ((size_t)s->n + 1) * sizeof(*list));
    if (list == NULL)
        return -1;
    s->list = list;
    list[s->n] = (struct sink){ 0 };
    return s->n++;
}

/* For `file`, or for `fd` when that is NULL. Returns the number, -1 when memory is short; `file` is still the caller's
 * then. */
static int add(struct sinks *s, struct writer *writer, int fd, struct log_file *file, const char *name)
{
    const int place = free_place(s);
    char *copy = strdup(name);
    int slot = -1;
    if (place >= 0 && copy != NULL)
        slot =
            file != NULL ? writer_add_target(writer, log_file_target(file)) : writer_add(writer, fd, false);
    if (slot < 0) {
        free(copy);
        return -1;
    }
    s->list[place] = (struct sink){ .writer = writer, .slot = slot, .name = copy, .file = file };
    return place;
}

struct sinks *sinks_new(enum writer_policy policy, writer_progress progress, void *user)
{
    struct sinks *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->policy = policy;
    s->out = writer_new(progress, user);
    s->err = same_file(STDOUT_FILENO, STDERR_FILENO) ? s->out : writer_new(progress, user);
    s->files = writer_new(progress, user);
    if (s->out != NULL && s->err != NULL && s->files != NULL &&
        add(s, s->out, STDOUT_FILENO, NULL, "stdout") == SINK_STDOUT &&
        add(s, s->err, STDERR_FILENO, NULL, "stderr") == SINK_STDERR) {
        set_policy(s);
        return s;
    }
    sinks_free(s);
    return NULL;
}

int sinks_add_file(struct sinks *s, const char *path, struct log_rotate rotate, struct ddp_err *err)
{
    struct log_file *file = log_file_create(path, rotate, err);
    if (file == NULL)
        return -1;
    int sink = add(s, s->files, -1, file, path);
    if (sink < 0) {
        struct writer_target target = log_file_target(file);
        target.close(target.user);
        ddp_fail(err, DDP_ERR_NOMEM, "no memory for the log file %s", path);
        return -1;
    }
    s->files_open++;
    set_policy(s);
    return sink;
}

/* Two workers may have one file by their pattern; two descriptors there would write over each other. */
int sinks_find_file(const struct sinks *s, const char *path)
{
    for (int i = SINK_FILES; i < s->n; i++)
        if (s->list[i].writer != NULL && !s->list[i].ended && strcmp(s->list[i].name, path) == 0)
            return i;
    return -1;
}

/* Not closed here: what waits is written first, by the thread, which may take its time. From now on nobody asks
 * for the file's news, as the thread may free it at any moment. */
void sinks_end_files(struct sinks *s)
{
    for (int i = SINK_FILES; i < s->n; i++) {
        struct sink *sink = &s->list[i];
        if (sink->writer == NULL || sink->ended)
            continue;
        sink->ended = true;
        sink->file = NULL;
        writer_end(sink->writer, sink->slot);
        s->files_open--;
    }
}

/* --- writing -------------------------------------------------------------------------------------------- */

void sinks_put(struct sinks *s, int sink, struct slice bytes)
{
    if (bytes.len > 0)
        writer_put(s->list[sink].writer, s->list[sink].slot, bytes);
}

/* Two marks, far apart, or a stream would be stopped and started again for every read. Who may lose bytes never
 * waits. */
bool sinks_is_behind(struct sinks *s, int sink, bool resume)
{
    if (s->policy == WRITER_DROP)
        return false;
    const uint64_t queued = writer_state(s->list[sink].writer, s->list[sink].slot).queued;
    return queued > (resume ? share(s) / LOW_PART : share(s));
}

uint64_t sinks_queued(struct sinks *s)
{
    return writer_queued(s->out) + (s->err != s->out ? writer_queued(s->err) : 0) + writer_queued(s->files);
}

bool sinks_empty(struct sinks *s)
{
    return sinks_queued(s) == 0;
}

uint64_t sinks_written(struct sinks *s)
{
    return writer_written(s->out) + (s->err != s->out ? writer_written(s->err) : 0) +
           writer_written(s->files);
}

/* With no limit: what waits already is still written if the disk takes it; a write that fails is not tried again. */
void sinks_wait_no_more(struct sinks *s)
{
    s->policy = WRITER_DROP;
    writer_set_policy(s->out, WRITER_DROP, UINT64_MAX);
    writer_set_policy(s->err, WRITER_DROP, UINT64_MAX);
    writer_set_policy(s->files, WRITER_DROP, UINT64_MAX);
}

/* --- what happened -------------------------------------------------------------------------------------- */

/* A file that is written to the end; its loss is remembered, since its slot begins anew. */
static void bury(struct sinks *s, struct sink *sink, const struct writer_state *state)
{
    if (state->dropped > 0) {
        struct loss *past = realloc(s->past, (s->n_past + 1) * sizeof(*past));
        if (past != NULL) {
            s->past = past;
            past[s->n_past++] =
                (struct loss){ .name = sink->name, .bytes = state->dropped, .error = state->why };
            sink->name = NULL;
        }
    }
    writer_release(sink->writer, sink->slot);
    free(sink->name);
    *sink = (struct sink){ 0 };
}

/* The news of a file come before those of its slot: that it was deleted explains what follows. */
static bool file_news(struct sink *sink, struct sink_event *event)
{
    static const enum sink_news news[] = {
        [LOG_MADE_AGAIN] = SINK_MADE_AGAIN, [LOG_DELETED] = SINK_DELETED, [LOG_NOT_ROTATED] = SINK_NOT_ROTATED
    };
    const enum log_news seen = sink->file != NULL ? log_file_news(sink->file) : LOG_NO_NEWS;
    event->news = news[seen];
    return seen != LOG_NO_NEWS;
}

/* The first failure is told, and the first time that it is over. A disk on which now and then a file is removed
 * fails and recovers a thousand times; the sum comes at the end. */
static bool state_news(struct sink *sink, const struct writer_state *state, struct sink_event *event)
{
    bool *told = state->dropping ? &sink->told_failed : &sink->told_recovered;
    if (*told || (!state->dropping && !sink->told_failed))
        return false;
    *told = true;
    event->news = state->dropping ? SINK_FAILED : SINK_RECOVERED;
    return true;
}

bool sinks_next_event(struct sinks *s, struct sink_event *event)
{
    for (int i = 0; i < s->n; i++) {
        struct sink *sink = &s->list[i];
        if (sink->writer == NULL)
            continue;
        const struct writer_state state = writer_state(sink->writer, sink->slot);
        *event = (struct sink_event){
            .sink = i, .name = sink->name, .error = state.error, .dropped = state.dropped
        };
        if (file_news(sink, event) || state_news(sink, &state, event))
            return true;
        if (state.closed)
            bury(s, sink, &state);
    }
    return false;
}

/* Bytes that still wait count as lost: this is asked when nobody waits for them any more. Files of former attempts
 * come first. */
bool sinks_loss(struct sinks *s, size_t i, struct loss *loss)
{
    if (i < s->n_past) {
        *loss = s->past[i];
        return true;
    }
    i -= s->n_past;
    for (int k = 0; k < s->n; k++) {
        const struct sink *sink = &s->list[k];
        if (sink->writer == NULL)
            continue;
        const struct writer_state state = writer_state(sink->writer, sink->slot);
        *loss = (struct loss){ .name = sink->name,
                               .bytes = state.dropped + state.queued,
                               .error = state.dropped > 0 ? state.why : state.error };
        if (loss->bytes > 0 && i-- == 0)
            return true;
    }
    return false;
}

void sinks_free(struct sinks *s)
{
    if (s == NULL)
        return;
    if (s->err != s->out)
        writer_free(s->err);
    writer_free(s->out);
    writer_free(s->files);
    for (int i = 0; i < s->n; i++)
        free(s->list[i].name);
    for (size_t i = 0; i < s->n_past; i++)
        free((char *)s->past[i].name);
    free(s->list);
    free(s->past);
    free(s);
}
