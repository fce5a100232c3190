/* console.c -- see console.h.
 *
 * stdout and stderr may be the same terminal. So the row of a progress bar belongs to the console, not to a stream.
 * Before a stream prints a line, the stream erases the bar of any other stream. */
#include "output/console.h"

#include "output/lines.h"
#include "output/event_log.h"
#include "tables/text.h"

#include "base/clock.h"

#include <unistd.h>

enum {
    BATCH_KEPT = 1 << 20,  /* a longer buffer, which only a huge line needs, is freed after use */
    HELD_MAX = 16 << 20,   /* limit for the unfinished lines of all streams together */
    HELD_FREE = 256 * 1024 /* if the unfinished lines exceed HELD_MAX, a line with more bytes than HELD_FREE
                            * is printed in parts */
};

/* --- folded lines --------------------------------------------------------------------------------------- */

static void on_folded(void *user, const struct fold_line *line)
{
    struct folded_stream *s = user;
    struct folds *f = s->folds;
    f->prefix.len = 0;
    f->put_prefix(f->prefix_user, line, &f->prefix);
    line_show(&f->batch, s->row, buf_slice(&f->prefix), line->text, line->kind);
}

static void folds_init(struct folds *f, struct sinks *sinks, struct line_row *const rows[2],
                       void (*put_prefix)(void *user, const struct fold_line *line, struct buf *out),
                       void *user)
{
    *f = (struct folds){ .sinks = sinks, .put_prefix = put_prefix, .prefix_user = user };
    for (int i = 0; i < 2; i++)
        f->of[i] =
            (struct folded_stream){ .folds = f, .sink = i == 0 ? SINK_STDOUT : SINK_STDERR, .row = rows[i] };
}

/* Start to fold lines (to print equal lines of several ranks only once). Do nothing if lines are folded already.
 * `ranks` is the number of ranks. Return false when memory is short. */
static bool folds_open(struct folds *f, int ranks)
{
    for (int i = 0; i < 2; i++)
        if (f->of[i].fold == NULL)
            f->of[i].fold = fold_new(ranks, on_folded, &f->of[i]);
    return f->of[0].fold != NULL && f->of[1].fold != NULL;
}

static void folds_free(struct folds *f)
{
    for (int i = 0; i < 2; i++)
        fold_free(f->of[i].fold);
    buf_free(&f->batch);
    buf_free(&f->prefix);
}

/* Queue the batch, and free the buffer if a huge line has made the buffer larger than BATCH_KEPT. */
static void queue_batch(struct sinks *sinks, int sink, struct buf *batch)
{
    if (batch->len > 0)
        sinks_write(sinks, sink, buf_slice(batch));
    batch->len = 0;
    if (batch->cap > BATCH_KEPT)
        buf_free(batch);
}

/* Add a line to the fold of stdout or stderr, where the line waits for equal lines of other ranks. If no other line
 * waits, request a call of folds_time. If too many lines wait, print the oldest. */
static void folds_add(struct folds *f, int which, const struct fold_line *line)
{
    if (fold_add(f->of[which].fold, line))
        f->waits(f->waits_user, FOLD_QUIET_US);
    queue_batch(f->sinks, f->of[which].sink, &f->batch);
}

/* Print the due lines of stdout and stderr. If more lines wait, request a call of this function when the next line is
 * due. */
static void folds_time(struct folds *f, uint64_t now_us)
{
    uint64_t next = FOLD_NOTHING;
    for (int i = 0; i < 2 && f->of[i].fold != NULL; i++) {
        const uint64_t due = fold_flush(f->of[i].fold, now_us);
        queue_batch(f->sinks, f->of[i].sink, &f->batch);
        next = due < next ? due : next;
    }
    if (next != FOLD_NOTHING)
        f->waits(f->waits_user, next - now_us);
}

/* Print all waiting lines. Then erase a progress bar that is still on the last row. */
static void folds_finish(struct folds *f)
{
    for (int i = 0; i < 2 && f->of[i].fold != NULL; i++) {
        fold_finish(f->of[i].fold);
        buf_printf(&f->batch, "%s", line_row_wipe(f->of[i].row));
        queue_batch(f->sinks, f->of[i].sink, &f->batch);
    }
}

