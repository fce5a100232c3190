/* timeline_html.c -- see timeline.h: one page with everything in it, which asks nobody for anything.
 *
 * The picture is SVG, made here and not in the browser: it prints, it can be saved, and a page of a thousand rows opens
 * at once. Every text from a log goes through put_text(): a host may be called <script>. What hovers (a <title>) can
 * also be clicked, for those who print or have no mouse: the line under the picture then keeps it. Positions are
 * numbers of ours alone. */
#include "ctl/timeline.h"

#include "base/text.h"

#include <stdlib.h>

enum {
    WIDTH = 1200,
    NAMES = 230, /* of it, for the names of the rows */
    TOP = 46,    /* rounds and times */
    ROW = 20,
    BAR = 14,
    TEXT_BYTES = 600,
    NAME_CHARS = 34,
    TICKS = 10,
    LISTED = 1000 /* marks in the table below the picture */
};

/* No address but its own: a log has host names and paths in it, which must not leave the machine of who
 * looks at it. The policy holds even if a text should slip through. */
static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n";

/* Colours by the words of timeline.h, in one place for the picture and its key; dark screens and paper have
 * their own. */
static const char style[] =
    "<style>\n"
    ":root{--bg:#fff;--fg:#222;--dim:#777;--line:#ddd;--band:#f3f5f9}\n"
    "body{background:var(--bg);color:var(--fg);font:14px/1.4 system-ui,sans-serif;margin:1.5em}\n"
    "h1{font-size:1.3em;margin:0 0 .2em}p{margin:.3em 0;color:var(--dim)}\n"
    "svg{width:100%;height:auto;display:block;margin:1em 0}\n"
    "svg text{font:11px system-ui,sans-serif;fill:var(--fg)}\n"
    "svg .dim{fill:var(--dim)}svg .grid{stroke:var(--line)}svg .band{fill:var(--band)}\n"
    "rect.looking{fill:#c9a0dc}rect.waiting{fill:#f2b84b}rect.spare{fill:#e8d9a0}rect.running{fill:#5aa469}\n"
    "rect.stopping{fill:#d97b66}rect.stopped{fill:#b9b9b9}rect.backoff{fill:#8fb3d9}rect.barrier{fill:#"
    "e2562f}\n"
    ".mark{stroke-width:2;fill:none}.mark.ended{stroke:#2d6a3e}.mark.failed,.mark.node{stroke:#c01818;stroke-"
    "width:3}\n"
    ".mark.stop,.mark.finding{stroke:#c01818;stroke-dasharray:4 3;stroke-width:1}\n"
    ".mark.restart{stroke:#1f5fa8}.mark.signal{stroke:#7a3fa0}\n"
    ".key span{margin-right:1.2em;white-space:nowrap}.key svg{display:inline;width:12px;height:12px;margin:0 "
    ".4em 0 0}\n"
    "table{border-collapse:collapse}td,th{text-align:left;padding:.15em 1em .15em 0;vertical-align:top}\n"
    "td:first-child,th:first-child{text-align:right;font-variant-numeric:tabular-nums}\n"
    ".failed td,.node td{color:#c01818}\n"
    ".near{stroke:var(--fg);stroke-width:1.5}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#16181c;--fg:#e3e3e3;--dim:#9a9a9a;--line:#333;--band:#"
    "1f232b}\n"
    ".failed td,.node td{color:#ff8a80}}\n"
    "@media print{:root{--bg:#fff;--fg:#000;--dim:#555;--line:#ccc;--band:#f3f3f3}body{margin:0}\n"
    "svg *{print-color-adjust:exact;-webkit-print-color-adjust:exact}#said{display:none}}\n"
    "</style>\n";

static const char script[] =
    "<script>\n"
    "document.querySelector('#picture').addEventListener('click',function(e){\n"
    "var g=e.target.closest('[data-row]');if(!g)return;\n"
    "document.querySelector('#said').textContent=g.querySelector('title').textContent;\n"
    "document.querySelectorAll('.near').forEach(function(x){x.classList.remove('near')});\n"
    "g.querySelectorAll('rect').forEach(function(x){x.classList.add('near')});\n"
    "var f=g.getAttribute('data-for');if(f)document.querySelectorAll('[data-row=\"'+f+'\"] rect')"
    ".forEach(function(x){x.classList.add('near')});});\n"
    "</script>\n";

