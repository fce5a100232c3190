/* timeline_trace.c -- see timeline.h: the Trace Event Format of chrome://tracing and Perfetto.
 *
 *     {"traceEvents":[{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"node 0 (n0)"}},
 *                     {"ph":"X","pid":1,"tid":0,"ts":0,"dur":2000,"name":"waits for other nodes","cat":"waiting",...
 *
 * A process is a node, its thread 0 the node itself, the others its ranks; process 0 is the job with its rounds. A rank
 * is where it ran last: a viewer cannot move a thread. */
#include "ctl/timeline.h"

#include "base/text.h"

enum { NAME_BYTES = 300, TEXT_BYTES = 600 };

/* What text_put leaves is ASCII without control characters, so two of them have to be escaped. */
static bool put_string(struct buf *out, const char *text, size_t most)
{
    struct buf plain = { 0 };
    bool ok = text_put(&plain, slice_str(text), most) && buf_append(out, "\"", 1);
    for (size_t i = 0; ok && i < plain.len; i++) {
        if (plain.data[i] == '"' || plain.data[i] == '\\')
            ok = buf_append(out, "\\", 1);
        ok = ok && buf_append(out, &plain.data[i], 1);
    }
    buf_free(&plain);
    return ok && buf_append(out, "\"", 1);
}

/* 0 is the job's. */
static size_t process_of(const struct timeline *t, size_t row)
{
    if (row == TIMELINE_JOB)
        return 0;
    const size_t node = t->rows[row].is_rank ? t->rows[row].node : row;
    return node != TIMELINE_JOB ? node + 1 : 0;
}

static long long thread_of(const struct timeline *t, size_t row)
{
    return row != TIMELINE_JOB && t->rows[row].is_rank ? (long long)t->rows[row].number + 1 : 0;
}

/* The begin of every object but the first. */
static bool put_head(const struct timeline *t, struct buf *out, const char *phase, size_t row)
{
    return buf_printf(out, "%s{\"ph\":\"%s\",\"pid\":%zu,\"tid\":%lld,\"name\":",
                      out->data[out->len - 1] == '[' ? "" : ",\n", phase, process_of(t, row),
                      thread_of(t, row));
}

static bool put_name(const struct timeline *t, struct buf *out, const char *what, size_t row,
                     const char *name)
{
    return put_head(t, out, "M", row) && buf_printf(out, "\"%s\",\"args\":{\"name\":", what) &&
           put_string(out, name, NAME_BYTES) && buf_printf(out, "}}");
}

static bool put_rows(const struct timeline *t, struct buf *out)
{
    bool ok = put_name(t, out, "process_name", TIMELINE_JOB, "the job");
    for (size_t i = 0; ok && i < t->n_rows; i++) {
        const char *name = t->rows[i].name;
        if (!t->rows[i].is_rank)
            ok = put_name(t, out, "process_name", i, name);
        ok = ok && put_name(t, out, "thread_name", i, name);
    }
    return ok;
}

static bool put_bar(const struct timeline *t, struct buf *out, const struct timeline_bar *bar)
{
    bool ok =
        put_head(t, out, "X", bar->row) &&
        buf_printf(out, "\"%s\",\"cat\":\"%s\",\"ts\":%lld,\"dur\":%lld,\"args\":{\"round\":%u",
                   timeline_bar_words(bar->kind), timeline_bar_word(bar->kind),
                   (long long)bar->from_ms * 1000, (long long)(bar->to_ms - bar->from_ms) * 1000, bar->round);
    if (ok && bar->waited_for != TIMELINE_JOB)
        ok =
            buf_printf(out, ",\"waited_for\":") && put_string(out, t->rows[bar->waited_for].name, NAME_BYTES);
    if (ok && bar->text[0] != '\0')
        ok = buf_printf(out, ",\"text\":") && put_string(out, bar->text, TEXT_BYTES);
    return ok && buf_printf(out, "}}");
}

/* Of the whole job: drawn through all rows ("g"). */
static bool put_mark(const struct timeline *t, struct buf *out, const struct timeline_mark *mark)
{
    return put_head(t, out, "i", mark->row) &&
           buf_printf(out, "\"%s\",\"cat\":\"%s\",\"s\":\"%s\",\"ts\":%lld,\"args\":{\"text\":",
                      timeline_mark_words(mark->kind), timeline_mark_word(mark->kind),
                      mark->row == TIMELINE_JOB ? "g" : "t", (long long)mark->at_ms * 1000) &&
           put_string(out, mark->text, TEXT_BYTES) && buf_printf(out, "}}");
}

static bool put_band(const struct timeline *t, struct buf *out, const struct timeline_band *band)
{
    return put_head(t, out, "X", TIMELINE_JOB) &&
           buf_printf(out, "\"attempt %u\",\"cat\":\"attempt\",\"ts\":%lld,\"dur\":%lld,\"args\":{}}",
                      band->round - 1, (long long)band->from_ms * 1000,
                      (long long)(band->to_ms - band->from_ms) * 1000);
}

bool timeline_trace(const struct timeline *t, struct buf *out)
{
    bool ok = buf_printf(out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"job\":") &&
              put_string(out, t->job, NAME_BYTES) && buf_printf(out, "},\"traceEvents\":[") &&
              put_rows(t, out);
    for (size_t i = 0; ok && i < t->n_bands; i++)
        ok = put_band(t, out, &t->bands[i]);
    for (size_t i = 0; ok && i < t->n_bars; i++)
        ok = put_bar(t, out, &t->bars[i]);
    for (size_t i = 0; ok && i < t->n_marks; i++)
        ok = put_mark(t, out, &t->marks[i]);
    return ok && buf_printf(out, "\n]}\n");
}