/* --- the console of one node ------------------------------------------------------------------------------ */

/* Return true if `fd` is a terminal with a movable cursor. */
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

/* Return the row for `fd`: `screen` for a terminal, `dumb` for a terminal that cannot move its cursor, `plain` for a
 * file or pipe. Lines for both kinds of terminal are escaped. */
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
    folds_free(&c->folds);
    buf_free(&c->batch);
}

/* Return the time since the start of ddprun, in ms by the monotonic clock. */
static uint64_t since_start(const struct console *c)
{
    return clock_ms() - c->started_ms;
}

/* Read both clocks: the wall clock for comparison with other hosts, and the monotonic clock for durations, because the
 * wall clock may jump. */
static struct line_time now(const struct console *c)
{
    return (struct line_time){ .unix_us = clock_unix_us(), .since_us = clock_us() - c->started_ms * 1000 };
}

/* Append a message of ddprun as a line. The text may contain names from other programs and hosts, which are not
 * trusted. So control characters and colours are escaped, on terminals and in files. */
static void note_line(struct console *c, const char *text, struct buf *out)
{
    bool ok = buf_printf(out, "%s%sddprun: ", c->midline ? "\n" : "", line_row_wipe(c->rows[1])) &&
              escape_append_plain(out, slice_str(text)) && buf_append(out, "\n", 1);
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
    sinks_write(c->sinks, json ? SINK_STDOUT : SINK_STDERR, buf_slice(&out));
    buf_free(&out);
}

/* Append the prefix of a folded line. line->origin is still valid, because all waiting lines are printed before the
 * streams are freed. */
static void append_folded_prefix(void *user, const struct fold_line *line, struct buf *out)
{
    const struct console *c = user;
    const struct console_stream *s = line->origin;
    const struct line_origin from = {
        .local_rank = line->rank, .which = s->which, .pid = s->pid, .ranks = line->ranks, .at = line->at
    };
    line_prefix(c->plan, &from, c->colour[s->which == STD_ERR], out);
}

bool console_fold(struct console *c, void (*waits)(void *user, uint64_t us), void *user)
{
    folds_init(&c->folds, c->sinks, c->rows, append_folded_prefix, c);
    c->folds.waits = waits;
    c->folds.waits_user = user;
    return folds_open(&c->folds, c->plan->nproc);
}

void console_fold_time(struct console *c)
{
    folds_time(&c->folds, now(c).since_us);
}

void console_fold_finish(struct console *c)
{
    folds_finish(&c->folds);
}

/* --- one stream ----------------------------------------------------------------------------------------- */

/* Format the prefix of the stream's lines. The caller calls this function at the first read. If the prefix contains the
 * time, the caller calls this function at every read. */
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

/* Read the clock once for all lines of one read(2). Format the prefix if this was not done before, or if the prefix
 * contains the time. */
static void stamp(struct console_stream *s)
{
    s->at = now(s->console);
    if (!s->has_prefix || s->console->plan->line_prefix.timed)
        make_prefix(s);
}

/* Append a line to the batch, as text or as an event. Queueing each line separately would cost a lock and a system
 * call per line. */
static void on_line(void *user, struct slice text, enum line_kind kind)
{
    struct console_stream *s = user;
    struct console *c = s->console;
    if (c->plan->cli->json)
        event_output(&c->batch, s->at, &c->plan->workers[s->local_rank], s->which, text, kind);
    else if (c->folds.of[0].fold != NULL)
        folds_add(&c->folds, s->which == STD_ERR,
                  &(struct fold_line){
                      .text = text, .kind = kind, .at = s->at, .rank = s->local_rank, .origin = s });
    else
        line_show(&c->batch, s->row, buf_slice(&s->prefix), text, kind);
}

/* Initialize a stream. The stream of a single worker without prefix is `raw`: the bytes are passed on unchanged, so a
 * prompt without a newline is visible at once. */
