/* sim_agent.c -- see sim_agent.h. Events wait in a queue until their time. Effects of the agent add further events. */
#include "sim_agent.h"

#include "agent/agent.h"
#include "report/exit_text.h"
#include "tables/signals.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

void asim_init(struct asim *sim, int nproc, uint64_t grace_ms)
{
    asim_init_with(sim,
                   &(struct agent_options){ .nproc = nproc, .grace_ms = grace_ms, .wait_peers_ms = 1000 });
}

void asim_init_with(struct asim *sim, const struct agent_options *options)
{
    *sim = (struct asim){ .nproc = options->nproc, .good_from = ASIM_ATTEMPTS };
    sim->agent = agent_new(options);
    cr_assert_not_null(sim->agent);
    for (int r = 0; r < sim->nproc; r++)
        sim->worker[r].lives_ms = ASIM_FOR_EVER;
}

void asim_free(struct asim *sim)
{
    agent_free(sim->agent);
    buf_free(&sim->trace);
}

static void schedule(struct asim *sim, uint64_t at_ms, struct agent_event event)
{
    cr_assert_lt(sim->n_queue, ASIM_EVENTS);
    event.now_ms = at_ms;
    sim->queue[sim->n_queue++] = (struct asim_event){ event, sim->order++, sim->attempt };
}

void asim_stop_at(struct asim *sim, uint64_t at_ms, int signal)
{
    schedule(sim, at_ms, (struct agent_event){ .type = AGENT_STOP, .signal = signal });
}

void asim_told_at(struct asim *sim, uint64_t at_ms, int code)
{
    schedule(sim, at_ms, (struct agent_event){ .type = AGENT_NOTIFIED, .exit_code = code });
}

void asim_heard_at(struct asim *sim, uint64_t at_ms)
{
    schedule(sim, at_ms, (struct agent_event){ .type = AGENT_ACKNOWLEDGED });
}

void asim_lost_at(struct asim *sim, uint64_t at_ms)
{
    schedule(sim, at_ms, (struct agent_event){ .type = AGENT_STORE_LOST });
}

void asim_verdict_at(struct asim *sim, uint64_t at_ms, const struct agent_verdict *verdict)
{
    schedule(sim, at_ms, (struct agent_event){ .type = AGENT_VERDICT, .verdict = *verdict });
}

/* --- effects in this simulation -------------------------------------------------------------------------- */

static void spawn(struct asim *sim, int r)
{
    static const struct asim_worker good = { .lives_ms = 1000 };
    const struct asim_worker *w = sim->attempt < sim->good_from ? &sim->worker[r] : &good;
    cr_assert_eq(r, sim->next_spawn, "worker %d is asked for, but %d is next", r, sim->next_spawn);
    sim->next_spawn++;
    if (w->spawn_error != 0) {
        schedule(
            sim, sim->now_ms,
            (struct agent_event){ .type = AGENT_SPAWN_FAILED, .local_rank = r, .error = w->spawn_error });
        return;
    }
    sim->alive[r] = sim->started[r] = true;
    schedule(sim, sim->now_ms,
             (struct agent_event){ .type = AGENT_SPAWNED, .local_rank = r, .pid = 100 + r });
    if (w->lives_ms != ASIM_FOR_EVER)
        schedule(sim, sim->now_ms + w->lives_ms,
                 (struct agent_event){ .type = AGENT_EXITED,
                                       .local_rank = r,
                                       .exit_code = w->exit_code,
                                       .signal = w->signal,
                                       .unasked = true,
                                       .import_error = w->import_error });
}

/* Mark the planned end of worker `r` as the effect of a signal that the agent has sent. */
static void ask(struct asim *sim, int r)
{
    for (size_t i = 0; i < sim->n_queue; i++)
        if (sim->queue[i].event.local_rank == r && sim->queue[i].event.now_ms > sim->now_ms)
            sim->queue[i].event.unasked = false;
}

