/* timeline.c -- see timeline.h. Events are walked once, in order; each moves the row it is about to another bar.
 *
 * A log may lack any line, so nothing is believed to follow from what came before: an event says what its row does
 * from now on, and the bar that was open ends there. */
#include "ctl/timeline_core.h"

#include <stdio.h>
#include <stdlib.h>

#define X(name, word, words) word,
static const char *const bar_words[] = { TIMELINE_BARS(X) }, *const mark_words[] = { TIMELINE_MARKS(X) };
#undef X
#define X(name, word, words) words,
static const char *const bar_texts[] = { TIMELINE_BARS(X) }, *const mark_texts[] = { TIMELINE_MARKS(X) };
#undef X

const char *timeline_bar_word(enum timeline_bar_kind kind)
{
    return bar_words[kind];
}

const char *timeline_bar_words(enum timeline_bar_kind kind)
{
    return bar_texts[kind];
}

const char *timeline_mark_word(enum timeline_mark_kind kind)
{
    return mark_words[kind];
}

const char *timeline_mark_words(enum timeline_mark_kind kind)
{
    return mark_texts[kind];
}

/* --- nodes ---------------------------------------------------------------------------------------------- */

/* The end of the wait for a round names whom it was for. A row does one thing at a time, so to begin one is
 * to end the other. */
static void enter(struct making *m, size_t row, enum timeline_bar_kind kind, size_t waited_for)
{
    if (row == TIMELINE_JOB)
        return;
    making_close(m, row, waited_for, "");
    m->t->rows[row].open = true;
    m->t->rows[row].kind = kind;
    m->t->rows[row].since_ms = m->now_ms;
    m->t->rows[row].round = m->round;
}

/* Numbers come late: a node has its process from the start, its connection's id with the join, its rank
 * with the round. */
static size_t node_of(struct making *m, const struct timeline_event *event)
{
    const size_t row = making_node(m, event->agent);
    const int64_t number = timeline_number(event, "node_rank"), id = timeline_number(event, "node");
    if (row != TIMELINE_JOB && number >= 0)
        m->t->rows[row].number = number;
    if (row != TIMELINE_JOB && id >= 0)
        m->t->rows[row].store_id = (uint64_t)id;
    return row;
}

static void on_launched(struct making *m, const struct timeline_event *event)
{
    enter(m, node_of(m, event), TIMELINE_LOOKING, TIMELINE_JOB);
}

static void on_join(struct making *m, const struct timeline_event *event)
{
    const size_t row = node_of(m, event);
    const bool waits =
        row != TIMELINE_JOB && m->t->rows[row].open && m->t->rows[row].kind == TIMELINE_WAITING;
    if (!waits) { /* else it is only another word about the same */
        enter(m, row, event->kind == EVENT_SPARE ? TIMELINE_SPARE : TIMELINE_WAITING, TIMELINE_JOB);
        m->last_joined = row;
    }
}

/* The store names members by its connections; few nodes, and once for each member of a round. */
static size_t row_of_id(const struct making *m, int64_t id)
{
    for (size_t i = 0; i < m->t->n_rows; i++)
        if (!m->t->rows[i].is_rank && m->t->rows[i].store_id == (uint64_t)id)
            return i;
    return TIMELINE_JOB;
}

/* "members": [[node, node_rank, first rank, workers], ...] Who joined last is whom all the others have
 * waited for, and is told with their bars. */
static void on_round(struct making *m, const struct timeline_event *event)
{
    const cJSON *members = cJSON_GetObjectItemCaseSensitive(event->o, "members"), *member;
    making_end_band(m);
    m->round = (uint32_t)timeline_number(event, "round");
    making_band(m);
    cJSON_ArrayForEach(member, members)
    {
        const cJSON *id = cJSON_GetArrayItem(member, 0), *number = cJSON_GetArrayItem(member, 1);
        const size_t row = cJSON_IsNumber(id) ? row_of_id(m, (int64_t)id->valuedouble) : TIMELINE_JOB;
        if (row == TIMELINE_JOB)
            continue;
        if (cJSON_IsNumber(number))
            m->t->rows[row].number = number->valueint;
        enter(m, row, TIMELINE_RUNNING, m->last_joined != row ? m->last_joined : TIMELINE_JOB);
    }
}

static void on_node_done(struct making *m, const struct timeline_event *event)
{
    enter(m, node_of(m, event), TIMELINE_STOPPED, TIMELINE_JOB);
}