/* --- pieces --------------------------------------------------------------------------------------------- */

/* Text of a log, for an element or a quoted attribute. Escaped twice: first what is no text at all, then
 * what HTML would take for its own. The limit counts before, so no escape is cut in two. */
static bool put_text(struct buf *out, const char *text, size_t most)
{
    struct buf plain = { 0 };
    bool ok = text_put(&plain, slice_str(text), most);
    for (size_t i = 0; ok && i < plain.len; i++) {
        const char c = (char)plain.data[i];
        if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'')
            ok = buf_printf(out, "&#%d;", c);
        else
            ok = buf_append(out, &c, 1);
    }
    buf_free(&plain);
    return ok;
}

/* end_ms is never 0, see making_finish. */
static double x_of(const struct timeline *t, int64_t ms)
{
    return NAMES + (double)(WIDTH - NAMES - 10) * (double)ms / (double)t->end_ms;
}

/* To the millisecond, which is what the logs have. */
static bool put_seconds(struct buf *out, int64_t ms)
{
    return buf_printf(out, "%lld.%03d s", (long long)(ms / 1000), (int)(ms % 1000));
}

/* Where each row is drawn; rows that others stand for have no place. Yours (free); NULL when memory is short. */
static int *place_rows(const struct timeline *t, int *height)
{
    int *y = malloc((t->n_rows + 1) * sizeof(*y));
    int next = TOP;
    for (size_t i = 0; y != NULL && i < t->n_rows; i++) {
        if (i > 0 && t->rows[i].is_rank && !t->rows[i - 1].is_rank)
            next += ROW / 2;
        y[i] = t->rows[i].drawn_with == i ? next : -1;
        next += t->rows[i].drawn_with == i ? ROW : 0;
    }
    *height = next + ROW / 2;
    return y;
}

/* --- the picture ---------------------------------------------------------------------------------------- */

/* 1, 2 or 5 times a power of ten, so that there are at most TICKS. */
static int64_t tick_of(int64_t end_ms)
{
    static const int64_t steps[] = { 1, 2, 5 };
    for (int64_t power = 1;; power *= 10)
        for (int i = 0; i < 3; i++)
            if (end_ms / (steps[i] * power) < TICKS)
                return steps[i] * power;
}

/* Lines go through all rows: to see what happened at the same moment is what the picture is for. */
static bool put_axis(const struct timeline *t, int height, struct buf *out)
{
    const int64_t tick = tick_of(t->end_ms);
    bool ok = true;
    for (int64_t ms = 0; ok && ms <= t->end_ms; ms += tick)
        ok = buf_printf(out,
                        "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"dim\" x=\"%.1f\" y=\"%d\" "
                        "text-anchor=\"middle\">%g s</text>\n",
                        x_of(t, ms), TOP - 6, height, x_of(t, ms), TOP - 10, (double)ms / 1000);
    return ok;
}

/* Before everything else, so that bars lie upon them. */
static bool put_bands(const struct timeline *t, int height, struct buf *out)
{
    bool ok = true;
    for (size_t i = 0; ok && i < t->n_bands; i++) {
        const struct timeline_band *band = &t->bands[i];
        const double from = x_of(t, band->from_ms), to = x_of(t, band->to_ms);
        ok = buf_printf(out,
                        "<rect class=\"band\" x=\"%.1f\" y=\"2\" width=\"%.1f\" height=\"%d\"/>"
                        "<text x=\"%.1f\" y=\"16\">attempt %u</text>\n",
                        from, to - from, height - 2, from + 4, band->round - 1);
    }
    return ok;
}

/* Cut in the picture, whole in the title. */
static bool put_names(const struct timeline *t, const int *y, struct buf *out)
{
    bool ok = true;
    for (size_t i = 0; ok && i < t->n_rows; i++)
        if (y[i] >= 0)
            ok = buf_printf(out, "<text class=\"name\" x=\"0\" y=\"%d\"><title>", y[i] + BAR - 3) &&
                 put_text(out, t->rows[i].name, TEXT_BYTES) && buf_printf(out, "</title>") &&
                 put_text(out, t->rows[i].name, NAME_CHARS) && buf_printf(out, "</text>\n");
    return ok;
}

