/* admission.c -- the checks before a node may join a job. The first node sets the rules of the job, and each later node
 * is compared with these rules. A rejection names the values and the hosts of both nodes, because the mistake may be on
 * either node. */
#include "job/round.h"

#include "base/options.h"

#include <stdarg.h>
#include <stdio.h>

/* A longer time in a join is cut to this value, so that a sum of such times cannot overflow. */
#define TEN_YEARS_MS (10ull * 365 * 24 * 3600 * 1000)

/* The input of a check, borrowed for the call. A check writes only `refusal`. */
struct check {
    const struct rdzv *r;
    const struct rdzv_join *join;
    struct rdzv_refusal *refusal;
    enum rdzv_admission as; /* how the node takes part if it is accepted: as a member or as a spare */
    who_name self, first;   /* names for the message: the joining node, and the node that set the rules */
};

static void name_both(struct check *c)
{
    const struct who self = rdzv_who(c->join);
    rdzv_name_who(c->self, &self, &c->r->rules.from);
    rdzv_name_who(c->first, &c->r->rules.from, &self);
}

static bool word_refusal(const struct check *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Format the message of a rejection. Always return false, the result of a failed check. */
static bool word_refusal(const struct check *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->refusal->sentence, sizeof(c->refusal->sentence), format, args);
    va_end(args);
    return false;
}

/* --- checks: true = accepted --------------------------------------------------------------------------- */

/* Reject numbers beyond their limits. This check is the first, because later code relies on the limits. */
static bool is_sound(const struct check *c)
{
    const struct rdzv_join *j = c->join;
    if (j->nproc < 1 || j->nproc > RDZV_NPROC_MAX)
        return word_refusal(c, "%s has %" PRIu32 " workers: expected a number from 1 to %d", c->self,
                            j->nproc, RDZV_NPROC_MAX);
    if (j->nnodes_min < 1 || j->nnodes_min > j->nnodes_max || j->nnodes_max > RDZV_NODES_MAX)
        return word_refusal(
            c, "%s has --nnodes=%" PRIu32 ":%" PRIu32 ": expected MIN:MAX, with 1 <= MIN <= MAX <= %d",
            c->self, j->nnodes_min, j->nnodes_max, RDZV_NODES_MAX);
    if (!j->elastic && j->nnodes_min != j->nnodes_max)
        return word_refusal(c, "%s has --nnodes=%" PRIu32 ":%" PRIu32 ": a static job needs one number",
                            c->self, j->nnodes_min, j->nnodes_max);
    return true;
}

/* Reject a node of another job. The names are cut at 200 bytes, so that both names fit in the message. */
static bool same_job(const struct check *c)
{
    return strcmp(c->r->job, c->join->job) == 0 ||
           word_refusal(c, "%s belongs to job '%.200s', but this is the rendezvous of job '%.200s'", c->self,
                        c->join->job, c->r->job);
}

/* Reject an agent of an earlier run of the job. An agent that joins for the first time has no instance id yet, so every
 * run accepts this agent. */
static bool same_instance(const struct check *c)
{
    /* the first join of an agent has the instance id "" */
    return c->join->instance[0] == '\0' || strcmp(c->r->instance, c->join->instance) == 0 ||
           word_refusal(
               c,
               "%s belongs to an earlier run of job '%.200s' (instance id %.60s); the present run has "
               "instance id %.60s",
               c->self, c->r->job, c->join->instance, c->r->instance);
}

static bool not_over(const struct check *c)
{
    return c->as != RDZV_NOBODY ||
           word_refusal(c, "job '%.200s' is over: %s cannot join", c->r->job, c->self);
}

/* Reject an agent whose minor version differs from the version of the first node or of the store. The messages of two
 * minor versions may differ. Check the first node before the store, because the user knows the first node. */
static bool same_version(const struct check *c)
{
    const struct rules *rules = &c->r->rules;
    const char *store = c->r->env.version;
    if (rules->known && !version_matches(rules->version, c->join->version))
        return word_refusal(c, "%s runs ddprun %.60s, but %s, which joined earlier, runs ddprun %.60s",
                            c->self, c->join->version, c->first, rules->version);
    return store == NULL || version_matches(store, c->join->version) ||
           word_refusal(c, "%s runs ddprun %.60s, the store of the job has version %.60s", c->self,
                        c->join->version, store);
}

