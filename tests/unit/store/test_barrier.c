/* Tests of the barrier machine alone: every event in every state, the charges to the quota, and a random walk
 * against a trivial model. Time is an argument, so the tests need no clock. */
#include "store/barrier.h"
#include "store/encode.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { WORLD = 8 };

static struct quota quota;
static struct barriers barriers;
static struct barrier_waiter waiter[WORLD];
static bool ended[WORLD];
static int answers[WORLD];                  /* number of answers of each waiter */
static enum barrier_outcome outcome[WORLD]; /* last answer of each waiter */
static uint64_t now_ms;

static void answer(void *user, struct barrier_waiter *s, enum barrier_outcome result, struct slice json)
{
    (void)user;
    cr_assert_null(s->barrier, "a waiter is answered before it is removed");
    cr_assert_eq(result == BARRIER_RELEASED, json.len == 0);
    answers[s - waiter]++;
    outcome[s - waiter] = result;
}

static void report(void *user, const struct barrier *barrier, struct slice name, enum barrier_outcome how,
                   const char *because, struct buf *out)
{
    (void)user, (void)name, (void)because;
    cr_assert_eq(barrier == NULL, how == BARRIER_MISUSE);
    cr_assert(buf_printf(out, "{}"));
}

static void end_of(void *user, uint32_t rank, char *text, size_t size)
{
    (void)user;
    snprintf(text, size, "rank %u has ended", rank);
}

static bool has_ended(void *user, uint32_t rank)
{
    (void)user;
    return ended[rank];
}

static void ignore_log(void *user, const char *line)
{
    (void)user, (void)line;
}

static void set_up(void)
{
    struct barrier_env env = {
        .answer = answer, .report = report, .end_of = end_of, .has_ended = has_ended, .log = ignore_log
    };
    quota = (struct quota){ .max = 1 << 20 };
    cr_assert(barriers_init(&barriers, &quota, &env));
    for (int i = 0; i < WORLD; i++)
        list_init(&waiter[i].node);
}

static void tear_down(void)
{
    barriers_free(&barriers);
    cr_assert_eq(quota.used, 0);
}

TestSuite(barrier, .init = set_up, .fini = tear_down);

/* Let `rank` arrive at the barrier `name`. Bit k of `members` is set if rank k is a member. */
static bool arrive(uint32_t rank, const char *name, int64_t timeout_ms, uint32_t members)
{
    struct buf list = { 0 };
    for (uint32_t i = 0; i < WORLD; i++)
        if (members >> i & 1)
            cr_assert(append_u32(&list, i));
    struct barrier_call call = { slice_str(name), timeout_ms, buf_slice(&list), rank, WORLD, now_ms };
    bool ok = barriers_arrive(&barriers, &waiter[rank], &call);
    buf_free(&list);
    return ok;
}

static void expect(uint32_t rank, int count, enum barrier_outcome last)
{
    cr_assert_eq(answers[rank], count, "rank %u has had %d answers", rank, answers[rank]);
    cr_assert(count == 0 || outcome[rank] == last, "rank %u got outcome %d", rank, outcome[rank]);
}

/* --- every event in every state ------------------------------------------------------------------------------ */

/* Bring the barrier "x" of ranks 0 and 1 into a state. */
static void bring_into(enum barrier_state state)
{
    if (state == BARRIER_NEW)
        return;
    arrive(0, "x", 100, 3);
    if (state == BARRIER_PASSED)
        arrive(1, "x", 100, 3);
    if (state == BARRIER_FAILED)
        barriers_cancel(&barriers, slice_str("x"), "test", now_ms);
}

static void cause(enum barrier_event event)
{
    if (event == BARRIER_ARRIVES)
        arrive(1, "x", 100, 3);
    else if (event == BARRIER_LEAVES)
        barriers_leave(&barriers, &waiter[0]);
    else if (event == BARRIER_MEMBER_ENDS)
        barriers_member_ended(&barriers, 1, now_ms);
    else if (event == BARRIER_CANCEL)
        barriers_cancel(&barriers, slice_str("x"), "test", now_ms);
    else if (event == BARRIER_TIME_UP)
        barriers_tick(&barriers, now_ms + 100);
}

/* Bring a barrier into `state` and cause `event`. Rank 0 must then get the outcome with the digit heard[0], or no
 * answer if heard[0] is '-'. The same holds for rank 1 and heard[1]. */
