/* fold.c -- see fold.h.
 *
 * rank 0: A B        waiting: A{0}
 *     rank 1: B A                 B{0,1}       rank 1's B may not join a line before its own last one, so its A
 *                                 A{1}         makes a new line
 *
 * Waiting lines are numbered and go out in that order; each rank remembers the number of its last line and joins only
 * later ones. So a line that is due takes all before it along: otherwise one that many still join would hold up another
 * rank's only word.
 *
 * Same lines are found by their hash, from the newest back to the rank's last one: a rank that repeats itself looks at
 * one line. What draws over its row or is part of a longer line is never joined, but keeps its place. */
#include "output/fold.h"

#include "tables/text.h"

#include <stdlib.h>

/* The prefix stands in front of every line, whatever was in it, so no line of a worker can be taken for one of ours or
 * of another worker. */

static bool fold_put_line(struct buf *out, const struct line_row *row, struct slice prefix, struct slice text,
                          enum line_kind kind)
{
    static const char cut_mark[] = " [line continues]";
    size_t mark = kind == LINE_CUT ? sizeof(cut_mark) - 1 : 0;
    return buf_append(out, prefix.data, prefix.len) &&
           (row->escape ? escape_put(out, text) : buf_append(out, text.data, text.len)) &&
           buf_append(out, cut_mark, mark) && buf_append(out, "\n", 1);
}

const char *line_row_wipe(struct line_row *row)
{
    const char *wipe = row->drawn ? "\r" ERASE_ROW : "";
    row->drawn = false;
    return wipe;
}

bool line_show(struct buf *out, struct line_row *row, struct slice prefix, struct slice text,
               enum line_kind kind)
{
    size_t before = out->len;
    bool drawn = row->drawn;
    const char *wipe = line_row_wipe(row);
    if (!buf_append(out, wipe, strlen(wipe)) || !fold_put_line(out, row, prefix, text, kind)) {
        out->len = before;
        row->drawn = drawn;
        return false;
    }
    if (row->terminal && kind == LINE_UPDATE) {
        out->len--; /* the newline: the next line shall come over this one */
        row->drawn = true;
    }
    return true;
}

/* --- fold ------------------------------------------------------------------------------------------------- */

enum { BUCKETS = 4096 };

struct waiting {
    struct fold_line line;         /* its text follows the struct */
    struct waiting *next;          /* in order */
    struct waiting *older, *newer; /* in its bucket */
    uint64_t number, hash, joined_us;
    struct rank_set ranks; /* empty while it is one rank */
    int count;
    char text[];
};

struct fold {
    fold_fn line;
    void *user;
    int ranks;
    uint64_t *last; /* for each rank the number of its last line, 0 = none */
    uint64_t number;
    struct waiting *first, **end;
    struct waiting *newest[BUCKETS];
    size_t lines, bytes;
};

struct fold *fold_new(int ranks, fold_fn line, void *user)
{
    struct fold *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return NULL;
    *f = (struct fold){ .line = line, .user = user, .ranks = ranks };
    f->end = &f->first;
    f->last = calloc((size_t)ranks, sizeof(*f->last));
    if (f->last != NULL)
        return f;
    free(f);
    return NULL;
}

/* --- the waiting lines ---------------------------------------------------------------------------------- */

static void free_waiting(struct waiting *w)
{
    rank_set_free(&w->ranks);
    free(w);
}

