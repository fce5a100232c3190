/* console.c -- see console.h.
 *
 * Two places may be one terminal, so the row on which a bar is drawn belongs to the console and not to a
 * stream: whoever writes next wipes it first. Lines wait in one batch until the read that brought them is
 * used up. */
#include "console.h"

#include "event_json.h"

#include "base/clock.h"

#include <unistd.h>

/* Can the cursor be moved there? */
static bool is_screen(const struct plan *plan, int fd)
{
    const char *term = env_find(plan->facts->environ_block, "TERM");
    return term != NULL && strcmp(term, "dumb") != 0 && isatty(fd);
}

/* NO_COLOR is the convention of no-color.org: set and not empty means none. */
static bool has_colour(const struct plan *plan, int fd)
{
    const char *no_color = env_find(plan->facts->environ_block, "NO_COLOR");
    return (no_color == NULL || *no_color == '\0') && is_screen(plan, fd);
}

void console_init(struct console *c, const struct plan *plan, struct sinks *sinks, uint64_t started_ms)
{
    *c = (struct console){ .plan = plan, .sinks = sinks, .started_ms = started_ms };
    c->colour[0] = has_colour(plan, STDOUT_FILENO);
    c->colour[1] = has_colour(plan, STDERR_FILENO);
    c->screen.terminal = true;
}

void console_free(struct console *c)
{
    buf_free(&c->batch);
}

static uint64_t since_start(const struct console *c)
{
    return clock_ms() - c->started_ms;
}

void console_note(struct console *c, const char *text)
{
    struct buf out = { 0 };
    const bool json = c->plan->cli->json;
    if (json)
        event_note(&out, since_start(c), text);
    else
        buf_printf(&out, "%sddprun: %s\n", line_row_wipe(&c->screen), text);
    sinks_put(c->sinks, json ? SINK_STDOUT : SINK_STDERR, buf_slice(&out));
    buf_free(&out);
}

/* --- one stream ----------------------------------------------------------------------------------------- */

/* A line becomes text, or an event, behind those of the same read. Writing each by itself would
 * cost a lock and a system call per line, and a worker that prints fast prints thousands of them. */
static void on_line(void *user, struct slice text, enum line_kind kind)
{
    struct console_stream *s = user;
    struct console *c = s->console;
    if (c->plan->cli->json)
        event_output(&c->batch, since_start(c), &c->plan->workers[s->local_rank], s->which, text, kind);
    else
        line_show(&c->batch, s->row, s->prefix, text, kind);
}

static void queue_batch(struct console_stream *s)
{
    sinks_put(s->console->sinks, s->sink, buf_slice(&s->console->batch));
    s->console->batch.len = 0;
}

void console_stream_init(struct console_stream *s, struct console *c, int local_rank, int which)
{
    const struct plan *plan = c->plan;
    *s = (struct console_stream){ .console = c, .local_rank = local_rank, .which = which };
    s->sink = which == STD_OUT || plan->cli->json ? SINK_STDOUT : SINK_STDERR;
    s->row = is_screen(plan, which == STD_OUT ? STDOUT_FILENO : STDERR_FILENO) ? &c->screen : &c->plain;
    s->raw = plan->nproc == 1 && !plan->prefix && !plan->cli->json;
    lines_init(&s->lines, on_line, s, LINES_LIMIT);
    if (plan->prefix)
        line_prefix(s->prefix, plan->workers[local_rank].rank, c->colour[which == STD_ERR]);
}

void console_stream_free(struct console_stream *s)
{
    lines_free(&s->lines);
}

bool console_is_screen(const struct console_stream *s)
{
    return s->row->terminal;
}

bool console_stream_feed(struct console_stream *s, struct slice bytes)
{
    if (s->raw) {
        sinks_put(s->console->sinks, s->sink, bytes);
        return false;
    }
    lines_feed(&s->lines, bytes);
    queue_batch(s);
    return s->lines.update.len > 0;
}

void console_stream_update(struct console_stream *s)
{
    if (lines_show_update(&s->lines))
        queue_batch(s);
}

void console_stream_finish(struct console_stream *s)
{
    struct console *c = s->console;
    if (s->raw)
        return;
    lines_finish(&s->lines);
    buf_printf(&c->batch, "%s", s->row == &c->screen ? line_row_wipe(s->row) : "");
    queue_batch(s);
}
