/* timeline.c -- see timeline.h. This file reads the events once and in order, creates rows, bars and marks, and
 * then prints the timeline. No event requires an earlier event, because a log may lack any line. */
#include "ctl/timeline.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>

enum { TIMELINE_RANKS_MAX = 1 << 17 };

/* A barrier whose end was not reported yet. */
struct open_barrier {
    const char *name; /* borrowed from the event that opened the barrier */
    size_t row;       /* row of the rank that opened the barrier */
    int64_t since_ms;
};

struct making {
    struct timeline *t;
    const struct timeline_events *events;
    int64_t zero_ms, now_ms;
    uint32_t round;
    size_t last_joined; /* row of the node that joined last */
    size_t rows_room, bars_room, marks_room, bands_room;
    size_t *row_of_agent, *row_of_rank; /* owned: for each agent and each rank, the index of its row. The
                                         * index is TIMELINE_JOB if the row does not exist yet */
    struct open_barrier *open;          /* owned */
    size_t n_open, open_room;
    bool no_memory; /* set by any function if memory is short; timeline_make then stops and fails */
};

#define X(name, word, words) word,
static const char *const bar_words[] = { TIMELINE_BARS(X) }, *const mark_words[] = { TIMELINE_MARKS(X) };
#undef X
#define X(name, word, words) words,
static const char *const bar_texts[] = { TIMELINE_BARS(X) }, *const mark_texts[] = { TIMELINE_MARKS(X) };
#undef X

/* Append a zeroed element to a list and return the element. Return NULL, with an unchanged list, if memory is short.
 * The list is an array that grows by doubling. realloc moves the elements, so rows, bars and marks refer to each other
 * by index. */
static void *append_zeroed(struct making *m, void **list, size_t *room, size_t *n, size_t size)
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

