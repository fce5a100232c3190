/* sinks.c -- see sinks.h.
 *
 * Why not one thread for everything: a terminal in which the user holds the text (Ctrl-S) must not
 * stop the log files. Why not one thread for each file: 256 workers would make 512 of them, and
 * files rarely block. */
#include "sinks.h"

#include "logdir.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct sink {
    struct writer *writer; /* one of the three below */
    int slot;
    char *name; /* owned */
    bool told;
};

struct sinks {
    struct writer *out, *err, *files; /* err may be out */
    struct sink *list;
    int n;
};

/* "2>&1", or both on one terminal. Two threads writing there would tear lines: a pipe keeps only
 * short writes whole. */
static bool same_file(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Put one more sink on `writer`. Returns its number, -1 when memory is short (`fd` is still the
 * caller's then). */
static int add(struct sinks *s, struct writer *writer, int fd, bool owned, const char *name)
{
    struct sink *list = realloc(s->list, ((size_t)s->n + 1) * sizeof(*list));
    if (list == NULL)
        return -1;
    s->list = list;
    char *copy = strdup(name);
    int slot = copy != NULL ? writer_add(writer, fd, owned) : -1;
    if (slot < 0) {
        free(copy);
        return -1;
    }
    list[s->n] = (struct sink){ .writer = writer, .slot = slot, .name = copy };
    return s->n++;
}

struct sinks *sinks_new(writer_progress progress, void *user)
{
    struct sinks *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->out = writer_new(progress, user);
    s->err = same_file(STDOUT_FILENO, STDERR_FILENO) ? s->out : writer_new(progress, user);
    s->files = writer_new(progress, user);
    if (s->out != NULL && s->err != NULL && s->files != NULL &&
        add(s, s->out, STDOUT_FILENO, false, "stdout") == SINK_STDOUT &&
        add(s, s->err, STDERR_FILENO, false, "stderr") == SINK_STDERR)
        return s;
    sinks_free(s);
    return NULL;
}

int sinks_add_file(struct sinks *s, const char *path, struct ddp_err *err)
{
    int fd = logdir_create(path, err);
    if (fd < 0)
        return -1;
    int sink = add(s, s->files, fd, true, path);
    if (sink < 0) {
        close(fd);
        ddp_fail(err, DDP_ERR_NOMEM, "no memory for the log file %s", path);
    }
    return sink;
}

void sinks_end_files(struct sinks *s)
{
    while (s->n > SINK_FILES) {
        struct sink *sink = &s->list[--s->n];
        writer_end(sink->writer, sink->slot);
        free(sink->name);
    }
}

void sinks_put(struct sinks *s, int sink, struct slice bytes)
{
    if (bytes.len > 0)
        writer_put(s->list[sink].writer, s->list[sink].slot, bytes);
}

uint64_t sinks_queued(struct sinks *s, int sink)
{
    return writer_queued(s->list[sink].writer);
}

/* Also true when a sink has failed: what it throws away is not waited for. */
bool sinks_empty(struct sinks *s)
{
    return writer_queued(s->out) == 0 && writer_queued(s->err) == 0 && writer_queued(s->files) == 0;
}

/* A failure is told once for each sink. A full disk fails with every line, and a thousand warnings
 * help nobody. */
int sinks_next_failed(struct sinks *s, const char **name, int *error)
{
    for (int i = 0; i < s->n; i++) {
        struct sink *sink = &s->list[i];
        *error = sink->told ? 0 : writer_error(sink->writer, sink->slot);
        if (*error != 0) {
            sink->told = true;
            *name = sink->name;
            return i;
        }
    }
    return -1;
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
    free(s->list);
    free(s);
}
