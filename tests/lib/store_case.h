/* store_case.h -- a store without a connection, four who wait in it, and lists as requests carry them. */
#ifndef TESTS_LIB_STORE_CASE_H
#define TESTS_LIB_STORE_CASE_H

#include "store/encode.h"
#include "store/store.h"

#include <criterion/criterion.h>
#include <string.h>

static struct quota quota;
static struct store *store;
static struct store_waiter waiter[4];
static int woken[4]; /* how often each was */

static inline void count_wake(void *user, struct store_waiter *w)
{
    (void)user;
    woken[w - waiter]++;
}

static inline void set_up(void)
{
    quota = (struct quota){ .max = 1 << 20 };
    store = store_new(&quota, count_wake, NULL);
    cr_assert_not_null(store);
}

/* Whatever a test did: when everybody has left and all is cleared, the whole budget is back. */
static inline void tear_down(void)
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

static inline bool has(const char *key, const char *value)
{
    return slice_equal(store_get(store, K(key)), K(value));
}

/* "a b c" as the list that WAIT and CHECK carry. */
static inline struct slice list(const char *words)
{
    static struct buf out;
    out.len = 0;
    for (const char *end; *words; words = *end ? end + 1 : end) {
        end = strchr(words, ' ');
        end = end ? end : words + strlen(words);
        cr_assert(put_blob(&out, slice_of(words, (size_t)(end - words))));
    }
    return buf_slice(&out);
}

static inline enum store_status wait_for(int i, const char *keys)
{
    return store_wait(store, &waiter[i], list(keys));
}

#endif
