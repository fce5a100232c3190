/* Tests of the table of states and events, cell by cell. tests/sim/test_agent_sim.c tests whole runs. */
#include "agent/agent.h"

#include "ddp/error.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>

enum { GRACE_MS = 1000 };

static size_t n;

static const struct agent_effect *at(struct agent *a, uint64_t now_ms, enum agent_event_type type, int r,
                                     int code)
{
    struct agent_event e = { .type = type, .now_ms = now_ms, .local_rank = r, .pid = 100 + r };
    e.exit_code = type == AGENT_EXITED ? code : 0;
    e.signal = type == AGENT_STOP ? code : 0;
    e.error = type == AGENT_SPAWN_FAILED ? code : 0;
    return agent_step(a, &e, &n);
}

/* Deliver the verdict of the store, which grants another attempt or ends the job with exit code 1. */
static void verdict(struct agent *a, uint64_t now_ms, bool restart)
{
    const struct agent_event e = {
        .type = AGENT_VERDICT,
        .now_ms = now_ms,
        .verdict = { .restart = restart, .backoff_ms = 500, .exit_first = 1, .exit_max = 1, .exit_rank0 = 1 }
    };
    agent_step(a, &e, &n);
}

/* Create an agent with two workers and one restart, in `state`. In STOPPING and KILLING worker 0 has failed and worker
 * 1 is alive. In SETTLING worker 0 has lost its peer. */
static struct agent *in_state(enum agent_state state)
{
    struct agent *a = agent_new(&(struct agent_options){
        .nproc = 2, .grace_ms = GRACE_MS, .wait_peers_ms = 1000, .max_restarts = 1 });
    cr_assert_not_null(a);
    bool good = state == AGENT_SWEEPING || state == AGENT_WAIT_PEERS || state == AGENT_DONE;
    bool over = state == AGENT_DRAINING || state == AGENT_WAIT_VERDICT || state == AGENT_BACKING_OFF;
    if (state != AGENT_GATHERING) {
        at(a, 0, AGENT_START, 0, 0);
        at(a, 0, AGENT_SPAWNED, 0, 0);
        at(a, 0, AGENT_SPAWNED, 1, 0);
    }
    if (state == AGENT_SETTLING)
        at(a, 10, AGENT_EXITED, 0, DDP_EXIT_PEER_LOST);
    if (state == AGENT_STOPPING || state == AGENT_KILLING || over)
        at(a, 10, AGENT_EXITED, 0, 1);
    if (state == AGENT_KILLING)
        at(a, 10 + GRACE_MS, AGENT_TICK, 0, 0);
    if (good)
        at(a, 10, AGENT_EXITED, 0, 0);
    if (good || over)
        at(a, 10, AGENT_EXITED, 1, 0);
    if ((good && state != AGENT_SWEEPING) || over)
        at(a, 10, AGENT_ALONE, 0, 0);
    if (state == AGENT_WAIT_VERDICT || state == AGENT_BACKING_OFF)
        at(a, 10, AGENT_DRAINED, 0, 0);
    if (state == AGENT_BACKING_OFF || state == AGENT_DONE)
        verdict(a, 10, state == AGENT_BACKING_OFF);
    cr_assert_eq(agent_state(a), state);
    return a;
}

/* Return true if the effects of the last step report the failure of worker `r`. */
static bool reports_failure(const struct agent_effect *effects, int r)
{
    bool found = false;
    for (size_t i = 0; i < n; i++)
        found = found || (effects[i].type == EFFECT_REPORT_FAILED && effects[i].local_rank == r);
    return found;
}

Test(agent, of_workers_that_lost_their_peer_the_first_is_reported)
{
    struct agent *a = in_state(AGENT_SETTLING); /* worker 0 */
    at(a, 20, AGENT_EXITED, 1, DDP_EXIT_PEER_LOST);
    cr_assert(reports_failure(at(a, 20, AGENT_ALONE, 0, 0), 0));
    agent_free(a);
}