/* Format --nnodes as the user typed it. Append `mode` ("", " (elastic)" or " (static)") if --nnodes is a single
 * number. */
static const char *nnodes_text(char *room, size_t size, uint32_t min, uint32_t max, const char *mode)
{
    if (min == max)
        snprintf(room, size, "--nnodes=%" PRIu32 "%s", min, mode);
    else
        snprintf(room, size, "--nnodes=%" PRIu32 ":%" PRIu32, min, max);
    return room;
}

/* Return " (elastic)" or " (static)", or "" if both nodes have the same mode. */
static const char *mode_text(bool elastic, bool same)
{
    return same ? "" : elastic ? " (elastic)" : " (static)";
}

/* Reject a node whose --nnodes differs from the value of the first node. */
static bool same_nnodes(const struct check *c)
{
    const struct rules *rules = &c->r->rules;
    const struct rdzv_join *j = c->join;
    char joining[64], set[64];
    const bool same_mode = rules->elastic == j->elastic;
    bool same = same_mode && rules->min == j->nnodes_min && rules->max == j->nnodes_max;
    return same || word_refusal(c, "%s has %s, %s has %s", c->self,
                                nnodes_text(joining, sizeof(joining), j->nnodes_min, j->nnodes_max,
                                            mode_text(j->elastic, same_mode)),
                                c->first,
                                nnodes_text(set, sizeof(set), rules->min, rules->max,
                                            mode_text(rules->elastic, same_mode)));
}

/* Return true if the node has the role of the first node. Nodes with different roles may run different programs, with
 * different numbers of workers. */
static bool same_role(const struct check *c)
{
    char role[sizeof(c->r->rules.role)];
    text_copy(role, sizeof(role), c->join->role);
    return strcmp(role, c->r->rules.role) == 0;
}

/* Reject a node that has more or fewer workers than the other nodes. This applies only to elastic jobs. The number of
 * workers may differ with --uneven, between roles, or if a node counts its GPUs or CPUs (gpu, cpu, auto). */
static bool same_nproc(const struct check *c)
{
    const struct rules *rules = &c->r->rules;
    const struct rdzv_join *j = c->join;
    const struct who self = rdzv_who(j);
    who_name name, other;
    bool compared = rules->elastic && rules->nproc_fixed && j->nproc_given && !j->uneven && !rules->uneven;
    return !compared || rules->nproc == j->nproc || !same_role(c) ||
           word_refusal(c, "%s has --nproc_per_node=%" PRIu32 ", %s has --nproc_per_node=%" PRIu32,
                        rdzv_name_who(name, &self, &rules->nproc_from), j->nproc,
                        rdzv_name_who(other, &rules->nproc_from, &self), rules->nproc);
}

/* Reject a program that differs from the program of the first node. The node then usually belongs to another job with
 * the same default port and job id. Compare only file names, because paths may differ between machines. With --uneven,
 * programs may differ. */
static bool same_program(const struct check *c)
{
    const struct rules *rules = &c->r->rules;
    const struct rdzv_join *j = c->join;
    char program[sizeof(rules->program)];
    bool compared = rules->program[0] != '\0' && j->program[0] != '\0' && !j->uneven && !rules->uneven;
    text_copy(program, sizeof(program), j->program);
    return !compared || strcmp(rules->program, program) == 0 || !same_role(c) ||
           word_refusal(c, "%s starts the program '%.60s', %s starts '%.60s'", c->self, j->program, c->first,
                        rules->program);
}

/* Reject a node rank that is not below --nnodes. Use --nnodes of this node, because same_nnodes has already compared
 * it with --nnodes of the first node. */
static bool rank_is_there(const struct check *c)
{
    const struct rdzv_join *j = c->join;
    return j->elastic || j->node_rank < (int64_t)j->nnodes_max ||
           word_refusal(c,
                        "%s (pid %d) has --node_rank=%" PRId32 ": expected %s%" PRIu32
                        ", because --nnodes is %" PRIu32 "%s%s",
                        j->host, j->pid, j->node_rank, j->nnodes_max > 1 ? "a number from 0 to " : "",
                        j->nnodes_max - 1, j->nnodes_max, c->r->rules.known ? " on " : "",
                        c->r->rules.known ? c->first : "");
}

