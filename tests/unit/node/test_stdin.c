/* test_stdin.c -- one input for several readers. Each reader gets the whole input, and the input does not wait for
 * readers that have left. */
#include "node/stdin.c"

#include <criterion/criterion.h>

static struct fan fan;

static void three_readers(void)
{
    cr_assert(fan_init(&fan, 4));
    for (int i = 0; i < 3; i++)
        fan_expect(&fan, i);
}

static void three_readers_who_came(void)
{
    three_readers();
    for (int i = 0; i < 3; i++)
        fan_open(&fan, i);
}

static void end(void)
{
    fan_free(&fan);
}

static size_t due(int reader)
{
    size_t at;
    return fan_due(&fan, reader, &at);
}

static void gave_all(int reader)
{
    fan_gave(&fan, reader, due(reader));
}

Test(fan, nothing_is_taken_before_the_last_reader_is_there, .init = three_readers, .fini = end)
{
    fan_open(&fan, 0);
    fan_open(&fan, 1);
    cr_expect_not(fan_wants(&fan));
    fan_open(&fan, 2);
    cr_expect(fan_wants(&fan));
}

Test(fan, a_reader_that_could_not_be_started_is_not_waited_for, .init = three_readers, .fini = end)
{
    fan_open(&fan, 0);
    fan_open(&fan, 1);
    fan_close(&fan, 2);
    cr_expect(fan_wants(&fan));
}

Test(fan, input_that_no_reader_wants_is_dropped_only_on_request, .init = three_readers, .fini = end)
{
    fan.drains = true;
    fan_open(&fan, 0);
    fan_close(&fan, 0);
    cr_expect_not(fan_wants(&fan));
    fan_close(&fan, 1);
    fan_close(&fan, 2);
    cr_expect(fan_wants(&fan));
    fan.drains = false;
    cr_expect_not(fan_wants(&fan));
    fan.drains = true;
    fan_fill(&fan, 0);
    cr_expect_not(fan_wants(&fan));
}

Test(fan, the_next_chunk_waits_for_the_slowest, .init = three_readers_who_came, .fini = end)
{
    size_t at;
    fan_fill(&fan, 100);
    cr_expect_eq(due(0), 100);
    cr_expect_eq(due(3), 0, "it does not read this input");
    gave_all(0);
    gave_all(1);
    fan_gave(&fan, 2, 60);
    cr_expect_not(fan_wants(&fan));
    cr_expect_eq(fan_due(&fan, 2, &at), 40);
    cr_expect_eq(at, 60);
    gave_all(2);
    cr_expect(fan_wants(&fan));
    fan_fill(&fan, 7);
    cr_expect_eq(fan_due(&fan, 1, &at), 7);
    cr_expect_eq(at, 0);
}

Test(fan, who_leaves_in_the_middle_sets_the_others_free, .init = three_readers_who_came, .fini = end)
{
    fan_fill(&fan, 100);
    gave_all(0);
    gave_all(1);
    fan_close(&fan, 2);
    cr_expect_eq(due(2), 0);
    cr_expect(fan_wants(&fan));
    fan_close(&fan, 0);
    fan_close(&fan, 1);
    cr_expect_not(fan_wants(&fan), "no reader is left");
}

Test(fan, the_end_is_passed_on_when_everything_before_it_is, .init = three_readers_who_came, .fini = end)
{
    fan_fill(&fan, 10);
    cr_expect_not(fan_is_over(&fan, 0));
    for (int i = 0; i < 3; i++)
        gave_all(i);
    fan_fill(&fan, 0);
    cr_expect(fan_is_over(&fan, 0));
    cr_expect_not(fan_is_over(&fan, 3));
    cr_expect_not(fan_wants(&fan));
}

Test(fan, a_new_attempt_reads_on_where_the_old_one_stopped, .init = three_readers_who_came, .fini = end)
{
    fan_fill(&fan, 10);
    fan_gave(&fan, 0, 4);
    fan_forget(&fan);
    for (int i = 0; i < 3; i++)
        fan_expect(&fan, i);
    cr_expect_not(fan_wants(&fan));
    for (int i = 0; i < 3; i++)
        fan_open(&fan, i);
    cr_expect_eq(due(0), 0);
    cr_expect(fan_wants(&fan));
}

/* The chunk was requested for the readers of the previous attempt. The chunk arrives after these readers have left, so
 * the new readers get the chunk. */
Test(fan, a_chunk_that_comes_between_two_attempts_is_for_the_new_one, .init = three_readers, .fini = end)
{
    fan_fill(&fan, 10);
    fan_open(&fan, 0);
    cr_expect_eq(due(0), 10);
}

Test(fan, an_end_that_was_reached_before_is_the_end_for_those_who_come, .init = three_readers, .fini = end)
{
    fan_fill(&fan, 0);
    fan_forget(&fan);
    fan_open(&fan, 0);
    cr_expect(fan_is_over(&fan, 0));
}

Test(fan, one_reader_inherits_several_get_copies)
{
    cr_expect_eq(input_way(0, false, false), INPUT_NONE);
    cr_expect_eq(input_way(1, false, false), INPUT_DIRECT);
    cr_expect_eq(input_way(1, true, false), INPUT_DIRECT);
    cr_expect_eq(input_way(2, false, false), INPUT_COPIED);
    cr_expect_eq(input_way(1, true, true), INPUT_COPIED, "the shell's input is not taken away");
}
