/* The store's rules, without a connection: keys, counters, waits, the quota. */
#include "base/shared.h"
#include "store/ops.h"
#include "store_case.h"

#include <stdio.h>

TestSuite(store, .init = set_up, .fini = tear_down);

Test(store, set_and_get)
{
    cr_assert_eq(store_set(store, K("a"), K("1")), STORE_OK);
    cr_assert(has("a", "1"));
    cr_assert_eq(store_set(store, K("a"), K("a longer value than there was room for before")), STORE_OK);
    cr_assert(has("a", "a longer value than there was room for before"));
    cr_assert_eq(store_set(store, K("a"), K("")), STORE_OK);
    cr_assert(has("a", ""));
    cr_assert_eq(store_count(store), 1);
}

Test(store, keys_are_bytes)
{
    cr_assert_eq(store_set(store, slice_of("a\0b", 3), K("1")), STORE_OK);
    cr_assert_eq(store_set(store, slice_of("a\0c", 3), K("2")), STORE_OK);
    cr_assert_eq(store_set(store, K(""), K("3")), STORE_OK);
    cr_assert_eq(store_count(store), 3);
    cr_assert(slice_equal(store_get(store, slice_of("a\0b", 3)), K("1")));
    cr_assert(has("", "3"));
}

Test(store, a_missing_key_reads_as_empty)
{
    cr_assert(has("nothing", ""));
}

Test(store, delete_says_whether_it_was_there)
{
    cr_assert_not(store_delete(store, K("a")));
    store_set(store, K("a"), K("1"));
    cr_assert(store_delete(store, K("a")));
    cr_assert_not(store_delete(store, K("a")));
    cr_assert_eq(store_count(store), 0);
}

Test(store, thousands_of_keys_are_found_again)
{
    char key[32];
    quota.max = 1 << 24;
    for (int i = 0; i < 20000; i++) {
        sprintf(key, "/key/%d", i);
        cr_assert_eq(store_set(store, K(key), K(key + 5)), STORE_OK);
    }
    for (int i = 0; i < 20000; i++) {
        sprintf(key, "/key/%d", i);
        cr_assert(has(key, key + 5));
    }
    cr_assert_eq(store_count(store), 20000);
}

Test(store, listing_names_each_key_once)
{
    const struct entry *at = NULL;
    struct slice key, value;
    int seen = 0;
    store_set(store, K("a"), K("1"));
    store_set(store, K("b"), K("1"));
    store_push(store, K("queue"), K("1"));
    wait_for(0, "missing");
    while (store_next(store, &at, &key, &value))
        seen += slice_equal(key, K("a")) ? 1 : slice_equal(key, K("b")) ? 10 : 100;
    cr_assert_eq(seen, 11);
}

/* --- COMPARE_SET, ADD, APPEND -------------------------------------------------------------------------------- */

static void compare_set(const char *expected, const char *desired, const char *current)
{
    struct slice got;
    cr_assert_eq(store_compare_set(store, K("k"), K(expected), K(desired), &got), STORE_OK);
    cr_assert(slice_equal(got, K(current)), "%s -> %s", expected, desired);
}

Test(store, compare_set_in_its_four_cases)
{
    compare_set("x", "new", "x"); /* missing, something expected: the caller's own word comes back */
    cr_assert_eq(store_count(store), 0);
    compare_set("", "new", "new");
    compare_set("other", "newer", "new");
    compare_set("", "newer", "new");
    compare_set("new", "newer", "newer");
    cr_assert(has("k", "newer"));
}

Test(store, compare_set_wakes_when_the_key_comes_into_existence)
{
    cr_assert_eq(wait_for(0, "k"), STORE_WAITS);
    compare_set("x", "new", "x");
    cr_assert_eq(woken[0], 0);
    compare_set("", "new", "new");
    cr_assert_eq(woken[0], 1);
}

static void add(int64_t delta, int64_t want)
{
    int64_t sum = 0;
    cr_assert_eq(store_add(store, K("n"), delta, &sum), STORE_OK);
    cr_assert_eq(sum, want);
}

