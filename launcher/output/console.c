/* console.c -- see console.h.
 *
 * stdout and stderr may be the same terminal. So a row on which a progress bar is drawn belongs to the console, not
 * to a stream: the stream that writes next erases the row first. All lines of one read are queued together. */
#include "output/console.h"

#include "output/lines.h"
#include "output/event_log.h"
#include "tables/text.h"

#include "base/clock.h"

#include <unistd.h>

enum {
    BATCH_KEPT = 1 << 20,  /* a batch buffer is freed if one huge line has grown it above this size */
    HELD_MAX = 16 << 20,   /* bytes in unfinished lines of all streams together */
    HELD_FREE = 256 * 1024 /* a line up to this length is never cut for HELD_MAX */
};

/* Return true if `fd` is a terminal on which the cursor can be moved. */
static bool is_screen(const struct plan *plan, int fd)
{
    const char *term = env_find(plan->facts->environ_block, "TERM");
    return term != NULL && strcmp(term, "dumb") != 0 && isatty(fd);
}

/* Return true if colours are requested and `fd` is a terminal; in a file the codes would be visible. */
static bool has_colour(const struct plan *plan, int fd)
{
    return plan_wants_colour(plan) && is_screen(plan, fd);
}

/* Return the row for a descriptor. Control characters are escaped on every terminal, also on a terminal without a
 * movable cursor. */
static struct line_row *console_row(struct console *c, int fd)
{
    if (is_screen(c->plan, fd))
        return &c->screen;
    return isatty(fd) ? &c->dumb : &c->plain;
}

void console_init(struct console *c, const struct plan *plan, struct sinks *sinks, uint64_t started_ms)
{
    *c = (struct console){ .plan = plan, .sinks = sinks, .started_ms = started_ms };
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

/* Return the time of an event: since the start of ddprun, so that differences are correct even if a user sets the
 * wall clock. */
static uint64_t since_start(const struct console *c)
{
    return clock_ms() - c->started_ms;
}

/* Read both clocks: the wall clock, to compare with other hosts, and the monotonic clock, which cannot be set. */
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

/* Append a message of ddprun as a line. The text may contain names of files, hosts and foreign processes, which are
 * as untrusted as a worker's line. So all control characters and colours are removed, for terminals and logs
 * alike. */
static void note_line(struct console *c, const char *text, struct buf *out)
{
    bool ok = buf_printf(out, "%s%sddprun: ", c->midline ? "\n" : "", line_row_wipe(&c->screen)) &&
              escape_put_plain(out, slice_str(text)) && buf_append(out, "\n", 1);
    if (!ok)
        out->len = 0;
    c->midline = c->midline && !ok;
}

/* Queue `text` after all earlier output of the workers. */
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

/* Append a line that was folded. The prefix is formatted now, because the ranks were unknown when the line was read.
 * The stream of the line still exists, because waiting lines are written when the last pipe is closed. */
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

/* Start the folding, separately for stdout and stderr, because their lines have no common order. */
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

/* Print all due lines, and set the common timer of both streams to the earlier time. */
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

/* Print all waiting lines, and erase the last row, because a progress bar would otherwise remain on the row. */
void console_fold_finish(struct console *c)
{
    for (int i = 0; i < 2 && c->folds[i].fold != NULL; i++) {
        fold_finish(c->folds[i].fold);
        buf_printf(&c->batch, "%s", line_row_wipe(c->folds[i].row));
        queue_batch(c, c->folds[i].sink);
    }
}

/* --- one stream ----------------------------------------------------------------------------------------- */

/* Format the prefix. The caller does so only at the first read, because many streams never print, or at every read if the prefix contains the time. */
static void make_prefix(struct console_stream *s)
{
    const struct console *c = s->console;
    const struct line_origin from = {
        .local_rank = s->local_rank, .which = s->which, .pid = s->pid, .at = s->at
    };
    s->prefix.len = 0;
    s->has_prefix = true;
    if (c->plan->prefix && !c->plan->cli->json)
        line_prefix(c->plan, &from, c->colour[s->which == STD_ERR], &s->prefix);
}

/* Read the clock, once for all lines of a read. */
static void stamp(struct console_stream *s)
{
    s->at = now(s->console);
    if (!s->has_prefix || s->console->plan->line_prefix.timed)
        make_prefix(s);
}

/* Pass a line to the folding, where it waits for equal lines of other ranks. If no other line waits yet, set the
 * timer that limits the wait. */
static void fold_line(struct console_stream *s, struct fold *fold, struct slice text, enum line_kind kind)
{
    const struct fold_line line = {
        .text = text, .kind = kind, .at = s->at, .rank = s->local_rank, .origin = s
    };
    if (fold_put(fold, &line))
        s->console->waits(s->console->user, FOLD_QUIET_US);
}

/* Append a line, as text or as an event, to the batch. Writing each line separately would cost a lock and a system
 * call per line, and a fast worker prints thousands of lines. */
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

/* Initialize a stream. With `raw`, the bytes of a single worker without prefixes are passed on unchanged, as if the
 * worker wrote to ddprun's stdout itself. So a prompt without a newline is visible at once. */
void console_stream_init(struct console_stream *s, struct console *c, int local_rank, int which)
{
    const struct plan *plan = c->plan;
    *s = (struct console_stream){ .console = c, .local_rank = local_rank, .which = which };
    s->sink = which == STD_OUT || plan->cli->json ? SINK_STDOUT : SINK_STDERR;
    s->row = c->rows[which == STD_ERR];
    s->raw = plan->nproc == 1 && !plan->prefix && !plan->cli->json;
    lines_init(&s->lines, on_line, s, LINES_LIMIT);
}

/* Format the prefix again, because it may contain the pid. */
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

/* Update how many bytes unfinished lines occupy. The limit applies to the sum of all workers that write without a
 * newline. */
static void account(struct console_stream *s)
{
    struct console *c = s->console;
    if (c->held + s->lines.text.len - s->held > HELD_MAX && s->lines.text.len > HELD_FREE)
        lines_cut(&s->lines);
    c->held += s->lines.text.len - s->held;
    s->held = s->lines.text.len;
}

/* Return true while a bar is shown, which the caller must update later. */
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

/* Print the rest of an unfinished line as a line. With folding, the bar's row is erased later, after the last
 * line. */
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