#define APPEND(m, list) \
    append_zeroed(m, (void **)&(m)->t->list, &(m)->list##_room, &(m)->t->n_##list, sizeof(*(m)->t->list))

/* Add a row and return its index. If memory is short, return TIMELINE_JOB, which means "no row". begin_bar and add_bar
 * ignore this index. Handlers compare an index with TIMELINE_JOB before they use the row. */
static size_t add_row(struct making *m)
{
    struct timeline_row *row = APPEND(m, rows);
    if (row == NULL)
        return TIMELINE_JOB;
    row->number = -1;
    row->node = row->agent = TIMELINE_JOB;
    row->made_as = m->t->n_rows - 1;
    return m->t->n_rows - 1;
}

/* Allocate a map from agents or ranks to rows, because each event needs its row, and a search would be slow. */
static bool allocate_map(struct making *m, size_t **map, size_t n)
{
    if (*map != NULL)
        return true;
    *map = malloc((n + 1) * sizeof(**map));
    for (size_t i = 0; *map != NULL && i < n; i++)
        (*map)[i] = TIMELINE_JOB;
    m->no_memory = m->no_memory || *map == NULL;
    return *map != NULL;
}

/* Return the row of a node. Create the row if it is missing, because a log may begin anywhere. */
static size_t find_node_row(struct making *m, size_t agent)
{
    if (agent >= m->events->n_agents || !allocate_map(m, &m->row_of_agent, m->events->n_agents))
        return TIMELINE_JOB;
    if (m->row_of_agent[agent] == TIMELINE_JOB) {
        const size_t row = m->row_of_agent[agent] = add_row(m);
        if (row != TIMELINE_JOB)
            m->t->rows[row].agent = agent;
    }
    return m->row_of_agent[agent];
}

/* Return the row of a rank, and create it if it is missing. The rank is from a file, so check it before using it as an
 * index. */
static size_t find_rank_row(struct making *m, int64_t rank)
{
    if (rank < 0 || rank >= TIMELINE_RANKS_MAX || !allocate_map(m, &m->row_of_rank, TIMELINE_RANKS_MAX))
        return TIMELINE_JOB;
    if (m->row_of_rank[rank] == TIMELINE_JOB) {
        const size_t row = m->row_of_rank[rank] = add_row(m);
        if (row != TIMELINE_JOB) {
            m->t->rows[row].is_rank = true;
            m->t->rows[row].number = rank;
        }
    }
    return m->row_of_rank[rank];
}

/* Add a copy of `bar` with `text`. Skip a bar without a positive length: the clocks of two hosts may put its end
 * before its beginning. */
static void add_bar(struct making *m, const struct timeline_bar *bar, const char *text)
{
    if (bar->row == TIMELINE_JOB || bar->to_ms <= bar->from_ms || m->no_memory)
        return;
    struct timeline_bar *added = APPEND(m, bars);
    if (added == NULL)
        return;
    *added = *bar;
    added->text = strdup(text);
    m->no_memory = added->text == NULL;
}

/* End the open bar of a row. The bar keeps the round in which it began. */
static void close_bar(struct making *m, size_t row, size_t waited_for, const char *text)
{
    struct timeline_row *r = &m->t->rows[row];
    const struct timeline_bar bar = { .kind = r->kind,
                                      .row = row,
                                      .waited_for = waited_for,
                                      .round = r->round,
                                      .from_ms = r->since_ms,
                                      .to_ms = m->now_ms };
    if (r->open)
        add_bar(m, &bar, text);
    r->open = false;
}

/* Add a mark with a copy of `text`. A mark is one moment in a row, such as a failure. Row TIMELINE_JOB means the whole
 * job. */
static void add_mark(struct making *m, enum timeline_mark_kind kind, size_t row, const char *text)
{
    struct timeline_mark *mark = m->no_memory ? NULL : APPEND(m, marks);
    if (mark == NULL)
        return;
    *mark = (struct timeline_mark){ .kind = kind, .row = row, .at_ms = m->now_ms, .text = strdup(text) };
    m->no_memory = mark->text == NULL;
}

static void begin_band(struct making *m)
{
    struct timeline_band *band = APPEND(m, bands);
    if (band != NULL)
        *band = (struct timeline_band){ .round = m->round, .from_ms = m->now_ms, .to_ms = -1 };
}

/* Store a barrier until its end is reported. */
static void add_open_barrier(struct making *m, size_t row, const char *name)
{
    struct open_barrier *open = append_zeroed(m, (void **)&m->open, &m->open_room, &m->n_open, sizeof(*open));
    if (open != NULL)
        *open = (struct open_barrier){ .name = name, .row = row, .since_ms = m->now_ms };
}

/* Remove the latest barrier with this name. */
static void remove_open_barrier(struct making *m, const char *name)
{
    for (size_t i = m->n_open; i-- > 0;)
        if (strcmp(m->open[i].name, name) == 0) {
            m->open[i] = m->open[--m->n_open];
            return;
        }
}

/* Draw a bar for each barrier whose end was never reported, in the row of the rank that opened the barrier. These bars
 * explain a hang. */
static void close_open_barriers(struct making *m)
{
    char text[256];
    for (size_t i = 0; i < m->n_open; i++) {
        const struct open_barrier *open = &m->open[i];
        const struct timeline_bar bar = { .kind = TIMELINE_BARRIER,
                                          .row = open->row,
                                          .waited_for = TIMELINE_JOB,
                                          .round = m->round,
                                          .from_ms = open->since_ms,
                                          .to_ms = m->now_ms };
        snprintf(text, sizeof(text), "barrier '%.200s', which never ended", open->name);
        add_bar(m, &bar, text);
    }
    m->n_open = 0;
}

/* End the latest round, and end every barrier whose end was not reported. */
static void end_band(struct making *m)
{
    close_open_barriers(m);
    struct timeline_band *last = m->t->n_bands > 0 ? &m->t->bands[m->t->n_bands - 1] : NULL;
    if (last != NULL && last->to_ms < 0)
        last->to_ms = m->now_ms;
}

/* Return true if another process had the same node rank on the same host, for example after a restart of ddprun. */
static bool has_namesake(const struct making *m, const struct timeline_row *row)
{
    const struct timeline_agent *agents = m->events->agents;
    for (size_t i = 0; i < m->events->n_agents; i++) {
        const size_t other = m->row_of_agent[i];
        if (i != row->agent && other != TIMELINE_JOB && m->t->rows[other].number == row->number &&
            strcmp(agents[i].host, agents[row->agent].host) == 0)
            return true;
    }
    return false;
}

/* Return the name of a row, with all numbers and names that are known. Names are unique, because a bar names the row
 * for which it waits, and the page searches for this name. */
static char *format_row_name(const struct making *m, const struct timeline_row *row)
{
    char name[320];
    const struct timeline_agent *agent = row->agent != TIMELINE_JOB
                                             ? &m->events->agents[row->agent]
                                             : &(struct timeline_agent){ .host = (char[]){ "" } };
    if (row->is_rank)
        snprintf(name, sizeof(name), "rank %lld", (long long)row->number);
    else if (row->number >= 0 && has_namesake(m, row))
        snprintf(name, sizeof(name), "node %lld (%.256s, pid %d)", (long long)row->number, agent->host,
                 agent->pid);
    else if (row->number >= 0)
        snprintf(name, sizeof(name), "node %lld (%.256s)", (long long)row->number, agent->host);
    else
        snprintf(name, sizeof(name), "%.256s (pid %d)", agent->host, agent->pid);
    return strdup(name);
}

/* Compare rows. Nodes come before ranks, and both are sorted by number. Nodes without a number follow the other nodes,
 * in order of creation. */
static int compare_rows(const void *a, const void *b)
{
    const struct timeline_row *x = a, *y = b;
    if (x->is_rank != y->is_rank)
        return x->is_rank - y->is_rank;
    if (x->number != y->number)
        return (x->number < 0) != (y->number < 0) ? (x->number < 0) - (y->number < 0)
                                                  : (x->number > y->number) - (x->number < y->number);
    return (x->made_as > y->made_as) - (x->made_as < y->made_as);
}

static size_t map_row(const size_t *to, size_t row)
{
    return row != TIMELINE_JOB ? to[row] : TIMELINE_JOB;
}

/* Sort the rows and update all indices. `made_as` is the index of a row before sorting. Rows with equal numbers are
 * sorted by `made_as`. */
static void sort_rows(struct making *m)
{
    struct timeline *t = m->t;
    size_t *to = malloc((t->n_rows + 1) * sizeof(*to));
    m->no_memory = m->no_memory || to == NULL;
    if (to == NULL || t->n_rows == 0) {
        free(to);
        return;
    }
    qsort(t->rows, t->n_rows, sizeof(*t->rows), compare_rows);
    for (size_t i = 0; i < t->n_rows; i++)
        to[t->rows[i].made_as] = i;
    for (size_t i = 0; i < t->n_rows; i++) {
        t->rows[i].made_as = i;
        t->rows[i].node = map_row(to, t->rows[i].node);
    }
    for (size_t i = 0; i < t->n_bars; i++) {
        t->bars[i].row = to[t->bars[i].row];
        t->bars[i].waited_for = map_row(to, t->bars[i].waited_for);
    }
    for (size_t i = 0; i < t->n_marks; i++)
        t->marks[i].row = map_row(to, t->marks[i].row);
    free(to);
}

/* Close all open bars, because the log of a hanging job reports no ends. If all events have the same time, the
 * timeline gets a length of 1 ms. */
static void finish_timeline(struct making *m)
{
    struct timeline *t = m->t;
    t->end_ms = m->now_ms > 0 ? m->now_ms : 1;
    m->now_ms = t->end_ms;
    end_band(m);
    for (size_t i = 0; i < t->n_rows && !m->no_memory; i++) {
        close_bar(m, i, TIMELINE_JOB, "the log does not show the end of this state");
        t->rows[i].name = format_row_name(m, &t->rows[i]);
        m->no_memory = m->no_memory || t->rows[i].name == NULL;
    }
    sort_rows(m);
    free(m->open);
    free(m->row_of_agent);
    free(m->row_of_rank);
}

/* Begin a bar in a row, and end the row's open bar. */
static void begin_bar(struct making *m, size_t row, enum timeline_bar_kind kind, size_t waited_for)
{
    if (row == TIMELINE_JOB)
        return;
    close_bar(m, row, waited_for, "");
    m->t->rows[row].open = true;
    m->t->rows[row].kind = kind;
    m->t->rows[row].since_ms = m->now_ms;
    m->t->rows[row].round = m->round;
}

/* Return the row of the event's node, and update the node's numbers. The connection id of a node is known after the
 * join. Its node rank is known after the round begins. */
static size_t update_node_row(struct making *m, const struct timeline_event *event)
{
    const size_t row = find_node_row(m, event->agent);
    const int64_t number = timeline_number(event, "node_rank"), id = timeline_number(event, "node");
    if (row != TIMELINE_JOB && number >= 0)
        m->t->rows[row].number = number;
    if (row != TIMELINE_JOB && id >= 0)
        m->t->rows[row].store_id = (uint64_t)id;
    return row;
}

/* The handlers of events. A handler ends the open bar of a row and sets the row's new state. */

static void on_launched(struct making *m, const struct timeline_event *event)
{
    begin_bar(m, update_node_row(m, event), TIMELINE_CONNECTING, TIMELINE_JOB);
}

/* Handle a join. If a node that waits or is in a round connects again, its bar continues. */
static void on_join(struct making *m, const struct timeline_event *event)
{
    const size_t row = update_node_row(m, event);
    const bool has_joined = row != TIMELINE_JOB && m->t->rows[row].open &&
                            m->t->rows[row].kind != TIMELINE_CONNECTING &&
                            m->t->rows[row].kind != TIMELINE_BACKOFF;
    if (!has_joined) {
        begin_bar(m, row, event->kind == EVENT_SPARE ? TIMELINE_SPARE : TIMELINE_WAITING, TIMELINE_JOB);
        m->last_joined = row;
    }
}

/* Return the row of the node with this connection id. */
static size_t find_store_id(const struct making *m, int64_t id)
{
    for (size_t i = 0; i < m->t->n_rows; i++)
        if (!m->t->rows[i].is_rank && m->t->rows[i].store_id == (uint64_t)id)
            return i;
    return TIMELINE_JOB;
}

/* Begin a round. Its nodes are in "members": [[node, node_rank, first rank, workers], ...]. The waiting bars of these
 * nodes end. The bar of each node that had to wait names the node that joined last. */
static void on_round(struct making *m, const struct timeline_event *event)
{
    const cJSON *members = cJSON_GetObjectItemCaseSensitive(event->o, "members"), *member;
    end_band(m);
    m->round = (uint32_t)timeline_number(event, "round");
    begin_band(m);
    cJSON_ArrayForEach(member, members)
    {
        const cJSON *id = cJSON_GetArrayItem(member, 0), *number = cJSON_GetArrayItem(member, 1);
        const size_t row = cJSON_IsNumber(id) ? find_store_id(m, (int64_t)id->valuedouble) : TIMELINE_JOB;
        if (row == TIMELINE_JOB)
            continue;
        if (cJSON_IsNumber(number))
            m->t->rows[row].number = number->valueint;
        begin_bar(m, row, TIMELINE_RUNNING, m->last_joined != row ? m->last_joined : TIMELINE_JOB);
    }
}

/* Handle the end of a node's workers. The node then waits for the other nodes, and a new bar shows this wait. A node
 * that leaves the job does not wait, so only end its bar. */
static void on_node_done(struct making *m, const struct timeline_event *event)
{
    const size_t row = update_node_row(m, event);
    if (row != TIMELINE_JOB && m->t->rows[row].leaves)
        close_bar(m, row, TIMELINE_JOB, "");
    else
        begin_bar(m, row, TIMELINE_STOPPED, TIMELINE_JOB);
}

/* Move all nodes in state `from` to state `to`, because the store logs an event about the whole round only once. */
static void move_nodes(struct making *m, enum timeline_bar_kind from, enum timeline_bar_kind to)
{
    for (size_t i = 0; i < m->t->n_rows; i++)
        if (!m->t->rows[i].is_rank && m->t->rows[i].open && m->t->rows[i].kind == from)
            begin_bar(m, i, to, TIMELINE_JOB);
}

static void on_stop(struct making *m, const struct timeline_event *event)
{
    add_mark(m, TIMELINE_MARK_STOP, TIMELINE_JOB, timeline_text(event, "words"));
    move_nodes(m, TIMELINE_RUNNING, TIMELINE_STOPPING);
}

/* Handle the verdict on a round: stopped nodes wait for the next round, but lost nodes do not. */
static void on_verdict(struct making *m, const struct timeline_event *event)
{
    (void)event;
    end_band(m);
    move_nodes(m, TIMELINE_STOPPED, TIMELINE_BACKOFF);
}

/* Close the bars of a lost node and of its ranks, because a lost node cannot log the ends of its workers. */
static void close_lost_node(struct making *m, size_t node, const char *words)
{
    close_bar(m, node, TIMELINE_JOB, words);
    for (size_t i = 0; i < m->t->n_rows; i++)
        if (m->t->rows[i].is_rank && m->t->rows[i].node == node)
            close_bar(m, i, TIMELINE_JOB, words);
}

/* Handle a node that leaves. If workers of the node run, its bar ends when these workers have stopped. */
static void leave(struct making *m, size_t node, const char *words)
{
    struct timeline_row *row = &m->t->rows[node];
    row->leaves = row->open && (row->kind == TIMELINE_RUNNING || row->kind == TIMELINE_STOPPING);
    if (!row->leaves)
        close_bar(m, node, TIMELINE_JOB, words);
}

/* Handle a node that is rejected, leaves or is lost. A rejected node may have no row yet. */
static void on_node_goes(struct making *m, const struct timeline_event *event)
{
    const size_t row = event->agent != SIZE_MAX ? update_node_row(m, event) : TIMELINE_JOB;
    add_mark(m, TIMELINE_MARK_NODE, row, timeline_text(event, "words"));
    if (event->kind == EVENT_LOST && row != TIMELINE_JOB)
        close_lost_node(m, row, timeline_text(event, "words"));
    else if (event->kind == EVENT_LEAVE && row != TIMELINE_JOB)
        leave(m, row, timeline_text(event, "words"));
}

/* Handle the end of ddprun. If the node was in the pause after a verdict, do not draw this pause, because the node has
 * not joined again. */
static void on_finished(struct making *m, const struct timeline_event *event)
{
    char text[64];
    const int64_t code = timeline_number(event, "exit_code");
    const size_t row = update_node_row(m, event);
    snprintf(text, sizeof(text), "ddprun exited with code %d", (int)code);
    add_mark(m, code == 0 ? TIMELINE_MARK_ENDED : TIMELINE_MARK_FAILED, row, text);
    if (row != TIMELINE_JOB && m->t->rows[row].kind == TIMELINE_BACKOFF)
        m->t->rows[row].open = false;
    if (row != TIMELINE_JOB)
        close_bar(m, row, TIMELINE_JOB, "");
}

/* Handle the start of a worker. A rank keeps its row in all attempts, even if it moves to another node. */
static void on_worker_started(struct making *m, const struct timeline_event *event)
{
    const size_t node = update_node_row(m, event), row = find_rank_row(m, timeline_number(event, "rank"));
    if (row == TIMELINE_JOB)
        return;
    m->t->rows[row].node = node;
    begin_bar(m, row, TIMELINE_RUNNING, TIMELINE_JOB);
}

/* Handle the end of a worker. A worker that was stopped on purpose has not failed. */
static void on_worker_ended(struct making *m, const struct timeline_event *event)
{
    const char *verdict = timeline_text(event, "verdict");
    const size_t row = find_rank_row(m, timeline_number(event, "rank"));
    const bool failed = strcmp(verdict, "failed") == 0 || strcmp(verdict, "not_started") == 0;
    if (row == TIMELINE_JOB)
        return;
    close_bar(m, row, TIMELINE_JOB, timeline_text(event, "ending"));
    add_mark(m, failed ? TIMELINE_MARK_FAILED : TIMELINE_MARK_ENDED, row, timeline_text(event, "ending"));
}

static void on_worker_stopped(struct making *m, const struct timeline_event *event)
{
    add_mark(m, TIMELINE_MARK_SIGNAL, find_rank_row(m, timeline_number(event, "rank")),
             timeline_text(event, "signal_name"));
}

/* Return the row of the rank that the other ranks waited for: the rank in "last", which arrived last. If the event has
 * no "last", return the row of the first missing rank. */
static size_t awaited_rank(struct making *m, const struct timeline_event *event)
{
    const cJSON *missing = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(event->o, "missing"), 0);
    const int64_t last = timeline_number(event, "last");
    if (last >= 0)
        return find_rank_row(m, last);
    return cJSON_IsNumber(missing) ? find_rank_row(m, missing->valueint) : TIMELINE_JOB;
}

