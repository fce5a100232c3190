/* stacks.c -- see stacks.h.
 *
 * cJSON parses the output of py-spy. Each member is checked and copied, so a row has only known members. Rows from a
 * peer pass the same checks as the output of py-spy. */
#include "record/stacks.h"

#include "record/rank_set.h"
#include "base/text.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ITEM_BYTES = 64, /* bytes that JSON adds to the texts of a printed frame: names and punctuation */
    THREAD_BYTES = 128,
    RANKS_SHOWN = 60, /* maximum size of a printed list of ranks, in bytes */
    BRIEF_FRAMES = 2,
    LINE_MOST = 1 << 24, /* larger line numbers are ignored */
};

bool stacks_init(struct stacks *s, size_t room)
{
    *s = (struct stacks){ .rows = cJSON_CreateArray(), .room = room, .rows_max = STACKS_ROWS_MAX };
    return s->rows != NULL;
}

void stacks_free(struct stacks *s)
{
    cJSON_Delete(s->rows);
    *s = (struct stacks){ 0 };
}

/* --- members -------------------------------------------------------------------------------------------- */

static const cJSON *member(const cJSON *o, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(o, name);
}

static const char *text_of(const cJSON *o, const char *name)
{
    const char *text = cJSON_GetStringValue(member(o, name));
    return text != NULL ? text : "";
}

/* Return the member `name` if it is a whole number from 0 to `most`, otherwise -1. */
static int number_of(const cJSON *o, const char *name, int most)
{
    const cJSON *item = member(o, name);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= most))
        return -1;
    return (int)item->valuedouble;
}

/* Copy at most `size - 1` bytes. Replace bytes that could control a terminal, and bytes for which JSON needs an
 * escape. So the printed size of a text is known in advance. */
static void copy_safe(char *to, size_t size, const char *text)
{
    text_copy(to, size, text);
    text_disarm(to, strlen(to), '\0');
    for (char *at = to; *at != '\0'; at++)
        if (*at == '"' || *at == '\\')
            *at = '\'';
}

/* Add a text, unless it is empty. */
static void add_text(cJSON *o, const char *name, size_t size, const char *text)
{
    char safe[STACK_NOTE_MAX];
    copy_safe(safe, size < sizeof(safe) ? size : sizeof(safe), text);
    if (safe[0] != '\0')
        cJSON_AddStringToObject(o, name, safe);
}

/* --- frames --------------------------------------------------------------------------------------------- */

/* Return the text after the last `mark` in `path`, or NULL if `path` has no `mark`. */
static const char *behind(const char *path, const char *mark)
{
    const char *found = NULL;
    for (const char *at = path; (at = strstr(at, mark)) != NULL; at++)
        found = at + strlen(mark);
    return found;
}

/* Return the path of a library's file inside the library. Return NULL for a file of the user. */
static const char *library_path(const char *path)
{
    static const char *const marks[] = { "/site-packages/", "/dist-packages/", "/lib/python3.",
                                         "/lib64/python3.", "/lib/python2.",   "/lib/pypy3." };
    if (strncmp(path, "<frozen ", 8) == 0)
        return path;
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        const char *rest = behind(path, marks[i]);
        if (rest == NULL)
            continue;
        const char *slash = i < 2 ? NULL : strchr(rest, '/'); /* end of the version */
        return slash != NULL ? slash + 1 : rest;
    }
    return NULL;
}

/* Return true if a frame is native. In such a frame, py-spy writes the name of the library as "module". */
static bool is_native(const cJSON *frame)
{
    return text_of(frame, "module")[0] != '\0';
}

/* Return the end of a path that is too long. The result does not begin in the middle of a UTF-8 character. */
static const char *cut_path(const char *path)
{
    const size_t len = strlen(path);
    const char *from = len < STACK_FILE_MAX ? path : path + len - STACK_FILE_MAX + 1;
    while (from != path && ((unsigned char)*from & 0xc0) == 0x80)
        from++;
    return from;
}