/* For events that are about the round: the store does not write one for each node. */
static void move_all(struct making *m, enum timeline_bar_kind from, enum timeline_bar_kind to)
{
    for (size_t i = 0; i < m->t->n_rows; i++)
        if (!m->t->rows[i].is_rank && m->t->rows[i].open && m->t->rows[i].kind == from)
            enter(m, i, to, TIMELINE_JOB);
}

static void on_stop(struct making *m, const struct timeline_event *event)
{
    making_mark(m, TIMELINE_MARK_STOP, TIMELINE_JOB, timeline_text(event, "words"));
    move_all(m, TIMELINE_RUNNING, TIMELINE_STOPPING);
}

/* Only from STOPPED: a node that was lost has no pause to wait for. */
static void on_verdict(struct making *m, const struct timeline_event *event)
{
    (void)event;
    making_end_band(m);
    move_all(m, TIMELINE_STOPPED, TIMELINE_BACKOFF);
}

/* Nobody is left there who could write how they ended. */
static void lose(struct making *m, size_t node, const char *words)
{
    making_close(m, node, TIMELINE_JOB, words);
    for (size_t i = 0; i < m->t->n_rows; i++)
        if (m->t->rows[i].is_rank && m->t->rows[i].node == node)
            making_close(m, i, TIMELINE_JOB, words);
}

static void on_node_goes(struct making *m, const struct timeline_event *event)
{
    const size_t row = event->agent != SIZE_MAX ? node_of(m, event) : TIMELINE_JOB;
    making_mark(m, TIMELINE_MARK_NODE, row, timeline_text(event, "words"));
    if (event->kind == EVENT_LOST && row != TIMELINE_JOB)
        lose(m, row, timeline_text(event, "words"));
}

/* A wait for a next round that never came is none. */
static void on_finished(struct making *m, const struct timeline_event *event)
{
    char text[64];
    const int64_t code = timeline_number(event, "exit_code");
    const size_t row = node_of(m, event);
    snprintf(text, sizeof(text), "ddprun ends with %d", (int)code);
    making_mark(m, code == 0 ? TIMELINE_MARK_ENDED : TIMELINE_MARK_FAILED, row, text);
    if (row != TIMELINE_JOB && m->t->rows[row].kind == TIMELINE_BACKOFF)
        m->t->rows[row].open = false;
    if (row != TIMELINE_JOB)
        making_close(m, row, TIMELINE_JOB, "");
}

/* --- ranks ---------------------------------------------------------------------------------------------- */

/* Again in each attempt, perhaps on another node: a rank's row stays one. */
static void on_worker_started(struct making *m, const struct timeline_event *event)
{
    const size_t node = node_of(m, event), row = making_rank(m, timeline_number(event, "rank"));
    if (row == TIMELINE_JOB)
        return;
    m->t->rows[row].node = node;
    enter(m, row, TIMELINE_RUNNING, TIMELINE_JOB);
}

/* One that was stopped on purpose has ended, too, but has not failed: red is kept for the cause. */
static void on_worker_ended(struct making *m, const struct timeline_event *event)
{
    const char *verdict = timeline_text(event, "verdict");
    const size_t row = making_rank(m, timeline_number(event, "rank"));
    const bool failed = strcmp(verdict, "failed") == 0 || strcmp(verdict, "not_started") == 0;
    if (row == TIMELINE_JOB)
        return;
    making_close(m, row, TIMELINE_JOB, timeline_text(event, "ending"));
    making_mark(m, failed ? TIMELINE_MARK_FAILED : TIMELINE_MARK_ENDED, row, timeline_text(event, "ending"));
}

static void on_worker_stopped(struct making *m, const struct timeline_event *event)
{
    making_mark(m, TIMELINE_MARK_SIGNAL, making_rank(m, timeline_number(event, "rank")),
                timeline_text(event, "signal_name"));
}

/* Who came last, or the first of those who never came. */
static size_t awaited_rank(struct making *m, const struct timeline_event *event)
{
    const cJSON *missing = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(event->o, "missing"), 0);
    const int64_t last = timeline_number(event, "last");
    if (last >= 0)
        return making_rank(m, last);
    return cJSON_IsNumber(missing) ? making_rank(m, missing->valueint) : TIMELINE_JOB;
}

static void on_barrier_open(struct making *m, const struct timeline_event *event)
{
    making_open_barrier(m, making_rank(m, timeline_number(event, "opened_by")),
                        timeline_text(event, "barrier"));
}

