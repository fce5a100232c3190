/* log_files.c -- see log_files.h. A rotation renames the full log file to a part, such as out.log.3. Later parts get
 * higher numbers, so each part keeps its name. Each rotation is one rename, and a user can copy a part away at any
 * time. */
#include "output/log_files.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/syscalls.h"
#include "contain/procfs.h"
#include "output/disk_watch.h"
#include "output/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NEAR_BYTES = 64 * 1024, /* a part ends after a newline that is at most this far before the limit */
    CHECK_MS = 1000         /* interval between checks that the file still exists */
};

/* A change of a log file that ddprun has not yet reported to the user. LOG_NO_NEWS means that there is no such
 * change. */
enum log_news {
    LOG_NO_NEWS,
    LOG_MADE_AGAIN, /* the user deleted the file, and ddprun has created it again */
    LOG_DELETED,    /* the user deleted the file, and ddprun cannot create it again: further output is lost */
    LOG_NOT_ROTATED /* the file has reached its limit but cannot be renamed */
};

struct log_file {
    int fd;
    struct log_rotate rotate;
    uint64_t size;     /* bytes in the current file */
    uint64_t full;     /* size at which the file is rotated; increased when a rotation fails */
    int part;          /* number of the latest part; 0 before the first rotation */
    int first_part;    /* parts from this number to `part` belong to this job; 0 before the first rotation */
    bool line_ended;   /* the file is empty or ends with a newline */
    uint64_t check_ms; /* earliest time (clock_ms) of the next check by check_deleted */
    atomic_int news;   /* an enum log_news; written by the writer's thread, read by the event loop */
    char path[];
};

/* Create the file and its parent directories. The caller owns the file until log_file_target passes the file to a
 * writer, which then closes the file. Without rotation (rotate.bytes is 0), `full` is UINT64_MAX and never reached. */
static struct log_file *log_file_create(const char *path, struct log_rotate rotate, struct ddp_err *err)
{
    const size_t len = strlen(path) + 1;
    struct log_file *f = calloc(1, sizeof(*f) + len);
    if (f == NULL) {
        ddp_fail(err, DDP_ERR_NOMEM, "%s: cannot create the log file: out of memory", path);
        return NULL;
    }
    memcpy(f->path, path, len);
    f->rotate = rotate;
    f->full = rotate.bytes > 0 ? rotate.bytes : UINT64_MAX;
    f->line_ended = true;
    disk_begin(DISK_MAIN, path);
    f->fd = logdir_create(path, LOGDIR_OUTPUT, err);
    disk_end(DISK_MAIN);
    if (f->fd >= 0)
        return f;
    free(f);
    return NULL;
}

/* --- rotation ------------------------------------------------------------------------------------------- */

/* Return how many of the next bytes belong in the current file; 0: begin a new file. To keep lines whole, end after
 * the last newline that is at most NEAR_BYTES before the limit. */
static size_t log_file_room(const struct log_file *f, const uint8_t *data, size_t len)
{
    const uint64_t left = f->size < f->full ? f->full - f->size : 0;
    if (len <= left)
        return len;
    const size_t near = left > NEAR_BYTES ? NEAR_BYTES : (size_t)left;
    const uint8_t *from = data + left - near;
    const uint8_t *newline = memrchr(from, '\n', near);
    if (newline != NULL)
        return (size_t)(newline + 1 - data);
    return f->line_ended && f->size > 0 && left < NEAR_BYTES ? 0 : (size_t)left;
}

static bool part_name(char out[PATH_MAX], const struct log_file *f, int part)
{
    return snprintf(out, PATH_MAX, "%s.%d", f->path, part) < PATH_MAX;
}

/* Rename a file, but never replace an existing file. Return 0 or an errno. On file systems that do not support
 * RENAME_NOREPLACE, such as NFS, create a hard link with the new name, and remove the old name. */
static int rename_new(const char *from, const char *to)
{
    const int error = sys_renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0 ? 0 : errno;
    if (error != EINVAL && error != ENOSYS)
        return error;
    return link(from, to) == 0 && unlink(from) == 0 ? 0 : errno;
}

/* Rename the file to a part with the next number. If a part with this number exists, try higher numbers. */
static bool move_away(struct log_file *f)
{
    char name[PATH_MAX];
    for (int tries = 0; tries < 1000; tries++) {
        if (!part_name(name, f, f->part + 1))
            return false;
        const int error = rename_new(f->path, name);
        if (error == 0 || error == EEXIST)
            f->part++;
        if (error != EEXIST)
            return error == 0;
    }
    return false;
}

