/* timeline_fold.c -- see timeline.h. A thousand ranks that did the same make one row.
 *
 * Alike are rows whose bars and marks have the same kinds, in the same order, within STEPS-ths of the whole time, and
 * waited for the same one. The comparison is one of digests; a picture that folds two rows too many, once in 2^64, is
 * no harm. */
#include "ctl/timeline.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 100 };

static uint64_t mix(uint64_t digest, uint64_t value)
{
    return (digest ^ value) * 0x9e3779b97f4a7c15ull ^ digest >> 29;
}

static uint64_t step_of(const struct timeline *t, int64_t ms)
{
    return (uint64_t)(ms * STEPS / t->end_ms);
}

static void mix_all(const struct timeline *t, uint64_t *digests)
{
    for (size_t i = 0; i < t->n_rows; i++)
        digests[i] = mix(t->rows[i].is_rank, 1);
    for (size_t i = 0; i < t->n_bars; i++) {
        const struct timeline_bar *bar = &t->bars[i];
        uint64_t *d = &digests[bar->row];
        *d = mix(mix(mix(mix(*d, (uint64_t)bar->kind), step_of(t, bar->from_ms)), step_of(t, bar->to_ms)),
                 bar->waited_for);
    }
    for (size_t i = 0; i < t->n_marks; i++)
        if (t->marks[i].row != TIMELINE_JOB)
            digests[t->marks[i].row] = mix(mix(digests[t->marks[i].row], 100u + (uint64_t)t->marks[i].kind),
                                           step_of(t, t->marks[i].at_ms));
}

struct digest {
    uint64_t value;
    size_t row;
};

static int compare(const void *a, const void *b)
{
    const struct digest *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? 1 : -1;
    return (x->row > y->row) - (x->row < y->row);
}

/* The first of those alike stands for all. */
static void join_rows(struct timeline *t, const struct digest *sorted, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const size_t first = t->rows[sorted[i - 1].row].drawn_with;
        if (sorted[i].value != sorted[i - 1].value)
            continue;
        t->rows[sorted[i].row].drawn_with = first;
        t->rows[first].alike++;
    }
}

/* "rank 3 and 12 like it" */
static bool rename_row(struct timeline_row *row)
{
    char name[400];
    if (row->alike < 2)
        return true;
    snprintf(name, sizeof(name), "%.300s and %u like it", row->name, row->alike - 1);
    free(row->name);
    row->name = strdup(name);
    return row->name != NULL;
}

bool timeline_fold(struct timeline *t, size_t most)
{
    size_t count[2] = { 0, 0 }, n = 0;
    uint64_t *digests = calloc(t->n_rows + 1, sizeof(*digests));
    struct digest *sorted = calloc(t->n_rows + 1, sizeof(*sorted));
    bool ok = digests != NULL && sorted != NULL;
    for (size_t i = 0; i < t->n_rows; i++)
        count[t->rows[i].is_rank]++;
    if (ok)
        mix_all(t, digests);
    for (size_t i = 0; ok && i < t->n_rows; i++)
        if (count[t->rows[i].is_rank] > most)
            sorted[n++] = (struct digest){ digests[i], i };
    if (ok && n > 0) {
        qsort(sorted, n, sizeof(*sorted), compare);
        join_rows(t, sorted, n);
    }
    for (size_t i = 0; ok && i < t->n_rows; i++)
        ok = rename_row(&t->rows[i]);
    free(digests);
    free(sorted);
    return ok;
}
