/* view.c -- names and texts, copies of facts for readers, the log, and messages to waiting nodes. */
#include "job/rendezvous.h"
#include "job/nodes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- words of the protocol; "?" for an invalid value ------------------------------------------------------- */

static const char *word(const char *const *words, unsigned at, unsigned n)
{
    return at < n ? words[at] : "?";
}

#define X(name, word) word,
static const char *const states[] = { RDZV_STATES(X) };
static const char *const whys[] = { RDZV_WHYS(X) };
#undef X
#define X(name, ...) #name,
static const char *const codes[] = { "WELCOME", RDZV_REFUSALS(X) };
#undef X
#define X(name, grade, sentence, advice, ...) advice,
static const char *const advices[] = { "", RDZV_REFUSALS(X) };
#undef X
static const char *const node_states[] = { "waiting", "running", "done",    "stopping",
                                           "stopped", "resting", "finished" };

#define WORD(words, at) word(words, (unsigned)(at), sizeof(words) / sizeof((words)[0]))

const char *rdzv_state_word(enum rdzv_state state)
{
    return WORD(states, state);
}

const char *rdzv_why_word(enum rdzv_why why)
{
    return WORD(whys, why);
}

const char *rdzv_refused_code(enum rdzv_refused refused)
{
    return WORD(codes, refused);
}

const char *rdzv_refused_advice(enum rdzv_refused refused)
{
    return WORD(advices, refused);
}

const char *rdzv_node_state_word(enum rdzv_node_state state)
{
    return WORD(node_states, state);
}

/* The name of a node for messages to the users of two nodes: "node 1 (n1, pid 77)", or "n1 (pid 77)" without a node
 * rank. If two nodes with different addresses have the same host name ("localhost"), the name has the address,
 * too. */

struct who rdzv_who(const struct rdzv_join *j)
{
    struct who who = { .node_rank = j->elastic ? -1 : j->node_rank, .pid = j->pid };
    text_copy(who.host, sizeof(who.host), j->host);
    text_copy(who.addr, sizeof(who.addr), j->addr);
    return who;
}

static bool needs_address(const struct who *who, const struct who *beside)
{
    return strcmp(who->host, beside->host) == 0 && who->addr[0] != '\0' &&
           strcmp(who->addr, beside->addr) != 0;
}

/* Cut the host name, because the message must also fit the name of `beside`. */
const char *rdzv_name_who(who_name out, const struct who *who, const struct who *beside)
{
    const bool at = needs_address(who, beside), ranked = who->node_rank >= 0;
    char rank[32] = "";
    if (ranked)
        snprintf(rank, sizeof(rank), "node %" PRId32 " (", who->node_rank);
    snprintf(out, sizeof(who_name), "%s%.120s%s%s%spid %d)", rank, who->host, ranked ? ", " : " (",
             at ? who->addr : "", at ? ", " : "", who->pid);
    return out;
}

/* Copies of facts for readers: status, diagnosis and hub. Readers never get struct rdzv, so they cannot change a job.
 * Borrowed pointers are valid until the next call of the rendezvous. */

uint64_t rdzv_state_deadline(const struct rdzv *r)
{
    switch (r->state) {
    case RDZV_GATHERING:
        return r->rules.known ? r->until.gather_ms : UINT64_MAX;
    case RDZV_LAST_CALL:
        return r->until.call_ms;
    case RDZV_STOPPING:
        return r->until.stop_ms;
    case RDZV_BACKING_OFF:
        return r->until.back_off_ms;
    default:
        return UINT64_MAX;
    }
}

/* Return the number of restarts. `failed` also counts the failure that ends the job, after which no restart
 * follows. */
static uint32_t restarts_made(const struct rdzv *r)
{
    const struct restarts *a = &r->restarts;
    return a->failed < a->max_restarts ? a->failed : a->max_restarts;
}

/* Fill *facts. Texts are borrowed until the next call of the rendezvous. */
void rdzv_facts(const struct rdzv *r, struct rdzv_facts *facts)
{
    const struct rules *rules = &r->rules;
    *facts =
        (struct rdzv_facts){ .job = r->job,
                             .instance = r->instance,
                             .state = r->state,
                             .round = r->run.round,
                             .restarts = restarts_made(r),
                             .max_restarts = r->restarts.max_restarts,
                             .elastic = rules->elastic,
                             .min = rules->min,
                             .max = rules->max,
                             .nodes = r->n_live,
                             .members = r->run.n_members,
                             .waiting = r->n_waiting,
                             .returning = r->n_resting,
                             .done = r->run.n_done,
                             .stopped = r->run.n_members -
                                        (r->run.n_open < r->run.n_members ? r->run.n_open : r->run.n_members),
                             .world_size = r->run.world_size,
                             .since_ms = r->since_ms,
                             .deadline_ms = rdzv_state_deadline(r),
                             .join_timeout_ms = rules->join_timeout_ms,
                             .join_knob = rules->join_knob,
                             .node_timeout_ms = rules->node_timeout_ms,
                             .last_call_ms = rules->last_call_ms,
                             .no_restart = r->end.no_restart,
                             .cause = r->end.has_cause ? &r->end.cause : NULL,
                             .gone = r->gone,
                             .n_gone = r->n_gone };
}