static void on_barrier_open(struct making *m, const struct timeline_event *event)
{
    add_open_barrier(m, find_rank_row(m, timeline_number(event, "opened_by")),
                     timeline_text(event, "barrier"));
}

/* Handle the end of a barrier. Its ranks are in "arrived": [[rank, ms after the first], ...]. The rank that arrived
 * last gets no bar, because it did not wait. */
static void on_barrier_end(struct making *m, const struct timeline_event *event)
{
    remove_open_barrier(m, timeline_text(event, "barrier"));
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
                                    .row = find_rank_row(m, rank->valueint),
                                    .waited_for = awaited,
                                    .round = m->round,
                                    .from_ms = began_ms + after->valueint,
                                    .to_ms = m->now_ms };
        if (bar.row != awaited)
            add_bar(m, &bar, text);
    }
}

static void on_restart(struct making *m, const struct timeline_event *event)
{
    char text[256];
    snprintf(text, sizeof(text), "the job restarts as attempt %d",
             (int)timeline_number(event, "next_attempt"));
    add_mark(m, TIMELINE_MARK_RESTART, update_node_row(m, event), text);
}

static void on_signal(struct making *m, const struct timeline_event *event)
{
    add_mark(m, TIMELINE_MARK_SIGNAL, update_node_row(m, event), timeline_text(event, "signal_name"));
}