/* Return a frame, and add its printed size to *bytes. */
static cJSON *new_frame(const char *function, const char *file, int line, bool is_user, size_t *bytes)
{
    cJSON *o = cJSON_CreateObject();
    add_text(o, "function", STACK_NAME_MAX, function);
    add_text(o, "file", STACK_FILE_MAX, cut_path(file));
    if (line > 0)
        cJSON_AddNumberToObject(o, "line", line);
    cJSON_AddBoolToObject(o, "user", is_user);
    *bytes += ITEM_BYTES + strlen(text_of(o, "function")) + strlen(text_of(o, "file"));
    return o;
}

/* Copy a frame of py-spy. Decide by the full path whether the file belongs to a library, because the short path, such
 * as "pkg/data.py", does not show this. */
static cJSON *py_spy_frame(const cJSON *frame, size_t *bytes)
{
    const char *path = text_of(frame, "filename"), *shown = text_of(frame, "short_filename");
    const char *library = library_path(path);
    const bool is_user = library == NULL && !is_native(frame);
    if (library != NULL || shown[0] == '\0')
        shown = library != NULL ? library : path;
    return new_frame(text_of(frame, "name"), shown, number_of(frame, "line", LINE_MOST), is_user, bytes);
}

static cJSON *peer_frame(const cJSON *frame, size_t *bytes)
{
    return new_frame(text_of(frame, "function"), text_of(frame, "file"), number_of(frame, "line", LINE_MOST),
                     cJSON_IsTrue(member(frame, "user")), bytes);
}

/* Return true if Python forked the process at this frame. This frame and its callers belong to the parent process. */
static bool is_fork(const cJSON *frame)
{
    const char *path = text_of(frame, "filename"), *name = text_of(frame, "name");
    return behind(path, "/multiprocessing/popen_fork.py") != NULL && strstr(name, "_launch") != NULL;
}

/* Return at most STACKS_FRAMES_MAX frames, the innermost first. */
static cJSON *new_frames(const cJSON *list, cJSON *(*copy)(const cJSON *frame, size_t *bytes), size_t *bytes)
{
    const cJSON *frame;
    cJSON *frames = cJSON_CreateArray();
    int n = 0;
    cJSON_ArrayForEach(frame, list)
    {
        if (n++ == STACKS_FRAMES_MAX || is_fork(frame))
            break;
        json_append(frames, copy(frame, bytes));
    }
    return frames;
}

/* --- rows ----------------------------------------------------------------------------------------------- */

/* Return true if two rows have equal texts and equal frames. */
static bool is_same(const cJSON *a, const cJSON *b)
{
    return strcmp(text_of(a, "note"), text_of(b, "note")) == 0 &&
           strcmp(text_of(a, "does"), text_of(b, "does")) == 0 &&
           (member(a, "frames") == NULL) == (member(b, "frames") == NULL) &&
           (member(a, "frames") == NULL || cJSON_Compare(member(a, "frames"), member(b, "frames"), true));
}

/* Return true for the main thread of a child process of a worker. Such a thread must not share a row with main threads
 * of workers. Otherwise the child would look like a worker, because a row of several workers shows no process
 * (append_where). */
static bool is_main_of_child(const cJSON *thread)
{
    return cJSON_IsTrue(member(thread, "main")) && cJSON_IsTrue(member(thread, "child"));
}

/* Return the row of the list that equals `row`, or append `row` and return it. Return NULL if the list has no room.
 * This function owns `row`. `bytes` is the printed size of `row`. `thread` is the thread that the caller will add to
 * the returned row. */
