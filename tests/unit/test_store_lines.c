/* What stands in line in a store: BARRIER's counters, and queues. */
#include "store_case.h"

TestSuite(store_lines, .init = set_up, .fini = tear_down);

/* --- BARRIER ------------------------------------------------------------------------------------------------- */

static enum store_status barrier(int i, int64_t world)
{
    return store_barrier(store, &waiter[i], K("b"), world);
}

Test(store_lines, a_barrier_opens_for_the_last)
{
    cr_assert_eq(barrier(0, 3), STORE_WAITS);
    cr_assert_eq(barrier(1, 3), STORE_WAITS);
    cr_assert_eq(barrier(2, 3), STORE_OK);
    cr_assert_eq(woken[0] + woken[1], 2);
    cr_assert_eq(woken[2], 0);
    cr_assert_eq(barrier(3, 3), STORE_OK, "a late one passes");
    cr_assert(has("b", "4"));
}

Test(store_lines, leaving_a_barrier_does_not_uncount)
{
    barrier(0, 2);
    store_leave(store, &waiter[0]);
    cr_assert_eq(barrier(1, 2), STORE_OK);
    cr_assert_eq(woken[0], 0);
}

/* The counter's creation wakes nobody; the barrier's completion wakes those who waited for the key as well. */
Test(store_lines, a_barrier_shares_its_line_with_waits)
{
    wait_for(0, "b");
    barrier(1, 2);
    cr_assert_eq(woken[0], 0);
    cr_assert_eq(wait_for(3, "b"), STORE_OK);
    barrier(2, 2);
    cr_assert_eq(woken[0], 1);
    cr_assert_eq(woken[1], 1);
}

Test(store_lines, a_barrier_on_text_is_refused)
{
    store_set(store, K("b"), K("text"));
    cr_assert_eq(barrier(0, 2), STORE_NOT_A_NUMBER);
}

/* --- queues -------------------------------------------------------------------------------------------------- */

static void expect_pop(const char *want, uint32_t want_len)
{
    uint32_t len;
    struct queue_item *item = store_pop(store, K("q"), &len);
    cr_assert_eq(len, want_len);
    cr_assert_eq(item == NULL, want == NULL);
    if (item == NULL)
        return;
    cr_assert(slice_equal(store_item_value(item), K(want)));
    store_item_free(store, item);
}

Test(store_lines, a_queue_is_first_in_first_out)
{
    expect_pop(NULL, 0);
    store_push(store, K("q"), K("1"));
    store_push(store, K("q"), K("2"));
    cr_assert_eq(store_queue_len(store, K("q")), 2);
    expect_pop("1", 2);
    store_push(store, K("q"), K("3"));
    expect_pop("2", 2);
    expect_pop("3", 1);
    expect_pop(NULL, 0);
}

Test(store_lines, a_queue_exists_for_wait_and_check_only)
{
    store_push(store, K("q"), K("1"));
    cr_assert(store_check(store, list("q")));
    cr_assert_eq(wait_for(0, "q"), STORE_OK);
    cr_assert_eq(store_count(store), 0);
    cr_assert(has("q", ""));
    cr_assert_not(store_delete(store, K("q")));
    store_set(store, K("q"), K("value"));
    store_delete(store, K("q"));
    expect_pop("1", 1);
    cr_assert_not(store_check(store, list("q")));
}

Test(store_lines, a_push_wakes_one_at_a_time)
{
    for (int i = 0; i < 3; i++)
        wait_for(i, "q");
    store_push(store, K("q"), K("1"));
    cr_assert_eq(woken[0], 1);
    cr_assert_eq(woken[1], 0);
    store_push(store, K("q"), K("2"));
    cr_assert_eq(woken[1], 1);
    cr_assert_eq(woken[2], 0);
    expect_pop("1", 2);
    store_acted(store, &waiter[0]);
    cr_assert_eq(woken[2], 0, "the second item is promised to the second in line");
}

Test(store_lines, who_goes_without_popping_passes_the_item_on)
{
    wait_for(0, "q");
    wait_for(1, "q");
    store_push(store, K("q"), K("1"));
    store_leave(store, &waiter[0]);
    store_acted(store, &waiter[0]);
    cr_assert_eq(woken[1], 1);
    expect_pop("1", 1);
    store_acted(store, &waiter[1]);
}

Test(store_lines, a_queue_counts_for_those_who_wait_for_more)
{
    wait_for(0, "q k");
    wait_for(1, "q");
    store_push(store, K("q"), K("1"));
    cr_assert_eq(woken[0], 0);
    cr_assert_eq(woken[1], 1);
    store_set(store, K("k"), K("1"));
    cr_assert_eq(woken[0], 1);
}
