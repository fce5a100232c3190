/* Compare the store with a trivial model after each of a hundred thousand random steps. The model is an array of keys,
 * and for each connection the set of keys that its wait still misses. */
#include "store/encode.h"
#include "store/entry.h"
#include "store/store.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { KEYS = 12, CONNS = 8, STEPS = 100000 };

static struct quota quota = { .max = 1 << 20 };
static struct store *store;
static struct store_waiter waiter[CONNS];
static bool is_woken[CONNS]; /* woken since the wait began */

/* The expected state of the keys. In a set of keys, bit k stands for key k. Keys 0 to 7 have values, and keys 8 to 11
 * are queues. */
static int64_t value[KEYS];
static uint32_t existing; /* set of the keys that exist */
static uint32_t queued[KEYS];
static uint32_t misses[CONNS]; /* set of the keys that the client still waits for; queues are not included */

static uint32_t random_below(uint32_t n)
{
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static struct slice name(uint32_t k)
{
    static char text[16];
    snprintf(text, sizeof(text), "/key/%u", k);
    return slice_str(text);
}

static void note_wake(void *user, struct store_waiter *w)
{
    (void)user;
    cr_assert_not(is_woken[w - waiter], "woken twice");
    is_woken[w - waiter] = true;
}

/* Record that key `k` exists. Expect that a client is woken when all keys that it waits for exist, and not before. */
static void key_comes(uint32_t k)
{
    existing |= 1u << k;
    for (int c = 0; c < CONNS; c++) {
        bool waited = misses[c] != 0;
        misses[c] &= ~(1u << k);
        if (waited)
            cr_assert_eq(is_woken[c], misses[c] == 0, "conn %d misses %x", c, misses[c]);
    }
}

static void step_add(uint32_t k)
{
    int64_t sum, delta = (int64_t)random_below(100) - 50;
    cr_assert_eq(store_add(store, name(k), delta, &sum), STORE_OK);
    value[k] = (existing >> k & 1 ? value[k] : 0) + delta;
    cr_assert_eq(sum, value[k]);
    key_comes(k);
}

static void step_set(uint32_t k)
{
    char text[16];
    value[k] = random_below(1000);
    snprintf(text, sizeof(text), "%d", (int)value[k]);
    cr_assert_eq(store_set(store, name(k), slice_str(text)), STORE_OK);
    key_comes(k);
}

static void step_delete(uint32_t k)
{
    cr_assert_eq(store_delete(store, name(k)), existing >> k & 1);
    existing &= ~(1u << k);
}

/* End the wait of connection `c`, as the next request of the client would. Clear `is_woken`. */
static void leave(uint32_t c)
{
    store_leave(store, &waiter[c]);
    misses[c] = 0;
    is_woken[c] = false;
}

/* Begin a wait for keys below 8, which are never queues. */
static void step_wait(uint32_t c)
{
    struct buf keys = { 0 };
    leave(c);
    for (uint32_t i = random_below(5); i > 0; i--) {
        uint32_t k = random_below(8);
        cr_assert(append_blob(&keys, name(k)));
        misses[c] |= 1u << k & ~existing;
    }
    enum store_status status = store_wait(store, &waiter[c], buf_slice(&keys));
    cr_assert_eq(status, misses[c] ? STORE_WAITS : STORE_OK);
    store_acted(store, &waiter[c]);
    buf_free(&keys);
}

/* --- queues 8 to 11 ------------------------------------------------------------------------------------------ */

static void step_push(uint32_t k)
{
    cr_assert_eq(store_push(store, name(k), slice_str("item")), STORE_OK);
    queued[k]++;
}

static void step_pop(uint32_t c, uint32_t k)
{
    uint32_t before;
    leave(c);
    struct queue_item *item = store_pop(store, name(k), &before);
    cr_assert_eq(before, queued[k]);
    cr_assert_eq(item != NULL, before > 0);
    if (item != NULL) {
        queued[k]--;
        store_item_free(store, item);
    }
    store_acted(store, &waiter[c]);
}

static void step_wait_queue(uint32_t c, uint32_t k)
{
    struct buf keys = { 0 };
    leave(c);
    cr_assert(append_blob(&keys, name(k)));
    cr_assert_eq(store_wait(store, &waiter[c], buf_slice(&keys)), queued[k] ? STORE_OK : STORE_WAITS);
    store_acted(store, &waiter[c]);
    buf_free(&keys);
}

/* Check a queue: if clients wait for it, each of its items must be promised to a client. */
static void check_queue(uint32_t k)
{
    uint32_t promised = 0, waiting = 0;
    for (int c = 0; c < CONNS; c++) {
        promised += waiter[c].offer != NULL && slice_equal(entry_key(waiter[c].offer), name(k));
        waiting +=
            waiter[c].wait != NULL && misses[c] == 0 && slice_equal(store_awaited(&waiter[c], 0), name(k));
    }
    cr_assert_eq(store_queue_len(store, name(k)), queued[k]);
    cr_assert(waiting == 0 || queued[k] <= promised, "%u items, %u promised, %u wait", queued[k], promised,
              waiting);
}

static void step(void)
{
    uint32_t k = random_below(8), q = 8 + random_below(4), c = random_below(CONNS);
    switch (random_below(9)) {
    case 0:
        return step_add(k);
    case 1:
        return step_set(k);
    case 2:
    case 3:
        return step_delete(k);
    case 4:
        return step_wait(c);
    case 5:
        leave(c);
        return store_acted(store, &waiter[c]);
    case 6:
        return step_push(q);
    case 7:
        return step_pop(c, q);
    case 8:
        return step_wait_queue(c, q);
    }
}

Test(store_random, nobody_is_woken_early_twice_or_never)
{
    store = store_new(&quota, note_wake, NULL);
    for (int i = 0; i < STEPS; i++) {
        step();
        check_queue(8 + (uint32_t)i % 4);
        cr_assert_eq(store_count(store), (uint64_t)__builtin_popcount(existing & 0xff));
    }
    for (uint32_t c = 0; c < CONNS; c++) {
        leave(c);
        store_acted(store, &waiter[c]);
    }
    store_clear(store);
    cr_assert_eq(quota.used, 0);
    store_free(store);
}