/* Rename the part back to f->path, because the new file could not be created. The user expects output at f->path. */
static void rename_back(const struct log_file *f)
{
    char name[PATH_MAX];
    if (part_name(name, f, f->part))
        (void)rename_new(name, f->path);
}

/* Create a new file at f->path, where no file exists now. The old file stays open until the new file exists, so
 * that an error loses no output. */
static bool open_anew(struct log_file *f)
{
    struct ddp_err err;
    int fd = logdir_create(f->path, LOGDIR_OUTPUT, &err);
    if (fd < 0)
        return false;
    close(f->fd);
    f->fd = fd;
    f->size = 0;
    f->line_ended = true;
    return true;
}

/* Remove the oldest part if there are more than `keep` parts. A missing part is not an error. */
static void forget_oldest(const struct log_file *f)
{
    char name[PATH_MAX];
    const int oldest = f->part - f->rotate.keep;
    if (f->rotate.keep > 0 && oldest >= f->first_part && part_name(name, f, oldest))
        unlink(name);
}

/* Rename the file to a part, and create a new file. A failed rotation loses no byte, because the file grows further,
 * and the next rotation is tried after rotate.bytes more bytes. */
static void rotate(struct log_file *f)
{
    const int last = f->part;
    const bool moved = move_away(f);
    if (moved && open_anew(f)) {
        if (f->first_part == 0 || f->part != last + 1) /* another job has used the number last + 1 */
            f->first_part = f->part;
        f->full = f->rotate.bytes;
        forget_oldest(f);
        return;
    }
    if (moved)
        rename_back(f);
    f->part = last;
    f->full = f->size + f->rotate.bytes;
    atomic_store(&f->news, LOG_NOT_ROTATED);
}

/* --- writing -------------------------------------------------------------------------------------------- */

/* Create the file and its directory again after the user has deleted them. */
static void check_deleted(struct log_file *f)
{
    struct stat st;
    const uint64_t now = clock_ms();
    if (now < f->check_ms)
        return;
    f->check_ms = now + CHECK_MS;
    if (fstat(f->fd, &st) == 0 && st.st_nlink == 0)
        atomic_store(&f->news, open_anew(f) ? LOG_MADE_AGAIN : LOG_DELETED);
}

/* Return the unreported change, and record that it is reported now. Any thread may call this function until the file
 * is closed. */
static enum log_news log_file_news(struct log_file *f)
{
    return atomic_exchange(&f->news, LOG_NO_NEWS);
}

/* Write up to `len` bytes to the current file. Return the number of written bytes. */
static size_t write_some(struct log_file *f, const uint8_t *data, size_t len, int *error)
{
    size_t done = 0;
    while (done < len && *error == 0) {
        ssize_t n = write(f->fd, data + done, len - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            *error = errno;
    }
    f->size += done;
    if (done > 0)
        f->line_ended = data[done - 1] == '\n';
    return done;
}

/* Write the bytes, and rotate after each full part. */
static size_t target_write(void *user, const uint8_t *data, size_t len, int *error)
{
    struct log_file *f = user;
    size_t done = 0;
    *error = 0;
    disk_begin(DISK_FILES, f->path);
    check_deleted(f);
    while (done < len && *error == 0) {
        size_t part = log_file_room(f, data + done, len - done);
        done += write_some(f, data + done, part, error);
        if (*error == 0 && done < len)
            rotate(f);
    }
    disk_end(DISK_FILES);
    return done;
}

static void target_close(void *user)
{
    struct log_file *f = user;
    disk_begin(DISK_FILES, f->path);
    close(f->fd);
    disk_end(DISK_FILES);
    free(f);
}

static struct writer_target log_file_target(struct log_file *f)
{
    return (struct writer_target){ .write = target_write, .close = target_close, .user = f };
}

/* --- directories of the log files ------------------------------------------------------------------------- */

/* Existing files are not trusted, because other users may write to the parent directory (/tmp). Files are created
 * exclusively and never through a link. */

enum { SHARED_DIR = 0777, PRIVATE_DIR = 0700 };

int logdir_parents(const char *path)
{
    char part[PATH_MAX];
    size_t len = strlen(path);
    if (len >= sizeof(part))
        return ENAMETOOLONG;
    memcpy(part, path, len + 1);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, SHARED_DIR) != 0 && errno != EEXIST)
            return errno;
        *slash = '/';
    }
    return 0;
}