static cJSON *find_row(struct stacks *s, cJSON *row, const cJSON *thread, size_t bytes)
{
    const bool is_note = member(row, "note") != NULL, is_child = is_main_of_child(thread);
    cJSON *at;
    int n = 0;
    cJSON_ArrayForEach(at, s->rows)
    {
        n++;
        if ((is_note || is_main_of_child(cJSON_GetArrayItem(member(at, "threads"), 0)) == is_child) &&
            is_same(at, row)) {
            cJSON_Delete(row);
            return at;
        }
    }
    if (n >= s->rows_max || bytes > s->room || cJSON_AddArrayToObject(row, "threads") == NULL) {
        s->is_cut = true;
        cJSON_Delete(row);
        return NULL;
    }
    s->room -= bytes;
    json_append(s->rows, row);
    return row;
}

/* Add a thread to `row`. If `row` is NULL, or if there is no room for the thread, free the thread. This function owns
 * `thread`. */
static void append_thread(struct stacks *s, cJSON *row, cJSON *thread)
{
    cJSON *threads = cJSON_GetObjectItemCaseSensitive(row, "threads");
    const size_t bytes = THREAD_BYTES + strlen(text_of(thread, "object")) + strlen(text_of(thread, "does")) +
                         strlen(text_of(thread, "host")) + strlen(text_of(thread, "thread"));
    if (threads != NULL && bytes <= s->room && cJSON_GetArraySize(threads) < STACKS_THREADS_MAX) {
        s->room -= bytes;
        json_append(threads, thread);
        return;
    }
    s->is_cut = true;
    cJSON_Delete(thread);
}

/* Return a thread as JSON. Add the name, except for the main thread of a worker. Add "does" only if `with_does` is
 * true, because the row may already contain "does". */
static cJSON *new_thread(const struct stack_thread *t, const char *name, bool is_main, bool with_does)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "rank", t->rank);
    cJSON_AddNumberToObject(o, "pid", t->pid);
    add_text(o, "host", STACK_NAME_MAX, t->host);
    if (t->is_child)
        cJSON_AddTrueToObject(o, "child");
    if (is_main)
        cJSON_AddTrueToObject(o, "main");
    if (!is_main || t->is_child)
        add_text(o, "thread", STACK_NAME_MAX, name);
    if (with_does)
        add_text(o, "does", STACK_NAME_MAX, t->does);
    add_text(o, "object", STACK_FILE_MAX, t->object);
    if (t->cpu_ms > 0)
        cJSON_AddNumberToObject(o, "cpu_ms", (double)t->cpu_ms);
    if (t->runs > 0)
        cJSON_AddNumberToObject(o, "runs", (double)t->runs);
    return o;
}

static cJSON *new_row(const char *name, const char *text, size_t *bytes)
{
    cJSON *row = cJSON_CreateObject();
    add_text(row, name, STACK_NOTE_MAX, text);
    *bytes = ITEM_BYTES + strlen(text_of(row, name));
    return row;
}

void stacks_add_thread(struct stacks *s, const struct stack_thread *t)
{
    size_t bytes;
    cJSON *row = new_row("does", t->does[0] != '\0' ? t->does : "in an unknown state", &bytes);
    cJSON *thread = new_thread(t, t->name, t->is_main, false);
    append_thread(s, find_row(s, row, thread, bytes), thread);
}

void stacks_add_note(struct stacks *s, const struct stack_thread *t, const char *note)
{
    size_t bytes;
    cJSON *row = new_row("note", note, &bytes);
    const struct stack_thread of = {
        .rank = t->rank, .pid = t->pid, .host = t->host, .is_child = t->is_child
    };
    cJSON *thread = new_thread(&of, "", true, false);
    append_thread(s, find_row(s, row, thread, bytes), thread);
}

/* --- py-spy --------------------------------------------------------------------------------------------- */

/* Return the thread with the kernel id in `item`, a thread that py-spy has printed. If `item` has no kernel id but the
 * name "MainThread", return the main thread. Return NULL if no thread fits. */