Test(store, a_counter_is_decimal_text)
{
    add(0, 0);
    cr_assert(has("n", "0"));
    add(5, 5);
    add(-7, -2);
    cr_assert(has("n", "-2"));
    store_set(store, K("n"), K(" \t+12ab"));
    add(1, 13);
}

Test(store, a_sum_wraps_around)
{
    add(INT64_MAX, INT64_MAX);
    add(1, INT64_MIN);
    cr_assert(has("n", "-9223372036854775808"));
    add(-1, INT64_MAX);
}

Test(store, what_is_no_number_is_left_alone)
{
    const char *const bad[] = {
        "", " ", "-", "x1", "9223372036854775808", "-9223372036854775809", "99999999999999999999999999"
    };
    int64_t sum;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        store_set(store, K("n"), K(bad[i]));
        cr_assert_eq(store_add(store, K("n"), 1, &sum), STORE_NOT_A_NUMBER, "'%s'", bad[i]);
        cr_assert(has("n", bad[i]));
    }
}

Test(store, append_creates_and_grows)
{
    store_append(store, K("p"), K("ab"));
    for (int i = 0; i < 100; i++)
        store_append(store, K("p"), K("0123456789"));
    cr_assert_eq(store_get(store, K("p")).len, 1002);
}

Test(store, a_value_never_outgrows_its_limit)
{
    static char half[WIRE_MAX_VALUE / 2];
    quota.max = 1 << 26;
    cr_assert_eq(store_append(store, K("p"), slice_of(half, sizeof(half))), STORE_OK);
    cr_assert_eq(store_append(store, K("p"), slice_of(half, sizeof(half))), STORE_OK);
    cr_assert_eq(store_append(store, K("p"), K("x")), STORE_FULL);
    cr_assert_eq(store_get(store, K("p")).len, WIRE_MAX_VALUE);
}

/* A short first value lies behind its key, a later one may not fit there; what is in the store must not depend on it. */
Test(store, a_value_of_any_length_may_follow_one_of_any_length)
{
    static const size_t lengths[] = { 0, 1, 23, 24, 25, 128, 511, 512, 513, 5000, 100000 };
    enum { N = sizeof(lengths) / sizeof(*lengths) };
    static char bytes[200001];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)('a' + i % 26);
    for (int first = 0; first < N; first++) {
        for (int then = 0; then < N; then++) {
            store_set(store, K("a"), slice_of(bytes, lengths[first]));
            store_append(store, K("a"), slice_of(bytes + lengths[first], lengths[then]));
            cr_assert(slice_equal(store_get(store, K("a")), slice_of(bytes, lengths[first] + lengths[then])));
            store_set(store, K("a"), slice_of(bytes + 1, lengths[then]));
            cr_assert(slice_equal(store_get(store, K("a")), slice_of(bytes + 1, lengths[then])));
            store_delete(store, K("a"));
            cr_assert_eq(quota.used, 0, "%zu after %zu", lengths[then], lengths[first]);
        }
    }
}

/* Whoever holds a value keeps these bytes: the key gets new memory for the next ones. */
Test(store, a_held_value_stays_whatever_becomes_of_its_key)
{
    static char a[SHARED_MIN], b[SHARED_MIN], both[2 * SHARED_MIN];
    memset(a, 'a', sizeof(a));
    memset(b, 'b', sizeof(b));
    quota.max = 8 * SHARED_MIN;
    cr_assert_eq(store_set(store, K("k"), slice_of(a, sizeof(a))), STORE_OK);
    const struct slice value = store_get(store, K("k"));
    cr_assert_null(store_holder(store, K("other"), value));
    cr_assert_null(store_holder(store, K("k"), slice_of(a, sizeof(a))),
                   "equal bytes elsewhere are not the value");
    struct shared *first = shared_hold(store_holder(store, K("k"), value));
    cr_assert_eq(store_append(store, K("k"), slice_of(b, sizeof(b))), STORE_OK);
    struct shared *second = shared_hold(store_holder(store, K("k"), store_get(store, K("k"))));
    cr_assert_eq(store_set(store, K("k"), slice_of(b, sizeof(b))), STORE_OK);
    cr_assert(slice_equal(value, slice_of(a, sizeof(a))));
    memcpy(both, second->bytes, sizeof(both));
    cr_assert(store_delete(store, K("k")));
    cr_assert(slice_equal(value, slice_of(a, sizeof(a))));
    cr_assert_arr_eq(both, a, sizeof(a));
    cr_assert_arr_eq(both + sizeof(a), b, sizeof(b));
    cr_assert_eq(store_set(store, K("k"), slice_of(a, sizeof(a))), STORE_OK);
    cr_assert_arr_eq(second->bytes, both, sizeof(both));
    shared_release(first);
    shared_release(second);
}