/* Return the node that already has the requested node rank, or NULL if the node rank is free. */
static const struct node *holder_of(const struct check *c)
{
    const struct rdzv_join *j = c->join;
    return j->elastic || j->node_rank < 0 ? NULL : c->r->place[j->node_rank];
}

/* Reject a second ddprun with the same node rank on one host, if a scheduler has started both. The scheduler should
 * start one ddprun on each node, but has started one for each worker. */
static bool one_task_a_node(const struct check *c)
{
    const struct rdzv_join *j = c->join;
    const struct node *holder = holder_of(c);
    return holder == NULL || strcmp(holder->host, j->host) != 0 || j->task == NULL || j->task[0] == '\0' ||
           word_refusal(
               c,
               "%s runs ddprun several times, once for each task of %s: pids %d and %d both have node "
               "rank %" PRId32,
               j->host, j->task, holder->pid, j->pid, j->node_rank);
}

/* Reject a second ddprun with the same node rank on one host. Compare host names, because two containers on one machine
 * have the same boot id. */
static bool launched_once(const struct check *c)
{
    const struct rdzv_join *j = c->join;
    const struct node *holder = holder_of(c);
    return holder == NULL || strcmp(holder->host, j->host) != 0 ||
           word_refusal(
               c, "ddprun was started twice on %s: pid %d has the same --node_rank=%" PRId32 " as pid %d",
               j->host, j->pid, j->node_rank, holder->pid);
}

/* Reject a node rank that a node on another host has. */
static bool rank_is_free(const struct check *c)
{
    const struct rdzv_join *j = c->join;
    const struct node *holder = holder_of(c);
    return holder == NULL ||
           word_refusal(c, "%s (pid %d) has the same --node_rank=%" PRId32 " as %s (pid %d)", j->host, j->pid,
                        j->node_rank, holder->host, holder->pid);
}

/* Reject a node if the job has no room. An elastic job also keeps spares, up to RDZV_NODES_MAX nodes. Finished nodes
 * count, because they stay in memory until their connections close. */
static bool has_room(const struct check *c)
{
    const struct rdzv *r = c->r;
    uint32_t limit = r->rules.elastic ? RDZV_NODES_MAX : r->rules.max;
    return (r->n_live < limit && r->by_id.count < 2 * RDZV_NODES_MAX) ||
           word_refusal(c,
                        "%s is one node too many: job '%.200s' already has %" PRIu32 " of %" PRIu32
                        " nodes; the first node was %s",
                        c->self, r->job, r->n_live, limit, c->first);
}

typedef bool (*check_call)(const struct check *c);

/* The checks, in order of importance, because only the first check that fails is reported. The checks do not change
 * the job. */
static const struct {
    check_call passes;
    enum rdzv_refused code;
    bool needs_rules; /* the check needs the rules of the first node */
} checks[] = {
    { is_sound, RDZV_REFUSED_BAD_JOIN, false },
    { same_job, RDZV_REFUSED_JOB_DIFFERS, false },
    { same_instance, RDZV_REFUSED_STALE_INSTANCE, false },
    { not_over, RDZV_REFUSED_JOB_OVER, false },
    { same_version, RDZV_REFUSED_VERSION_DIFFERS, false },
    { same_nnodes, RDZV_REFUSED_NNODES_DIFFERS, true },
    { same_nproc, RDZV_REFUSED_NPROC_DIFFERS, true },
    { same_program, RDZV_REFUSED_PROGRAM_DIFFERS, true },
    { rank_is_there, RDZV_REFUSED_NODE_RANK_TOO_HIGH, false },
    { one_task_a_node, RDZV_REFUSED_WRONG_TASK_LAYOUT, true },
    { launched_once, RDZV_REFUSED_LAUNCHED_TWICE, true },
    { rank_is_free, RDZV_REFUSED_NODE_RANK_TAKEN, true },
    { has_room, RDZV_REFUSED_JOB_FULL, true },
};

