/* console.c -- see console.h.
 *
 * stdout and stderr may be the same terminal. So the row of a progress bar belongs to the console, not to a
 * stream. The stream that prints next erases the bar first. */
#include "output/console.h"

#include "output/lines.h"
#include "output/event_log.h"
#include "tables/text.h"

#include "base/clock.h"

#include <unistd.h>

enum {
    BATCH_KEPT = 1 << 20,  /* a batch buffer is freed if one huge line has grown it above this size */
    HELD_MAX = 16 << 20,   /* limit for the unfinished lines of all streams together */
    HELD_FREE = 256 * 1024 /* over HELD_MAX, only a line longer than this is cut */
};

/* Return true if `fd` is a terminal on which the cursor can be moved. */
static bool is_screen(const struct plan *plan, int fd)
{
    const char *term = env_find(plan->facts->environ_block, "TERM");
    return term != NULL && strcmp(term, "dumb") != 0 && isatty(fd);
}

/* Return true if colours are requested and `fd` is a terminal. In a file, colour codes would be visible text. */
static bool has_colour(const struct plan *plan, int fd)
{
    return plan_wants_colour(plan) && is_screen(plan, fd);
}

/* Return the row that represents a descriptor. Control characters are escaped on every terminal, even if its
 * cursor cannot be moved. */
static struct line_row *console_row(struct console *c, int fd)
{
    if (is_screen(c->plan, fd))
        return &c->screen;
    return isatty(fd) ? &c->dumb : &c->plain;
}

void console_init(struct console *c, const struct plan *plan, struct sinks *sinks, uint64_t started_ms)
{
    *c = (struct console){ .plan = plan, .sinks = sinks, .started_ms = started_ms };
    c->marks = plan->cli->one_console && plan->cli->fold && !plan->cli->json;
    c->colour[0] = has_colour(plan, STDOUT_FILENO);
    c->colour[1] = has_colour(plan, STDERR_FILENO);
    c->screen = (struct line_row){ .escape = true, .terminal = true };
    c->dumb.escape = true;
    c->rows[0] = console_row(c, STDOUT_FILENO);
    c->rows[1] = console_row(c, STDERR_FILENO);
}

void console_free(struct console *c)
{
    for (int i = 0; i < 2; i++) {
        fold_free(c->folds[i].fold);
        buf_free(&c->folds[i].prefix);
    }
    buf_free(&c->batch);
}

/* Return the time since the start of ddprun. A change of the wall clock does not affect this time. */
static uint64_t since_start(const struct console *c)
{
    return clock_ms() - c->started_ms;
}

/* Read both clocks. The wall clock allows a comparison with other hosts. The monotonic clock cannot be changed. */
static struct line_time now(const struct console *c)
{
    return (struct line_time){ .unix_us = clock_unix_us(), .since_us = clock_us() - c->started_ms * 1000 };
}

/* Queue the batch, and free the buffer if one huge line has grown it. */
static void queue_batch(struct console *c, int sink)
{
    sinks_put(c->sinks, sink, buf_slice(&c->batch));
    c->batch.len = 0;
    if (c->batch.cap > BATCH_KEPT)
        buf_free(&c->batch);
}

/* Append a message of ddprun as a line. The text may contain names from other programs and hosts, which are not
 * trusted. So control characters and colours are removed, on terminals and in files. */
static void note_line(struct console *c, const char *text, struct buf *out)
{
    bool ok = buf_printf(out, "%s%sddprun: ", c->midline ? "\n" : "", line_row_wipe(&c->screen)) &&
              escape_put_plain(out, slice_str(text)) && buf_append(out, "\n", 1);
    if (!ok)
        out->len = 0;
    c->midline = c->midline && !ok;
}

/* Print `text` after all earlier output of the workers. */
void console_note(struct console *c, const char *text)
{
    struct buf out = { 0 };
    console_fold_finish(c);
    const bool json = c->plan->cli->json;
    if (json)
        event_note(&out, since_start(c), text);
    else
        note_line(c, text, &out);
    sinks_put(c->sinks, json ? SINK_STDOUT : SINK_STDERR, buf_slice(&out));
    buf_free(&out);
}

/* --- folded lines --------------------------------------------------------------------------------------- */

/* Append a folded line. Its prefix is formatted only now, when all ranks of the line are known. The stream of the
 * line still exists, because all waiting lines are written when the last pipe is closed. */
static void on_folded(void *user, const struct fold_line *line)
{
    struct console_fold *f = user;
    struct console *c = f->console;
    const struct console_stream *s = line->origin;
    const struct line_origin from = {
        .local_rank = line->rank, .which = s->which, .pid = s->pid, .ranks = line->ranks, .at = line->at
    };
    f->prefix.len = 0;
    line_prefix(c->plan, &from, c->colour[s->which == STD_ERR], &f->prefix);
    line_show(&c->batch, f->row, buf_slice(&f->prefix), line->text, line->kind);
}

/* Start to fold lines. stdout and stderr are folded separately, because no order exists between their lines. */
bool console_fold(struct console *c, void (*waits)(void *user, uint64_t us), void *user)
{
    c->waits = waits;
    c->user = user;
    for (int i = 0; i < 2; i++) {
        struct console_fold *f = &c->folds[i];
        *f = (struct console_fold){ .console = c, .sink = i == 0 ? SINK_STDOUT : SINK_STDERR };
        f->row = c->rows[i];
        f->fold = fold_new(c->plan->nproc, on_folded, f);
        if (f->fold == NULL)
            return false;
    }
    return true;
}