/* "rank 3 waits in a barrier for rank 1: barrier 'a', released. 0.100 s to 0.400 s (0.300 s), attempt 0" */
static bool put_bar_title(const struct timeline *t, const struct timeline_bar *bar, struct buf *out)
{
    bool ok = put_text(out, t->rows[t->rows[bar->row].drawn_with].name, TEXT_BYTES) &&
              buf_printf(out, ": %s", timeline_bar_words(bar->kind));
    if (ok && bar->waited_for != TIMELINE_JOB)
        ok = buf_printf(out, ", the last was ") && put_text(out, t->rows[bar->waited_for].name, TEXT_BYTES);
    if (ok && bar->text[0] != '\0')
        ok = buf_printf(out, "; ") && put_text(out, bar->text, TEXT_BYTES);
    ok = ok && buf_printf(out, ". ") && put_seconds(out, bar->from_ms) && buf_printf(out, " to ") &&
         put_seconds(out, bar->to_ms) && buf_printf(out, ", that is ") &&
         put_seconds(out, bar->to_ms - bar->from_ms);
    return ok && (bar->round == 0 || buf_printf(out, ", attempt %u", bar->round - 1));
}

/* At least half a pixel wide: a barrier of a microsecond among hours must still be there to be found. */
static bool put_bar(const struct timeline *t, const struct timeline_bar *bar, const int *y, struct buf *out)
{
    const double from = x_of(t, bar->from_ms), width = x_of(t, bar->to_ms) - from;
    const bool inner = bar->kind == TIMELINE_BARRIER;
    bool ok = buf_printf(out, "<g data-row=\"%zu\"", bar->row);
    if (ok && bar->waited_for != TIMELINE_JOB)
        ok = buf_printf(out, " data-for=\"%zu\"", t->rows[bar->waited_for].drawn_with);
    ok = ok && buf_printf(out, "><title>") && put_bar_title(t, bar, out);
    return ok &&
           buf_printf(out,
                      "</title><rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"/></g>\n",
                      timeline_bar_word(bar->kind), from, y[bar->row] + (inner ? 3 : 0),
                      width > 0.5 ? width : 0.5, inner ? BAR - 6 : BAR);
}

/* Waits in barriers lie upon the bars of the workers, so they come last. */
static bool put_bars(const struct timeline *t, const int *y, struct buf *out)
{
    bool ok = true;
    for (int inner = 0; inner < 2; inner++)
        for (size_t i = 0; ok && i < t->n_bars; i++)
            if ((t->bars[i].kind == TIMELINE_BARRIER) == inner && y[t->bars[i].row] >= 0)
                ok = put_bar(t, &t->bars[i], y, out);
    return ok;
}

/* The row may be drawn with another one that did the same; its name is then the one that stands there. */
static bool put_mark_title(const struct timeline *t, const struct timeline_mark *mark, struct buf *out)
{
    bool ok = buf_printf(out, "<title>") && put_seconds(out, mark->at_ms) && buf_printf(out, ": ");
    if (ok && mark->row != TIMELINE_JOB)
        ok = put_text(out, t->rows[t->rows[mark->row].drawn_with].name, TEXT_BYTES) && buf_printf(out, ": ");
    return ok && put_text(out, mark->text, TEXT_BYTES) && buf_printf(out, "</title>");
}

/* A cross for what went wrong, a line through all rows for what is about the job, else a stroke at the row. */
static bool put_mark(const struct timeline *t, const struct timeline_mark *mark, const int *y, int height,
                     struct buf *out)
{
    const double x = x_of(t, mark->at_ms);
    const bool is_cross = mark->kind == TIMELINE_MARK_FAILED || mark->kind == TIMELINE_MARK_NODE;
    const int top = mark->row != TIMELINE_JOB ? y[mark->row] : 0;
    bool ok = buf_printf(out, "<g data-row=\"mark\">") && put_mark_title(t, mark, out) &&
              buf_printf(out, "<path class=\"mark %s\" d=\"", timeline_mark_word(mark->kind));
    if (mark->row == TIMELINE_JOB)
        ok = ok && buf_printf(out, "M%.1f 20V%d", x, height);
    else if (is_cross)
        ok = ok && buf_printf(out, "M%.1f %dl10 10m0 -10l-10 10", x - 5, top + 2);
    else
        ok = ok && buf_printf(out, "M%.1f %dv%d", x, top - 1, BAR + 2);
    return ok && buf_printf(out, "\"/></g>\n");
}