static void signal_worker(struct asim *sim, int r, int sig)
{
    const struct asim_worker *w = &sim->worker[r];
    bool polite = sig != SIGKILL;
    cr_assert(sim->started[r], "signal to worker %d, which never ran", r);
    cr_assert_eq(agent_worker(sim->agent, r)->verdict, WORKER_ALIVE, "signal to worker %d, which has ended",
                 r);
    ask(sim, r);
    if (sig == SIGCONT || w->stuck || (polite && w->ignores_polite))
        return;
    struct agent_event e = { .type = AGENT_EXITED, .local_rank = r, .signal = sig };
    if (polite && w->polite_exit != 0)
        e.signal = 0, e.exit_code = w->polite_exit;
    schedule(sim, sim->now_ms + (polite ? w->slow_ms : 0), e);
}

static void alone(struct asim *sim)
{
    schedule(sim, sim->now_ms, (struct agent_event){ .type = AGENT_ALONE });
}

static void signal_rest(struct asim *sim, int sig)
{
    if (sig == SIGCONT)
        return;
    sim->daemons = 0;
    if (sig == SIGKILL && !sim->immortal_daemons)
        sim->stubborn_daemons = 0;
    bool alive = false;
    for (int r = 0; r < sim->nproc; r++)
        alive = alive || sim->alive[r];
    if (sim->stubborn_daemons == 0 && !alive)
        alone(sim);
}

/* Check that no worker and no daemon of the attempt is left. */
static void check_nothing_left(const struct asim *sim)
{
    for (int r = 0; r < sim->nproc; r++)
        cr_assert_not(sim->alive[r], "worker %d still runs", r);
    cr_assert_eq(sim->daemons + sim->stubborn_daemons, 0, "something is left");
}

/* --- the store ------------------------------------------------------------------------------------------ */

static void send_failed(struct asim *sim, int r)
{
    cr_assert_not(sim->told_failed, "the first failure is reported once");
    cr_assert_eq(r, agent_first_failure(sim->agent));
    sim->told_failed = true;
    sim->cause_code = ending_code(agent_worker(sim->agent, r));
    buf_printf(&sim->trace, "          tell: worker %d failed\n", r);
}

static void send_exited(struct asim *sim, int r)
{
    cr_assert(sim->started[r] && !sim->told_exit[r]);
    sim->told_exit[r] = true;
}

/* Answer the agent's `done` or `stopped` with a verdict, as the store does for a job of one node. */
static void tell_end(struct asim *sim, const char *word)
{
    const bool again = sim->told_failed && !sim->left && sim->restarts > 0 && !agent_is_stuck(sim->agent) &&
                       agent_never_again(sim->agent) == NO_RESTART_NONE;
    const enum no_restart never = agent_never_again(sim->agent);
    const int code = sim->cause_code;
    const struct agent_verdict verdict = { .restart = again,
                                           .backoff_ms = sim->backoff_ms,
                                           .no_restart = sim->left                    ? NO_RESTART_STOPPED
                                                         : never != NO_RESTART_NONE   ? never
                                                         : agent_is_stuck(sim->agent) ? NO_RESTART_UNKILLABLE
                                                                                      : NO_RESTART_USED_UP,
                                           .exit_first = code,
                                           .exit_max = code,
                                           .exit_rank0 = code };
    cr_assert_not(sim->told_end && strcmp(word, "done") == 0, "only `stopped` may follow another word");
    cr_assert_not(sim->lost, "to a store that is lost");
    if (!agent_is_stuck(sim->agent))
        check_nothing_left(sim);
    sim->told_end = true;
    buf_printf(&sim->trace, "          tell: %s\n", word);
    if (sim->verdict_ms != ASIM_FOR_EVER)
        asim_verdict_at(sim, sim->now_ms + sim->verdict_ms, &verdict);
}

static void drain(struct asim *sim)
{
    check_nothing_left(sim);
    buf_printf(&sim->trace, "          take the last output\n");
    schedule(sim, sim->now_ms, (struct agent_event){ .type = AGENT_DRAINED });
}

static void leave(struct asim *sim)
{
    cr_assert_not(sim->left);
    sim->left = true;
    buf_printf(&sim->trace, "          leave\n");
}

