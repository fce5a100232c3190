/* Tests of the order and the times of connection attempts on a simulated clock, and of the pauses between two races.
 * The module decides and opens no socket, so a test can check every millisecond. */
#include "base/race.h"

#include <criterion/criterion.h>

static struct race race_of_two(void)
{
    static const char *const addresses[] = { "fd00::1", "10.0.0.1" };
    struct race r;
    race_line_up(&r, addresses, 2);
    race_begin(&r, 1000);
    return r;
}

#define NEXT(r, now_ms, what_, runner_, at_ms_)                                     \
    do {                                                                            \
        const struct race_step step = race_next(&(r), now_ms);                      \
        cr_expect_eq(step.what, what_, "at %d: step %d", (int)(now_ms), step.what); \
        cr_expect_eq(step.runner, runner_, "at %d", (int)(now_ms));                 \
        cr_expect_eq(step.at_ms, (uint64_t)(at_ms_), "at %d", (int)(now_ms));       \
    } while (0)

Test(race, gives_each_address_a_head_start)
{
    struct race r = race_of_two();
    NEXT(r, 1000, RACE_START, 0, 0);
    NEXT(r, 1000, RACE_WAIT, 0, 1250);
    NEXT(r, 1249, RACE_WAIT, 0, 1250);
    NEXT(r, 1250, RACE_START, 1, 0);
    NEXT(r, 1250, RACE_WAIT, 0, 1000 + RACE_CONNECT_MS);
}

Test(race, starts_the_next_at_once_when_nobody_runs)
{
    struct race r = race_of_two();
    NEXT(r, 1000, RACE_START, 0, 0);
    race_failed(&r, 0);
    NEXT(r, 1001, RACE_START, 1, 0);
    race_failed(&r, 1);
    NEXT(r, 1002, RACE_LOST, 0, 0);
}

Test(race, drops_who_does_not_connect_or_answer_in_time)
{
    struct race r = race_of_two();
    NEXT(r, 1000, RACE_START, 0, 0);
    NEXT(r, 1250, RACE_START, 1, 0);
    race_connected(&r, 1, 1300);
    NEXT(r, 1300 + RACE_HELLO_MS - 1, RACE_WAIT, 0, 1300 + RACE_HELLO_MS);
    NEXT(r, 1300 + RACE_HELLO_MS, RACE_LATE, 1, 0);
    race_failed(&r, 1);
    NEXT(r, 1000 + RACE_CONNECT_MS, RACE_LATE, 0, 0);
    race_failed(&r, 0);
    NEXT(r, 1000 + RACE_CONNECT_MS, RACE_LOST, 0, 0);
}

Test(race, leaves_out_what_is_too_much_and_begins_again)
{
    const char *many[RACE_ADDRESSES_MAX + 1];
    struct race r;
    for (int i = 0; i <= RACE_ADDRESSES_MAX; i++)
        many[i] = "10.0.0.1";
    race_line_up(&r, many, RACE_ADDRESSES_MAX + 1);
    cr_assert_eq(r.n, RACE_ADDRESSES_MAX);
    race_line_up(&r, many, 1);
    race_begin(&r, 0);
    NEXT(r, 0, RACE_START, 0, 0);
    race_failed(&r, 0);
    NEXT(r, 0, RACE_LOST, 0, 0);
    race_begin(&r, 500);
    NEXT(r, 500, RACE_START, 0, 0);
}

Test(race, pauses_grow_from_milliseconds_to_seconds)
{
    cr_assert_leq(race_pause_ms(0, 0), 20);
    for (unsigned round = 1; round < 12; round++)
        cr_assert_gt(race_pause_ms(round, 0), race_pause_ms(round - 1, 0));
    cr_assert_eq(race_pause_ms(12, 0), race_pause_ms(1000000, 0));
}

/* The random number scales a pause by 0.5 to 1.5. With 0, the pause is the shortest. */
Test(race, pauses_are_spread_by_the_random_number)
{
    const uint32_t numbers[] = { 0, 1, 999, 2000, 2001, 123456789, UINT32_MAX };
    for (unsigned round = 0; round < 20; round++) {
        const uint32_t least = race_pause_ms(round, 0);
        for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
            cr_assert_geq(race_pause_ms(round, numbers[i]), least);
            cr_assert_leq(race_pause_ms(round, numbers[i]), 3 * least + 1);
        }
    }
    cr_assert_neq(race_pause_ms(20, 5), race_pause_ms(20, 6));
}