static void on_finding(struct making *m, const struct timeline_event *event)
{
    char text[1024];
    snprintf(text, sizeof(text), "%.64s: %.900s", timeline_text(event, "code"),
             timeline_text(event, "words"));
    add_mark(m, TIMELINE_MARK_FINDING, TIMELINE_JOB, text);
}

/* Handlers of events. Events without a handler draw nothing. */
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
    finish_timeline(&m);
    return !m.no_memory;
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

enum { NAME_BYTES = 300, TEXT_BYTES = 600 };

/* Print a JSON string. text_append writes only ASCII without control characters. '<' is escaped, because "</script>" in
 * the trace would end the script of the page. */
static bool print_string(struct buf *out, const char *text, size_t most)
{
    struct buf plain = { 0 };
    bool ok = text_append(&plain, slice_str(text), most) && buf_append(out, "\"", 1);
    for (size_t i = 0; ok && i < plain.len; i++) {
        if (plain.data[i] == '<')
            ok = buf_printf(out, "\\u003c");
        else if (plain.data[i] == '"' || plain.data[i] == '\\')
            ok = buf_printf(out, "\\%c", plain.data[i]);
        else
            ok = buf_append(out, &plain.data[i], 1);
    }
    buf_free(&plain);
    return ok && buf_append(out, "\"", 1);
}

