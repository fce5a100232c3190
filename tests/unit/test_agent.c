/* The table of states and events, cell by cell. The stories are in tests/sim/test_agent_sim.c. */
#include "agent.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>

enum { GRACE_MS = 1000 };

static size_t n;

static const struct agent_wish *at(struct agent *a, uint64_t now_ms, enum agent_event_type type, int r,
                                   int code)
{
    struct agent_event e = { .type = type, .now_ms = now_ms, .local_rank = r, .pid = 100 + r };
    e.exit_code = type == AGENT_EXITED ? code : 0;
    e.signal = type == AGENT_STOP ? code : 0;
    e.error = type == AGENT_SPAWN_FAILED ? code : 0;
    return agent_step(a, &e, &n);
}

/* Two workers, taken to `state`. In STOPPING and KILLING worker 0 has failed and worker 1 is alive. */
static struct agent *in_state(enum agent_state state)
{
    struct agent *a = agent_new(&(struct agent_options){ .nproc = 2, .grace_ms = GRACE_MS });
    cr_assert_not_null(a);
    bool good = state == AGENT_SWEEPING || state == AGENT_DONE;
    if (state != AGENT_IDLE) {
        at(a, 0, AGENT_START, 0, 0);
        at(a, 0, AGENT_SPAWNED, 0, 0);
        at(a, 0, AGENT_SPAWNED, 1, 0);
    }
    if (state == AGENT_STOPPING || state == AGENT_KILLING)
        at(a, 10, AGENT_EXITED, 0, 1);
    if (state == AGENT_KILLING)
        at(a, 10 + GRACE_MS, AGENT_TICK, 0, 0);
    if (good) {
        at(a, 10, AGENT_EXITED, 0, 0);
        at(a, 10, AGENT_EXITED, 1, 0);
    }
    if (state == AGENT_DONE)
        at(a, 10, AGENT_ALONE, 0, 0);
    cr_assert_eq(agent_state(a), state);
    return a;
}

Test(agent, every_cell_leads_where_it_should)
{
    enum {
        I = AGENT_IDLE,
        R = AGENT_RUNNING,
        S = AGENT_STOPPING,
        K = AGENT_KILLING,
        W = AGENT_SWEEPING,
        D = AGENT_DONE
    };
    static const int next[AGENT_STATES][AGENT_EVENTS] = {
        /*     START SPAWNED SPAWN_FAILED EXITED STOP ALONE TICK */
        [I] = { R, I, I, I, D, I, I }, [R] = { R, R, R, S, S, R, R }, [S] = { S, S, S, W, S, S, K },
        [K] = { K, K, K, W, K, K, D }, [W] = { W, W, W, W, W, D, W }, [D] = { D, D, D, D, D, D, D },
    };
    for (int state = 0; state < AGENT_STATES; state++) {
        for (int event = 0; event < AGENT_EVENTS; event++) {
            struct agent *a = in_state((enum agent_state)state);
            at(a, 60000, (enum agent_event_type)event, 1, 1);
            cr_assert_eq((int)agent_state(a), next[state][event], "state %d, event %d", state, event);
            agent_free(a);
        }
    }
}

Test(agent, every_state_can_reach_the_end)
{
    for (int state = 0; state < AGENT_STATES; state++) {
        struct agent *a = in_state((enum agent_state)state);
        for (int i = 0; i < 6 && agent_state(a) != AGENT_DONE; i++) {
            at(a, 20, AGENT_STOP, 0, SIGTERM);
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

/* The answer to WISH_SPAWN comes after the stop began: the newcomer is stopped as well. */
Test(agent, who_starts_too_late_is_told_at_once)
{
    struct agent *a = agent_new(&(struct agent_options){ .nproc = 2, .grace_ms = GRACE_MS });
    at(a, 0, AGENT_START, 0, 0);
    at(a, 0, AGENT_STOP, 0, SIGHUP);
    cr_assert_eq(agent_state(a), AGENT_STOPPING);
    const struct agent_wish *wish = at(a, 1, AGENT_SPAWNED, 0, 0);
    cr_assert_eq(n, 2);
    cr_assert_eq(wish[0].type, WISH_SIGNAL);
    cr_assert_eq(wish[0].signal, SIGHUP);
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
