/* sim_rdzv.c -- see sim_rdzv.h. The simulated clock jumps from one deadline to the next. */
#include "sim_rdzv.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void trace(struct sim_rdzv *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void trace(struct sim_rdzv *sim, const char *format, ...)
{
    char line[2048];
    va_list args;
    if (sim->brief && format[0] == ' ')
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    cr_assert(buf_printf(&sim->trace, "[%6" PRIu64 "] %s\n", sim->now_ms, line));
}

/* --- effects of the rendezvous --------------------------------------------------------------------------- */

static uint64_t id_of(int node)
{
    return (uint64_t)node + 1;
}

static void trace_waiting(struct sim_rdzv *sim, int node, const struct rdzv_waiting *w)
{
    char missing[128] = "", spare[32] = "";
    cr_expect(w->state != RDZV_LAST_CALL || w->left_ms == UINT64_MAX); /* a last call cannot fail */
    for (uint32_t i = 0; i < w->n_missing_listed && i < 8; i++)
        snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), "%s%" PRIu32,
                 i == 0 ? ", missing " : " ", w->missing[i]);
    if (w->spare > 0)
        snprintf(spare, sizeof(spare), ", %" PRIu32 " spare", w->spare);
    trace(sim, "  n%d < %s: %" PRIu32 " of %" PRIu32 "%s%s", node, rdzv_state_word(w->state), w->joined,
          w->max, missing, spare);
}

static void trace_end(struct sim_rdzv *sim, int node, const struct rdzv_notice *t)
{
    if (t->kind == RDZV_NOTICE_STOP)
        trace(sim, "  n%d < stop round %" PRIu32 ": %s", node, t->round, rdzv_why_word(t->why));
    else if (t->restart)
        trace(sim, "  n%d < restart after %s, in %" PRIu64 " ms", node, rdzv_why_word(t->why), t->backoff_ms);
    else
        trace(sim, "  n%d < finish: %s, exit %d/%d/%d%s%s", node, rdzv_why_word(t->why), t->exit.first,
              t->exit.max, t->exit.rank0, t->no_restart ? ", " : "", no_restart_word(t->no_restart));
}

static void tell(void *user, uint64_t id, const struct rdzv_notice *t)
{
    struct sim_rdzv *sim = user;
    int node = (int)id - 1;
    sim->told[t->kind]++;
    if (t->kind == RDZV_NOTICE_WAITING)
        trace_waiting(sim, node, t->waiting);
    else if (t->kind != RDZV_NOTICE_ROUND)
        trace_end(sim, node, t);
    else
        trace(sim,
              "  n%d < round %" PRIu32 ": node %" PRIu32 " of %" PRIu32 ", ranks from %" PRIu32
              " of %" PRIu32,
              node, t->world->round, t->node_rank, t->world->nnodes, t->first_rank, t->world->world_size);
}

static bool begin(void *user, const struct rdzv_round *world)
{
    struct sim_rdzv *sim = user;
    trace(sim, "  keys of attempt %" PRIu32, world->attempt);
    return !sim->no_memory;
}

static int64_t progress(void *user)
{
    return ((struct sim_rdzv *)user)->progress;
}

static void waiting_nodes(void *user, uint32_t count)
{
    trace(user, "  key waiting_nodes = %" PRIu32, count);
}

static void drop(void *user, uint64_t id, const char *why)
{
    trace(user, "  n%d is dropped: %s", (int)id - 1, why);
}

static void record(void *user, const struct rdzv_record *record)
{
    struct sim_rdzv *sim = user;
    cr_assert_eq(record->now_ms, sim->now_ms);
    if (!sim->brief || record->node == 0)
        trace(sim, "%s", record->words);
}

/* --- begin and end -------------------------------------------------------------------------------------- */

void rsim_init(struct sim_rdzv *sim)
{
    if (sim->r != NULL)
        rsim_free(sim);
    *sim = (struct sim_rdzv){ .quota = { .max = 64 << 20 }, .progress = -1 };
    sim->join = (struct rdzv_join){ .job = "j",
                                    .instance = "",
                                    .version = "1.0",
                                    .boot_id = "b",
                                    .addr = "10.0.0.1",
                                    .program = "train.py",
                                    .nnodes_min = 2,
                                    .nnodes_max = 2,
                                    .node_rank = -1,
                                    .nproc = 2,
                                    .nproc_given = true,
                                    .backoff_ms = 1000,
                                    .backoff_cap_ms = 60000,
                                    .last_call_ms = 30000,
                                    .join_timeout_ms = 900000,
                                    .grace_ms = 5000 };
    const struct rdzv_env env = { .user = sim,
                                  .notify = tell,
                                  .begin = begin,
                                  .progress = progress,
                                  .waiting_nodes = waiting_nodes,
                                  .drop = drop,
                                  .record = record };
    sim->r = rdzv_new(&env, &sim->quota, "j", "life-1");
    cr_assert_not_null(sim->r);
}

void rsim_init_elastic(struct sim_rdzv *sim, uint32_t min, uint32_t max)
{
    rsim_init(sim);
    sim->join.elastic = true;
    sim->join.nnodes_min = min;
    sim->join.nnodes_max = max;
    sim->join.join_timeout_ms = 600000;
}

void rsim_free(struct sim_rdzv *sim)
{
    rdzv_free(sim->r);
    cr_assert_eq(sim->quota.used, 0, "%" PRIu64 " bytes of the quota are not given back", sim->quota.used);
    buf_free(&sim->trace);
}