Test(agent, every_cell_leads_where_it_should)
{
    enum {
        G = AGENT_GATHERING,
        R = AGENT_RUNNING,
        U = AGENT_SETTLING,
        S = AGENT_STOPPING,
        K = AGENT_KILLING,
        W = AGENT_SWEEPING,
        I = AGENT_DRAINING,
        L = AGENT_WAIT_PEERS,
        A = AGENT_WAIT_VERDICT,
        B = AGENT_BACKING_OFF,
        D = AGENT_DONE
    };
    /* In column VERDICT, the verdict ends the job. */
    /* clang-format off */
    static const int next[AGENT_STATES][AGENT_EVENTS] = {
        /*     START SPAWNED SPAWN_FAILED EXITED STOP ALONE DRAINED NOTIFIED ACKNOWLEDGED VERDICT LOST NOT_READY TICK */
        [G] = { R,   G,      G,           G,     D,   G,    G,      G,       G,           D,      D,   D,        G },
        [R] = { R,   R,      R,           S,     S,   R,    R,      S,       R,           S,      S,   R,        R },
        [U] = { U,   U,      U,           W,     S,   U,    U,      S,       U,           S,      S,   U,        S },
        [S] = { S,   S,      S,           W,     S,   S,    S,      S,       S,           S,      S,   S,        K },
        [K] = { K,   K,      K,           W,     K,   K,    K,      K,       K,           K,      K,   K,        A },
        [W] = { W,   W,      W,           W,     W,   L,    W,      W,       W,           W,      W,   W,        W },
        [I] = { I,   I,      I,           I,     A,   I,    A,      I,       I,           I,      I,   I,        I },
        [L] = { L,   L,      L,           L,     A,   L,    L,      I,       L,           D,      D,   L,        D },
        [A] = { A,   A,      A,           A,     A,   A,    A,      A,       A,           D,      D,   A,        A },
        [B] = { B,   B,      B,           B,     D,   B,    B,      B,       B,           D,      D,   B,        G },
        [D] = { D,   D,      D,           D,     D,   D,    D,      D,       D,           D,      D,   D,        D },
    };
    /* clang-format on */
    for (int state = 0; state < AGENT_STATES; state++) {
        for (int event = 0; event < AGENT_EVENTS; event++) {
            struct agent *a = in_state((enum agent_state)state);
            at(a, 60000, (enum agent_event_type)event, 1, 1);
            cr_assert_eq((int)agent_state(a), next[state][event], "state %d, event %d", state, event);
            agent_free(a);
        }
    }
}

/* Only a node that waits for other nodes or for the verdict follows a verdict to restart. */
Test(agent, a_verdict_to_start_again_leads_on_from_two_states)
{
    for (int state = 0; state < AGENT_STATES; state++) {
        struct agent *a = in_state((enum agent_state)state);
        const bool waits = state == AGENT_WAIT_VERDICT || state == AGENT_WAIT_PEERS;
        verdict(a, 20, true);
        cr_assert_eq((int)agent_state(a), waits ? AGENT_BACKING_OFF : state, "state %d", state);
        agent_free(a);
    }
}

Test(agent, every_state_can_reach_the_end)
{
    for (int state = 0; state < AGENT_STATES; state++) {
        struct agent *a = in_state((enum agent_state)state);
        for (int i = 0; i < 100 && agent_state(a) != AGENT_DONE; i++) {
            at(a, 20, AGENT_STOP, 0, SIGTERM);
            at(a, 20, AGENT_DRAINED, 0, 0);
            if (agent_deadline(a) != UINT64_MAX)
                at(a, agent_deadline(a), AGENT_TICK, 0, 0);
        }
        cr_assert_eq(agent_state(a), AGENT_DONE, "from state %d", state);
        agent_free(a);
    }
}

Test(agent, a_tick_before_the_deadline_changes_nothing)
{
    struct agent *a = in_state(AGENT_STOPPING);
    cr_assert_eq(agent_deadline(a), 10 + GRACE_MS);
    at(a, 10 + GRACE_MS - 1, AGENT_TICK, 0, 0);
    cr_assert_eq(agent_state(a), AGENT_STOPPING);
    cr_assert_eq(n, 0);
    agent_free(a);
}