/* FNV-1a. Nobody gains by lines with the same hash: they make their own job's console slow. */
static uint64_t hash_of(struct slice text)
{
    const uint8_t *p = text.data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < text.len; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static void add_newest(struct fold *f, struct waiting *w)
{
    struct waiting **newest = &f->newest[w->hash % BUCKETS];
    w->older = *newest;
    if (w->older != NULL)
        w->older->newer = w;
    *newest = w;
    *f->end = w;
    f->end = &w->next;
    f->lines++;
    f->bytes += w->line.text.len;
}

/* False when memory is short. */
static bool append(struct fold *f, const struct fold_line *line, uint64_t hash)
{
    const size_t len = line->text.len;
    struct waiting *w = malloc(sizeof(*w) + len);
    if (w == NULL)
        return false;
    *w = (struct waiting){
        .line = *line, .number = ++f->number, .hash = hash, .joined_us = line->at.since_us, .count = 1
    };
    if (len > 0)
        memcpy(w->text, line->text.data, len);
    w->line.text = slice_of(w->text, len);
    add_newest(f, w);
    f->last[line->rank] = w->number;
    return true;
}

/* The first line is the oldest of its bucket, too. */
static struct waiting *take_first(struct fold *f)
{
    struct waiting *w = f->first;
    f->first = w->next;
    if (f->first == NULL)
        f->end = &f->first;
    if (w->newer != NULL)
        w->newer->older = NULL;
    else
        f->newest[w->hash % BUCKETS] = NULL;
    f->lines--;
    f->bytes -= w->line.text.len;
    return w;
}

static void deliver_first(struct fold *f)
{
    struct waiting *w = take_first(f);
    w->line.ranks = w->count > 1 ? &w->ranks : NULL;
    f->line(f->user, &w->line);
    free_waiting(w);
}

/* The line and all before it. */
static void deliver_through(struct fold *f, uint64_t number)
{
    while (f->first != NULL && f->first->number <= number)
        deliver_first(f);
}

void fold_free(struct fold *f)
{
    if (f == NULL)
        return;
    while (f->first != NULL)
        free_waiting(take_first(f));
    free(f->last);
    free(f);
}

/* --- joining -------------------------------------------------------------------------------------------- */

static bool may_fold(enum line_kind kind)
{
    return kind == LINE_WHOLE || kind == LINE_LAST;
}

/* The oldest line with this text that comes after all that its rank printed; NULL when there is none. */
static struct waiting *fold_find(const struct fold *f, const struct fold_line *line, uint64_t hash)
{
    struct waiting *found = NULL, *w = f->newest[hash % BUCKETS];
    for (; w != NULL && w->number > f->last[line->rank]; w = w->older)
        if (w->hash == hash && may_fold(w->line.kind) && slice_equal(w->line.text, line->text))
            found = w;
    return found;
}

/* Nobody is left to join a line that all have printed. False when memory is short. */
static bool fold_join(struct fold *f, struct waiting *w, const struct fold_line *line)
{
    if (w->count == 1) {
        if (!rank_set_init(&w->ranks, f->ranks))
            return false;
        rank_set_add(&w->ranks, w->line.rank);
    }
    rank_set_add(&w->ranks, line->rank);
    w->count++;
    w->joined_us = line->at.since_us;
    f->last[line->rank] = w->number;
    if (w->count == f->ranks)
        deliver_through(f, w->number);
    return true;
}

bool fold_put(struct fold *f, const struct fold_line *line)
{
    const bool was_empty = f->first == NULL;
    const size_t len = line->text.len;
    uint64_t hash = hash_of(line->text);
    struct waiting *same = may_fold(line->kind) ? fold_find(f, line, hash) : NULL;
    if (same != NULL && fold_join(f, same, line))
        return false;
    while (f->first != NULL && (f->lines >= FOLD_LINES_MAX || f->bytes + len > FOLD_BYTES_MAX))
        deliver_first(f);
    if (len <= FOLD_BYTES_MAX && append(f, line, hash))
        return was_empty;
    fold_finish(f);
    f->line(f->user, line);
    return false;
}

/* --- going out ------------------------------------------------------------------------------------------ */

static uint64_t due_us(const struct waiting *w)
{
    uint64_t quiet = w->joined_us + FOLD_QUIET_US, longest = w->line.at.since_us + FOLD_LONGEST_US;
    return quiet < longest ? quiet : longest;
}

uint64_t fold_flush(struct fold *f, uint64_t now_us)
{
    uint64_t last_due = 0, next = FOLD_NOTHING;
    for (const struct waiting *w = f->first; w != NULL; w = w->next)
        if (due_us(w) <= now_us)
            last_due = w->number;
    deliver_through(f, last_due);
    for (const struct waiting *w = f->first; w != NULL; w = w->next)
        if (due_us(w) < next)
            next = due_us(w);
    return next;
}

void fold_finish(struct fold *f)
{
    while (f->first != NULL)
        deliver_first(f);
}