/* --- time ----------------------------------------------------------------------------------------------- */

static void beat(struct sim_rdzv *sim)
{
    for (int i = 0; sim->now_ms % 1000 == 0 && i < SIM_NODES; i++)
        if (sim->beats[i])
            rdzv_received(sim->r, id_of(i), sim->now_ms);
}

/* Move the clock to `now_ms`, and stop at each deadline and at each full second on the way. At a full second, send the
 * heartbeats before rdzv_tick. */
void rsim_at(struct sim_rdzv *sim, uint64_t now_ms)
{
    for (;;) {
        uint64_t next_beat = sim->now_ms / 1000 * 1000 + 1000, next = rdzv_deadline(sim->r);
        next = next < next_beat ? next : next_beat;
        if (next > now_ms)
            break;
        sim->now_ms = next > sim->now_ms ? next : sim->now_ms;
        beat(sim);
        rdzv_tick(sim->r, sim->now_ms);
    }
    sim->now_ms = now_ms;
}

void rsim_freeze_until(struct sim_rdzv *sim, uint64_t now_ms)
{
    sim->now_ms = now_ms;
    rdzv_tick(sim->r, now_ms);
}

/* --- messages of nodes ---------------------------------------------------------------------------------- */

enum rdzv_refused rsim_join_as(struct sim_rdzv *sim, int node, const struct rdzv_join *join)
{
    char host[32];
    struct rdzv_join j = *join;
    snprintf(host, sizeof(host), "n%d", node);
    if (j.host == NULL)
        j.host = host;
    if (j.pid == 0)
        j.pid = 100 + node;
    enum rdzv_refused refused = rdzv_join(sim->r, id_of(node), &j, sim->now_ms, &sim->refusal);
    rdzv_recheck(sim->r, sim->now_ms);
    return refused;
}

enum rdzv_refused rsim_join(struct sim_rdzv *sim, int node)
{
    return rsim_join_as(sim, node, &sim->join);
}

enum rdzv_refused rsim_rejoin(struct sim_rdzv *sim, int node)
{
    struct rdzv_join join = sim->join;
    join.instance = rdzv_instance(sim->r);
    return rsim_join_as(sim, node, &join);
}

void rsim_join_all(struct sim_rdzv *sim, int first, int last)
{
    for (int i = first; i <= last; i++)
        cr_assert_eq(rsim_join(sim, i), RDZV_WELCOME, "%s", sim->refusal.sentence);
}

enum rdzv_answer rsim_fail(struct sim_rdzv *sim, int node, uint32_t round, int rank, int signal)
{
    struct failure failure = { .rank = rank,
                               .pid = 1000 + rank,
                               .exit_code = signal < 0 ? -signal : 0,
                               .signal = signal > 0 ? signal : 0,
                               .lines = { "Traceback" },
                               .n_lines = 1 };
    snprintf(failure.words, sizeof(failure.words), signal > 0 ? "died of signal %d" : "had exit code %d",
             signal > 0 ? signal : -signal);
    return rdzv_failed(sim->r, id_of(node), round, &failure, sim->now_ms);
}

enum rdzv_answer rsim_done(struct sim_rdzv *sim, int node, uint32_t round)
{
    return rdzv_done(sim->r, id_of(node), round, sim->now_ms);
}

enum rdzv_answer rsim_stopped(struct sim_rdzv *sim, int node, uint32_t round)
{
    return rdzv_stopped(sim->r, id_of(node), round, &(struct rdzv_stopped){ 0 }, sim->now_ms);
}

void rsim_leave(struct sim_rdzv *sim, int node, int signal)
{
    rdzv_leave(sim->r, id_of(node), signal, "bash (pid 77, uid 1000)", "", sim->now_ms);
}

void rsim_lost(struct sim_rdzv *sim, int node)
{
    sim->beats[node] = false;
    rdzv_lost(sim->r, id_of(node), "connection closed", sim->now_ms);
}

/* --- search --------------------------------------------------------------------------------------------- */

static const char *text_of(struct sim_rdzv *sim)
{
    cr_assert(buf_append(&sim->trace, "", 1));
    return (const char *)sim->trace.data;
}

void rsim_forget(struct sim_rdzv *sim)
{
    buf_free(&sim->trace);
    sim->trace = (struct buf){ 0 };
}

void rsim_expect_at(struct sim_rdzv *sim, const char *text, const char *file, int line)
{
    const char *got = text_of(sim);
    cr_assert_str_eq(got, text, "%s:%d: the trace is\n%s\ninstead of\n%s", file, line, got, text);
    rsim_forget(sim);
}

void rsim_expect_part_at(struct sim_rdzv *sim, const char *text, const char *file, int line)
{
    const char *got = text_of(sim);
    cr_assert_not_null(strstr(got, text), "%s:%d: '%s' is not in\n%s", file, line, text, got);
    rsim_forget(sim);
}

enum rdzv_state rsim_state(const struct sim_rdzv *sim)
{
    struct rdzv_facts facts;
    rdzv_facts(sim->r, &facts);
    return facts.state;
}

int rsim_rank(const struct sim_rdzv *sim, int node)
{
    struct rdzv_node_facts facts;
    if (!rdzv_node_facts(sim->r, id_of(node), &facts) || facts.state == RDZV_NODE_WAITING)
        return -1;
    return facts.node_rank;
}