Test(agent, nonsense_is_ignored)
{
    struct agent *a = in_state(AGENT_RUNNING);
    at(a, 20, AGENT_EXITED, 2, 1);
    at(a, 20, AGENT_EXITED, -1, 1);
    at(a, 20, AGENT_SPAWN_FAILED, 0, ENOENT);
    cr_assert_eq(agent_state(a), AGENT_RUNNING);
    cr_assert_eq(agent_first_failure(a), -1);
    agent_free(a);
}

/* The answer to EFFECT_SPAWN comes after the stop began, so the new worker is stopped as well. */
Test(agent, who_starts_too_late_is_told_at_once)
{
    struct agent *a = agent_new(&(struct agent_options){ .nproc = 2, .grace_ms = GRACE_MS });
    at(a, 0, AGENT_START, 0, 0);
    at(a, 0, AGENT_STOP, 0, SIGHUP);
    cr_assert_eq(agent_state(a), AGENT_STOPPING);
    const struct agent_effect *effect = at(a, 1, AGENT_SPAWNED, 0, 0);
    cr_assert_eq(n, 2);
    cr_assert_eq(effect[0].type, EFFECT_SIGNAL);
    cr_assert_eq(effect[0].signal, SIGHUP);
    agent_free(a);
}

Test(agent, exit_codes_follow_the_shells)
{
    static const struct {
        enum agent_event_type type;
        int code, expected;
    } cases[] = {
        { AGENT_EXITED, 7, 7 },
        { AGENT_EXITED, 255, 255 },
        { AGENT_SPAWN_FAILED, ENOENT, 127 },
        { AGENT_SPAWN_FAILED, EACCES, 126 },
        { AGENT_SPAWN_FAILED, ENOEXEC, 126 },
        { AGENT_STOP, SIGTERM, 143 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct agent *a = agent_new(&(struct agent_options){ .nproc = 1, .grace_ms = GRACE_MS });
        at(a, 0, AGENT_START, 0, 0);
        if (cases[i].type == AGENT_EXITED)
            at(a, 0, AGENT_SPAWNED, 0, 0);
        at(a, 1, cases[i].type, 0, cases[i].code);
        cr_assert_eq(agent_exit_code(a), cases[i].expected, "case %zu", i);
        agent_free(a);
    }
}

/* `ddprun --hosts` sends a Ctrl-C of the user to all nodes. The store reports this stop before the Ctrl-C arrives on
 * this node, so the Ctrl-C is not a second request to stop. */
Test(agent, a_stop_that_the_store_has_reported_is_no_request_of_the_user)
{
    struct agent *a = in_state(AGENT_WAIT_VERDICT);
    agent_step(a, &(struct agent_event){ .type = AGENT_NOTIFIED, .now_ms = 20, .signal = SIGINT }, &n);
    at(a, 30, AGENT_STOP, 0, SIGINT);
    cr_expect_eq(agent_state(a), AGENT_WAIT_VERDICT);
    at(a, 40, AGENT_STOP, 0, SIGINT);
    cr_expect_eq(agent_state(a), AGENT_DONE);
    agent_free(a);
}

/* A worker may end in the same millisecond in which SIGTERM is sent. The time does not show whether the end or the
 * signal came first, but `unasked` does. */
Test(agent, an_end_is_a_consequence_when_our_signal_came_first_however_soon)
{
    for (int unasked = 0; unasked < 2; unasked++) {
        struct agent *a = agent_new(
            &(struct agent_options){ .nproc = 2, .grace_ms = GRACE_MS, .exit_policy = EXIT_POLICY_MAX });
        at(a, 0, AGENT_START, 0, 0);
        at(a, 0, AGENT_SPAWNED, 0, 0);
        at(a, 0, AGENT_SPAWNED, 1, 0);
        at(a, 10, AGENT_EXITED, 0, 5);
        const struct agent_event e = {
            .type = AGENT_EXITED, .now_ms = 10, .local_rank = 1, .exit_code = 99, .unasked = unasked == 1
        };
        agent_step(a, &e, &n);
        cr_assert_eq(agent_worker(a, 1)->verdict, unasked ? WORKER_FAILED : WORKER_CONSEQUENCE);
        cr_assert_eq(agent_first_failure(a), 0);
        cr_assert_eq(agent_exit_code(a), unasked ? 99 : 5);
        agent_free(a);
    }
}

/* A SIGKILL that arrives before ddprun sends SIGKILL is from another sender, such as the OOM killer. The worker counts
 * as failed. */
Test(agent, a_sigkill_before_ours_is_somebody_elses)
{
    struct agent *a = agent_new(&(struct agent_options){ .nproc = 3, .grace_ms = GRACE_MS });
    at(a, 0, AGENT_START, 0, 0);
    for (int r = 0; r < 3; r++)
        at(a, 0, AGENT_SPAWNED, r, 0);
    at(a, 10, AGENT_EXITED, 0, 5);
    struct agent_event e = { .type = AGENT_EXITED, .now_ms = 20, .local_rank = 1, .signal = SIGKILL };
    agent_step(a, &e, &n);
    cr_assert_eq(agent_worker(a, 1)->verdict, WORKER_FAILED);
    at(a, agent_deadline(a), AGENT_TICK, 0, 0);
    e.local_rank = 2;
    agent_step(a, &e, &n);
    cr_assert_eq(agent_worker(a, 2)->verdict, WORKER_CONSEQUENCE);
    cr_assert_eq(agent_first_failure(a), 0);
    agent_free(a);
}

/* --- --exit-code ---------------------------------------------------------------------------------------- */

/* How a worker ends. These macros initialize the struct:
 *
 *     x(c)  exit code c
 *     s(n)  killed by signal n
 *     v(c)  exit code c, and the worker reports a lost peer
 *     w(n)  killed by signal n, and the worker reports a lost peer
 *     e(n)  cannot be started, because of errno n
 *     runs  does not end by itself */
struct end {
    int code, signal, error;
    bool lost_peer;
};

#define x(c)        \
    {               \
        .code = (c) \
    }
#define s(n)          \
    {                 \
        .signal = (n) \
    }
#define v(c)                           \
    {                                  \
        .code = (c), .lost_peer = true \
    }
#define w(n)                             \
    {                                    \
        .signal = (n), .lost_peer = true \
    }
#define e(n)         \
    {                \
        .error = (n) \
    }
#define runs            \
    {                   \
        -1, 0, 0, false \
    }

static const struct exit_case {
    struct end end[3];
    int stop; /* signal that the user sends after all exits in `end`; 0 = no signal */
    int first, max, rank0;
} exit_cases[] = {
    { { x(0), x(0), x(0) }, 0, 0, 0, 0 },
    { { x(1), runs, runs }, 0, 1, 1, 1 },
    { { x(7), runs, runs }, 0, 7, 7, 7 },
    { { x(255), runs, runs }, 0, 255, 255, 255 },
    { { s(SIGKILL), runs, runs }, 0, 137, 137, 137 },
    { { s(SIGSEGV), runs, runs }, 0, 139, 139, 139 },
    { { s(SIGABRT), runs, runs }, 0, 134, 134, 134 },
    { { s(SIGTERM), runs, runs }, 0, 143, 143, 143 },
    { { runs, x(3), runs }, 0, 3, 3, 3 },
    { { runs, s(SIGBUS), runs }, 0, 135, 135, 135 },
    { { x(0), x(3), runs }, 0, 3, 3, 0 },
    { { x(0), x(0), x(9) }, 0, 9, 9, 0 },
    { { x(0), s(SIGSEGV), runs }, 0, 139, 139, 0 },
    { { x(3), x(9), runs }, 0, 3, 9, 3 },
    { { x(9), x(3), runs }, 0, 9, 9, 9 },
    { { x(3), x(5), x(9) }, 0, 3, 9, 3 },
    { { x(1), s(SIGSEGV), runs }, 0, 1, 139, 1 },
    { { s(SIGABRT), x(200), runs }, 0, 134, 200, 134 },
    { { x(0), x(5), x(6) }, 0, 5, 6, 0 },
    { { x(75), runs, runs }, 0, 75, 75, 75 },
    { { x(75), x(4), runs }, 0, 4, 75, 75 },
    { { x(75), s(SIGSEGV), x(75) }, 0, 139, 139, 75 },
    { { x(4), x(75), runs }, 0, 4, 75, 4 },
    { { v(1), runs, runs }, 0, 1, 1, 1 },
    { { v(1), x(4), runs }, 0, 4, 4, 1 },
    { { v(1), w(SIGABRT), s(SIGSEGV) }, 0, 139, 139, 1 },
    { { x(4), v(1), runs }, 0, 4, 4, 4 },
    { { v(0), runs, x(3) }, 0, 3, 3, 0 },
    { { e(ENOENT), runs, runs }, 0, 127, 127, 127 },
    { { e(EACCES), runs, runs }, 0, 126, 126, 126 },
    { { runs, e(ENOEXEC), runs }, 0, 126, 126, 126 },
    { { runs, runs, runs }, SIGTERM, 143, 143, 143 },
    { { runs, runs, runs }, SIGINT, 130, 130, 130 },
    { { x(0), runs, runs }, SIGHUP, 129, 129, 129 },
    { { x(6), runs, runs }, SIGINT, 6, 6, 6 },
};

#undef x
#undef s
#undef v
#undef w
#undef e
#undef runs

/* Play a case. All failures come before the stop signal is sent, so no failure can be a reaction to this signal. */
static void play(struct agent *a, const struct exit_case *c)
{
    at(a, 0, AGENT_START, 0, 0);
    for (int r = 0; r < 3; r++) {
        if (c->end[r].error != 0)
            at(a, 0, AGENT_SPAWN_FAILED, r, c->end[r].error);
        else
            at(a, 0, AGENT_SPAWNED, r, 0);
    }
    for (int r = 0; r < 3; r++) {
        struct agent_event e = { .type = AGENT_EXITED, .now_ms = 10, .local_rank = r, .unasked = true };
        e.exit_code = c->end[r].code;
        e.signal = c->end[r].signal;
        e.lost_peer = c->end[r].lost_peer;
        if (c->end[r].code >= 0 && c->end[r].error == 0)
            agent_step(a, &e, &n);
    }
    if (c->stop != 0)
        at(a, 20, AGENT_STOP, 0, c->stop);
    if (agent_state(a) == AGENT_SETTLING)
        at(a, agent_deadline(a), AGENT_TICK, 0, 0);
    for (int r = 0; r < 3; r++) { /* workers that still run die of the stop signal */
        struct agent_event e = { .type = AGENT_EXITED, .now_ms = 2000, .local_rank = r };
        e.signal = c->stop != 0 ? c->stop : SIGTERM;
        if (agent_worker(a, r)->verdict == WORKER_ALIVE)
            agent_step(a, &e, &n);
    }
}

Test(agent, the_exit_code_follows_the_policy)
{
    static const char *const names[] = { "first", "max", "rank0" };
    cr_assert_eq(sizeof(exit_cases) / sizeof(exit_cases[0]), 35);
    for (size_t i = 0; i < sizeof(exit_cases) / sizeof(exit_cases[0]); i++) {
        const struct exit_case *c = &exit_cases[i];
        const int expected[] = { c->first, c->max, c->rank0 };
        for (int policy = 0; policy < 3; policy++) {
            struct agent *a = agent_new(&(struct agent_options){
                .nproc = 3, .grace_ms = GRACE_MS, .exit_policy = (enum exit_policy)policy });
            play(a, c);
            cr_assert_eq(agent_exit_code(a), expected[policy], "case %zu, %s: %d instead of %d", i,
                         names[policy], agent_exit_code(a), expected[policy]);
            agent_free(a);
        }
    }
}

/* Rank 1 fails. Rank 0 then handles its SIGTERM, or has already ended when the signal is sent. */
Test(agent, an_end_that_ddprun_has_caused_never_counts)
{
    static const struct {
        enum exit_policy policy;
        int code;
        bool unasked;
        int expected;
    } cases[] = {
        { EXIT_POLICY_RANK0, 0, false, 7 },
        { EXIT_POLICY_RANK0, DDP_EXIT_PEER_LOST, false, 7 },
        { EXIT_POLICY_MAX, DDP_EXIT_PEER_LOST, false, 7 },
        { EXIT_POLICY_RANK0, 0, true, 0 },
        { EXIT_POLICY_MAX, DDP_EXIT_PEER_LOST, true, DDP_EXIT_PEER_LOST },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct agent *a = agent_new(
            &(struct agent_options){ .nproc = 2, .grace_ms = GRACE_MS, .exit_policy = cases[i].policy });
        at(a, 0, AGENT_START, 0, 0);
        at(a, 0, AGENT_SPAWNED, 0, 0);
        at(a, 0, AGENT_SPAWNED, 1, 0);
        at(a, 10, AGENT_EXITED, 1, 7);
        const struct agent_event e = {
            .type = AGENT_EXITED, .now_ms = 20, .exit_code = cases[i].code, .unasked = cases[i].unasked
        };
        agent_step(a, &e, &n);
        cr_expect_eq(agent_exit_code(a), cases[i].expected, "case %zu: %d", i, agent_exit_code(a));
        agent_free(a);
    }
}

/* Return the agent's exit code after this sequence: worker 0 exits with code `before`, the user stops the job, worker 1
 * exits with code `after`. */
static int code_of_stop(enum exit_policy policy, int before, int after)
{
    struct agent *a =
        agent_new(&(struct agent_options){ .nproc = 2, .grace_ms = GRACE_MS, .exit_policy = policy });
    at(a, 0, AGENT_START, 0, 0);
    at(a, 0, AGENT_SPAWNED, 0, 0);
    at(a, 0, AGENT_SPAWNED, 1, 0);
    agent_step(
        a, &(struct agent_event){ .type = AGENT_EXITED, .now_ms = 10, .exit_code = before, .unasked = true },
        &n);
    at(a, 20, AGENT_STOP, 0, SIGTERM);
    agent_step(
        a, &(struct agent_event){ .type = AGENT_EXITED, .now_ms = 30, .local_rank = 1, .exit_code = after },
        &n);
    const int code = agent_exit_code(a);
    agent_free(a);
    return code;
}

Test(agent, a_stop_that_every_worker_answers_with_0_is_a_success_where_the_user_says_so)
{
    cr_expect_eq(code_of_stop(EXIT_POLICY_WORKERS, 0, 0), 0);
    cr_expect_eq(code_of_stop(EXIT_POLICY_WORKERS, 0, 3), 128 + SIGTERM);
    cr_expect_eq(code_of_stop(EXIT_POLICY_WORKERS, 7, 0), 7);
    cr_expect_eq(code_of_stop(EXIT_POLICY_FIRST, 0, 0), 128 + SIGTERM);
    cr_expect_eq(code_of_stop(EXIT_POLICY_MAX, 0, 0), 128 + SIGTERM);
}

/* Return the agent's exit code after this sequence: another node ends the round with `code`, the user sends the signal
 * `here` to this node, and both workers of this node exit with 0. If `here` is 0, the user sends no signal. */
static int code_of_stop_after(int code, int here, int stop_signal)
{
    struct agent *a = agent_new(
        &(struct agent_options){ .nproc = 2, .grace_ms = GRACE_MS, .exit_policy = EXIT_POLICY_WORKERS });
    at(a, 0, AGENT_START, 0, 0);
    at(a, 0, AGENT_SPAWNED, 0, 0);
    at(a, 0, AGENT_SPAWNED, 1, 0);
    agent_step(a, &(struct agent_event){ .type = AGENT_NOTIFIED, .now_ms = 10, .exit_code = code }, &n);
    if (here != 0)
        at(a, 20, AGENT_STOP, 0, here);
    at(a, 30, AGENT_EXITED, 0, 0);
    at(a, 30, AGENT_EXITED, 1, 0);
    at(a, 30, AGENT_ALONE, 0, 0);
    at(a, 30, AGENT_DRAINED, 0, 0);
    const struct agent_verdict end = { .no_restart = NO_RESTART_STOPPED,
                                       .exit_first = code,
                                       .exit_max = code,
                                       .exit_rank0 = code,
                                       .stop_signal = stop_signal };
    agent_step(a, &(struct agent_event){ .type = AGENT_VERDICT, .now_ms = 40, .verdict = end }, &n);
    cr_expect_eq(agent_state(a), AGENT_DONE);
    const int exit_code = agent_exit_code(a);
    agent_free(a);
    return exit_code;
}

Test(agent, a_stop_hides_no_crash_of_another_node)
{
    cr_expect_eq(code_of_stop_after(128 + SIGSEGV, SIGINT, 0), 128 + SIGSEGV);
    cr_expect_eq(code_of_stop_after(9, SIGINT, 0), 9);
    cr_expect_eq(code_of_stop_after(128 + SIGINT, SIGINT, 0), 0, "another node has reported this stop");
    cr_expect_eq(code_of_stop_after(128 + SIGTERM, 0, SIGTERM), 0, "only another node was stopped");
    cr_expect_eq(code_of_stop_after(128 + SIGSEGV, 0, 0), 128 + SIGSEGV);
}

/* Every policy returns the same exit code here, so that a script can detect that a process on this host cannot be
 * killed. */
Test(agent, what_cannot_be_killed_has_an_exit_code_of_its_own)
{
    for (int policy = 0; policy < 3; policy++) {
        struct agent *a = agent_new(&(struct agent_options){
            .nproc = 2, .grace_ms = GRACE_MS, .exit_policy = (enum exit_policy)policy });
        at(a, 0, AGENT_START, 0, 0);
        at(a, 0, AGENT_SPAWNED, 0, 0);
        at(a, 0, AGENT_SPAWNED, 1, 0);
        at(a, 10, AGENT_EXITED, 0, 7);
        at(a, 10 + GRACE_MS, AGENT_TICK, 0, 0);
        at(a, 10 + GRACE_MS + AGENT_UNKILLABLE_MS, AGENT_TICK, 0, 0);
        cr_assert_eq(agent_state(a), AGENT_WAIT_VERDICT);
        at(a, agent_deadline(a), AGENT_TICK, 0, 0);
        cr_assert_eq(agent_state(a), AGENT_DONE, "for a verdict it waits only a moment");
        cr_assert_eq(agent_exit_code(a), 124);
        cr_assert_eq(agent_first_failure(a), 0, "the cause is still the cause");
        agent_free(a);
    }
}

static bool is_sampled_first(const struct agent_effect *effect)
{
    for (size_t i = 0; i < n && effect[i].type != EFFECT_SIGNAL; i++)
        if (effect[i].type == EFFECT_SAMPLE)
            return true;
    return false;
}

/* The agent samples the stacks of the survivors only if the agent stops the survivors after a failure. If the user
 * stops the job, or if the job grows, no report needs the stacks. */
Test(agent, survivors_of_a_failure_are_sampled_before_they_are_signalled)
{
    struct agent *a = in_state(AGENT_RUNNING);
    cr_expect(is_sampled_first(at(a, 10, AGENT_EXITED, 0, 1)));
    agent_free(a);
    a = in_state(AGENT_RUNNING);
    cr_expect(is_sampled_first(
        agent_step(a, &(struct agent_event){ .type = AGENT_NOTIFIED, .now_ms = 10, .exit_code = 1 }, &n)));
    agent_free(a);
    a = in_state(AGENT_RUNNING);
    cr_expect(is_sampled_first(at(a, 10, AGENT_STORE_LOST, 0, 0)));
    agent_free(a);
    a = in_state(AGENT_RUNNING);
    cr_expect_not(is_sampled_first(at(a, 10, AGENT_STOP, 0, SIGTERM)));
    agent_free(a);
    a = in_state(AGENT_RUNNING);
    cr_expect_not(is_sampled_first(at(a, 10, AGENT_NOTIFIED, 0, 0)), "the job grows");
    agent_free(a);
    a = in_state(AGENT_SETTLING);
    cr_expect_not(is_sampled_first(at(a, 20, AGENT_EXITED, 1, 1)), "no survivor");
    agent_free(a);
}