static const struct stack_thread *find_thread(const cJSON *item, const struct stack_thread *threads, size_t n)
{
    const int tid = number_of(item, "os_thread_id", INT_MAX);
    if (tid < 0)
        return strcmp(text_of(item, "thread_name"), "MainThread") == 0 ? &threads[0] : NULL;
    for (size_t i = 0; i < n; i++)
        if (threads[i].tid == tid)
            return &threads[i];
    return NULL;
}

static void add_item(struct stacks *s, const cJSON *item, const struct stack_thread *threads, size_t n)
{
    size_t bytes = ITEM_BYTES;
    const struct stack_thread *known = find_thread(item, threads, n);
    struct stack_thread t = known != NULL ? *known : threads[0];
    if (known == NULL) {
        t.does[0] = t.object[0] = '\0';
        t.cpu_ms = t.runs = 0;
    }
    cJSON *row = cJSON_CreateObject(), *frames = new_frames(member(item, "frames"), py_spy_frame, &bytes);
    if (!cJSON_AddItemToObject(row, "frames", frames))
        cJSON_Delete(frames);
    cJSON *thread = new_thread(&t, text_of(item, "thread_name"), known == &threads[0], true);
    append_thread(s, find_row(s, row, thread, bytes), thread);
}

static bool is_thread(const cJSON *item)
{
    return cJSON_IsArray(member(item, "frames"));
}

ddp_status stacks_add_py_spy(struct stacks *s, struct slice text, const struct stack_thread *threads,
                             size_t n, struct ddp_err *err)
{
    const char *end = NULL;
    if (text.len > STACKS_INPUT_MAX)
        return ddp_fail(err, DDP_ERR_LIMIT, "py-spy printed more than %d MiB", STACKS_INPUT_MAX >> 20);
    cJSON *list = text.len > 0 ? cJSON_ParseWithLengthOpts(text.data, text.len, &end, false) : NULL;
    const cJSON *item;
    int added = 0;
    cJSON_ArrayForEach(item, list)
    {
        if (!is_thread(item))
            continue;
        if (added++ < STACKS_PROCESS_MAX)
            add_item(s, item, threads, n);
        else
            s->is_cut = true;
    }
    cJSON_Delete(list);
    return added > 0 ? DDP_OK : ddp_fail(err, DDP_ERR_CORRUPT, "py-spy printed no stacks");
}

/* --- merging -------------------------------------------------------------------------------------------- */

/* Return the number in the member `name` of a thread, or 0. */
static int64_t count_of(const cJSON *thread, const char *name)
{
    const cJSON *n = member(thread, name);
    return cJSON_IsNumber(n) && n->valuedouble > 0 && n->valuedouble < 9e15 ? (int64_t)n->valuedouble : 0;
}

int64_t stacks_cpu_ms(const cJSON *thread)
{
    return count_of(thread, "cpu_ms");
}

int64_t stacks_runs(const cJSON *thread)
{
    return count_of(thread, "runs");
}

/* Read a thread from the JSON of a peer. Return false if the thread has no rank. */
static bool read_thread(const cJSON *item, struct stack_thread *t)
{
    *t = (struct stack_thread){ .rank = number_of(item, "rank", INT_MAX),
                                .pid = number_of(item, "pid", INT_MAX),
                                .host = text_of(item, "host"),
                                .is_child = cJSON_IsTrue(member(item, "child")),
                                .cpu_ms = stacks_cpu_ms(item),
                                .runs = stacks_runs(item) };
    copy_safe(t->does, sizeof(t->does), text_of(item, "does"));
    copy_safe(t->object, sizeof(t->object), text_of(item, "object"));
    return t->rank >= 0;
}

/* Copy a row without its threads. */
static cJSON *copy_row(const cJSON *from, size_t *bytes)
{
    cJSON *row = cJSON_CreateObject();
    *bytes = ITEM_BYTES;
    if (cJSON_IsArray(member(from, "frames"))) {
        cJSON *frames = new_frames(member(from, "frames"), peer_frame, bytes);
        if (!cJSON_AddItemToObject(row, "frames", frames))
            cJSON_Delete(frames);
    }
    add_text(row, "does", STACK_NAME_MAX, text_of(from, "does"));
    add_text(row, "note", STACK_NOTE_MAX, text_of(from, "note"));
    *bytes += strlen(text_of(row, "does")) + strlen(text_of(row, "note"));
    return row;
}

