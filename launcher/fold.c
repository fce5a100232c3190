/* fold.c -- see fold.h.
 *
 *     rank 0: A B        waiting: A{0}
 *     rank 1: B A                 B{0,1}       rank 1's B may not join a line before its own last one, so its A
 *                                 A{1}         makes a new line
 *
 * Waiting lines are numbered and go out in that order; each rank remembers the number of its last line and joins only
 * later ones. So a line that is due takes all before it along: otherwise one that many still join would hold up another
 * rank's only word.
 *
 * Same lines are found by their hash, from the newest back to the rank's last one: a rank that repeats itself looks at
 * one line. What draws over its row or is part of a longer line is never joined, but keeps its place. */
#include "fold.h"

#include <stdlib.h>

enum { BUCKETS = 4096 };

struct waiting {
    struct waiting *next;          /* in order */
    struct waiting *older, *newer; /* in its bucket */
    uint64_t number, hash, joined_us;
    int rank, count;
    struct rank_set ranks; /* empty while it is one rank */
    enum line_kind kind;
    struct line_time at;
    size_t len;
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

/* False when memory is short. */
static bool append(struct fold *f, int rank, struct slice text, uint64_t hash, enum line_kind kind,
                   struct line_time at)
{
    struct waiting *w = malloc(sizeof(*w) + text.len);
    if (w == NULL)
        return false;
    *w = (struct waiting){ .number = ++f->number,
                           .hash = hash,
                           .joined_us = at.since_us,
                           .rank = rank,
                           .count = 1,
                           .kind = kind,
                           .at = at,
                           .len = text.len,
                           .older = f->newest[hash % BUCKETS] };
    if (text.len > 0)
        memcpy(w->text, text.data, text.len);
    if (w->older != NULL)
        w->older->newer = w;
    f->newest[hash % BUCKETS] = w;
    *f->end = w;
    f->end = &w->next;
    f->last[rank] = w->number;
    f->lines++;
    f->bytes += text.len;
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
    f->bytes -= w->len;
    return w;
}

static void deliver_first(struct fold *f)
{
    struct waiting *w = take_first(f);
    const struct fold_line line = { .text = slice_of(w->text, w->len),
                                    .kind = w->kind,
                                    .at = w->at,
                                    .rank = w->rank,
                                    .ranks = w->count > 1 ? &w->ranks : NULL };
    f->line(f->user, &line);
    free_waiting(w);
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

/* The oldest line with this text that comes after all that the rank printed; NULL when there is none. */
static struct waiting *find(const struct fold *f, int rank, struct slice text, uint64_t hash)
{
    struct waiting *found = NULL;
    for (struct waiting *w = f->newest[hash % BUCKETS]; w != NULL && w->number > f->last[rank]; w = w->older)
        if (w->hash == hash && may_fold(w->kind) && slice_equal(slice_of(w->text, w->len), text))
            found = w;
    return found;
}

/* False when memory is short. */
static bool join(struct fold *f, struct waiting *w, int rank, uint64_t now_us)
{
    if (w->count == 1) {
        if (!rank_set_init(&w->ranks, f->ranks))
            return false;
        rank_set_add(&w->ranks, w->rank);
    }
    rank_set_add(&w->ranks, rank);
    w->count++;
    w->joined_us = now_us;
    f->last[rank] = w->number;
    return true;
}

bool fold_put(struct fold *f, int rank, struct slice text, enum line_kind kind, struct line_time at)
{
    const bool was_empty = f->first == NULL;
    uint64_t hash = hash_of(text);
    struct waiting *same = may_fold(kind) ? find(f, rank, text, hash) : NULL;
    if (same != NULL && join(f, same, rank, at.since_us))
        return false;
    while (f->first != NULL && (f->lines >= FOLD_LINES_MAX || f->bytes + text.len > FOLD_BYTES_MAX))
        deliver_first(f);
    if (text.len <= FOLD_BYTES_MAX && append(f, rank, text, hash, kind, at))
        return was_empty;
    fold_finish(f);
    f->line(f->user, &(struct fold_line){ .text = text, .kind = kind, .at = at, .rank = rank });
    return false;
}

/* --- going out ------------------------------------------------------------------------------------------ */

/* Nobody is left to join a line that all have printed. */
static uint64_t due_us(const struct fold *f, const struct waiting *w)
{
    uint64_t quiet = w->joined_us + FOLD_QUIET_US, longest = w->at.since_us + FOLD_LONGEST_US;
    if (w->count == f->ranks)
        return 0;
    return quiet < longest ? quiet : longest;
}

uint64_t fold_flush(struct fold *f, uint64_t now_us)
{
    uint64_t last_due = 0, next = FOLD_NOTHING;
    for (const struct waiting *w = f->first; w != NULL; w = w->next)
        if (due_us(f, w) <= now_us)
            last_due = w->number;
    while (f->first != NULL && f->first->number <= last_due)
        deliver_first(f);
    for (const struct waiting *w = f->first; w != NULL; w = w->next)
        if (due_us(f, w) < next)
            next = due_us(f, w);
    return next;
}

void fold_finish(struct fold *f)
{
    while (f->first != NULL)
        deliver_first(f);
}
