/* race.c -- see race.h. The caller passes the time and owns the sockets, so this file is pure and a test needs no
 * network. race_next first returns each runner (connection attempt) that has timed out, and only then a new runner. So
 * the caller closes old sockets before it opens new ones. */
#include "base/race.h"

#include <stdio.h>

enum {
    /* Pause before the next address, 250 ms as in RFC 8305: longer than a round trip, and much shorter than the
     * timeout of an unanswered connect. */
    HEAD_START_MS = 250,
    FIRST_PAUSE_MS = 20,
    LAST_PAUSE_MS = 2000,
};

uint32_t race_pause_ms(unsigned round, uint32_t random)
{
    uint32_t pause = FIRST_PAUSE_MS;
    while (round-- > 0 && pause < LAST_PAUSE_MS)
        pause += pause / 2;
    if (pause > LAST_PAUSE_MS)
        pause = LAST_PAUSE_MS;
    return pause / 2 + random % (pause + 1);
}

void race_line_up(struct race *r, const char *const *addresses, int n)
{
    for (r->n = 0; r->n < n && r->n < RACE_ADDRESSES_MAX; r->n++)
        snprintf(r->runners[r->n].address, RACE_TEXT_MAX, "%s", addresses[r->n]);
}

/* Set the state of a runner, and the time at which this state began. */
static void enter(struct race *r, int runner, enum race_state state, uint64_t now_ms)
{
    r->runners[runner].state = state;
    r->runners[runner].since_ms = now_ms;
}

void race_begin(struct race *r, uint64_t now_ms)
{
    for (int i = 0; i < r->n; i++)
        enter(r, i, RUNNER_WAITS, now_ms);
    r->next_ms = now_ms;
}

void race_connected(struct race *r, int runner, uint64_t now_ms)
{
    enter(r, runner, RUNNER_GREETS, now_ms);
}

void race_failed(struct race *r, int runner)
{
    r->runners[runner].state = RUNNER_FAILED;
}

/* Return the deadline of this runner, or UINT64_MAX if it does not run. RACE_CONNECT_MS is the limit for a host that is
 * down, and RACE_HELLO_MS is the limit for a store that hangs. */
static uint64_t limit_of(const struct race_runner *runner)
{
    if (runner->state == RUNNER_CONNECTS)
        return runner->since_ms + RACE_CONNECT_MS;
    return runner->state == RUNNER_GREETS ? runner->since_ms + RACE_HELLO_MS : UINT64_MAX;
}

/* Return the next action. Start the next runner HEAD_START_MS after the previous one, or at once if no runner is
 * active. */
struct race_step race_next(struct race *r, uint64_t now_ms)
{
    uint64_t at_ms = UINT64_MAX;
    int waiting = -1;
    for (int i = r->n - 1; i >= 0; i--) {
        const uint64_t limit_ms = limit_of(&r->runners[i]);
        if (limit_ms <= now_ms)
            return (struct race_step){ .what = RACE_LATE, .runner = i };
        if (r->runners[i].state == RUNNER_WAITS)
            waiting = i;
        at_ms = limit_ms < at_ms ? limit_ms : at_ms;
    }
    const bool runs = at_ms != UINT64_MAX;
    if (waiting >= 0 && (!runs || now_ms >= r->next_ms)) {
        enter(r, waiting, RUNNER_CONNECTS, now_ms);
        r->next_ms = now_ms + HEAD_START_MS;
        return (struct race_step){ .what = RACE_START, .runner = waiting };
    }
    if (!runs)
        return (struct race_step){ .what = RACE_LOST };
    if (waiting >= 0 && r->next_ms < at_ms)
        at_ms = r->next_ms;
    return (struct race_step){ .what = RACE_WAIT, .at_ms = at_ms };
}