static cJSON *find_copy(struct stacks *s, const cJSON *from, const cJSON *thread)
{
    size_t bytes;
    cJSON *row = copy_row(from, &bytes);
    return find_row(s, row, thread, bytes);
}

/* Merge the threads of a row. Create the row only with its first valid thread, because a row without threads is
 * useless. */
static void merge_row(struct stacks *s, const cJSON *from, uint32_t first, uint32_t n)
{
    const cJSON *item;
    cJSON *row = NULL;
    cJSON_ArrayForEach(item, member(from, "threads"))
    {
        struct stack_thread t;
        if (!read_thread(item, &t) || (uint32_t)t.rank - first >= n)
            continue;
        if (row == NULL && (row = find_copy(s, from, item)) == NULL)
            return;
        append_thread(s, row,
                      new_thread(&t, text_of(item, "thread"), cJSON_IsTrue(member(item, "main")), true));
    }
}

void stacks_merge(struct stacks *s, const cJSON *rows, uint32_t first, uint32_t n)
{
    const cJSON *row;
    int count = 0;
    cJSON_ArrayForEach(row, rows)
    {
        if (count++ < STACKS_ROWS_MAX)
            merge_row(s, row, first, n);
        else
            s->is_cut = true;
    }
}

/* --- text ----------------------------------------------------------------------------------------------- */

/* The facts about a row that decide its position and its headline. */
struct shown {
    const cJSON *row;
    const cJSON *first; /* first thread of the row */
    int threads, rank;  /* number of threads in the row, and their lowest rank */
    enum { OF_WORKERS, OF_CHILDREN, OF_THREADS, OF_NOTES } kind;
};

/* Compare two rows for qsort: main threads of workers come first, and notes last. Among rows of the same kind, rare
 * rows come before frequent ones. */
static int compare_shown(const void *a, const void *b)
{
    const struct shown *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->threads != y->threads)
        return x->threads < y->threads ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static struct shown show_row(const cJSON *row)
{
    const bool is_note = text_of(row, "note")[0] != '\0';
    struct shown shown = { .row = row, .rank = INT_MAX, .kind = is_note ? OF_NOTES : OF_THREADS };
    const cJSON *thread;
    cJSON_ArrayForEach(thread, member(row, "threads"))
    {
        const int rank = number_of(thread, "rank", INT_MAX - 1);
        if (rank < 0)
            continue;
        if (shown.threads++ == 0)
            shown.first = thread;
        shown.rank = rank < shown.rank ? rank : shown.rank;
        if (!is_note && cJSON_IsTrue(member(thread, "main")) && shown.kind != OF_WORKERS)
            shown.kind = cJSON_IsTrue(member(thread, "child")) ? OF_CHILDREN : OF_WORKERS;
    }
    return shown;
}

/* Return the rows that have threads, sorted. Return NULL if memory is short. The caller frees the array. */
static struct shown *sort_rows(const cJSON *rows, size_t *n)
{
    const cJSON *row;
    const int all = cJSON_GetArraySize(rows);
    struct shown *sorted = calloc((size_t)(all > 0 ? all : 1), sizeof(*sorted));
    *n = 0;
    cJSON_ArrayForEach(row, rows)
    {
        const struct shown shown = show_row(row);
        if (sorted != NULL && shown.threads > 0)
            sorted[(*n)++] = shown;
    }
    if (sorted != NULL)
        qsort(sorted, *n, sizeof(*sorted), compare_shown);
    return sorted;
}

