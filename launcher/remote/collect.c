/* collect.c -- see remote.h. Sends and receives the log files of all hosts, for --collect_logs. The starter checks each
 * name and size, because the starter does not trust a host. */
#include "remote/remote.h"

#include "base/limits.h"
#include "base/text.h"
#include "output/disk_watch.h"
#include "output/log_files.h"
#include "tables/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the sender -------------------------------------------------------------------------------------------- */

/* State of the process that the relay forks to send the log files. The process never follows a symbolic link. */

struct sender {
    int out;
    bool counts;                     /* true in the first walk, which only counts; the second walk sends */
    uint64_t files, bytes, left_out; /* numbers of files, bytes and left-out entries in this walk */
};

/* Write all bytes. Wait if a non-blocking descriptor accepts no bytes now. */
static bool write_bytes(int out, const uint8_t *data, size_t len)
{
    int error;
    const bool ok = writer_write_fd(out, data, len, &error) == len;
    if (!ok)
        errno = error;
    return ok;
}

static bool send_bytes(const struct sender *s, enum remote_message kind, struct slice body)
{
    struct buf out = { 0 };
    const bool ok = remote_encode(&out, kind, body) && write_bytes(s->out, out.data, out.len);
    buf_free(&out);
    return ok;
}

static bool send_words(const struct sender *s, enum remote_message kind, const char *text)
{
    return send_bytes(s, kind, slice_str(text));
}

/* Send the first `size` bytes of a file, or fewer if the file has become shorter. Return false if the starter is
 * gone. */
static bool send_file(const struct sender *s, int fd, const char *name, uint64_t size)
{
    char head[COLLECT_NAME_MAX + 32], bytes[COLLECT_PIECE_MAX];
    snprintf(head, sizeof(head), "%" PRIu64 " %s", size, name);
    bool ok = send_words(s, REMOTE_FILE, head);
    for (ssize_t n = 1; ok && size > 0 && n > 0; size -= n > 0 ? (uint64_t)n : 0) {
        n = read(fd, bytes, size < sizeof(bytes) ? (size_t)size : sizeof(bytes));
        ok = n <= 0 || send_bytes(s, REMOTE_DATA, slice_of(bytes, (size_t)n));
    }
    return ok;
}

static bool walk(struct sender *s, int dir, const char *above, int depth);

/* Count or send an entry of a directory. An entry that is neither a file nor a directory, such as a link, is left
 * out. */