Test(store, a_short_value_is_not_held)
{
    static char text[SHARED_MIN - 1];
    quota.max = 2 * SHARED_MIN;
    cr_assert_eq(store_set(store, K("k"), slice_of(text, sizeof(text))), STORE_OK);
    cr_assert_null(store_holder(store, K("k"), store_get(store, K("k"))));
}

/* The entry outlives its value while somebody waits for a queue of the same name, or for nothing but the value. */
Test(store, a_slot_that_was_made_for_a_wait_takes_any_value)
{
    static char bytes[1000];
    for (size_t len = 0; len <= sizeof(bytes); len += 125) {
        wait_for(0, "a b");
        store_set(store, K("a"), slice_of(bytes, len));
        store_delete(store, K("a"));
        store_set(store, K("a"), slice_of(bytes, len));
        cr_assert(slice_equal(store_get(store, K("a")), slice_of(bytes, len)));
        store_set(store, K("b"), K("1"));
        store_delete(store, K("a"));
        store_delete(store, K("b"));
        cr_assert_eq(quota.used, 0, "%zu bytes", len);
    }
}

/* --- waits --------------------------------------------------------------------------------------------------- */

Test(store, nothing_to_wait_for_is_no_wait)
{
    cr_assert_eq(wait_for(0, ""), STORE_OK);
    store_set(store, K("a"), K(""));
    cr_assert_eq(wait_for(0, "a a"), STORE_OK);
}

static void by_set(void)
{
    store_set(store, K("k"), K("1"));
}

static void by_add(void)
{
    int64_t sum;
    store_add(store, K("k"), 0, &sum);
}

static void by_append(void)
{
    store_append(store, K("k"), K(""));
}

static void by_multi_set(void)
{
    store_multi_set(store, list("other 1 k 2"));
}

static void by_compare_set(void)
{
    struct slice current;
    store_compare_set(store, K("k"), K(""), K("1"), &current);
}

Test(store, every_way_to_make_a_key_wakes)
{
    void (*const ways[])(void) = { by_set, by_add, by_append, by_multi_set, by_compare_set };
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(wait_for(0, "k"), STORE_WAITS);
        cr_assert_eq(wait_for(1, "k"), STORE_WAITS);
        ways[i]();
        cr_assert_eq(woken[0], i + 1);
        cr_assert_eq(woken[1], i + 1);
        ways[i]();
        cr_assert_eq(woken[0], i + 1);
        store_delete(store, K("k"));
    }
}

Test(store, two_keys_may_come_in_either_order)
{
    wait_for(0, "a b");
    wait_for(1, "b a");
    store_set(store, K("b"), K("1"));
    cr_assert_eq(woken[0] + woken[1], 0);
    store_set(store, K("a"), K("1"));
    cr_assert_eq(woken[0], 1);
    cr_assert_eq(woken[1], 1);
}

/* As in PyTorch's own server: what has come has come. */
Test(store, a_key_that_was_counted_may_be_deleted_again)
{
    wait_for(0, "a b");
    store_set(store, K("a"), K("1"));
    store_delete(store, K("a"));
    store_set(store, K("b"), K("1"));
    cr_assert_eq(woken[0], 1);
}

