/* rdzv_say.c -- the log, the event log, and what nodes are told while they wait.
 *
 * What is waited for is told on a change, a moment later, so that a job that comes together at once needs no
 * word; then at most once a second, and less often the more nodes there are, so that all of it together
 * stays a few messages a node however many come. */
#include "job/rdzv_core.h"

#include <stdarg.h>
#include <stdio.h>

enum { SAY_AFTER_MS = 250, SAY_EVERY_MS = 1000 };

/* --- logs ----------------------------------------------------------------------------------------------- */

const char *rdzv_name(const struct node *node, char *room, size_t size)
{
    int32_t rank = node->node_rank >= 0 ? node->node_rank : node->wanted;
    if (rank >= 0)
        snprintf(room, size, "node %" PRId32 " (%s)", rank, node->host);
    else
        snprintf(room, size, "node %s", node->host);
    return room;
}

/* The log line is what an event log holds in words, too, so that both tell the same. */
void rdzv_note(struct rdzv *r, enum rdzv_record_kind kind, const struct node *node, const char *format, ...)
{
    char line[3 * RDZV_WORDS_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (r->env.log != NULL)
        r->env.log(r->env.user, line);
    if (r->env.record == NULL)
        return;
    struct rdzv_record record = { .kind = kind,
                                  .now_ms = r->now_ms,
                                  .round = r->round,
                                  .node = node ? node->id : 0,
                                  .node_rank = !node                  ? -1
                                               : node->node_rank >= 0 ? node->node_rank
                                                                      : node->wanted,
                                  .host = node ? node->host : "",
                                  .pid = node ? node->pid : 0,
                                  .nnodes = kind == RDZV_RECORD_ROUND ? r->nnodes : 0,
                                  .world_size = kind == RDZV_RECORD_ROUND ? r->world_size : 0,
                                  .words = line };
    r->env.record(r->env.user, &record);
}

/* --- what is waited for --------------------------------------------------------------------------------- */

/* A change while one is due already comes with it. */
void rdzv_will_say(struct rdzv *r)
{
    uint64_t every_ms = r->n_waiting > SAY_EVERY_MS ? r->n_waiting : SAY_EVERY_MS;
    uint64_t soon_ms = r->now_ms + SAY_AFTER_MS, next_ms = r->said_ms + every_ms;
    bool is_first = r->said_ms == 0;
    if (r->say_ms == UINT64_MAX && r->state != RDZV_OVER)
        r->say_ms = is_first || next_ms < soon_ms ? soon_ms : next_ms;
}

static uint64_t left(const struct rdzv *r, uint64_t until_ms)
{
    return until_ms > r->now_ms ? until_ms - r->now_ms : 0;
}

/* Node ranks whose node neither waits nor runs. While somebody waits who has not asked for one, nobody can say
 * which are missing, only how many. */
static void list_missing(const struct rdzv *r, struct rdzv_waiting *w)
{
    uint32_t here = 0;
    if (r->place == NULL)
        return;
    for (uint32_t rank = 0; rank < r->rules.max; rank++) {
        if (rdzv_has_node_rank(r, rank))
            here++;
        else if (w->n_missing_listed < RDZV_SHORT_LIST_MAX)
            w->missing[w->n_missing_listed++] = rank;
    }
    w->n_missing = r->rules.max - w->joined;
    if (here < w->joined)
        w->n_missing_listed = 0;
}

static void list_hosts(const struct rdzv *r, struct rdzv_waiting *w)
{
    LIST_EACH(i, &r->waiting)
    {
        if (w->n_hosts == RDZV_SHORT_LIST_MAX)
            break;
        w->hosts[w->n_hosts++] = LIST_ENTRY(i, struct node, waiting)->host;
    }
}

static struct rdzv_waiting describe(const struct rdzv *r)
{
    bool between = r->state != RDZV_RUNNING && r->state != RDZV_STOPPING;
    struct rdzv_waiting w = { .state = r->state,
                              .joined = between ? r->n_waiting : r->n_members,
                              .min = r->rules.min,
                              .max = r->rules.max,
                              .spare = between ? 0 : r->n_waiting,
                              .returning = r->n_resting,
                              .left_ms = between ? left(r, r->gather_until_ms) : UINT64_MAX,
                              .last_call_ms = UINT64_MAX };
    if (r->state == RDZV_LAST_CALL)
        w.last_call_ms = left(r, r->call_until_ms);
    if (r->state == RDZV_BACKING_OFF)
        w.backoff_ms = left(r, r->back_off_until_ms);
    list_hosts(r, &w);
    list_missing(r, &w);
    return w;
}

void rdzv_say_if_due(struct rdzv *r)
{
    if (r->now_ms < r->say_ms)
        return;
    r->say_ms = UINT64_MAX;
    if (r->n_waiting == 0)
        return;
    r->said_ms = r->now_ms;
    struct rdzv_waiting waiting = describe(r);
    struct rdzv_tell tell = { .kind = RDZV_TELL_WAITING, .waiting = &waiting, .round = r->round };
    LIST_EACH(i, &r->waiting)
    r->env.tell(r->env.user, LIST_ENTRY(i, struct node, waiting)->id, &tell);
}