/* Return the process number of a row in the trace. Process 0 is the job. */
static size_t trace_pid(const struct timeline *t, size_t row)
{
    if (row == TIMELINE_JOB)
        return 0;
    const size_t node = t->rows[row].is_rank ? t->rows[row].node : row;
    return node != TIMELINE_JOB ? node + 1 : 0;
}

static long long trace_tid(const struct timeline *t, size_t row)
{
    return row != TIMELINE_JOB && t->rows[row].is_rank ? (long long)t->rows[row].number + 1 : 0;
}

/* Print the first fields of an event in the trace. */
static bool print_head(const struct timeline *t, struct buf *out, const char *phase, size_t row)
{
    return buf_printf(out, "%s{\"ph\":\"%s\",\"pid\":%zu,\"tid\":%lld,\"name\":",
                      out->data[out->len - 1] == '[' ? "" : ",\n", phase, trace_pid(t, row),
                      trace_tid(t, row));
}

static bool print_name(const struct timeline *t, struct buf *out, const char *what, size_t row,
                       const char *name)
{
    return print_head(t, out, "M", row) && buf_printf(out, "\"%s\",\"args\":{\"name\":", what) &&
           print_string(out, name, NAME_BYTES) && buf_printf(out, "}}");
}

static bool print_rows(const struct timeline *t, struct buf *out)
{
    bool ok = print_name(t, out, "process_name", TIMELINE_JOB, "the job");
    for (size_t i = 0; ok && i < t->n_rows; i++) {
        const char *name = t->rows[i].name;
        if (!t->rows[i].is_rank)
            ok = print_name(t, out, "process_name", i, name);
        ok = ok && print_name(t, out, "thread_name", i, name);
    }
    return ok;
}