/* --- the rules ------------------------------------------------------------------------------------------ */

/* Cut a time that a peer has sent to at most ten years. Without this limit, the sum of the clock and a very large time
 * could overflow, and the deadline would then be in the past. */
static uint64_t cut(uint64_t ms)
{
    return ms < TEN_YEARS_MS ? ms : TEN_YEARS_MS;
}

/* Store the rules of the first node. In a static job, also allocate r->place, which rdzv_add_node uses. The timeouts,
 * the backoff and the restart limits of the first node apply to the whole job. The values of later nodes are ignored.
 * The join timeout starts here, when the first node begins to wait. */
static bool store_rules(struct rdzv *r, const struct rdzv_join *j)
{
    struct rules *rules = &r->rules;
    *rules = (struct rules){ .known = true,
                             .elastic = j->elastic,
                             .min = j->nnodes_min,
                             .max = j->nnodes_max,
                             .last_call_ms = cut(j->last_call_ms),
                             .join_timeout_ms = cut(j->join_timeout_ms),
                             .node_timeout_ms = cut(j->node_timeout_ms),
                             .grow = j->grow };
    rules->from = rdzv_who(j);
    text_copy(rules->version, sizeof(rules->version), j->version);
    text_copy(rules->role, sizeof(rules->role), j->role);
    text_copy(rules->join_knob, sizeof(rules->join_knob),
              j->join_knob != NULL && j->join_knob[0] != '\0' ? j->join_knob : "--timeout");
    if (!rdzv_make_places(r)) {
        *rules = (struct rules){ 0 };
        return false;
    }
    struct rdzv_join restart = *j;
    restart.backoff_ms = cut(j->backoff_ms);
    restart.backoff_cap_ms = cut(j->backoff_cap_ms);
    restarts_init(&r->restarts, &restart);
    r->until.gather_ms = r->now_ms + rules->join_timeout_ms;
    r->since_ms = r->now_ms;
    return true;
}

/* Set the rules that no earlier node has set: --uneven, the program, or the number of workers. */
static void add_to_rules(struct rdzv *r, const struct rdzv_join *j)
{
    struct rules *rules = &r->rules;
    rules->uneven = rules->uneven || j->uneven;
    if (rules->program[0] == '\0')
        text_copy(rules->program, sizeof(rules->program), j->program);
    if (rules->nproc_fixed || !j->nproc_given || j->uneven)
        return;
    rules->nproc_fixed = true;
    rules->nproc = j->nproc;
    rules->nproc_from = rdzv_who(j);
}

/* --- joining -------------------------------------------------------------------------------------------- */

/* Reject the node and log the rejection. */
static enum rdzv_refused refuse_join(struct rdzv *r, const struct check *c, enum rdzv_refused code)
{
    c->refusal->code = code;
    rdzv_note(r, RDZV_RECORD_REFUSED, NULL, "refused (%s): %s; %s", rdzv_refused_code(code),
              c->refusal->sentence, rdzv_refused_advice(code));
    return code;
}

/* Run the checks in order, and return the first failure. Do not report further failures, because correcting one mistake
 * often removes the others. */
static enum rdzv_refused find_objection(const struct check *c)
{
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
        if ((!checks[i].needs_rules || c->r->rules.known) && !checks[i].passes(c))
            return checks[i].code;
    return RDZV_WELCOME;
}

/* Let a known node join again. Check only its job and its instance. If the node already waits, its second `join`
 * changes nothing. Reject a node whose workers run, because the workers would be counted twice. */
static enum rdzv_refused join_again(struct rdzv *r, struct node *node, const struct check *c)
{
    char room[2 * RDZV_TEXT_MAX];
    if (!same_job(c))
        return refuse_join(r, c, RDZV_REFUSED_JOB_DIFFERS);
    if (!same_instance(c))
        return refuse_join(r, c, RDZV_REFUSED_STALE_INSTANCE);
    if (node->state == RDZV_NODE_WAITING)
        return RDZV_WELCOME;
    if (node->state == RDZV_NODE_FINISHED) {
        word_refusal(c, "%s has already finished its part of job '%.200s'", c->self, r->job);
        return refuse_join(r, c, RDZV_REFUSED_JOB_OVER);
    }
    if (node->state != RDZV_NODE_RESTING) {
        word_refusal(c, "%s takes part in attempt %" PRIu32 " already", rdzv_name(node, room, sizeof(room)),
                     r->run.round - 1);
        return refuse_join(r, c, RDZV_REFUSED_ALREADY_IN);
    }
    rdzv_node_waits(r, node);
    rdzv_note(r, RDZV_RECORD_JOIN, node, "%s has joined again", rdzv_name(node, room, sizeof(room)));
    return RDZV_WELCOME;
}

