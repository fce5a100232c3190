/* The store client against ddprun's own store, both in this process. */
#include "ddp/store.h"

#include "base/clock.h"
#include "store_peers.h"
#include "run.h"
#include "server/server.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct store_server *server;
static struct ddp_err err;

static struct store_server *start_server(int port)
{
    const struct store_server_options options = { .host = "127.0.0.1",
                                                  .port = port,
                                                  .limits = HUB_LIMITS_DEFAULT };
    struct store_server *started;
    cr_assert_eq(store_server_start(&options, &started, &err), DDP_OK, "%s", err.msg);
    return started;
}

static void start(void)
{
    server = start_server(0);
}

static void stop(void)
{
    store_server_stop(server);
}

static ddp_store *connect_with(const ddp_store_options *options)
{
    ddp_store *store;
    cr_assert_eq(ddp_store_connect("127.0.0.1", store_server_port(server), options, &store, &err), DDP_OK,
                 "%s", err.msg);
    return store;
}

static void expect_value(ddp_store *store, const char *key, const char *expected)
{
    void *value;
    size_t len;
    cr_assert_eq(ddp_store_get(store, key, 1000, &value, &len, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(len, strlen(expected));
    cr_assert_str_eq(value, expected); /* the NUL behind the value is promised */
    free(value);
}

TestSuite(store_client, .init = start, .fini = stop, .timeout = 120);

Test(store_client, a_value_comes_back_as_it_was_set)
{
    ddp_store *store = connect_with(NULL);
    cr_assert_eq(ddp_store_dialect(store), 'C');
    cr_assert_eq(ddp_store_set(store, "a", "hi", 2, &err), DDP_OK);
    expect_value(store, "a", "hi");
    cr_assert_eq(ddp_store_set(store, "a", NULL, 0, &err), DDP_OK);
    expect_value(store, "a", "");
    ddp_store_close(store);
}

Test(store_client, values_up_to_the_limit_travel_and_no_further)
{
    ddp_store *store = connect_with(NULL);
    char *big = malloc(DDP_STORE_MAX_VALUE + 1);
    void *back;
    size_t len;
    memset(big, 'x', DDP_STORE_MAX_VALUE + 1);
    cr_assert_eq(ddp_store_set(store, "big", big, DDP_STORE_MAX_VALUE, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_get(store, "big", 0, &back, &len, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(len, DDP_STORE_MAX_VALUE);
    cr_assert_eq(memcmp(back, big, len), 0);
    cr_assert_eq(ddp_store_set(store, "big", big, DDP_STORE_MAX_VALUE + 1, &err), DDP_ERR_LIMIT);
    cr_assert_not_null(strstr(err.msg, "8388609 bytes, at most 8388608"), "%s", err.msg);
    big[DDP_STORE_MAX_KEY] = '\0';
    cr_assert_eq(ddp_store_set(store, big, "", 0, &err), DDP_ERR_LIMIT);
    big[DDP_STORE_MAX_KEY - 1] = '\0'; /* the '/' in front takes one */
    cr_assert_eq(ddp_store_set(store, big, "ok", 2, &err), DDP_OK, "%s", err.msg);
    expect_value(store, big, "ok");
    free(big);
    free(back);
    ddp_store_close(store);
}

/* Found before anything is sent, so the handle is as good as before. */
Test(store_client, null_is_no_key_and_no_value)
{
    const char *const keys[] = { "here", NULL };
    void *value;
    size_t len;
    ddp_store *store = connect_with(NULL);
    cr_assert_eq(ddp_store_set(store, "here", "1", 1, &err), DDP_OK);
    cr_assert_eq(ddp_store_set(store, NULL, "", 0, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "a key is NULL") != NULL, "%s", err.msg);
    cr_assert_eq(ddp_store_set(store, "x", NULL, 5, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "5 bytes at NULL") != NULL, "%s", err.msg);
    cr_assert_eq(ddp_store_wait(store, NULL, 2, 0, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "the list of keys is NULL") != NULL, "%s", err.msg);
    cr_assert_eq(ddp_store_wait(store, keys, 2, 0, &err), DDP_ERR_ARG);
    cr_assert_eq(ddp_store_get(store, NULL, 0, &value, &len, &err), DDP_ERR_ARG);
    cr_assert_null(value);
    expect_value(store, "here", "1");
    ddp_store_close(store);
}

Test(store_client, counters_are_decimal_texts)
{
    ddp_store *store = connect_with(NULL);
    int64_t sum;
    cr_assert_eq(ddp_store_add(store, "n", 5, &sum, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(sum, 5);
    cr_assert_eq(ddp_store_add(store, "n", -7, &sum, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(sum, -2);
    cr_assert_eq(ddp_store_add(store, "n", 0, NULL, &err), DDP_OK);
    expect_value(store, "n", "-2");
    ddp_store_close(store);
}

Test(store_client, compare_set_swaps_only_what_is_expected)
{
    ddp_store *store = connect_with(NULL);
    void *now;
    size_t len;
    cr_assert_eq(ddp_store_compare_set(store, "k", "", 0, "one", 3, NULL, NULL, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_compare_set(store, "k", "two", 3, "three", 5, &now, &len, &err), DDP_OK);
    cr_assert_eq(len, 3);
    cr_assert_str_eq(now, "one");
    free(now);
    cr_assert_eq(ddp_store_compare_set(store, "k", "one", 3, "two", 3, &now, &len, &err), DDP_OK);
    cr_assert_str_eq(now, "two");
    free(now);
    ddp_store_close(store);
}

Test(store_client, check_delete_and_count_agree)
{
    ddp_store *store = connect_with(NULL);
    const char *const keys[] = { "a", "b" };
    int64_t n;
    int all, removed;
    ddp_store_set(store, "a", "1", 1, NULL);
    cr_assert_eq(ddp_store_check(store, keys, 2, &all, &err), DDP_OK);
    cr_assert_eq(all, 0);
    ddp_store_set(store, "b", "1", 1, NULL);
    cr_assert_eq(ddp_store_check(store, keys, 2, &all, &err), DDP_OK);
    cr_assert_eq(all, 1);
    cr_assert_eq(ddp_store_num_keys(store, &n, &err), DDP_OK);
    cr_assert_eq(n, 2);
    cr_assert_eq(ddp_store_delete(store, "a", &removed, &err), DDP_OK);
    cr_assert_eq(removed, 1);
    cr_assert_eq(ddp_store_delete(store, "a", &removed, &err), DDP_OK);
    cr_assert_eq(removed, 0);
    ddp_store_close(store);
}

Test(store_client, nothing_to_wait_for_is_no_wait)
{
    ddp_store *store = connect_with(NULL);
    cr_assert_eq(ddp_store_wait(store, NULL, 0, 0, &err), DDP_OK, "%s", err.msg);
    ddp_store_close(store);
}

/* --- waiting -------------------------------------------------------------------------------------------- */

Test(store_client, a_wait_that_runs_out_names_the_first_missing_key)
{
    ddp_store *store = connect_with(NULL);
    const char *const keys[] = { "here", "there", "nowhere", "too", "fifth" };
    ddp_store_set(store, "here", "", 0, NULL);
    ddp_store_set(store, "there", "", 0, NULL);
    ddp_store_set(store, "fifth", "", 0, NULL);
    cr_assert_eq(ddp_store_wait(store, keys, 5, 20, &err), DDP_ERR_TIMEOUT);
    cr_assert_not_null(strstr(err.msg, "5 keys, the first missing one is 'nowhere'"), "%s", err.msg);
    cr_assert_eq(ddp_store_wait(store, &keys[3], 1, 20, &err), DDP_ERR_TIMEOUT);
    cr_assert_not_null(strstr(err.msg, " ms for the key 'too'"), "%s", err.msg);
    ddp_store_close(store);
}

/* The wait was taken back: when its key comes later, no byte of an old answer gets between the new ones. */
Test(store_client, a_wait_that_ran_out_leaves_nothing_behind)
{
    ddp_store *store = connect_with(NULL), *other = connect_with(NULL);
    void *value;
    size_t len;
    int64_t sum;
    cr_assert_eq(ddp_store_get(store, "late", 20, &value, &len, &err), DDP_ERR_TIMEOUT);
    cr_assert_null(value);
    cr_assert_eq(ddp_store_set(other, "late", "x", 1, &err), DDP_OK);
    cr_assert_eq(ddp_store_add(other, "n", 1, &sum, &err), DDP_OK);
    cr_assert_eq(ddp_store_add(store, "n", 1, &sum, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(sum, 2);
    expect_value(store, "late", "x");
    ddp_store_close(store);
    ddp_store_close(other);
}

static void *set_soon(void *arg)
{
    ddp_store *store = connect_with(NULL);
    usleep(50000);
    ddp_store_set(store, arg, "from the other", 14, NULL);
    ddp_store_close(store);
    return NULL;
}

Test(store_client, a_get_waits_for_another_client)
{
    ddp_store *store = connect_with(NULL);
    pthread_t other;
    pthread_create(&other, NULL, set_soon, "news");
    void *value;
    size_t len;
    cr_assert_eq(ddp_store_get(store, "news", 10000, &value, &len, &err), DDP_OK, "%s", err.msg);
    cr_assert_str_eq(value, "from the other");
    free(value);
    pthread_join(other, NULL);
    ddp_store_close(store);
}

static void *add_often(void *arg)
{
    for (int i = 0; i < 200; i++)
        ddp_store_add(arg, "shared", 1, NULL, NULL);
    return NULL;
}

Test(store_client, one_handle_serves_several_threads)
{
    ddp_store *store = connect_with(NULL);
    pthread_t threads[4];
    int64_t sum;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, add_often, store);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(ddp_store_add(store, "shared", 0, &sum, &err), DDP_OK);
    cr_assert_eq(sum, 800);
    ddp_store_close(store);
}

static void *wait_long(void *arg)
{
    ddp_store_wait(arg, (const char *[]){ "let me go" }, 1, 20000, NULL);
    return NULL;
}

/* A call behind another thread's wait has its own deadline, and its failure is not the connection's. */
Test(store_client, a_call_does_not_wait_for_another_threads_for_ever)
{
    const ddp_store_options options = { .size = sizeof(options), .timeout_ms = 100, .rank = -1 };
    ddp_store *store = connect_with(&options), *other = connect_with(NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_long, store);
    while (ddp_store_add(store, "n", 1, NULL, &err) == DDP_OK) /* until the thread is in its wait */
        continue;
    cr_assert_eq(err.code, DDP_ERR_TIMEOUT);
    cr_assert_not_null(strstr(err.msg, "another thread"), "%s", err.msg);
    ddp_store_set(other, "let me go", "", 0, NULL);
    pthread_join(thread, NULL);
    cr_assert_eq(ddp_store_add(store, "n", 1, NULL, &err), DDP_OK, "%s", err.msg);
    ddp_store_close(store);
    ddp_store_close(other);
}

/* --- coming and going ----------------------------------------------------------------------------------- */

static void *start_late(void *arg)
{
    usleep(150000);
    return start_server(*(int *)arg);
}

Test(store_client, a_store_that_comes_late_is_waited_for)
{
    int port = free_port();
    pthread_t thread;
    ddp_store *store;
    void *late;
    pthread_create(&thread, NULL, start_late, &port);
    cr_assert_eq(ddp_store_connect("localhost", port, NULL, &store, &err), DDP_OK, "%s", err.msg);
    ddp_store_close(store);
    pthread_join(thread, &late);
    store_server_stop(late);
}

Test(store_client, a_lost_store_closes_the_handle_and_kills_nobody)
{
    ddp_store *store = connect_with(NULL);
    stop();
    server = NULL;
    cr_assert_eq(ddp_store_set(store, "a", "1", 1, &err), DDP_ERR_CLOSED);
    cr_assert_not_null(strstr(err.msg, "SET 'a'"), "%s", err.msg);
    cr_assert_not_null(strstr(err.msg, "the other end has closed the connection"), "%s", err.msg);
    cr_assert_eq(ddp_store_num_keys(store, &(int64_t){ 0 }, &err), DDP_ERR_CLOSED);
    cr_assert_not_null(strstr(err.msg, "an earlier call has failed"), "%s", err.msg);
    ddp_store_close(store);
}