static bool print_bar(const struct timeline *t, struct buf *out, const struct timeline_bar *bar)
{
    bool ok = print_head(t, out, "X", bar->row) &&
              buf_printf(out, "\"%s\",\"cat\":\"%s\",\"ts\":%lld,\"dur\":%lld,\"args\":{\"round\":%u",
                         bar_texts[bar->kind], bar_words[bar->kind], (long long)bar->from_ms * 1000,
                         (long long)(bar->to_ms - bar->from_ms) * 1000, bar->round);
    if (ok && bar->waited_for != TIMELINE_JOB)
        ok = buf_printf(out, ",\"waited_for\":") &&
             print_string(out, t->rows[bar->waited_for].name, NAME_BYTES);
    if (ok && bar->text[0] != '\0')
        ok = buf_printf(out, ",\"text\":") && print_string(out, bar->text, TEXT_BYTES);
    return ok && buf_printf(out, "}}");
}

/* Print a mark. A mark of the whole job has the scope "g" and is drawn across all rows. */
static bool print_mark(const struct timeline *t, struct buf *out, const struct timeline_mark *mark)
{
    return print_head(t, out, "i", mark->row) &&
           buf_printf(out, "\"%s\",\"cat\":\"%s\",\"s\":\"%s\",\"ts\":%lld,\"args\":{\"text\":",
                      mark_texts[mark->kind], mark_words[mark->kind], mark->row == TIMELINE_JOB ? "g" : "t",
                      (long long)mark->at_ms * 1000) &&
           print_string(out, mark->text, TEXT_BYTES) && buf_printf(out, "}}");
}