static void expect_cell(enum barrier_state state, enum barrier_event event, const char *heard)
{
    set_up();
    memset(answers, 0, sizeof(answers));
    bring_into(state);
    cause(event);
    for (int rank = 0; rank < 2; rank++) {
        char got = answers[rank] ? (char)('0' + outcome[rank]) : '-';
        cr_assert_eq(got, heard[rank], "state %d event %d rank %d: %c", state, event, rank, got);
    }
    barriers_free(&barriers);
    memset(waiter, 0, sizeof(waiter));
}

Test(barrier_machine, every_event_has_an_answer_in_every_state)
{
    static const char *const heard[BARRIER_STATES][BARRIER_EVENTS] = {
        /*                   ARRIVES LEAVES ENDS  CANCEL TIME_UP */
        [BARRIER_NEW] = { "--", "--", "--", "--", "--" },
        [BARRIER_OPEN] = { "00", "--", "2-", "3-", "1-" },
        [BARRIER_PASSED] = { "04", "00", "00", "00", "00" },
        [BARRIER_FAILED] = { "33", "3-", "3-", "3-", "3-" },
    };
    for (int state = 0; state < BARRIER_STATES; state++)
        for (int event = 0; event < BARRIER_EVENTS; event++)
            expect_cell(state, event, heard[state][event]);
}

/* --- details ------------------------------------------------------------------------------------------------- */

Test(barrier, a_barrier_of_one_is_passed_at_once)
{
    arrive(3, "x", 0, 1 << 3);
    expect(3, 1, BARRIER_RELEASED);
}

Test(barrier, a_time_out_of_zero_is_up_at_the_next_tick)
{
    arrive(0, "x", 0, 3);
    expect(0, 0, 0);
    cr_assert_eq(barriers_deadline(&barriers), 0);
    barriers_tick(&barriers, 0);
    expect(0, 1, BARRIER_TIMED_OUT);
}

Test(barrier, an_endless_time_out_does_not_overflow)
{
    now_ms = UINT32_MAX;
    arrive(0, "x", INT64_MAX, 3);
    cr_assert_gt(barriers_deadline(&barriers), now_ms);
    now_ms = 0;
}

Test(barrier, deadlines_are_met_in_order)
{
    arrive(0, "c", 300, 0);
    arrive(1, "a", 100, 0);
    arrive(2, "b", 200, 0);
    for (uint32_t i = 1; i <= 3; i++) {
        cr_assert_eq(barriers_deadline(&barriers), i * 100);
        barriers_tick(&barriers, i * 100);
        expect(i % 3, 1, BARRIER_TIMED_OUT);
    }
}

Test(barrier, members_are_a_set_in_any_order)
{
    struct buf list = { 0 };
    cr_assert(append_u32(&list, 1) && append_u32(&list, 0) && append_u32(&list, 1));
    arrive(0, "x", 100, 3);
    struct barrier_call call = { slice_str("x"), 100, buf_slice(&list), 1, WORLD, 0 };
    cr_assert(barriers_arrive(&barriers, &waiter[1], &call));
    expect(1, 1, BARRIER_RELEASED);
    buf_free(&list);
}

Test(barrier, one_rank_on_two_connections_counts_once)
{
    arrive(0, "x", 100, 3);
    struct barrier_call call = { slice_str("x"), 100, slice_of("\0\0\0\0\1\0\0", 8), 0, WORLD, 0 };
    cr_assert(barriers_arrive(&barriers, &waiter[5], &call));
    expect(5, 1, BARRIER_MISUSE);
    expect(0, 0, 0);
}

Test(barrier, used_names_keep_little)
{
    char name[32];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "step-%d", i);
        arrive(0, name, 100, 1);
    }
    cr_assert_eq(barriers.open_count, 0);
    cr_assert_lt(quota.used, 100 * 256);
}

Test(barrier, a_full_store_takes_no_new_barrier)
{
    quota.max = 10;
    cr_assert_not(arrive(0, "x", 100, 3));
    expect(0, 0, 0);
    quota.max = 1 << 20;
}

/* --- a random walk ------------------------------------------------------------------------------------------- */

enum { NAMES = 50, STEPS = 100000 };

static struct {
    uint32_t members, seated;
    bool over;
} model[NAMES];
static int sits_in[WORLD]; /* number of the barrier in which each rank has a waiter, or -1 */