/* Print the due lines of stdout and stderr. Set their common timer to the next due time. */
void console_fold_time(struct console *c)
{
    const uint64_t at = now(c).since_us;
    uint64_t next = FOLD_NOTHING;
    for (int i = 0; i < 2 && c->folds[i].fold != NULL; i++) {
        uint64_t due = fold_flush(c->folds[i].fold, at);
        queue_batch(c, c->folds[i].sink);
        next = due < next ? due : next;
    }
    if (next != FOLD_NOTHING)
        c->waits(c->user, next - at);
}

/* Print all waiting lines. Then erase a progress bar that is still on the last row. */
void console_fold_finish(struct console *c)
{
    for (int i = 0; i < 2 && c->folds[i].fold != NULL; i++) {
        fold_finish(c->folds[i].fold);
        buf_printf(&c->batch, "%s", line_row_wipe(c->folds[i].row));
        queue_batch(c, c->folds[i].sink);
    }
}

/* --- one stream ----------------------------------------------------------------------------------------- */

/* Format the prefix at the first read, because many streams never print. A prefix that contains the time is
 * formatted at every read. */
static void make_prefix(struct console_stream *s)
{
    const struct console *c = s->console;
    const struct line_origin from = {
        .local_rank = s->local_rank, .which = s->which, .pid = s->pid, .at = s->at
    };
    s->prefix.len = 0;
    s->has_prefix = true;
    struct buf plain = { 0 };
    struct buf *out = c->marks ? &plain : &s->prefix;
    if (c->plan->prefix && !c->plan->cli->json)
        line_prefix(c->plan, &from, c->colour[s->which == STD_ERR], out);
    if (c->marks)
        line_mark(&s->prefix, c->plan->workers[s->local_rank].rank, c->plan->world_size, buf_slice(&plain));
    buf_free(&plain);
}

/* Read the clock once for all lines of a read. Format the prefix if necessary. */
static void stamp(struct console_stream *s)
{
    s->at = now(s->console);
    if (!s->has_prefix || s->console->plan->line_prefix.timed)
        make_prefix(s);
}

/* Pass a line to the fold, where the line waits for equal lines of other ranks. If it is the only waiting line,
 * set the timer. */
static void fold_line(struct console_stream *s, struct fold *fold, struct slice text, enum line_kind kind)
{
    const struct fold_line line = {
        .text = text, .kind = kind, .at = s->at, .rank = s->local_rank, .origin = s
    };
    if (fold_put(fold, &line))
        s->console->waits(s->console->user, FOLD_QUIET_US);
}

/* Append a line to the batch, as text or as an event. Queueing each line separately would cost a lock and a system
 * call per line. */
static void on_line(void *user, struct slice text, enum line_kind kind)
{
    struct console_stream *s = user;
    struct console *c = s->console;
    struct fold *fold = c->folds[s->which == STD_ERR].fold;
    if (c->plan->cli->json)
        event_output(&c->batch, s->at, &c->plan->workers[s->local_rank], s->which, text, kind);
    else if (fold != NULL)
        fold_line(s, fold, text, kind);
    else
        line_show(&c->batch, s->row, buf_slice(&s->prefix), text, kind);
}

/* Initialize a stream. The stream is `raw` for a single worker without prefix: its bytes are passed on unchanged.
 * So a prompt without a newline is visible at once. */
void console_stream_init(struct console_stream *s, struct console *c, int local_rank, int which)
{
    const struct plan *plan = c->plan;
    *s = (struct console_stream){ .console = c, .local_rank = local_rank, .which = which };
    s->sink = which == STD_OUT || plan->cli->json ? SINK_STDOUT : SINK_STDERR;
    s->row = c->rows[which == STD_ERR];
    s->raw = plan->nproc == 1 && !plan->prefix && !plan->cli->json && !c->marks;
    lines_init(&s->lines, on_line, s, LINES_LIMIT);
}

/* Record the pid. The prefix is formatted again, because it may contain the pid. */
void console_stream_started(struct console_stream *s, pid_t pid)
{
    s->pid = pid;
    s->has_prefix = false;
}

void console_stream_free(struct console_stream *s)
{
    lines_free(&s->lines);
    buf_free(&s->prefix);
}

bool console_is_screen(const struct console_stream *s)
{
    return s->row->terminal;
}

/* Update the number of bytes in unfinished lines. If all streams together exceed the limit, cut a long line. */
static void account(struct console_stream *s)
{
    struct console *c = s->console;
    if (c->held + s->lines.text.len - s->held > HELD_MAX && s->lines.text.len > HELD_FREE)
        lines_cut(&s->lines);
    c->held += s->lines.text.len - s->held;
    s->held = s->lines.text.len;
}

/* Return true while a progress bar is active, because the caller must then call console_stream_update later. */
bool console_stream_feed(struct console_stream *s, struct slice bytes)
{
    if (s->raw) {
        if (s->sink == SINK_STDERR && bytes.len > 0)
            s->console->midline = ((const char *)bytes.data)[bytes.len - 1] != '\n';
        sinks_put(s->console->sinks, s->sink, bytes);
        return false;
    }
    stamp(s);
    lines_feed(&s->lines, bytes);
    account(s);
    queue_batch(s->console, s->sink);
    return s->lines.update.len > 0;
}

void console_stream_update(struct console_stream *s)
{
    stamp(s);
    if (lines_show_update(&s->lines))
        queue_batch(s->console, s->sink);
}

/* Print an unfinished line as a line. Without folding, erase the bar now; with folding, the bar is erased after
 * the last line. */
void console_stream_finish(struct console_stream *s)
{
    struct console *c = s->console;
    if (s->raw)
        return;
    stamp(s);
    lines_finish(&s->lines);
    account(s);
    if (c->folds[0].fold == NULL)
        buf_printf(&c->batch, "%s", line_row_wipe(s->row));
    queue_batch(c, s->sink);
}
