/* Tests of the store's rules, without a connection: keys, counters, waits, barriers, queues, the quota, and the
 * reports to the store's observer. PyTorch's clients depend on these rules, so each rule has a test. */
#include "store/store.h"

#include "base/buf.h"
#include "store/encode.h"
#include "store/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* --- a store, four waiters, and lists as in requests ------------------------------------------------------------ */

static struct quota quota;
static struct store *store;
static struct store_waiter waiter[4];
static int woken[4]; /* how often each waiter was woken */

static void count_wake(void *user, struct store_waiter *w)
{
    (void)user;
    woken[w - waiter]++;
}

static void set_up(void)
{
    quota = (struct quota){ .max = 1 << 20 };
    store = store_new(&quota, count_wake, NULL);
    cr_assert_not_null(store);
}

/* Check after each test that the whole quota is returned when all clients have left and all keys are cleared. */
static void tear_down(void)
{
    for (int i = 0; i < 4; i++) {
        store_leave(store, &waiter[i]);
        store_acted(store, &waiter[i]);
    }
    store_clear(store);
    cr_assert_eq(quota.used, 0);
    store_free(store);
}

#define K(text) slice_str(text)

static bool has(const char *key, const char *value)
{
    return slice_equal(store_get(store, K(key)), K(value));
}

/* Encode the words of a text such as "a b c" as a list of keys, in the form that the requests WAIT and CHECK have. */
static struct slice list(const char *words)
{
    static struct buf out;
    out.len = 0;
    for (const char *end; *words; words = *end ? end + 1 : end) {
        end = strchr(words, ' ');
        end = end ? end : words + strlen(words);
        cr_assert(append_blob(&out, slice_of(words, (size_t)(end - words))));
    }
    return buf_slice(&out);
}

static enum store_status wait_for(int i, const char *keys)
{
    return store_wait(store, &waiter[i], list(keys));
}

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
    /* the key is missing, and `expected` is not empty: the reply is `expected` */
    compare_set("x", "new", "x");
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

/* A short first value is stored in the same block of memory as its key, after the key. A later value may not fit into
 * this block. The content of the store must not depend on where a value is stored. */
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

/* While a client holds a value, the bytes of this value stay unchanged. The next value of the key gets new memory. */
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

/* While a client waits for a key, the entry of the key stays after its value was deleted. This entry then accepts a
 * value of any length. */
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

/* As in PyTorch's own server, a key that has arrived counts for a waiter even if the key is deleted later. */
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

/* --- BARRIER ------------------------------------------------------------------------------------------------- */

static enum store_status barrier(int i, int64_t world)
{
    return store_barrier(store, &waiter[i], K("b"), world);
}

Test(store, a_barrier_opens_for_the_last)
{
    cr_assert_eq(barrier(0, 3), STORE_WAITS);
    cr_assert_eq(barrier(1, 3), STORE_WAITS);
    cr_assert_eq(barrier(2, 3), STORE_OK);
    cr_assert_eq(woken[0] + woken[1], 2);
    cr_assert_eq(woken[2], 0);
    cr_assert_eq(barrier(3, 3), STORE_OK, "a late one passes");
    cr_assert(has("b", "4"));
}

Test(store, leaving_a_barrier_does_not_uncount)
{
    barrier(0, 2);
    store_leave(store, &waiter[0]);
    cr_assert_eq(barrier(1, 2), STORE_OK);
    cr_assert_eq(woken[0], 0);
}

/* A barrier counts its arrivals in the value of its key. The first arrival creates the key, but wakes no client that
 * waits for the key. The last arrival wakes these clients and the members of the barrier. */
Test(store, a_barrier_shares_its_line_with_waits)
{
    wait_for(0, "b");
    barrier(1, 2);
    cr_assert_eq(woken[0], 0);
    cr_assert_eq(wait_for(3, "b"), STORE_OK);
    barrier(2, 2);
    cr_assert_eq(woken[0], 1);
    cr_assert_eq(woken[1], 1);
}

Test(store, a_barrier_on_text_is_refused)
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

Test(store, a_queue_is_first_in_first_out)
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

Test(store, a_queue_exists_for_wait_and_check_only)
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

Test(store, a_push_wakes_one_at_a_time)
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

Test(store, who_goes_without_popping_passes_the_item_on)
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

Test(store, a_queue_counts_for_those_who_wait_for_more)
{
    wait_for(0, "q k");
    wait_for(1, "q");
    store_push(store, K("q"), K("1"));
    cr_assert_eq(woken[0], 0);
    cr_assert_eq(woken[1], 1);
    store_set(store, K("k"), K("1"));
    cr_assert_eq(woken[0], 1);
}

/* --- the observer ---------------------------------------------------------------------------------------------- */

static char heard[512]; /* calls that the observer has received, one word each */

static void hear(const char *what, struct slice key, int64_t number)
{
    const size_t used = strlen(heard);
    snprintf(heard + used, sizeof(heard) - used, "%s(%.*s %lld) ", what, (int)key.len, (const char *)key.data,
             (long long)number);
}

static void hear_written(void *user, struct slice key, bool anew)
{
    cr_assert_eq(user, heard);
    hear("written", key, anew);
}

