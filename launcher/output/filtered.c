/* filtered.c -- see filtered.h. Lines are cut a second time here, because the console has other rules for them (bars,
 * folding, JSON); it is paid for by those only who ask for such a file. */
#include "output/filtered.h"

#include "lines/line_prefix.h"

#include <string.h>

/* An empty word is in every line, as Python has it. */
static bool contains_one(const struct cli_filters *words, struct slice line)
{
    for (size_t i = 0; i < words->n; i++)
        if (memmem(line.data, line.len, words->items[i], strlen(words->items[i])) != NULL)
            return true;
    return false;
}

/* A line that could not be put together for lack of memory is left out: the stream's own file has it. */
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

static void put(struct filtered *f)
{
    sinks_put(f->sinks, f->sink, buf_slice(&f->out));
    f->out.len = 0;
}

void filtered_feed(struct filtered *f, struct slice bytes)
{
    if (f->words == NULL)
        return;
    lines_feed(&f->lines, bytes);
    put(f);
}

void filtered_finish(struct filtered *f)
{
    if (f->words == NULL)
        return;
    lines_finish(&f->lines);
    put(f);
}

bool filtered_is_behind(const struct filtered *f, bool resume)
{
    return f->words != NULL && sinks_is_behind(f->sinks, f->sink, resume);
}