/* Create a directory. If `must_be_new` is false, the directory may already exist. A worker's existing directory is
 * safe, because no other user can write to the private directory above. */
static ddp_status make_dir(const char *path, mode_t mode, bool must_be_new, struct ddp_err *err)
{
    char why[WRITE_ERROR_MAX];
    int error = logdir_parents(path);
    if (error == 0 && mkdir(path, mode) != 0 && (must_be_new || errno != EEXIST))
        error = errno;
    if (error == 0)
        return DDP_OK;
    /* A new directory has a random name, which the user does not know, so the error shows the directory above. */
    const char *slash = must_be_new && error != EEXIST ? strrchr(path, '/') : NULL;
    const int shown = slash != NULL ? (int)(slash - path) + (slash == path) : PATH_MAX;
    return ddp_fail(err, DDP_ERR_IO, "%.*s: cannot create %s: %s", shown, path,
                    slash != NULL ? "a log directory below this path" : "the log directory",
                    path_error_text(error, path, "choose another --log_dir", why));
}

/* Create the link under a temporary name and rename it to "latest", so that "latest" exists at any time. Create no
 * link if a file or directory of the user is named "latest". */
static void link_latest(const char *root)
{
    char link[PATH_MAX], temporary[PATH_MAX];
    struct stat st;
    const char *name = strrchr(root, '/') + 1;
    const int dir_len = (int)(name - root);
    int a = snprintf(link, sizeof(link), "%.*slatest", dir_len, root);
    int b = snprintf(temporary, sizeof(temporary), "%.*s.latest.%s", dir_len, root, name);
    if (a >= PATH_MAX || b >= PATH_MAX || (lstat(link, &st) == 0 && !S_ISLNK(st.st_mode)))
        return;
    if (symlink(name, temporary) == 0 && rename(temporary, link) != 0)
        unlink(temporary);
}

ddp_status logdir_make(const char *root, bool latest, struct ddp_err *err)
{
    disk_begin(DISK_MAIN, root);
    ddp_status status = make_dir(root, PRIVATE_DIR, true, err);
    if (status == DDP_OK && latest)
        link_latest(root);
    disk_end(DISK_MAIN);
    return status;
}

/* Return true if a FIFO can be created in `dir`. The name of the test FIFO contains the host and a nonce, because nodes
 * may share `dir`. */
static bool has_fifos(const char *dir, const struct plan_facts *facts)
{
    char path[PATH_MAX];
    const bool ok =
        snprintf(path, sizeof(path), "%s/.fifo.%.64s.%s", dir, facts->host, facts->nonce) < PATH_MAX &&
        mkfifo(path, 0600) == 0;
    if (ok)
        unlink(path);
    return ok;
}

ddp_status logdir_attempt(struct plan *plan, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (int i = 0; i < plan->nproc && status == DDP_OK; i++)
        if (plan->workers[i].log_dir != NULL) {
            disk_begin(DISK_MAIN, plan->workers[i].log_dir);
            status = make_dir(plan->workers[i].log_dir, SHARED_DIR, false, err);
            disk_end(DISK_MAIN);
        }
    plan->can_fifo = false;
    if (status == DDP_OK && plan->cli->flight_recorder && plan->flight != NULL) {
        disk_begin(DISK_MAIN, plan->flight);
        plan->can_fifo = has_fifos(plan->flight, plan->facts);
        disk_end(DISK_MAIN);
    }
    return status;
}

int logdir_create(const char *path, int mode, struct ddp_err *err)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
    char why[WRITE_ERROR_MAX];
    int fd = open(path, flags, (mode_t)mode);
    if (fd < 0 && errno == ENOENT && (errno = logdir_parents(path)) == 0)
        fd = open(path, flags, (mode_t)mode);
    const int error = errno;
    if (fd < 0 && error == EEXIST)
        ddp_fail(
            err, DDP_ERR_IO,
            "%s: the log file exists already, and ddprun overwrites no files; move the file away, or put %%j "
            "(job id) or %%t (time) into --log_file",
            path);
    else if (fd < 0)
        ddp_fail(err, DDP_ERR_IO, "%s: cannot create the log file: %s", path,
                 path_error_text(error, path, "choose another --log_dir or --log_file", why));
    return fd;
}