/* Last, upon all bars: they are what a user looks for. */
static bool put_marks(const struct timeline *t, const int *y, int height, struct buf *out)
{
    bool ok = true;
    for (size_t i = 0; ok && i < t->n_marks; i++)
        if (t->marks[i].row == TIMELINE_JOB || y[t->marks[i].row] >= 0)
            ok = put_mark(t, &t->marks[i], y, height, out);
    return ok;
}

static bool put_picture(const struct timeline *t, struct buf *out)
{
    int height;
    int *y = place_rows(t, &height);
    bool ok = y != NULL &&
              buf_printf(out, "<svg id=\"picture\" viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH, height) &&
              put_bands(t, height, out) && put_axis(t, height, out) && put_names(t, y, out) &&
              put_bars(t, y, out) && put_marks(t, y, height, out) &&
              buf_printf(out, "</svg>\n<p id=\"said\">&#160;</p>\n");
    free(y);
    return ok;
}

/* --- the rest ------------------------------------------------------------------------------------------- */

/* From the same tables as the picture, so it cannot lack a colour. */
static bool put_key(struct buf *out)
{
    bool ok = buf_printf(out, "<p class=\"key\">");
    for (int i = 0; ok && i < TIMELINE_N_BARS; i++)
        ok = buf_printf(out,
                        "<span><svg viewBox=\"0 0 12 12\"><rect class=\"%s\" width=\"12\" "
                        "height=\"12\"/></svg>%s</span>\n",
                        timeline_bar_word((enum timeline_bar_kind)i),
                        timeline_bar_words((enum timeline_bar_kind)i));
    for (int i = 0; ok && i < TIMELINE_N_MARKS; i++)
        ok = buf_printf(
            out, "<span><svg viewBox=\"0 0 12 12\"><path class=\"mark %s\" d=\"M6 0V12\"/></svg>%s</span>\n",
            timeline_mark_word((enum timeline_mark_kind)i), timeline_mark_words((enum timeline_mark_kind)i));
    return ok && buf_printf(out, "</p>\n");
}

/* The same marks as words, for those who read and do not look; cut, for a page that is to open at once. */
static bool put_list(const struct timeline *t, struct buf *out)
{
    bool ok = buf_printf(out, "<table>\n<tr><th>after</th><th>who</th><th>what</th></tr>\n");
    for (size_t i = 0; ok && i < t->n_marks && i < LISTED; i++) {
        const struct timeline_mark *mark = &t->marks[i];
        ok = buf_printf(out, "<tr class=\"%s\"><td>", timeline_mark_word(mark->kind)) &&
             put_seconds(out, mark->at_ms) && buf_printf(out, "</td><td>") &&
             put_text(out, mark->row != TIMELINE_JOB ? t->rows[mark->row].name : "the job", TEXT_BYTES) &&
             buf_printf(out, "</td><td>") && put_text(out, mark->text, TEXT_BYTES) &&
             buf_printf(out, "</td></tr>\n");
    }
    if (ok && t->n_marks > LISTED)
        ok = buf_printf(out, "<tr><td></td><td></td><td>and %zu more</td></tr>\n", t->n_marks - LISTED);
    return ok && buf_printf(out, "</table>\n");
}

bool timeline_html(const struct timeline *t, struct buf *out)
{
    size_t nodes = 0;
    for (size_t i = 0; i < t->n_rows; i++)
        nodes += !t->rows[i].is_rank;
    bool ok = buf_printf(out, "%s<title>job ", head) && put_text(out, t->job, TEXT_BYTES) &&
              buf_printf(out, "</title>\n%s</head><body>\n<h1>Job ", style) &&
              put_text(out, t->job, TEXT_BYTES) &&
              buf_printf(out, "</h1>\n<p>%zu node%s, %zu rank%s, %zu attempt%s, ", nodes,
                         nodes == 1 ? "" : "s", t->n_rows - nodes, t->n_rows - nodes == 1 ? "" : "s",
                         t->n_bands, t->n_bands == 1 ? "" : "s") &&
              put_seconds(out, t->end_ms) && buf_printf(out, " by the store&#39;s clock</p>\n");
    return ok && put_key(out) && put_picture(t, out) && put_list(t, out) &&
           buf_printf(out, "%s</body></html>\n", script);
}
