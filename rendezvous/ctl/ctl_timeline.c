/* ctl_timeline.c -- see ctl_timeline.h. Reads and writes files; what they say is timeline.h's business. */
#include "ctl/ctl_timeline.h"

#include "base/log.h"
#include "ctl/timeline.h"

#include <errno.h>
#include <stdio.h>

enum { COMPLAINTS_MAX = 20, ROWS_BEFORE_FOLDING = 64, READ_BYTES = 64 << 10 };

static void complain(void *user, const char *file, size_t line, const char *what)
{
    size_t *n = user;
    if (++*n <= COMPLAINTS_MAX)
        log_warn("%s:%zu: %s; the line is left out", file, line, what);
}

static bool read_all(FILE *file, struct buf *out)
{
    size_t n;
    do {
        char *at = buf_reserve(out, READ_BYTES);
        if (at == NULL)
            return false;
        n = fread(at, 1, READ_BYTES, file);
        out->len += n;
    } while (n > 0);
    return ferror(file) == 0;
}

static bool read_file(struct timeline_events *events, const char *name)
{
    struct buf text = { 0 };
    FILE *file = fopen(name, "re");
    bool ok = file != NULL && read_all(file, &text);
    if (!ok)
        log_error("cannot read %s: %s", name, strerror(errno));
    if (file != NULL)
        fclose(file);
    if (ok && text.len > 0)
        timeline_read(events, name, buf_slice(&text));
    buf_free(&text);
    return ok;
}

static bool write_file(const char *name, const struct buf *text)
{
    FILE *file = fopen(name, "we");
    bool ok = file != NULL && fwrite(text->data, 1, text->len, file) == text->len;
    if (file != NULL && fclose(file) != 0)
        ok = false;
    if (!ok)
        log_error("cannot write %s: %s", name, strerror(errno));
    return ok;
}

static bool draw(const struct ctl_options *o, const struct timeline_events *events)
{
    struct timeline t;
    struct buf out = { 0 };
    const bool is_page = strcmp(o->output + strlen(o->output) - 5, ".html") == 0;
    bool ok = timeline_make(&t, events) && (!is_page || timeline_fold(&t, ROWS_BEFORE_FOLDING)) &&
              (is_page ? timeline_html(&t, &out) : timeline_trace(&t, &out));
    if (!ok)
        log_error("out of memory");
    ok = ok && write_file(o->output, &out);
    timeline_free(&t);
    buf_free(&out);
    return ok;
}

bool ctl_timeline(const struct ctl_options *o)
{
    size_t complaints = 0;
    struct timeline_events events = { .complain = complain, .user = &complaints };
    bool ok = true;
    for (size_t i = 0; i < o->n_files && ok; i++)
        ok = read_file(&events, o->files[i]);
    if (complaints > COMPLAINTS_MAX)
        log_warn("%zu more lines are left out", complaints - COMPLAINTS_MAX);
    if (ok && !timeline_settle(&events, o->job)) {
        log_error(events.no_memory ? "out of memory" : "there is no event of a job in these files");
        ok = false;
    }
    if (ok && events.other_lives > 0)
        log_info("%zu lines are about other jobs, or an earlier run of this one; drawn is the latest run of "
                 "job '%s'",
                 events.other_lives, events.job);
    ok = ok && draw(o, &events);
    timeline_events_free(&events);
    return ok;
}