static bool print_band(const struct timeline *t, struct buf *out, const struct timeline_band *band)
{
    return print_head(t, out, "X", TIMELINE_JOB) &&
           buf_printf(out, "\"attempt %u\",\"cat\":\"attempt\",\"ts\":%lld,\"dur\":%lld,\"args\":{}}",
                      band->round - 1, (long long)band->from_ms * 1000,
                      (long long)(band->to_ms - band->from_ms) * 1000);
}

bool timeline_trace(const struct timeline *t, struct buf *out)
{
    bool ok = buf_printf(out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"job\":") &&
              print_string(out, t->job, NAME_BYTES) && buf_printf(out, "},\"traceEvents\":[") &&
              print_rows(t, out);
    for (size_t i = 0; ok && i < t->n_bands; i++)
        ok = print_band(t, out, &t->bands[i]);
    for (size_t i = 0; ok && i < t->n_bars; i++)
        ok = print_bar(t, out, &t->bars[i]);
    for (size_t i = 0; ok && i < t->n_marks; i++)
        ok = print_mark(t, out, &t->marks[i]);
    return ok && buf_printf(out, "\n]}\n");
}

/* Write `page` to `out`, with the trace in place of "null". The page contains ">null</script>" exactly once. */
bool timeline_html(const struct timeline *t, const char *page, struct buf *out)
{
    static const char no_trace[] = ">null</script>";
    const char *trace = strstr(page, no_trace) + 1;
    return buf_append(out, page, (size_t)(trace - page)) && timeline_trace(t, out) &&
           buf_printf(out, "%s", trace + strlen("null"));
}