static void join(struct asim *sim)
{
    check_nothing_left(sim);
    sim->attempt++;
    sim->restarts--;
    cr_assert_lt(sim->attempt, ASIM_ATTEMPTS);
    sim->next_spawn = sim->cause_code = 0;
    sim->told_failed = sim->told_end = false;
    memset(sim->started, 0, sizeof(sim->started));
    memset(sim->told_exit, 0, sizeof(sim->told_exit));
    buf_printf(&sim->trace, "          join again\n");
    schedule(sim, sim->now_ms,
             (struct agent_event){ .type = sim->not_ready ? AGENT_NOT_READY : AGENT_START,
                                   .attempt = sim->attempt });
}

static void carry_out(struct asim *sim, const struct agent_effect *effect)
{
    int r = effect->local_rank;
    char name[SIGNAL_NAME_MAX];
    cr_assert_not(sim->finished, "a wish after the end");
    signal_name(name, effect->signal);
    switch (effect->type) {
    case EFFECT_SPAWN:
        buf_printf(&sim->trace, "          start worker %d\n", r);
        spawn(sim, r);
        break;
    case EFFECT_SAMPLE:
        buf_printf(&sim->trace, "          sample the survivors\n");
        break;
    case EFFECT_SIGNAL:
        buf_printf(&sim->trace, "          %s to worker %d\n", name, r);
        signal_worker(sim, r, effect->signal);
        break;
    case EFFECT_SIGNAL_REST:
        buf_printf(&sim->trace, "          %s to the rest\n", name);
        signal_rest(sim, effect->signal);
        break;
    case EFFECT_REPORT_FAILED:
        send_failed(sim, r);
        break;
    case EFFECT_REPORT_EXITED:
        send_exited(sim, r);
        break;
    case EFFECT_DRAIN:
        drain(sim);
        break;
    case EFFECT_REPORT_CAUSE:
        cr_assert(sim->told_failed);
        buf_printf(&sim->trace, "          tell: why it failed\n");
        break;
    case EFFECT_REPORT_STOPPED:
        tell_end(sim, "stopped");
        break;
    case EFFECT_REPORT_DONE:
        tell_end(sim, "done");
        break;
    case EFFECT_LEAVE:
        leave(sim);
        break;
    case EFFECT_PRINT_WAITING:
        buf_printf(&sim->trace, "          say that others are waited for\n");
        break;
    case EFFECT_PRINT_DYING:
        buf_printf(&sim->trace, "          say that worker %d is dying\n", effect->local_rank);
        break;
    case EFFECT_PRINT_RESTART:
        buf_printf(&sim->trace, "          again in %llu ms\n",
                   (unsigned long long)agent_backoff(sim->agent));
        break;
    case EFFECT_JOIN:
        join(sim);
        break;
    case EFFECT_FINISH:
        buf_printf(&sim->trace, "          finish with %d\n", effect->exit_code);
        sim->finished = true;
        sim->exit_code = effect->exit_code;
        break;
    }
}

/* --- the clock ------------------------------------------------------------------------------------------ */

static const char *const plain_events[AGENT_EVENTS] = { [AGENT_START] = "begin",
                                                        [AGENT_ALONE] = "nothing is left",
                                                        [AGENT_DRAINED] = "all output is taken",
                                                        [AGENT_ACKNOWLEDGED] = "has it",
                                                        [AGENT_VERDICT] = "the verdict",
                                                        [AGENT_STORE_LOST] = "lost store",
                                                        [AGENT_NOT_READY] = "it cannot be made ready",
                                                        [AGENT_TICK] = "time is up" };

static void trace_event(struct asim *sim, const struct agent_event *e)
{
    const struct agent_worker *w = agent_worker(sim->agent, e->local_rank);
    char text[ENDING_MAX];
    buf_printf(&sim->trace, "[%6llu] ", (unsigned long long)e->now_ms);
    switch (e->type) {
    case AGENT_SPAWNED:
        buf_printf(&sim->trace, "worker %d runs\n", e->local_rank);
        break;
    case AGENT_SPAWN_FAILED:
        buf_printf(&sim->trace, "worker %d: %s, %s\n", e->local_rank, strerror(e->error),
                   verdict_name(w->verdict));
        break;
    case AGENT_EXITED:
        if (w->signal != 0)
            signal_name(text, w->signal);
        else
            snprintf(text, sizeof(text), "exit %d", w->exit_code);
        buf_printf(&sim->trace, "worker %d: %s, %s\n", e->local_rank, text, verdict_name(w->verdict));
        break;
    case AGENT_STOP:
        signal_name(text, e->signal);
        buf_printf(&sim->trace, "the user sends %s\n", text);
        break;
    case AGENT_NOTIFIED:
        buf_printf(&sim->trace, "the store says stop: exit %d\n", e->exit_code);
        break;
    default:
        buf_printf(&sim->trace, "%s\n", plain_events[e->type]);
    }
}

