/* timeline_core.c -- see timeline_core.h.
 *
 * Rows, bars and marks are arrays that double, and refer to each other by number: a pointer would not
 * outlive the next realloc. Memory that is short is noted in `no_memory` and asked for once at the end;
 * until then TIMELINE_JOB, "no row", stands for what could not be made, and everything takes it. */
#include "ctl/timeline_core.h"

#include <stdio.h>
#include <stdlib.h>

/* Room for one more at the end of a list; NULL when memory is short. Zeroed. The list stays as it was when
 * it cannot grow, so it is freed like any other. */
static void *one_more(struct making *m, void **list, size_t *room, size_t *n, size_t size)
{
    if (*n == *room) {
        const size_t more = *room > 0 ? 2 * *room : 64;
        void *larger = realloc(*list, more * size);
        m->no_memory = m->no_memory || larger == NULL;
        if (larger == NULL)
            return NULL;
        *list = larger;
        *room = more;
    }
    void *at = (char *)*list + *n * size;
    memset(at, 0, size);
    ++*n;
    return at;
}

#define ONE_MORE(m, list) \
    one_more(m, (void **)&(m)->t->list, &(m)->list##_room, &(m)->t->n_##list, sizeof(*(m)->t->list))

/* --- rows ----------------------------------------------------------------------------------------------- */

static size_t new_row(struct making *m)
{
    struct timeline_row *row = ONE_MORE(m, rows);
    if (row == NULL)
        return TIMELINE_JOB;
    row->number = -1;
    row->node = row->agent = TIMELINE_JOB;
    row->alike = 1;
    row->drawn_with = m->t->n_rows - 1;
    return m->t->n_rows - 1;
}

/* From a rank to its row in one step: each of a million events asks for it. */
static bool make_map(struct making *m, size_t **map, size_t n)
{
    if (*map != NULL)
        return true;
    *map = malloc((n + 1) * sizeof(**map));
    for (size_t i = 0; *map != NULL && i < n; i++)
        (*map)[i] = TIMELINE_JOB;
    m->no_memory = m->no_memory || *map == NULL;
    return *map != NULL;
}

/* Rows come to be when they are first spoken of: a log may begin anywhere. */
size_t making_node(struct making *m, size_t agent)
{
    if (agent >= m->events->n_agents || !make_map(m, &m->row_of_agent, m->events->n_agents))
        return TIMELINE_JOB;
    if (m->row_of_agent[agent] == TIMELINE_JOB) {
        const size_t row = m->row_of_agent[agent] = new_row(m);
        if (row != TIMELINE_JOB)
            m->t->rows[row].agent = agent;
    }
    return m->row_of_agent[agent];
}

/* Ranks are numbers of a file and are compared with their limit before they index anything. */
size_t making_rank(struct making *m, int64_t rank)
{
    if (rank < 0 || rank >= TIMELINE_RANKS_MAX || !make_map(m, &m->row_of_rank, TIMELINE_RANKS_MAX))
        return TIMELINE_JOB;
    if (m->row_of_rank[rank] == TIMELINE_JOB) {
        const size_t row = m->row_of_rank[rank] = new_row(m);
        if (row != TIMELINE_JOB) {
            m->t->rows[row].is_rank = true;
            m->t->rows[row].number = rank;
        }
    }
    return m->row_of_rank[rank];
}

/* --- bars, marks, bands --------------------------------------------------------------------------------- */

/* One without a length would be drawn as nothing, and clocks of two machines may put its end before its
 * begin. */
void making_bar(struct making *m, const struct timeline_bar *bar, const char *text)
{
    if (bar->row == TIMELINE_JOB || bar->to_ms <= bar->from_ms || m->no_memory)
        return;
    struct timeline_bar *added = ONE_MORE(m, bars);
    if (added == NULL)
        return;
    *added = *bar;
    added->text = strdup(text);
    m->no_memory = added->text == NULL;
}

/* The bar takes the round in which it began: by now another one may run. */
void making_close(struct making *m, size_t row, size_t waited_for, const char *text)
{
    struct timeline_row *r = &m->t->rows[row];
    const struct timeline_bar bar = { .kind = r->kind,
                                      .row = row,
                                      .waited_for = waited_for,
                                      .round = r->round,
                                      .from_ms = r->since_ms,
                                      .to_ms = m->now_ms };
    if (r->open)
        making_bar(m, &bar, text);
    r->open = false;
}

/* The text is copied: the event's own is freed with the log. A mark without a row is about the whole job. */
void making_mark(struct making *m, enum timeline_mark_kind kind, size_t row, const char *text)
{
    struct timeline_mark *mark = m->no_memory ? NULL : ONE_MORE(m, marks);
    if (mark == NULL)
        return;
    *mark = (struct timeline_mark){ .kind = kind, .row = row, .at_ms = m->now_ms, .text = strdup(text) };
    m->no_memory = mark->text == NULL;
}

void making_band(struct making *m)
{
    struct timeline_band *band = ONE_MORE(m, bands);
    if (band != NULL)
        *band = (struct timeline_band){ .round = m->round, .from_ms = m->now_ms, .to_ms = -1 };
}

/* `name` is borrowed from the event, which outlives the making. It is taken off again when the barrier
 * ends, so what is left at the end of a round are the barriers that never opened, each with the rank that
 * came first. */
void making_open_barrier(struct making *m, size_t row, const char *name)
{
    struct making_open *open = one_more(m, (void **)&m->open, &m->open_room, &m->n_open, sizeof(*open));
    if (open != NULL)
        *open = (struct making_open){ .name = name, .row = row, .since_ms = m->now_ms };
}

/* The latest of that name: few are open at a time. */
void making_end_barrier(struct making *m, const char *name)
{
    for (size_t i = m->n_open; i-- > 0;)
        if (strcmp(m->open[i].name, name) == 0) {
            m->open[i] = m->open[--m->n_open];
            return;
        }
}

/* They did not open, and the rank that came first has waited to the end of the round: this is what a user
 * looks for in a job that hangs. */
static void give_up_barriers(struct making *m)
{
    char text[256];
    for (size_t i = 0; i < m->n_open; i++) {
        const struct making_open *open = &m->open[i];
        const struct timeline_bar bar = { .kind = TIMELINE_BARRIER,
                                          .row = open->row,
                                          .waited_for = TIMELINE_JOB,
                                          .round = m->round,
                                          .from_ms = open->since_ms,
                                          .to_ms = m->now_ms };
        snprintf(text, sizeof(text), "barrier '%.200s', which never opened", open->name);
        making_bar(m, &bar, text);
    }
    m->n_open = 0;
}

/* Barriers first, because they belong to the round that ends. */
void making_end_band(struct making *m)
{
    give_up_barriers(m);
    struct timeline_band *last = m->t->n_bands > 0 ? &m->t->bands[m->t->n_bands - 1] : NULL;
    if (last != NULL && last->to_ms < 0)
        last->to_ms = m->now_ms;
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* Made at the end, when everything that is to be known of a row has been read. */
static char *name_of(const struct making *m, const struct timeline_row *row)
{
    char name[320];
    const struct timeline_agent *agent = row->agent != TIMELINE_JOB
                                             ? &m->events->agents[row->agent]
                                             : &(struct timeline_agent){ .host = (char[]){ "" } };
    if (row->is_rank)
        snprintf(name, sizeof(name), "rank %lld", (long long)row->number);
    else if (row->number >= 0)
        snprintf(name, sizeof(name), "node %lld (%.256s)", (long long)row->number, agent->host);
    else
        snprintf(name, sizeof(name), "%.256s (pid %d)", agent->host, agent->pid);
    return strdup(name);
}

/* Nodes before ranks, by number; those without one at the end; else as they came, which `drawn_with` still tells. */
static int compare(const void *a, const void *b)
{
    const struct timeline_row *x = a, *y = b;
    if (x->is_rank != y->is_rank)
        return x->is_rank - y->is_rank;
    if (x->number != y->number)
        return (x->number < 0) != (y->number < 0) ? (x->number < 0) - (y->number < 0)
                                                  : (x->number > y->number) - (x->number < y->number);
    return (x->drawn_with > y->drawn_with) - (x->drawn_with < y->drawn_with);
}

/* TIMELINE_JOB is no row and has nowhere to move. */
static size_t moved(const size_t *to, size_t row)
{
    return row != TIMELINE_JOB ? to[row] : TIMELINE_JOB;
}

/* qsort is not stable, hence `drawn_with`, which holds the old place: it breaks ties, and afterwards it
 * tells where each row has gone. */
static void sort_rows(struct making *m)
{
    struct timeline *t = m->t;
    size_t *to = malloc((t->n_rows + 1) * sizeof(*to));
    m->no_memory = m->no_memory || to == NULL;
    if (to == NULL || t->n_rows == 0) {
        free(to);
        return;
    }
    qsort(t->rows, t->n_rows, sizeof(*t->rows), compare);
    for (size_t i = 0; i < t->n_rows; i++)
        to[t->rows[i].drawn_with] = i;
    for (size_t i = 0; i < t->n_rows; i++) {
        t->rows[i].drawn_with = i;
        t->rows[i].node = moved(to, t->rows[i].node);
    }
    for (size_t i = 0; i < t->n_bars; i++) {
        t->bars[i].row = to[t->bars[i].row];
        t->bars[i].waited_for = moved(to, t->bars[i].waited_for);
    }
    for (size_t i = 0; i < t->n_marks; i++)
        t->marks[i].row = moved(to, t->marks[i].row);
    free(to);
}

/* What is still open at the end of a log is drawn to its end: a job that hangs writes nothing about it. A
 * log of one moment gets a millisecond, so that nobody divides by 0. */
void making_finish(struct making *m)
{
    struct timeline *t = m->t;
    t->end_ms = m->now_ms > 0 ? m->now_ms : 1;
    m->now_ms = t->end_ms;
    making_end_band(m);
    for (size_t i = 0; i < t->n_rows && !m->no_memory; i++) {
        making_close(m, i, TIMELINE_JOB, "still so at the end of the log");
        t->rows[i].name = name_of(m, &t->rows[i]);
        m->no_memory = m->no_memory || t->rows[i].name == NULL;
    }
    sort_rows(m);
    free(m->open);
    free(m->row_of_agent);
    free(m->row_of_rank);
}

void timeline_free(struct timeline *t)
{
    for (size_t i = 0; i < t->n_rows; i++)
        free(t->rows[i].name);
    for (size_t i = 0; i < t->n_bars; i++)
        free(t->bars[i].text);
    for (size_t i = 0; i < t->n_marks; i++)
        free(t->marks[i].text);
    free(t->rows);
    free(t->bars);
    free(t->marks);
    free(t->bands);
    *t = (struct timeline){ 0 };
}