void console_stream_init(struct console_stream *s, struct console *c, int local_rank, int which)
{
    const struct plan *plan = c->plan;
    *s = (struct console_stream){ .console = c, .local_rank = local_rank, .which = which };
    s->sink = which == STD_OUT || plan->cli->json ? SINK_STDOUT : SINK_STDERR;
    s->row = c->rows[which == STD_ERR];
    s->raw = plan->nproc == 1 && !plan->prefix && !plan->cli->json && !c->marks;
    lines_init(&s->lines, on_line, s, LINES_LIMIT);
}

/* Record the pid. The prefix is formatted again, because the prefix may contain the pid. */
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

/* Update the number of bytes in unfinished lines. Cut this stream's line if this line is longer than HELD_FREE and all
 * streams together exceed HELD_MAX. */
static void account(struct console_stream *s)
{
    struct console *c = s->console;
    if (c->held + s->lines.text.len - s->held > HELD_MAX && s->lines.text.len > HELD_FREE)
        lines_cut(&s->lines);
    c->held += s->lines.text.len - s->held;
    s->held = s->lines.text.len;
}

/* Cut the bytes into lines and queue the lines. Return true if the caller must call console_stream_update later,
 * because there is a progress bar. */
bool console_stream_add(struct console_stream *s, struct slice bytes)
{
    if (s->raw) {
        if (s->sink == SINK_STDERR && bytes.len > 0)
            s->console->midline = ((const char *)bytes.data)[bytes.len - 1] != '\n';
        sinks_write(s->console->sinks, s->sink, bytes);
        return false;
    }
    stamp(s);
    lines_append(&s->lines, bytes);
    account(s);
    queue_batch(s->console->sinks, s->sink, &s->console->batch);
    return s->lines.update.len > 0;
}

void console_stream_update(struct console_stream *s)
{
    stamp(s);
    if (lines_show_update(&s->lines))
        queue_batch(s->console->sinks, s->sink, &s->console->batch);
}

/* Print an unfinished line with a newline, and erase the progress bar. With --fold, leave the bar to folds_finish,
 * which first prints the waiting lines. */
void console_stream_finish(struct console_stream *s)
{
    struct console *c = s->console;
    if (s->raw)
        return;
    stamp(s);
    lines_finish(&s->lines);
    account(s);
    if (c->folds.of[0].fold == NULL)
        buf_printf(&c->batch, "%s", line_row_wipe(s->row));
    queue_batch(c->sinks, s->sink, &c->batch);
}

/* --- lines of several nodes ------------------------------------------------------------------------------ */

enum { FOLDED_RANKS_MAX = 1 << 20 };

/* Append the prefix of a line. If only one rank has printed the line, use the prefix that the rank's node has sent. If
 * several ranks have printed the line, format a prefix that contains all ranks. */
static void append_ranks_prefix(void *user, const struct fold_line *line, struct buf *out)
{
    const struct hosts_console *c = user;
    char time[PREFIX_TIME_MAX], elapsed[PREFIX_TIME_MAX];
    struct prefix_values values = { 0 };
    struct buf ranks = { 0 };
    if (line->ranks == NULL) {
        buf_append(out, line->prefix.data, line->prefix.len);
        return;
    }
    prefix_time(time, line->at.unix_us);
    prefix_elapsed(elapsed, line->at.since_us);
    if (fold_print_ranks(line->ranks, &ranks) && buf_append(&ranks, "", 1)) {
        values.of[PREFIX_RANK] = (const char *)ranks.data;
        values.of[PREFIX_TIME] = time;
        values.of[PREFIX_ELAPSED] = elapsed;
        values.of[PREFIX_STREAM] = line->origin == &c->folds.of[0] ? "stdout" : "stderr";
        values.of[PREFIX_ROLE_NAME] = c->cli->role;
        if (c->prefix.ranked || buf_printf(out, "[%s] ", values.of[PREFIX_RANK]))
            prefix_render(&c->prefix, &values, PREFIX_NO_COLOUR, out);
    }
    buf_free(&ranks);
}