static void hear_counted(void *user, struct slice key, int64_t delta, int64_t sum)
{
    cr_assert_eq(user, heard);
    hear("counted", key, 100 * delta + sum);
}

/* Handle the start of a wait. The wait exists already, so its keys can be read. */
static void hear_wait(void *user, struct store_waiter *w)
{
    cr_assert_eq(user, heard);
    hear("waits", store_awaited(w, 0), w - waiter);
}

static void hear_found(void *user, struct store_waiter *w, struct slice keys)
{
    (void)keys;
    cr_assert_eq(user, heard);
    hear("found", K("-"), w - waiter);
}

static const char *const subscribed[] = { "/group/", "rank_", NULL };

static void observe(void)
{
    const struct store_observer observer = { .user = heard,
                                             .prefixes = subscribed,
                                             .written = hear_written,
                                             .counted = hear_counted,
                                             .waits = hear_wait,
                                             .found = hear_found };
    store_observe(store, &observer);
}

Test(store, the_observer_hears_of_keys_that_it_subscribed_to)
{
    int64_t sum;
    observe();
    store_set(store, K("/group/0"), K("a"));
    store_set(store, K("/group/0"), K("b"));
    store_set(store, K("far/away/rank_3"), K("a"));
    store_add(store, K("/group/n"), 2, &sum);
    cr_expect_str_eq(heard, "written(/group/0 0) written(/group/0 1) written(far/away/rank_3 0) "
                            "counted(/group/n 202) ");
}

/* The store keeps in each entry whether the observer wants the key. Writes before the observer exists must not count. */
Test(store, the_observer_hears_of_each_write_after_it_was_set)
{
    store_set(store, K("/group/0"), K("a"));
    store_set(store, K("other"), K("a"));
    observe();
    for (int i = 0; i < 2; i++) {
        store_set(store, K("/group/0"), K("b"));
        store_set(store, K("other"), K("b"));
    }
    cr_expect_str_eq(heard, "written(/group/0 1) written(/group/0 1) ");
}

Test(store, the_observer_hears_of_no_other_key)
{
    int64_t sum;
    struct slice current;
    observe();
    store_set(store, K("/groups"), K("a"));
    store_set(store, K("rank_1/of"), K("a")); /* this key begins with the prefix, too */
    store_set(store, K("a/group/0"), K("a"));
    store_set(store, K(""), K("a"));
    store_add(store, K("n"), 1, &sum);
    store_append(store, K("/group/1"), K("a"));
    store_compare_set(store, K("other"), K(""), K("a"), &current);
    store_push(store, K("/group/q"), K("a"));
    store_delete(store, K("/group/1"));
    cr_expect_str_eq(heard, "written(rank_1/of 0) ");
}

Test(store, the_observer_hears_of_no_write_that_failed)
{
    int64_t sum;
    char big[4096] = "";
    observe();
    quota.max = quota.used + 1024;
    cr_assert_eq(store_set(store, K("/group/0"), slice_of(big, sizeof(big))), STORE_FULL);
    cr_assert_eq(store_set(store, K("word"), K("text")), STORE_OK);
    cr_assert_eq(store_add(store, K("word"), 1, &sum), STORE_NOT_A_NUMBER);
    cr_expect_str_eq(heard, "");
}

Test(store, the_observer_hears_when_a_wait_begins_and_when_there_is_none_to_begin)
{
    observe();
    cr_assert_eq(wait_for(0, "a b"), STORE_WAITS);
    cr_assert_eq(store_barrier(store, &waiter[1], K("b"), 2), STORE_WAITS);
    store_set(store, K("a"), K("1"));
    cr_assert_eq(wait_for(2, "a"), STORE_OK);
    cr_expect_str_eq(heard, "waits(a 0) waits(b 1) found(- 2) ");
}

/* `wake` reports the end of a wait. A barrier that opens wakes its waiters. */
Test(store, a_wait_ends_once_and_an_observer_does_not_change_that)
{
    observe();
    wait_for(0, "/group/0");
    store_barrier(store, &waiter[1], K("b"), 2);
    store_set(store, K("/group/0"), K("a"));
    cr_assert_eq(store_barrier(store, &waiter[2], K("b"), 2), STORE_OK);
    cr_assert_eq(woken[0] == 1 && woken[1] == 1 && woken[2] == 0, true);
    cr_expect_str_eq(heard, "waits(/group/0 0) waits(b 1) written(/group/0 0) ");
}

/* If an observer subscribes to nothing, the store calls none of its callbacks, so all of them may be NULL. */
Test(store, no_observer_is_needed)
{
    int64_t sum;
    const struct store_observer nobody = { 0 };
    store_observe(store, &nobody);
    store_set(store, K("/group/0"), K("a"));
    store_add(store, K("/group/n"), 1, &sum);
    cr_assert_eq(wait_for(0, "/group/1"), STORE_WAITS);
    cr_assert_eq(wait_for(1, "/group/0"), STORE_OK);
    cr_assert_eq(store_barrier(store, &waiter[2], K("b"), 2), STORE_WAITS);
    store_set(store, K("/group/1"), K("a"));
    cr_assert_eq(woken[0], 1);
}
