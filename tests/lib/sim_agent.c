/* sim_agent.c -- see sim_agent.h. */
#include "sim_agent.h"

#include "agent/ending.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

void asim_init(struct asim *sim, int nproc, uint64_t grace_ms)
{
    asim_init_with(sim, &(struct agent_options){ .nproc = nproc, .grace_ms = grace_ms });
}

void asim_init_with(struct asim *sim, const struct agent_options *options)
{
    *sim = (struct asim){ .nproc = options->nproc, .good_from = ASIM_ATTEMPTS };
    sim->agent = agent_new(options);
    cr_assert_not_null(sim->agent);
    for (int r = 0; r < sim->nproc; r++)
        sim->worker[r].lives_ms = ASIM_FOR_EVER;
    for (int i = 0; i < ASIM_ATTEMPTS; i++)
        sim->step[i] = -1;
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

/* --- what wishes do in this little world ---------------------------------------------------------------- */

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
                                       .unasked = true });
}

/* Its own end, if it was to come later, comes after a signal now. */
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

/* All that is asked for when one attempt is over and the next one is to begin: nothing of the old one may be
 * left. */
static void check_nothing_left(const struct asim *sim)
{
    for (int r = 0; r < sim->nproc; r++)
        cr_assert_not(sim->alive[r], "worker %d still runs", r);
    cr_assert_eq(sim->daemons + sim->stubborn_daemons, 0, "something is left");
}

static void ask_progress(struct asim *sim)
{
    check_nothing_left(sim);
    schedule(sim, sim->now_ms,
             (struct agent_event){ .type = AGENT_PROGRESS, .step = sim->step[sim->attempt] });
}

static void prepare(struct asim *sim)
{
    check_nothing_left(sim);
    sim->attempt++;
    cr_assert_lt(sim->attempt, ASIM_ATTEMPTS);
    sim->next_spawn = 0;
    memset(sim->started, 0, sizeof(sim->started));
    memset(sim->told_store, 0, sizeof(sim->told_store));
    schedule(sim, sim->now_ms,
             (struct agent_event){ .type = sim->not_ready ? AGENT_NOT_READY : AGENT_START });
}

static void carry_out(struct asim *sim, const struct agent_wish *wish)
{
    int r = wish->local_rank;
    char name[ENDING_MAX];
    cr_assert_not(sim->finished, "a wish after the end");
    signal_name(name, wish->signal);
    switch (wish->type) {
    case WISH_SPAWN:
        buf_printf(&sim->trace, "          start worker %d\n", r);
        spawn(sim, r);
        break;
    case WISH_SIGNAL:
        buf_printf(&sim->trace, "          %s to worker %d\n", name, r);
        signal_worker(sim, r, wish->signal);
        break;
    case WISH_SIGNAL_REST:
        buf_printf(&sim->trace, "          %s to what is left\n", name);
        signal_rest(sim, wish->signal);
        break;
    case WISH_TELL_STORE:
        cr_assert(sim->started[r] && !sim->told_store[r]);
        sim->told_store[r] = true;
        break;
    case WISH_ASK_PROGRESS:
        buf_printf(&sim->trace, "          how far did it come?\n");
        ask_progress(sim);
        break;
    case WISH_SAY_RESTART:
        buf_printf(&sim->trace, "          again in %llu ms\n",
                   (unsigned long long)agent_backoff(sim->agent));
        break;
    case WISH_PREPARE:
        buf_printf(&sim->trace, "          make ready for attempt %d\n", agent_attempt(sim->agent) + 1);
        prepare(sim);
        break;
    case WISH_FINISH:
        buf_printf(&sim->trace, "          finish with %d\n", wish->exit_code);
        sim->finished = true;
        sim->exit_code = wish->exit_code;
        break;
    }
}

/* --- the clock ------------------------------------------------------------------------------------------ */

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
    case AGENT_EXITED:
        ending_text(text, w);
        buf_printf(&sim->trace, "worker %d: %s, %s\n", e->local_rank, text, verdict_name(w->verdict));
        break;
    case AGENT_STOP:
        signal_name(text, e->signal);
        buf_printf(&sim->trace, "the user sends %s\n", text);
        break;
    case AGENT_PROGRESS:
        buf_printf(&sim->trace, e->step < 0 ? "nobody told\n" : "to step %lld\n", (long long)e->step);
        break;
    default:
        buf_printf(&sim->trace, "%s\n",
                   e->type == AGENT_START       ? "begin"
                   : e->type == AGENT_TICK      ? "time is up"
                   : e->type == AGENT_NOT_READY ? "it cannot be made ready"
                                                : "nothing is left");
    }
}

static void feed(struct asim *sim, const struct agent_event *e)
{
    size_t n;
    const struct agent_wish *wishes = agent_step(sim->agent, e, &n);
    trace_event(sim, e);
    for (size_t i = 0; i < n; i++)
        carry_out(sim, &wishes[i]);
    cr_assert_eq(sim->finished, agent_state(sim->agent) == AGENT_DONE);
}

/* A worker ends once; what was scheduled for it after that has not happened. */
static bool still_happens(struct asim *sim, const struct agent_event *e, int attempt)
{
    int r = e->local_rank;
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

/* Take the earliest event out of the queue; false when it is empty. */
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
            e = (struct agent_event){ .type = AGENT_TICK, .now_ms = deadline };
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