static uint32_t random_below(uint32_t n)
{
    static uint64_t state = 42;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

/* Update the model. A rank that got an answer has left its barrier, and the name of this barrier cannot be used again
 * in this attempt. */
static void update_model(const int *before)
{
    for (int rank = 0; rank < WORLD; rank++) {
        int n = sits_in[rank];
        if (n < 0 || answers[rank] == before[rank])
            continue;
        cr_assert_eq(answers[rank], before[rank] + 1, "two answers for one arrival");
        if (outcome[rank] == BARRIER_RELEASED)
            cr_assert_eq(model[n].seated, model[n].members, "released before all had arrived");
        model[n].over = true;
        sits_in[rank] = -1;
    }
}

static void step_arrive(uint32_t rank, int n)
{
    char name[32];
    snprintf(name, sizeof(name), "b%d", n);
    if (sits_in[rank] >= 0)
        return;
    if (!model[n].over && model[n].seated == 0)
        model[n].members = random_below(255) + 1;
    bool fits = !model[n].over && model[n].members >> rank & 1;
    int before[WORLD];
    memcpy(before, answers, sizeof(before));
    if (fits) {
        sits_in[rank] = n;
        model[n].seated |= 1u << rank;
    }
    cr_assert(arrive(rank, name, 10 + random_below(50), model[n].members));
    if (!fits)
        cr_assert(answers[rank] == before[rank] + 1 && outcome[rank] != BARRIER_RELEASED,
                  "a name passed twice");
    update_model(before);
}

static void step_leave(uint32_t rank)
{
    int n = sits_in[rank];
    if (n >= 0)
        model[n].seated &= ~(1u << rank);
    sits_in[rank] = -1;
    barriers_leave(&barriers, &waiter[rank]);
}

static void step_time(void)
{
    int before[WORLD];
    memcpy(before, answers, sizeof(before));
    now_ms += random_below(20);
    barriers_tick(&barriers, now_ms);
    update_model(before);
}

static void step_cancel(int n)
{
    char name[32];
    int before[WORLD];
    memcpy(before, answers, sizeof(before));
    snprintf(name, sizeof(name), "b%d", n);
    bool open = !model[n].over && model[n].seated != 0;
    cr_assert_eq(barriers_cancel(&barriers, slice_str(name), "test", now_ms), open);
    update_model(before);
}

/* Begin a new attempt when at most five names can still be used. */
static void step_attempt(void)
{
    int over = 0;
    for (int n = 0; n < NAMES; n++)
        over += model[n].over;
    if (over < NAMES - 5)
        return;
    barriers_clear(&barriers);
    memset(model, 0, sizeof(model));
    memset(sits_in, -1, sizeof(sits_in));
}

Test(barrier, a_random_walk_releases_only_when_all_have_come_and_each_name_once)
{
    memset(sits_in, -1, sizeof(sits_in));
    for (int i = 0; i < STEPS; i++) {
        uint32_t dice = random_below(100), rank = random_below(WORLD);
        int n = (int)random_below(NAMES);
        if (dice < 80)
            step_arrive(rank, n % 4 ? n : n / 8);
        else if (dice < 88)
            step_leave(rank);
        else if (dice < 97)
            step_time();
        else
            step_cancel(n);
        step_attempt();
    }
    barriers_clear(&barriers);
    now_ms = 0;
}

/* --- clients that request the status ------------------------------------------------------------------------------ */

static char heard[256];

static void hear_opened(void *user, const struct barrier *b)
{
    (void)user;
    snprintf(heard + strlen(heard), sizeof(heard) - strlen(heard), "opened %.*s, ", (int)b->node.key_len,
             b->name);
}

/* Handle the end of a barrier. Its waiters are not removed yet. */
static void hear_ended(void *user, const struct barrier *b, enum barrier_outcome how, const char *why)
{
    (void)user;
    cr_expect_not(list_is_empty(&b->waiters));
    snprintf(heard + strlen(heard), sizeof(heard) - strlen(heard), "ended %.*s %d%s, ", (int)b->node.key_len,
             b->name, (int)how, why != NULL && why[0] != '\0' ? " because" : "");
}

static void hear_lost(void *user, const struct barrier *b, uint32_t rank)
{
    (void)user;
    snprintf(heard + strlen(heard), sizeof(heard) - strlen(heard), "lost %u in %.*s, ", rank,
             (int)b->node.key_len, b->name);
}

Test(barrier, it_is_told_when_one_begins_is_passed_and_fails)
{
    barriers.env.opened = hear_opened;
    barriers.env.ended = hear_ended;
    barriers.env.lost = hear_lost;
    arrive(0, "x", 100, 3);
    arrive(1, "x", 100, 3);
    arrive(0, "y", 100, 3);
    barriers_tick(&barriers, now_ms + 100);
    arrive(0, "z", 100, 3);
    barriers_member_ended(&barriers, 1, now_ms);
    cr_expect_str_eq(
        heard,
        "opened x, ended x 0, opened y, ended y 1 because, opened z, lost 1 in z, ended z 2 because, ");
}
