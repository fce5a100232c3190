/* console.c -- see console.h.
 *
 * Two places may be one terminal, so the row on which a bar is drawn belongs to the console and not to a
 * stream: whoever writes next wipes it first. Lines wait in one batch until the read that brought them is
 * used up. */
#include "console.h"

#include "event_json.h"

#include "base/clock.h"

#include <stdio.h>
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
    c->screen = (struct line_row){ .escape = true, .terminal = true };
    c->dumb.escape = true;
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

/* --- prefixes ------------------------------------------------------------------------------------------- */

/* One line's, by the numbers of its worker; the clock is read here. */
static void render_prefix(const struct console_stream *s, int colour, struct buf *out)
{
    const struct console *c = s->console;
    const struct plan *plan = c->plan;
    char rank[12], local_rank[12], pid[12], attempt[12], time[PREFIX_TIME_MAX], elapsed[PREFIX_TIME_MAX];
    snprintf(rank, sizeof(rank), "%d", plan->workers[s->local_rank].rank);
    snprintf(local_rank, sizeof(local_rank), "%d", s->local_rank);
    snprintf(pid, sizeof(pid), "%d", (int)s->pid);
    snprintf(attempt, sizeof(attempt), "%d", plan->attempt);
    prefix_time(time, clock_unix_us());
    prefix_elapsed(elapsed, clock_us() - c->started_ms * 1000);
    const struct prefix_values values = { .of = { [PREFIX_HOST] = plan->facts->host,
                                                  [PREFIX_HOSTNAME] = plan->facts->host,
                                                  [PREFIX_RANK] = rank,
                                                  [PREFIX_LOCAL_RANK] = local_rank,
                                                  [PREFIX_ROLE_NAME] = "default",
                                                  [PREFIX_PID] = s->pid != 0 ? pid : NULL,
                                                  [PREFIX_STREAM] = s->which == STD_OUT ? "stdout" : "stderr",
                                                  [PREFIX_JOB] = plan->job,
                                                  [PREFIX_ATTEMPT] = attempt,
                                                  [PREFIX_TIME] = time,
                                                  [PREFIX_ELAPSED] = elapsed } };
    prefix_render(&plan->line_prefix, &values, colour, out);
}

/* Anew for each read when the prefix tells the time, else once. */
static void make_prefix(struct console_stream *s)
{
    const struct console *c = s->console;
    s->prefix.len = 0;
    if (c->plan->prefix && !c->plan->cli->json)
        render_prefix(s,
                      c->colour[s->which == STD_ERR] ? prefix_colour(c->plan->workers[s->local_rank].rank)
                                                     : PREFIX_NO_COLOUR,
                      &s->prefix);
}

static void stamp(struct console_stream *s)
{
    if (s->console->plan->line_prefix.timed)
        make_prefix(s);
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
        line_show(&c->batch, s->row, buf_slice(&s->prefix), text, kind);
}

static void queue_batch(struct console_stream *s)
{
    sinks_put(s->console->sinks, s->sink, buf_slice(&s->console->batch));
    s->console->batch.len = 0;
}

static struct line_row *row_of(struct console *c, int fd)
{
    if (is_screen(c->plan, fd))
        return &c->screen;
    return isatty(fd) ? &c->dumb : &c->plain;
}

void console_stream_init(struct console_stream *s, struct console *c, int local_rank, int which)
{
    const struct plan *plan = c->plan;
    *s = (struct console_stream){ .console = c, .local_rank = local_rank, .which = which };
    s->sink = which == STD_OUT || plan->cli->json ? SINK_STDOUT : SINK_STDERR;
    s->row = row_of(c, which == STD_OUT ? STDOUT_FILENO : STDERR_FILENO);
    s->raw = plan->nproc == 1 && !plan->prefix && !plan->cli->json;
    lines_init(&s->lines, on_line, s, LINES_LIMIT);
    make_prefix(s);
}

void console_stream_started(struct console_stream *s, pid_t pid)
{
    s->pid = pid;
    make_prefix(s);
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

bool console_stream_feed(struct console_stream *s, struct slice bytes)
{
    if (s->raw) {
        sinks_put(s->console->sinks, s->sink, bytes);
        return false;
    }
    stamp(s);
    lines_feed(&s->lines, bytes);
    queue_batch(s);
    return s->lines.update.len > 0;
}

void console_stream_update(struct console_stream *s)
{
    stamp(s);
    if (lines_show_update(&s->lines))
        queue_batch(s);
}

void console_stream_finish(struct console_stream *s)
{
    struct console *c = s->console;
    if (s->raw)
        return;
    stamp(s);
    lines_finish(&s->lines);
    buf_printf(&c->batch, "%s", s->row == &c->screen ? line_row_wipe(s->row) : "");
    queue_batch(s);
}