static bool walk_entry(struct sender *s, int dir, const char *above, const char *entry, int depth)
{
    char name[COLLECT_NAME_MAX + 1];
    struct stat st;
    bool ok = true;
    const int len = snprintf(name, sizeof(name), "%s%s%s", above, above[0] != '\0' ? "/" : "", entry);
    const int fd = openat(dir, entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool known = fd >= 0 && fstat(fd, &st) == 0;
    if (known && S_ISDIR(st.st_mode) && len < (int)sizeof(name) && depth < COLLECT_DEPTH)
        return walk(s, fd, name, depth + 1);
    if (known && S_ISREG(st.st_mode) && len < (int)sizeof(name) && collect_name_is_safe(slice_str(name)) &&
        s->files < COLLECT_FILES_MAX && s->bytes + (uint64_t)st.st_size <= COLLECT_BYTES_MAX) {
        s->files++;
        s->bytes += (uint64_t)st.st_size;
        ok = s->counts || send_file(s, fd, name, (uint64_t)st.st_size);
    } else {
        s->left_out++;
    }
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Call walk_entry for each entry of a directory, and close the directory. A directory that cannot be read is left
 * out. */
static bool walk(struct sender *s, int dir, const char *above, int depth)
{
    DIR *d = fdopendir(dir);
    bool ok = true;
    if (d == NULL) {
        close(dir);
        s->left_out++;
        return true;
    }
    for (const struct dirent *e; ok && (errno = 0, e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            ok = walk_entry(s, dirfd(d), above, e->d_name, depth);
    s->left_out += ok && errno != 0;
    closedir(d);
    return ok;
}

bool collect_send(const char *root, int out)
{
    char text[80] = "";
    struct sender s = { .out = out };
    for (int pass = 0; pass < 2; pass++) {
        const int dir = open(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        s.counts = pass == 0;
        s.files = s.bytes = 0;
        s.left_out = dir < 0 && errno != ENOENT; /* a job that has not started has no log directory */
        if (dir >= 0 && !walk(&s, dir, "", 0))
            return false;
        snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64, s.files, s.bytes);
        if (pass == 0 && !send_words(&s, REMOTE_TOTAL, text))
            return false;
    }
    snprintf(text, sizeof(text), "%" PRIu64 " %s", s.left_out,
             s.left_out == 1 ? "entry is not a plain file, exceeds a limit or cannot be read"
                             : "entries are not plain files, exceed a limit or cannot be read");
    return send_words(&s, REMOTE_FILES_END, s.left_out > 0 ? text : "");
}

/* --- the starter -------------------------------------------------------------------------------------------- */

/* Record why a file is missing or incomplete. */
static void note_fault(struct collected *c, const char *what, const char *why)
{
    snprintf(c->why, sizeof(c->why), "%.200s: %.1000s", what, why);
    text_disarm(c->why, strlen(c->why), '\0');
}

/* Record a fault that ends the transfer. Return false. */
static bool stop_at(struct collected *c, const char *what, const char *why)
{
    note_fault(c, what, why);
    c->stopped = true;
    return false;
}

/* Close the open file. Record a fault if the file became shorter during the transfer. The next files are still
 * received. */
static bool close_file(struct collected *c)
{
    char why[WRITE_ERROR_MAX];
    const bool whole = c->left == 0, was_open = c->open;
    c->open = false;
    c->left = 0;
    if (was_open && close(c->fd) != 0)
        return stop_at(c, c->name, write_error_text(errno, c->dir, why));
    if (!whole)
        note_fault(c, c->name, "the file became shorter during the transfer");
    return true;
}

/* Handle the message FILE, which begins a file. The body of the message is "SIZE NAME". */
static bool receive_FILE(struct collected *c, struct slice body)
{
    char text[COLLECT_NAME_MAX + 32], path[PATH_MAX], *end;
    struct ddp_err err;
    if (!close_file(c))
        return false;
    snprintf(text, sizeof(text), "%.*s", (int)body.len, (const char *)body.data);
    const uint64_t size = strtoull(text, &end, 10);
    const char *name = end + 1;
    if (end == text || *end != ' ' || strlen(text) != body.len || !collect_name_is_safe(slice_str(name)))
        return stop_at(c, "a file", "invalid name or size");
    if (c->files >= COLLECT_FILES_MAX || size > COLLECT_BYTES_MAX - c->announced)
        return stop_at(c, name, "the host sends more than 100,000 files or 64 GiB");
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", c->dir, name) >= sizeof(path))
        return stop_at(c, name, strerror(ENAMETOOLONG));
    c->fd = logdir_create(path, LOGDIR_OUTPUT, &err);
    if (c->fd < 0)
        return stop_at(c, "on the host where ddprun was started", err.msg);
    snprintf(c->name, sizeof(c->name), "%s", name);
    c->open = true;
    c->left = size;
    c->announced += size;
    c->files++;
    return true;
}

static bool receive_DATA(struct collected *c, struct slice body)
{
    char why[WRITE_ERROR_MAX];
    if (!c->open || body.len > c->left)
        return stop_at(c, c->open ? c->name : "a file", "more bytes than announced");
    c->left -= body.len;
    c->bytes += body.len;
    return write_bytes(c->fd, body.data, body.len) ||
           stop_at(c, c->name, write_error_text(errno, c->dir, why));
}

static bool receive_TOTAL(struct collected *c, struct slice body)
{
    char text[64], *end;
    snprintf(text, sizeof(text), "%.*s", (int)body.len, (const char *)body.data);
    c->total_files = strtoull(text, &end, 10);
    c->total_bytes = strtoull(end, NULL, 10);
    return true;
}

static bool receive_FILES_END(struct collected *c, struct slice body)
{
    char text[80];
    c->ended = true;
    snprintf(text, sizeof(text), "%.*s", (int)body.len, body.len > 0 ? (const char *)body.data : "");
    return close_file(c) && (text[0] == '\0' || c->why[0] != '\0' || stop_at(c, "left out", text));
}

void collect_store(struct collected *c, struct slice bytes)
{
    static bool (*const receivers[REMOTE_MESSAGE_KINDS])(struct collected *, struct slice) = {
#define X(id, ...) [REMOTE_##id] = receive_##id,
        REMOTE_FILE_MESSAGES(X)
#undef X
    };
    enum remote_message kind;
    struct slice body;
    size_t size;
    int got = 1;
    if (c->ended || c->stopped)
        return; /* after FILES_END or a fault, all further bytes are dropped */
    if (!buf_append(&c->in, bytes.data, bytes.len)) {
        stop_at(c, "a file", strerror(ENOMEM));
        return;
    }
    disk_begin(DISK_MAIN, c->dir);
    while (!c->ended && (got = remote_decode(buf_slice(&c->in), &kind, &body, &size)) == 1) {
        if (receivers[kind] == NULL)
            stop_at(c, "the connection", "not a message with files");
        if (receivers[kind] == NULL || !receivers[kind](c, body))
            break;
        buf_consume(&c->in, size);
    }
    disk_end(DISK_MAIN);
    if (got < 0)
        stop_at(c, "the connection", "not a message with files");
}

static void collect_close(struct collected *c)
{
    if (c->open)
        close(c->fd);
    c->open = false;
    buf_free(&c->in);
    free(c->dir);
    c->dir = NULL;
}

/* --- all hosts ------------------------------------------------------------------------------------------------- */

/* Return "dir/name", which the caller frees, or NULL. */
static char *join_path(const char *dir, const char *name)
{
    struct buf path = { 0 };
    if (buf_printf(&path, "%s/%s", dir, name) && buf_append(&path, "", 1))
        return (char *)path.data;
    buf_free(&path);
    return NULL;
}

ddp_status collection_open(struct collection *c, const char *dir, const char *name,
                           const struct host_spec *hosts, int n, struct ddp_err *err)
{
    char folder[COLLECT_FOLDER_MAX];
    *c = (struct collection){
        .hosts = hosts, .of = calloc((size_t)n, sizeof(*c->of)), .root = join_path(dir, name), .n = n
    };
    if (c->of == NULL || c->root == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    for (int i = 0; i < n; i++) {
        collect_folder(i, &hosts[i], folder);
        c->of[i].dir = join_path(c->root, folder);
        if (c->of[i].dir == NULL)
            return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    }
    return logdir_make(c->root, true, err);
}

void collection_close(struct collection *c)
{
    for (int i = 0; c->of != NULL && i < c->n; i++)
        collect_close(&c->of[i]);
    free(c->of);
    free(c->root);
}

bool collection_report(const struct collection *all, bool is_quiet, struct buf *out)
{
    char size[SIZE_TEXT_MAX];
    uint64_t files = 0, bytes = 0;
    bool ok = true;
    for (int i = 0; i < all->n; i++) {
        const struct collected *c = &all->of[i];
        files += c->files;
        bytes += c->bytes;
        if (!c->ended || c->why[0] != '\0')
            ok = ok &&
                 buf_printf(out,
                            "ddprun: %s: some log files were not copied (%s); they are on %s in %s_node%d\n",
                            all->hosts[i].name, c->why[0] != '\0' ? c->why : "the connection ended too early",
                            all->hosts[i].name, all->root, i);
    }
    if (!is_quiet)
        ok = ok && buf_printf(out, "ddprun: copied %" PRIu64 " log file%s (%s) of %d host%s to %s\n", files,
                              files == 1 ? "" : "s", words_size(size, bytes), all->n, all->n == 1 ? "" : "s",
                              all->root);
    return ok;
}

bool collection_progress(const struct collection *all, int sending, struct buf *out)
{
    char received_text[SIZE_TEXT_MAX], total_text[SIZE_TEXT_MAX];
    uint64_t received = 0, total = 0;
    for (int i = 0; i < all->n; i++) {
        received += all->of[i].bytes;
        total += all->of[i].total_bytes;
    }
    return buf_printf(out, "ddprun: log files: %s of %s received, %d host%s still sending\n",
                      words_size(received_text, received), words_size(total_text, total), sending,
                      sending == 1 ? "" : "s");
}