static bool is_spare(const struct rdzv *r, const struct node *node)
{
    bool runs = r->state == RDZV_RUNNING || r->state == RDZV_STOPPING;
    return node->state == RDZV_NODE_WAITING && (runs || r->n_waiting > r->rules.max);
}

bool rdzv_is_spare(const struct rdzv *r, uint64_t id)
{
    const struct node *node = rdzv_find(r, id);
    return node != NULL && is_spare(r, node);
}

bool rdzv_node_facts(const struct rdzv *r, uint64_t id, struct rdzv_node_facts *facts)
{
    const struct node *node = rdzv_find(r, id);
    if (node == NULL)
        return false;
    *facts = (struct rdzv_node_facts){ .node = node->id,
                                       .state = node->state,
                                       .node_rank = node->node_rank >= 0 ? node->node_rank : node->wanted,
                                       .first_rank = node->first_rank,
                                       .nproc = node->nproc,
                                       .host = node->host,
                                       .addr = node->addr,
                                       .own = node->own,
                                       .version = node->version,
                                       .boot_id = node->boot_id,
                                       .pid = node->pid,
                                       .pid_start = node->pid_start,
                                       .joined_ms = node->joined_ms,
                                       .heard_ms = node->heard_ms,
                                       .leaving = node->leaving,
                                       .is_spare = is_spare(r, node) };
    return true;
}

/* Return the id of the next node in the order of joining. If the node `after` has left, return 0. */
uint64_t rdzv_next_node(const struct rdzv *r, uint64_t after)
{
    const struct node *node = after != 0 ? rdzv_find(r, after) : NULL;
    if (after != 0 && node == NULL)
        return 0;
    const struct list *next = node != NULL ? node->joined.next : r->nodes.next;
    return next != &r->nodes ? LIST_ENTRY(next, struct node, joined)->id : 0;
}

/* Find the last seat whose first rank is at most `rank`. If the node of this seat has left, return 0. */
uint64_t rdzv_node_of_rank(const struct rdzv *r, uint32_t rank)
{
    bool runs = r->state == RDZV_RUNNING || r->state == RDZV_STOPPING;
    uint32_t low = 0, high = r->run.nnodes;
    if (!runs || rank >= r->run.world_size)
        return 0;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (r->run.seats[middle].first_rank <= rank)
            low = middle;
        else
            high = middle;
    }
    return r->run.seats[low].node;
}

bool rdzv_is_over(const struct rdzv *r)
{
    return r->state == RDZV_OVER && r->n_live == 0;
}

/* The log, the event log, and messages to waiting nodes.
 *
 * The first message about missing nodes is sent SAY_AFTER_MS after a change, so that a job that starts at once sends
 * no message. Further messages are SAY_EVERY_MS apart. With n > 1,000 waiting nodes, messages are n ms apart, to
 * limit the load. */

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

/* Write a line to the log and to the event log. */
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
                                  .round = r->run.round,
                                  .node = node ? node->id : 0,
                                  .node_rank = !node                  ? -1
                                               : node->node_rank >= 0 ? node->node_rank
                                                                      : node->wanted,
                                  .host = node ? node->host : "",
                                  .pid = node ? node->pid : 0,
                                  .nnodes = kind == RDZV_RECORD_ROUND ? r->run.nnodes : 0,
                                  .world_size = kind == RDZV_RECORD_ROUND ? r->run.world_size : 0,
                                  .words = line };
    r->env.record(r->env.user, &record);
}

/* --- messages to waiting nodes ----------------------------------------------------------------------------- */

/* Schedule a message to the waiting nodes, unless a message is scheduled already. */
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

/* List the node ranks without a node that waits or runs. If any waiting node has requested no rank, leave the list
 * empty, because the missing ranks are then unknown. */
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

static struct rdzv_waiting describe_waiting(const struct rdzv *r)
{
    bool between = r->state != RDZV_RUNNING && r->state != RDZV_STOPPING;
    struct rdzv_waiting w = { .state = r->state,
                              .joined = between ? r->n_waiting : r->run.n_members,
                              .min = r->rules.min,
                              .max = r->rules.max,
                              .spare = between ? 0 : r->n_waiting,
                              .returning = r->n_resting,
                              .left_ms = between ? left(r, r->until.gather_ms) : UINT64_MAX,
                              .last_call_ms = UINT64_MAX };
    if (r->state == RDZV_LAST_CALL)
        w.last_call_ms = left(r, r->until.call_ms);
    if (r->state == RDZV_BACKING_OFF)
        w.backoff_ms = left(r, r->until.back_off_ms);
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
    struct rdzv_waiting waiting = describe_waiting(r);
    struct rdzv_tell tell = { .kind = RDZV_TELL_WAITING, .waiting = &waiting, .round = r->run.round };
    LIST_EACH(i, &r->waiting)
    r->env.tell(r->env.user, LIST_ENTRY(i, struct node, waiting)->id, &tell);
}