ddp_status hosts_console_init(struct hosts_console *c, const struct cli *cli, bool is_one_worker,
                              void (*waits)(void *user, uint64_t us), void *user, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    *c = (struct hosts_console){ .cli = cli, .is_one_worker = is_one_worker, .started_us = clock_us() };
    for (int i = 0; i < 2; i++)
        c->rows[i].escape = isatty(i == 0 ? STDOUT_FILENO : STDERR_FILENO) == 1;
    folds_init(&c->folds, NULL, (struct line_row *const[]){ &c->rows[0], &c->rows[1] }, append_ranks_prefix,
               c);
    c->folds.waits = waits;
    c->folds.waits_user = user;
    if (!cli->fold || cli->prefix == PREFIX_OFF)
        return DDP_OK;
    if (cli->timestamps)
        status = prefix_add(&c->prefix, "${time} ", err);
    if (status == DDP_OK)
        status =
            prefix_add(&c->prefix, cli->prefix_template != NULL ? cli->prefix_template : "[${rank}] ", err);
    return status;
}

void hosts_console_free(struct hosts_console *c)
{
    folds_free(&c->folds);
}

static struct line_time hosts_now(const struct hosts_console *c)
{
    return (struct line_time){ .unix_us = clock_unix_us(), .since_us = clock_us() - c->started_us };
}

void hosts_console_time(struct hosts_console *c)
{
    folds_time(&c->folds, hosts_now(c).since_us);
}

void hosts_console_finish(struct hosts_console *c)
{
    folds_finish(&c->folds);
}

/* Append a line, or a piece of a line, that is not folded. If the host's ddprun has sent a mark and a prefix before
 * the text, print the prefix without the mark. The host's ddprun prints to a pipe and escapes no control characters.
 * So escape control characters here if the target is a terminal. */
static void print_unfolded(struct hosts_console *c, int which, struct slice line)
{
    struct marked_line m;
    struct buf *out = &c->folds.batch;
    queue_batch(c->folds.sinks, c->folds.of[which].sink, out);
    folds_finish(&c->folds);
    if (line_unmark(line, &m)) {
        buf_append(out, m.prefix.data, m.prefix.len);
        line = m.text;
    }
    if (c->rows[which].escape)
        escape_append(out, line);
    else
        buf_append(out, line.data, line.len);
}

static void print_host_line(struct hosts_console *c, int which, struct slice line)
{
    struct marked_line m;
    if (line_unmark(line, &m) && m.world_size <= FOLDED_RANKS_MAX && folds_open(&c->folds, m.world_size)) {
        c->ranks = c->ranks > 0 ? c->ranks : m.world_size;
        if (m.rank < c->ranks) {
            folds_add(&c->folds, which,
                      &(struct fold_line){ .text = m.text,
                                           .prefix = m.prefix,
                                           .at = hosts_now(c),
                                           .rank = m.rank,
                                           .origin = &c->folds.of[which] });
            return;
        }
    }
    print_unfolded(c, which, line); /* a line of ddprun itself, or a line that cannot be folded */
    buf_append(&c->folds.batch, "\n", 1);
}

/* Return true if bytes are printed as they arrive, neither folded nor escaped. JSON, files and pipes need no escapes.
 * On a terminal, the bytes of a single worker without prefix are not changed, with and without --hosts. The bytes of
 * several workers are escaped, because control characters of several workers would mix on the terminal. */
static bool is_unchanged(const struct hosts_console *c, int which)
{
    const struct cli *cli = c->cli;
    return cli->json ||
           (!cli->fold && (!c->rows[which].escape || (cli->prefix == PREFIX_OFF && c->is_one_worker)));
}

void hosts_console_print(struct hosts_console *c, int sink, struct slice lines)
{
    const int which = sink == SINK_STDERR;
    const char *at = lines.data, *end = at + lines.len, *newline;
    if (is_unchanged(c, which)) {
        sinks_write(c->folds.sinks, sink, lines);
        return;
    }
    for (; at < end && (newline = memchr(at, '\n', (size_t)(end - at))) != NULL; at = newline + 1)
        print_host_line(c, which, slice_of(at, (size_t)(newline - at)));
    if (at < end) /* the rest is a piece of a long line without a newline */
        print_unfolded(c, which, slice_of(at, (size_t)(end - at)));
    queue_batch(c->folds.sinks, sink, &c->folds.batch);
}