Test(store, a_key_named_twice_counts_once)
{
    wait_for(0, "a a b a b");
    cr_assert_eq(store_awaited_count(&waiter[0]), 2);
    store_set(store, K("a"), K("1"));
    store_set(store, K("b"), K("1"));
    cr_assert_eq(woken[0], 1);
}

Test(store, a_wait_that_was_left_is_not_woken)
{
    wait_for(0, "a b");
    store_leave(store, &waiter[0]);
    store_set(store, K("a"), K("1"));
    store_set(store, K("b"), K("1"));
    cr_assert_eq(woken[0], 0);
}

Test(store, a_second_wait_replaces_the_first)
{
    wait_for(0, "a");
    wait_for(0, "b");
    store_set(store, K("a"), K("1"));
    cr_assert_eq(woken[0], 0);
    store_set(store, K("b"), K("1"));
    cr_assert_eq(woken[0], 1);
}

Test(store, leaving_in_the_middle_of_a_line_keeps_the_others)
{
    for (int i = 0; i < 4; i++)
        wait_for(i, "a");
    store_leave(store, &waiter[1]);
    store_leave(store, &waiter[3]);
    store_leave(store, &waiter[0]);
    store_set(store, K("a"), K("1"));
    cr_assert_eq(woken[0] + woken[1] + woken[3], 0);
    cr_assert_eq(woken[2], 1);
}

Test(store, clearing_ends_waits_silently)
{
    wait_for(0, "a b");
    store_set(store, K("a"), K("1"));
    store_clear(store);
    cr_assert_eq(store_count(store), 0);
    cr_assert_eq(store_awaited_count(&waiter[0]), 0);
    store_set(store, K("b"), K("1"));
    cr_assert_eq(woken[0], 0);
}

Test(store, what_is_awaited_can_be_told)
{
    wait_for(0, "a b c");
    store_set(store, K("a"), K("1"));
    cr_assert_eq(store_awaited_count(&waiter[0]), 2);
    cr_assert(slice_equal(store_awaited(&waiter[0], 0), K("b")));
    cr_assert(slice_equal(store_awaited(&waiter[0], 1), K("c")));
}

/* --- the quota ----------------------------------------------------------------------------------------------- */

Test(store, a_full_store_refuses_and_stays_as_it_is)
{
    static char big[100000];
    struct slice value = slice_of(big, sizeof(big));
    char key[16];
    int n = 0;
    for (; n < 20 && sprintf(key, "k%d", n) && store_set(store, K(key), value) == STORE_OK; n++)
        ;
    cr_assert_eq(n, 10);
    cr_assert_eq(store_count(store), 10);
    uint64_t used = quota.used;
    cr_assert_eq(store_append(store, K("k0"), value), STORE_FULL);
    cr_assert_eq(store_push(store, K("q"), value), STORE_FULL);
    cr_assert_eq(store_get(store, K("k0")).len, sizeof(big));
    cr_assert_eq(quota.used, used);
    store_delete(store, K("k3"));
    cr_assert_eq(store_set(store, K("again"), value), STORE_OK);
}

Test(store, a_multi_set_that_does_not_fit_sets_nothing)
{
    quota.max = 700;
    cr_assert_eq(store_multi_set(store, list("a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9")), STORE_FULL);
    cr_assert_eq(store_count(store), 0);
    cr_assert_eq(store_multi_set(store, list("a 1 b 2")), STORE_OK);
    cr_assert(has("b", "2"));
}

Test(store, a_wait_that_does_not_fit_leaves_nothing_behind)
{
    quota.max = 500;
    cr_assert_eq(wait_for(0, "a b c d e f g h i j"), STORE_FULL);
    cr_assert_eq(quota.used, 0);
    cr_assert_eq(store_awaited_count(&waiter[0]), 0);
}

Test(store, a_shrunk_value_gives_its_room_back)
{
    static char big[100000];
    store_set(store, K("a"), slice_of(big, sizeof(big)));
    store_set(store, K("a"), K("small"));
    cr_assert_lt(quota.used, 1000);
}