static int compare_ranks(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int rank_at(const void *ranks, int i)
{
    return ((const int *)ranks)[i];
}

/* Sort the ranks and remove repetitions. Return the number of remaining ranks. */
static int sort_ranks(int *ranks, int n)
{
    int kept = 0;
    qsort(ranks, (size_t)n, sizeof(*ranks), compare_ranks);
    for (int i = 0; i < n; i++)
        if (kept == 0 || ranks[kept - 1] != ranks[i])
            ranks[kept++] = ranks[i];
    return kept;
}

/* Append "rank 1" or "ranks 0,2-5". */
static bool append_shown_ranks(const struct shown *shown, struct buf *out)
{
    const cJSON *thread;
    int n = 0, *ranks = calloc((size_t)shown->threads, sizeof(*ranks));
    cJSON_ArrayForEach(thread, member(shown->row, "threads"))
    {
        const int rank = number_of(thread, "rank", INT_MAX - 1);
        if (ranks != NULL && rank >= 0 && n < shown->threads)
            ranks[n++] = rank;
    }
    if (ranks == NULL)
        return false;
    n = sort_ranks(ranks, n);
    const bool ok = buf_printf(out, "rank%s ", n == 1 ? "" : "s") &&
                    rank_set_print_each(rank_at, ranks, n, RANKS_SHOWN, out);
    free(ranks);
    return ok;
}

/* Return the state ("does") of the row. If the row has no state, return the state that all its threads share. Return ""
 * if these states differ. Also return "" if the row has several threads and has frames, because frames are more precise
 * than a state. */
static const char *shared_state(const struct shown *shown)
{
    const char *does = text_of(shown->row, "does");
    const cJSON *thread;
    if (does[0] != '\0' || (shown->threads > 1 && cJSON_GetArraySize(member(shown->row, "frames")) > 0))
        return does;
    does = text_of(shown->first, "does");
    cJSON_ArrayForEach(thread, member(shown->row, "threads"))
    {
        if (strcmp(text_of(thread, "does"), does) != 0)
            return "";
    }
    return does;
}

/* Append " sleeping in read of /data/x, 0.3 s of CPU time" for a row with one thread. For a row with several threads,
 * append only the state, and only if all threads have the same state. */
static bool append_state(const struct shown *shown, struct buf *out)
{
    const bool one = shown->threads == 1;
    const char *does = shared_state(shown), *object = one ? text_of(shown->first, "object") : "";
    const int64_t cpu_ms = one ? stacks_cpu_ms(shown->first) : 0;
    bool ok = does[0] == '\0' || buf_printf(out, " %s", does);
    ok = ok && (object[0] == '\0' || buf_printf(out, " of %s", object));
    if (does[0] != '\0' && cpu_ms > 0)
        ok = ok && buf_printf(out, ", ") && text_append_ms(out, (uint64_t)cpu_ms) &&
             buf_printf(out, " of CPU time");
    return ok;
}

/* Append " (n1, pid 812, a child process, thread pin_memory)" for a row with one thread. For several threads, append
 * only their number, such as " (3 child processes)". Append nothing for main threads of workers. */
static bool append_where(const struct shown *shown, struct buf *out)
{
    const char *host = text_of(shown->first, "host"), *name = text_of(shown->first, "thread");
    const int pid = number_of(shown->first, "pid", INT_MAX);
    const bool is_child = cJSON_IsTrue(member(shown->first, "child"));
    const bool has_name = name[0] != '\0' && !cJSON_IsTrue(member(shown->first, "main"));
    if (shown->threads > 1 && shown->kind == OF_WORKERS)
        return true;
    if (shown->threads > 1)
        return buf_printf(out, " (%d %s)", shown->threads,
                          shown->kind == OF_CHILDREN ? "child processes" : "other threads");
    return buf_printf(out, " (%s%spid %d%s%s%s)", host, host[0] != '\0' ? ", " : "", pid,
                      is_child ? ", a child process" : "", has_name ? ", thread " : "", has_name ? name : "");
}

/* Append "data  hang.py:5" and a newline. */
static bool append_frame(const cJSON *frame, struct buf *out)
{
    const int line = number_of(frame, "line", LINE_MOST);
    bool ok = buf_printf(out, "%s  %s", text_of(frame, "function"), text_of(frame, "file"));
    if (line > 0)
        ok = ok && buf_printf(out, ":%d", line);
    return ok && buf_printf(out, "\n");
}

/* Append the frames. If `brief` is true, append at most BRIEF_FRAMES frames: the innermost frame of the stack, then the
 * innermost frames of the user's program. */
static bool append_frames(const cJSON *frames, bool brief, struct buf *out)
{
    const cJSON *frame;
    bool ok = true;
    int n = 0;
    cJSON_ArrayForEach(frame, frames)
    {
        const bool is_user = cJSON_IsTrue(member(frame, "user"));
        if (brief && (n == BRIEF_FRAMES || (n > 0 && !is_user)))
            continue;
        n++;
        ok = ok && buf_printf(out, "  %s ", is_user ? ">" : " ") && append_frame(frame, out);
    }
    return ok;
}

static bool append_row(const struct shown *shown, bool brief, struct buf *out)
{
    const cJSON *frames = member(shown->row, "frames");
    if (shown->kind == OF_NOTES)
        return append_shown_ranks(shown, out) && buf_printf(out, ": %s\n", text_of(shown->row, "note"));
    return append_shown_ranks(shown, out) && append_where(shown, out) && buf_printf(out, ":") &&
           append_state(shown, out) && buf_printf(out, "\n") && append_frames(frames, brief, out);
}

/* Return true if a brief text leaves out this row. A brief text leaves out a child process that runs no code of the
 * user, such as an idle data loader. It also leaves out a thread that is not a main thread and runs no code of the
 * user. A child process without frames is shown. "<string>" does not count as code of the user, because every process
 * that multiprocessing spawns begins with "<string>". */
static bool is_usual(const struct shown *shown)
{
    const cJSON *frame, *frames = member(shown->row, "frames");
    if (shown->kind == OF_WORKERS || shown->kind == OF_NOTES ||
        (shown->kind == OF_CHILDREN && frames == NULL))
        return false;
    cJSON_ArrayForEach(frame, frames)
    {
        if (cJSON_IsTrue(member(frame, "user")) && strcmp(text_of(frame, "file"), "<string>") != 0)
            return false;
    }
    return true;
}

static int count_lines(const struct buf *out, size_t from)
{
    int n = 0;
    for (size_t i = from; i < out->len; i++)
        n += out->data[i] == '\n';
    return n;
}

/* Append rows, with at most `most` lines in total. If `most` is -1, append all rows. Return the number of rows that are
 * left out, or -1 if memory is short. Replace control characters, because `rows` may be from an untrusted store. */
static int append_rows(const cJSON *rows, int most, struct buf *out)
{
    const size_t start = out->len;
    const bool brief = most >= 0;
    size_t n;
    int left = 0;
    struct shown *sorted = sort_rows(rows, &n);
    bool ok = sorted != NULL;
    for (size_t i = 0; i < n && ok; i++) {
        const size_t before = out->len;
        ok = append_row(&sorted[i], brief, out);
        /* leave one line for the last row if it is a note */
        const int room = most - (sorted[i].kind != OF_NOTES && sorted[n - 1].kind == OF_NOTES);
        if (brief && (is_usual(&sorted[i]) || count_lines(out, start) > room)) {
            out->len = before;
            left++;
        }
    }
    free(sorted);
    if (out->len > start)
        text_disarm(out->data + start, out->len - start, '\n');
    return ok ? left : -1;
}

bool stacks_text(const cJSON *rows, struct buf *out)
{
    return append_rows(rows, -1, out) == 0;
}

int stacks_brief(const cJSON *rows, int most, struct buf *out)
{
    return append_rows(rows, most > 0 ? most : 0, out);
}