/* --- files of filtered lines ------------------------------------------------------------------------------ */

/* The console also cuts each stream into lines, but changes these lines (progress bars, --fold, --json). So the
 * functions below cut each stream into lines for themselves. */

/* Return true if the line contains one of the words. As in Python, every line contains "". */
static bool contains_one(const struct cli_filters *words, struct slice line)
{
    for (size_t i = 0; i < words->n; i++)
        if (memmem(line.data, line.len, words->items[i], strlen(words->items[i])) != NULL)
            return true;
    return false;
}

/* Append the line if it contains one of the filter's words. When memory is short, drop the line, because the stream's
 * log file also contains the line. */
static void on_line(void *user, struct slice text, enum line_kind kind)
{
    struct filtered *f = user;
    const struct console_stream *s = f->console;
    const size_t before = f->out.len;
    const struct line_origin from = {
        .local_rank = s->local_rank, .which = s->which, .pid = s->pid, .at = s->at
    };
    (void)kind;
    if (contains_one(f->words, text) &&
        !(line_prefix(s->console->plan, &from, false, &f->out) && buf_append(&f->out, text.data, text.len) &&
          buf_append(&f->out, "\n", 1)))
        f->out.len = before;
}

ddp_status filtered_init(struct filtered *f, const struct console_stream *console, struct ddp_err *err)
{
    struct console *c = console->console;
    const int i = console->which == STD_ERR;
    const char *path = c->plan->filtered[i];
    if (path == NULL)
        return DDP_OK;
    *f = (struct filtered){ .sinks = c->sinks, .words = &c->plan->cli->filters[i], .console = console };
    lines_init(&f->lines, on_line, f, LINES_LIMIT);
    f->sink = sinks_find_file(c->sinks, path);
    if (f->sink < 0)
        f->sink = sinks_add_file(c->sinks, path, c->plan->cli->log_rotate, err);
    if (f->sink >= 0)
        return DDP_OK;
    f->words = NULL;
    return err->code;
}

void filtered_free(struct filtered *f)
{
    lines_free(&f->lines);
    buf_free(&f->out);
    *f = (struct filtered){ 0 };
}

static void filtered_append(struct filtered *f)
{
    sinks_write(f->sinks, f->sink, buf_slice(&f->out));
    f->out.len = 0;
}

void filtered_add(struct filtered *f, struct slice bytes)
{
    if (f->words == NULL)
        return;
    lines_append(&f->lines, bytes);
    filtered_append(f);
}

void filtered_finish(struct filtered *f)
{
    if (f->words == NULL)
        return;
    lines_finish(&f->lines);
    filtered_append(f);
}

bool filtered_is_behind(const struct filtered *f, bool resume)
{
    return f->words != NULL && sinks_is_behind(f->sinks, f->sink, resume);
}

/* --- sinks ------------------------------------------------------------------------------------------------ */

/* One thread writes stdout, one thread writes stderr, and one thread writes all log files. So a paused terminal
 * (Ctrl-S) does not block the log files. If stdout and stderr are the same file, one thread writes both. The queue of
 * each sink may have at most a share of QUEUED_BYTES, so a blocked sink blocks only its own streams. */

enum {
    QUEUED_BYTES = 16 << 20, /* limit for the queues of all sinks together */
    SHARE_MAX = 1 << 20,     /* largest share of a sink, because a longer queue would only delay output */
    SHARE_MIN = 64 * 1024,   /* smallest share: room for one read, which returns at most this many bytes */
    LOW_PART = 4             /* a stream is read again when the queue is below share / LOW_PART */
};

struct sink {
    struct writer *writer; /* `out`, `err` or `files` of struct sinks; NULL if the sink is not in use */
    int slot;
    char *name;            /* owned */
    struct log_file *file; /* argument of log_file_news, owned by the writer; NULL for stdout and stderr */
    bool ended;            /* sinks_end_files was called for the file */
    bool failed_reported, recovered_reported; /* the sink's first failure was reported; the sink's first
                                               * recovery was reported */
};

struct sinks {
    struct writer *out, *err, *files; /* `err` equals `out` if stdout and stderr are the same file */
    enum writer_policy policy;
    struct sink *list;
    int n, files_open;
    struct loss *past; /* lost bytes of closed files; this struct owns the names in `past` */
    size_t n_past;
};