static void feed(struct asim *sim, const struct agent_event *e)
{
    size_t n;
    const struct agent_effect *effects = agent_step(sim->agent, e, &n);
    trace_event(sim, e);
    for (size_t i = 0; i < n; i++)
        carry_out(sim, &effects[i]);
    cr_assert_eq(sim->finished, agent_state(sim->agent) == AGENT_DONE);
}

/* Return true if a scheduled event still happens. If several ends of a worker are scheduled, only the first happens. */
static bool still_happens(struct asim *sim, const struct agent_event *e, int attempt)
{
    int r = e->local_rank;
    if (e->type == AGENT_STORE_LOST)
        sim->lost = true;
    if (e->type == AGENT_VERDICT || e->type == AGENT_NOTIFIED)
        return !sim->lost;
    if (e->type != AGENT_EXITED)
        return true;
    if (!sim->alive[r] || attempt != sim->attempt)
        return false;
    sim->alive[r] = false;
    if (sim->attempt >= sim->good_from)
        return true;
    if (sim->worker[r].leaves_daemon && sim->worker[r].stubborn_daemon)
        sim->stubborn_daemons++;
    else if (sim->worker[r].leaves_daemon)
        sim->daemons++;
    return true;
}

/* Remove the earliest event from the queue. Return false if the queue is empty. */
static bool take_next(struct asim *sim, struct agent_event *out, int *attempt)
{
    size_t best = 0;
    if (sim->n_queue == 0)
        return false;
    for (size_t i = 1; i < sim->n_queue; i++) {
        const struct asim_event *a = &sim->queue[i], *b = &sim->queue[best];
        if (a->event.now_ms < b->event.now_ms || (a->event.now_ms == b->event.now_ms && a->order < b->order))
            best = i;
    }
    *out = sim->queue[best].event;
    *attempt = sim->queue[best].attempt;
    sim->queue[best] = sim->queue[--sim->n_queue];
    return true;
}

/* Return the event for a passed deadline. As in the launcher, `dying` is true if the kernel is still cleaning up a
 * worker, and `local_rank` is such a worker. */
static struct agent_event tick(const struct asim *sim, uint64_t now_ms)
{
    struct agent_event e = { .type = AGENT_TICK, .now_ms = now_ms };
    for (int r = 0; r < sim->nproc; r++) {
        const struct asim_worker *w = &sim->worker[r];
        if (sim->alive[r] && w->dies_ms > 0 && now_ms + w->dies_ms >= w->lives_ms) {
            e.local_rank = r;
            e.dying = true;
        }
    }
    return e;
}

void asim_run(struct asim *sim)
{
    struct agent_event e = { .type = AGENT_START };
    int steps = 0, attempt = 0;
    if (sim->n_queue == 0 || sim->queue[0].event.now_ms > 0)
        feed(sim, &e);
    while (!sim->finished) {
        uint64_t deadline = agent_deadline(sim->agent);
        bool have = take_next(sim, &e, &attempt);
        cr_assert(have || deadline != UINT64_MAX, "nothing will ever happen again");
        if (have && e.now_ms > deadline) {
            schedule(sim, e.now_ms, e);
            sim->queue[sim->n_queue - 1].attempt = attempt;
            have = false;
        }
        if (!have)
            e = tick(sim, deadline);
        sim->now_ms = e.now_ms;
        if (still_happens(sim, &e, attempt))
            feed(sim, &e);
        cr_assert_lt(++steps, 10000, "it never ends");
    }
}

void asim_expect(struct asim *sim, const char *trace)
{
    cr_assert(buf_append(&sim->trace, "", 1));
    sim->trace.len--;
    cr_assert_str_eq((const char *)sim->trace.data, trace, "the trace is:\n%s",
                     (const char *)sim->trace.data);
}
