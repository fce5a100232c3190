/* How many attempts a job gets, and how long it waits before each. */
#include "job/restarts.h"

#include <criterion/criterion.h>

static struct restarts a;
static const struct rdzv_cause crash = { .why = RDZV_WHY_FAILED, .failure.signal = 11 };

static void begin(uint32_t max_restarts, uint32_t max_no_progress)
{
    const struct rdzv_join rules = { .max_restarts = max_restarts,
                                     .max_no_progress = max_no_progress,
                                     .backoff_ms = 1000,
                                     .backoff_cap_ms = 10000 };
    restarts_init(&a, &rules);
}

/* A failed attempt that came to `step`; how long until the next, or -1 when there is none. */
static int64_t next_after(int64_t step)
{
    if (restarts_failed(&a, &crash) != RDZV_NO_RESTART_NONE)
        return -1;
    return restarts_progress(&a, step) == RDZV_NO_RESTART_NONE ? (int64_t)restarts_backoff(&a) : -1;
}

Test(restarts, the_budget_is_used_up)
{
    begin(2, 0);
    cr_assert_eq(next_after(-1), 1000);
    cr_assert_eq(next_after(-1), 2000);
    cr_assert_eq(restarts_failed(&a, &crash), RDZV_NO_RESTART_USED_UP);
}

Test(restarts, who_asked_for_none_is_told_no_reason)
{
    begin(0, 0);
    cr_assert_eq(restarts_failed(&a, &crash), RDZV_NO_RESTART_NONE);
}

Test(restarts, what_cannot_change_is_not_tried_again)
{
    struct rdzv_cause cause = { .why = RDZV_WHY_FAILED, .no_retry = RDZV_NO_RESTART_USAGE };
    begin(5, 0);
    cr_assert_eq(restarts_failed(&a, &cause), RDZV_NO_RESTART_USAGE);
    cause.no_retry = RDZV_NO_RESTART_IMPORT;
    cr_assert_eq(restarts_failed(&a, &cause), RDZV_NO_RESTART_IMPORT);
    cause.no_retry = RDZV_NO_RESTART_CANNOT_START;
    cr_assert_eq(restarts_failed(&a, &cause), RDZV_NO_RESTART_CANNOT_START);
}

/* The last of them would be over the budget, too: what is in the failure itself helps more. */
Test(restarts, a_usage_error_is_named_before_the_budget)
{
    const struct rdzv_cause cause = { .why = RDZV_WHY_FAILED, .no_retry = RDZV_NO_RESTART_USAGE };
    begin(1, 0);
    next_after(-1);
    cr_assert_eq(restarts_failed(&a, &cause), RDZV_NO_RESTART_USAGE);
}

Test(restarts, the_wait_doubles_up_to_its_cap_while_nothing_is_told)
{
    begin(100, 0);
    const int64_t waits[] = { 1000, 2000, 4000, 8000, 10000, 10000 };
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
        cr_assert_eq(next_after(-1), waits[i], "wait %zu", i);
}

Test(restarts, who_gets_on_is_not_punished_for_the_past)
{
    begin(100, 0);
    cr_assert_eq(next_after(10), 1000);
    cr_assert_eq(next_after(10), 2000);
    cr_assert_eq(next_after(9), 4000);
    cr_assert_eq(next_after(11), 1000);
}

Test(restarts, standing_still_ends_the_job)
{
    begin(100, 2);
    cr_assert_eq(next_after(42), 1000);
    cr_assert_eq(next_after(42), 2000);
    cr_assert_eq(restarts_failed(&a, &crash), RDZV_NO_RESTART_NONE);
    cr_assert_eq(restarts_progress(&a, -1), RDZV_NO_RESTART_NO_PROGRESS);
}

Test(restarts, workers_that_never_tell_are_not_judged_by_it)
{
    begin(100, 2);
    for (int i = 0; i < 50; i++)
        cr_assert(next_after(-1) > 0);
}

Test(restarts, odd_waits_do_not_run_over)
{
    begin(100, 0);
    a.backoff_cap_ms = UINT64_MAX;
    a.backoff_ms = 1ull << 62;
    next_after(-1);
    cr_assert_eq(next_after(-1), INT64_MIN); /* 2^63 */
    next_after(-1);
    cr_assert_eq(restarts_backoff(&a), UINT64_MAX);
    a.backoff_ms = 0;
    cr_assert_eq(restarts_backoff(&a), 0);
    a.backoff_ms = 5000, a.backoff_cap_ms = 100;
    cr_assert_eq(restarts_backoff(&a), 100);
}