/* Return true if both descriptors are the same file, for example after "2>&1". Two threads must not write to the
 * same file, because their lines would mix. */
static bool same_file(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* --- opening -------------------------------------------------------------------------------------------- */

/* Return the limit of queued bytes for each sink. */
static uint64_t share(const struct sinks *s)
{
    const uint64_t each = QUEUED_BYTES / (uint64_t)(SINK_FILES + s->files_open);
    return each > SHARE_MAX ? SHARE_MAX : each < SHARE_MIN ? SHARE_MIN : each;
}

/* Set the share of each sink, which limits the bytes in its queue. The share becomes smaller when more files are
 * open. */
static void set_policy(struct sinks *s)
{
    writer_set_policy(s->out, s->policy, share(s));
    writer_set_policy(s->err, s->policy, share(s));
    writer_set_policy(s->files, s->policy, share(s));
}

/* Return an unused index of `list`, or -1 when memory is short. */
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

/* Add a sink for `file`, or for `fd` if `file` is NULL. Return the sink's number. When memory is short, return -1;
 * the caller then still owns `file`. */
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
        ddp_fail(err, DDP_ERR_NOMEM, "%s: cannot create the log file: out of memory", path);
        return -1;
    }
    s->files_open++;
    set_policy(s);
    return sink;
}

/* Find an open log file by its path. The pattern may give two workers the same file, which ddprun creates only once. */
int sinks_find_file(const struct sinks *s, const char *path)
{
    for (int i = SINK_FILES; i < s->n; i++)
        if (s->list[i].writer != NULL && !s->list[i].ended && strcmp(s->list[i].name, path) == 0)
            return i;
    return -1;
}

/* End all log files. The writer's thread closes and frees each file after its last byte. So log_file_news must not be
 * called for these files afterwards. */
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

void sinks_write(struct sinks *s, int sink, struct slice bytes)
{
    if (bytes.len > 0)
        writer_append(s->list[sink].writer, s->list[sink].slot, bytes);
}

/* Return true if the caller should not read, because the queue of `sink` is longer than a limit. The limit is much
 * lower if `resume` is true. With equal limits, the caller would stop and resume with every read. With WRITER_DROP,
 * return false, so that no caller stops. */
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

/* Stop waiting for sinks. The threads still write queued bytes, but do not retry a failed write. */
void sinks_wait_no_more(struct sinks *s)
{
    s->policy = WRITER_DROP;
    writer_set_policy(s->out, WRITER_DROP, UINT64_MAX);
    writer_set_policy(s->err, WRITER_DROP, UINT64_MAX);
    writer_set_policy(s->files, WRITER_DROP, UINT64_MAX);
}

/* --- events --------------------------------------------------------------------------------------------- */

/* Free a sink whose file is closed. Keep its loss in s->past, because the next file resets the counters. */
static void release_sink(struct sinks *s, struct sink *sink, const struct writer_state *state)
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

/* Store in event->news the unreported change of the log file, and return true. Return false if the log file has no such
 * change. Call this function before state_news, because a deleted file may explain a failed write. */
static bool file_news(struct sink *sink, struct sink_event *event)
{
    static const enum sink_news news[] = {
        [LOG_MADE_AGAIN] = SINK_MADE_AGAIN, [LOG_DELETED] = SINK_DELETED, [LOG_NOT_ROTATED] = SINK_NOT_ROTATED
    };
    const enum log_news seen = sink->file != NULL ? log_file_news(sink->file) : LOG_NO_NEWS;
    event->news = news[seen];
    return seen != LOG_NO_NEWS;
}

/* Report only the first failure and the first recovery of a sink, because a nearly full disk may fail and recover
 * a thousand times. The total loss is reported at the end. */
static bool state_news(struct sink *sink, const struct writer_state *state, struct sink_event *event)
{
    bool *reported = state->dropping ? &sink->failed_reported : &sink->recovered_reported;
    if (*reported || (!state->dropping && !sink->failed_reported))
        return false;
    *reported = true;
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
            release_sink(s, sink, &state);
    }
    return false;
}

/* Get the i-th loss. The losses of earlier attempts come first. Queued bytes count as lost, because the caller no
 * longer waits until these bytes are written. */
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