/* Log a join. For a spare, also log why the node is only a spare. */
static void log_join(struct rdzv *r, const struct node *node, enum rdzv_admission as)
{
    char room[2 * RDZV_TEXT_MAX];
    const char *name = rdzv_name(node, room, sizeof(room));
    const struct rules *rules = &r->rules;
    if (as == RDZV_AS_SPARE || r->n_waiting > rules->max)
        rdzv_note(r, RDZV_RECORD_SPARE, node, "%s joined as a spare: %s", name,
                  as == RDZV_AS_SPARE ? "a round is running"
                                      : "the job already has its maximum number of nodes");
    else if (rules->min == rules->max)
        rdzv_note(r, RDZV_RECORD_JOIN, node, "%s joined (%" PRIu32 " of %" PRIu32 ")", name, r->n_waiting,
                  rules->max);
    else
        rdzv_note(r, RDZV_RECORD_JOIN, node, "%s joined (%" PRIu32 " of %" PRIu32 " to %" PRIu32 ")", name,
                  r->n_waiting, rules->min, rules->max);
}

/* Log the node's number of workers if it differs from rules.nproc, because the difference may be a typing error. */
static void note_uneven(struct rdzv *r, const struct node *node)
{
    char room[2 * RDZV_TEXT_MAX];
    if (r->rules.nproc_fixed && node->nproc != r->rules.nproc)
        rdzv_note(r, RDZV_RECORD_JOIN, node, "%s has %" PRIu32 " worker%s, but %s has %" PRIu32,
                  rdzv_name(node, room, sizeof(room)), node->nproc, node->nproc == 1 ? "" : "s",
                  r->rules.nproc_from.host, r->rules.nproc);
}

/* Check the node, store the rules if it is the first node, and add the node. If the first node cannot be added, remove
 * its rules. */
static enum rdzv_refused join_first_time(struct rdzv *r, uint64_t id, const struct check *c)
{
    bool fresh = !r->rules.known;
    enum rdzv_refused objection = find_objection(c);
    if (objection != RDZV_WELCOME)
        return refuse_join(r, c, objection);
    struct node *node = !fresh || store_rules(r, c->join) ? rdzv_add_node(r, id, c->join) : NULL;
    if (node == NULL) {
        if (fresh)
            rdzv_forget_rules(r);
        word_refusal(c, "the store has no memory left for %s; %" PRIu32 " node%s of the job joined earlier",
                     c->self, r->n_live, r->n_live == 1 ? "" : "s");
        return refuse_join(r, c, RDZV_REFUSED_STORE_FULL);
    }
    add_to_rules(r, c->join);
    rdzv_node_waits(r, node);
    log_join(r, node, c->as);
    note_uneven(r, node);
    return RDZV_WELCOME;
}

/* Check the join, and accept or reject the node. After the acceptance, record a sign of life (rdzv_touch). This cannot
 * be done earlier, because the acceptance creates the struct of a new node. */
void rdzv_admit(struct rdzv *r, struct node *known, struct rdzv_joining *joining, enum rdzv_admission as)
{
    struct check check = { .r = r, .join = joining->join, .refusal = joining->refusal, .as = as };
    *joining->refusal = (struct rdzv_refusal){ .code = RDZV_WELCOME };
    name_both(&check);
    if ((known != NULL ? join_again(r, known, &check) : join_first_time(r, joining->id, &check)) !=
        RDZV_WELCOME)
        return;
    rdzv_touch(r, rdzv_find(r, joining->id));
    r->must_recheck = true;
    rdzv_schedule_notify(r);
}