/* "arrived": [[rank, ms after the first], ...] One line of the log makes the bars of all ranks, which is
 * why the store writes it at the end and not at each arrival. The awaited rank has no bar: it did not wait. */
static void on_barrier_end(struct making *m, const struct timeline_event *event)
{
    making_end_barrier(m, timeline_text(event, "barrier"));
    const cJSON *arrived = cJSON_GetObjectItemCaseSensitive(event->o, "arrived"), *pair;
    const int64_t began_ms = timeline_time(event, "began_ms") - m->zero_ms;
    const size_t awaited = awaited_rank(m, event);
    char text[512];
    snprintf(text, sizeof(text), "barrier '%.200s', %.20s", timeline_text(event, "barrier"),
             timeline_text(event, "outcome"));
    cJSON_ArrayForEach(pair, arrived)
    {
        const cJSON *rank = cJSON_GetArrayItem(pair, 0), *after = cJSON_GetArrayItem(pair, 1);
        if (!cJSON_IsNumber(rank) || !cJSON_IsNumber(after) || after->valueint < 0)
            continue;
        struct timeline_bar bar = { .kind = TIMELINE_BARRIER,
                                    .row = making_rank(m, rank->valueint),
                                    .waited_for = awaited,
                                    .round = m->round,
                                    .from_ms = began_ms + after->valueint,
                                    .to_ms = m->now_ms };
        if (bar.row != awaited)
            making_bar(m, &bar, text);
    }
}

/* --- others --------------------------------------------------------------------------------------------- */

static void on_restart(struct making *m, const struct timeline_event *event)
{
    char text[256];
    snprintf(text, sizeof(text), "attempt %d of the job follows",
             (int)timeline_number(event, "next_attempt"));
    making_mark(m, TIMELINE_MARK_RESTART, node_of(m, event), text);
}

static void on_signal(struct making *m, const struct timeline_event *event)
{
    making_mark(m, TIMELINE_MARK_SIGNAL, node_of(m, event), timeline_text(event, "signal_name"));
}

static void on_finding(struct making *m, const struct timeline_event *event)
{
    char text[1024];
    snprintf(text, sizeof(text), "%.64s: %.900s", timeline_text(event, "code"),
             timeline_text(event, "words"));
    making_mark(m, TIMELINE_MARK_FINDING, TIMELINE_JOB, text);
}

/* What is not here draws nothing. */
static void (*const handlers[EVENT_N_KINDS])(struct making *m, const struct timeline_event *event) = {
    [EVENT_LAUNCHED] = on_launched,
    [EVENT_JOIN] = on_join,
    [EVENT_SPARE] = on_join,
    [EVENT_REFUSED] = on_node_goes,
    [EVENT_LEAVE] = on_node_goes,
    [EVENT_LOST] = on_node_goes,
    [EVENT_ROUND] = on_round,
    [EVENT_NODE_DONE] = on_node_done,
    [EVENT_NODE_STOPPED] = on_node_done,
    [EVENT_STOP] = on_stop,
    [EVENT_VERDICT] = on_verdict,
    [EVENT_BARRIER_OPEN] = on_barrier_open,
    [EVENT_BARRIER_END] = on_barrier_end,
    [EVENT_FINDING] = on_finding,
    [EVENT_WORKER_STARTED] = on_worker_started,
    [EVENT_WORKER_ENDED] = on_worker_ended,
    [EVENT_WORKER_STOPPED] = on_worker_stopped,
    [EVENT_RESTART] = on_restart,
    [EVENT_STOP_REQUESTED] = on_signal,
    [EVENT_SIGNAL_PASSED] = on_signal,
    [EVENT_FINISHED] = on_finished,
};

/* Times count from the first event. The walk goes on over whatever it cannot draw. */
bool timeline_make(struct timeline *t, const struct timeline_events *events)
{
    struct making m = { .t = t, .events = events, .last_joined = TIMELINE_JOB };
    *t = (struct timeline){ .job = events->job };
    m.zero_ms = events->n > 0 ? events->list[0].at_ms : 0;
    for (size_t i = 0; i < events->n && !m.no_memory; i++) {
        const struct timeline_event *event = &events->list[i];
        m.now_ms = event->at_ms - m.zero_ms;
        if (handlers[event->kind] != NULL)
            handlers[event->kind](&m, event);
    }
    making_finish(&m);
    return !m.no_memory;
}
