/* Tests of the store client. The store is ddprun's own store, or a fake store that follows a script. Client and store
 * are both in this process. */
#include "base/clock.h"
#include "ddp/store.h"
#include "run.h"
#include "server/server.h"
#include "store_peers.h"

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
    cr_assert_str_eq(value, expected); /* the header promises the NUL after the value */
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
    cr_assert(has_parts(err.msg, "the value |8388609 bytes: |8388608"), "%s", err.msg);
    big[DDP_STORE_MAX_KEY] = '\0';
    cr_assert_eq(ddp_store_set(store, big, "", 0, &err), DDP_ERR_LIMIT);
    big[DDP_STORE_MAX_KEY - 1] = '\0'; /* one byte less, because the client adds a '/' in front */
    cr_assert_eq(ddp_store_set(store, big, "ok", 2, &err), DDP_OK, "%s", err.msg);
    expect_value(store, big, "ok");
    free(big);
    free(back);
    ddp_store_close(store);
}

/* The error is detected before the client sends anything, so the handle remains usable. */
Test(store_client, null_is_no_key_and_no_value)
{
    const char *const keys[] = { "here", NULL };
    void *value;
    size_t len;
    ddp_store *store = connect_with(NULL);
    cr_assert_eq(ddp_store_set(store, "here", "1", 1, &err), DDP_OK);
    cr_assert_eq(ddp_store_set(store, NULL, "", 0, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "key is") != NULL, "%s", err.msg);
    cr_assert_eq(ddp_store_set(store, "x", NULL, 5, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "of 5 bytes") != NULL, "%s", err.msg);
    cr_assert_eq(ddp_store_wait(store, NULL, 2, 0, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "keys is") != NULL, "%s", err.msg);
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

Test(store_client, a_wait_that_runs_out_names_the_first_missing_key)
{
    ddp_store *store = connect_with(NULL);
    const char *const keys[] = { "here", "there", "nowhere", "too", "fifth" };
    ddp_store_set(store, "here", "", 0, NULL);
    ddp_store_set(store, "there", "", 0, NULL);
    ddp_store_set(store, "fifth", "", 0, NULL);
    cr_assert_eq(ddp_store_wait(store, keys, 5, 20, &err), DDP_ERR_TIMEOUT);
    cr_assert_not_null(strstr(err.msg, "5 keys; "), "%s", err.msg);
    cr_assert_not_null(strstr(err.msg, "missing key: 'nowhere'"), "%s", err.msg);
    cr_assert_eq(ddp_store_wait(store, &keys[3], 1, 20, &err), DDP_ERR_TIMEOUT);
    cr_assert_not_null(strstr(err.msg, "key 'too'"), "%s", err.msg);
    ddp_store_close(store);
}

/* When the time of a get has run out, the client cancels its wait for the key. If the key is set later, the store must
 * not answer the cancelled wait, because the client would read this answer as the answer to its next request. */
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

/* A call waits while another thread uses the same handle. The call has its own timeout, after which the connection is
 * still usable. */
Test(store_client, a_call_does_not_wait_for_another_threads_for_ever)
{
    const ddp_store_options options = { .size = sizeof(options), .timeout_ms = 100, .rank = -1 };
    ddp_store *store = connect_with(&options), *other = connect_with(NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_long, store);
    while (ddp_store_add(store, "n", 1, NULL, &err) == DDP_OK) /* until the thread has begun its wait */
        continue;
    cr_assert_eq(err.code, DDP_ERR_TIMEOUT);
    cr_assert_not_null(strstr(err.msg, "another thread"), "%s", err.msg);
    ddp_store_set(other, "let me go", "", 0, NULL);
    pthread_join(thread, NULL);
    cr_assert_eq(ddp_store_add(store, "n", 1, NULL, &err), DDP_OK, "%s", err.msg);
    ddp_store_close(store);
    ddp_store_close(other);
}

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
    cr_assert_not_null(strstr(err.msg, "peer closed"), "%s", err.msg);
    cr_assert_eq(ddp_store_num_keys(store, &(int64_t){ 0 }, &err), DDP_ERR_CLOSED);
    cr_assert_not_null(strstr(err.msg, "earlier call"), "%s", err.msg);
    ddp_store_close(store);
}

/* Tests of the exact bytes that the client sends to each kind of store. Other tests check the errors if the peer is not
 * a store. */

#define GREETING    "< 00 cef7853c 0d ?? ?? ?? ?? "
#define WELCOME     GREETING "> @ "
#define REFUSES     GREETING "hangup"
#define OLD_WELCOME "< 06 > 0300000000000000 "
#define B_WELCOME   OLD_WELCOME "< 0b > 01 "
#define B_REFUSES   OLD_WELCOME "< 0b hangup"

static struct fake_store *fake;

#define PLAY(...) (fake = fake_store_start((const char *[]){ __VA_ARGS__, NULL }))

static ddp_status try_connect(ddp_store **store, uint32_t timeout_ms, const char *role)
{
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.connect_timeout_ms = timeout_ms;
    options.timeout_ms = 5000;
    options.role = role;
    return ddp_store_connect("127.0.0.1", fake_store_port(fake), &options, store, &err);
}

static ddp_store *connected(void)
{
    ddp_store *store;
    cr_assert_eq(try_connect(&store, 10000, NULL), DDP_OK, "%s", err.msg);
    return store;
}

static void expect_words(const char *words)
{
    cr_assert_not_null(strstr(err.msg, words), "expected \"%s\" in \"%s\"", words, err.msg);
}

static void done(ddp_store *store)
{
    ddp_store_close(store);
    const char *complaint = fake_store_stop(fake);
    cr_assert_null(complaint, "%s", complaint);
}

TestSuite(store_dialects, .timeout = 60);

Test(store_dialects, a_new_store_answers_the_ping)
{
    PLAY(WELCOME "< 04 0200000000000000 2f6e fdffffffffffffff > fdffffffffffffff");
    ddp_store *store = connected();
    int64_t sum;
    cr_assert_eq(ddp_store_dialect(store), 'C');
    cr_assert_eq(ddp_store_add(store, "n", -3, &sum, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(sum, -3);
    done(store);
}

/* Stores of torch 2.2 to 2.4 close the connection at PING. So the client connects again, and deletes a key that does
 * not exist. These stores answer this request. The script has the opcode, the key's length 4096, and the key. */
Test(store_dialects, a_store_without_ping_is_greeted_again)
{
    char script[128 + 3 * 4096] = "< 00 cef7853c 08 0010000000000000 2f ";
    for (int i = 0; i < 4095; i++)
        strcat(script + 3 * (size_t)i, "3f ");
    strcat(script, "> 0000000000000000 < 07 > 0200000000000000");
    PLAY(REFUSES, script);
    ddp_store *store = connected();
    int64_t n;
    cr_assert_eq(ddp_store_dialect(store), 'C');
    cr_assert_eq(ddp_store_num_keys(store, &n, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(n, 2);
    done(store);
}

Test(store_dialects, an_old_store_is_spoken_to_in_the_old_numbers)
{
    PLAY("< 00 hangup", "< 00 hangup", B_REFUSES,
         OLD_WELCOME "< 00 0200000000000000 2f61 0200000000000000 6869 "
                     "< 05 0100000000000000 0200000000000000 2f61 > 00 "
                     "< 02 0200000000000000 2f61 > 0200000000000000 6869 "
                     "< 08 0200000000000000 2f61 > 0100000000000000");
    ddp_store *store = connected();
    void *value;
    size_t len;
    int removed;
    cr_assert_eq(ddp_store_dialect(store), 'A');
    cr_assert_eq(ddp_store_set(store, "a", "hi", 2, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_get(store, "a", 0, &value, &len, &err), DDP_OK, "%s", err.msg);
    cr_assert_str_eq(value, "hi");
    cr_assert_eq(ddp_store_delete(store, "a", &removed, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(removed, 1);
    free(value);
    done(store);
}

/* In torch 2.1, 7 is DELETE_KEY, and 8 is APPEND. */
Test(store_dialects, torch_2_1_is_spoken_to_in_its_own_numbers)
{
    PLAY("< 00 hangup", "< 00 hangup",
         B_WELCOME "< 07 0200000000000000 2f61 > 0100000000000000 "
                   "< 05 0100000000000000 0200000000000000 2f61 < 0b > 01 < 06 > 0200000000000000");
    ddp_store *store = connected();
    int64_t n;
    int removed;
    cr_assert_eq(ddp_store_dialect(store), 'B');
    cr_assert_eq(ddp_store_delete(store, "a", &removed, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(removed, 1);
    cr_assert_eq(ddp_store_wait(store, (const char *[]){ "a" }, 1, 30, &err), DDP_ERR_TIMEOUT);
    cr_assert_eq(ddp_store_num_keys(store, &n, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(n, 2);
    done(store);
}

Test(store_dialects, a_wrong_answer_to_the_greeting_of_torch_2_1_is_no_store)
{
    PLAY("< 00 hangup", "< 00 hangup", OLD_WELCOME "< 0b > 02");
    ddp_store *store;
    cr_assert_eq(try_connect(&store, 5000, NULL), DDP_ERR_CORRUPT);
    done(NULL);
}

/* An old store has no request that cancels a wait, and might answer the wait later. So the client closes the
 * connection. */
Test(store_dialects, a_wait_given_up_in_the_old_dialect_costs_a_connection)
{
    PLAY("< 00 hangup", "< 00 hangup", B_REFUSES, OLD_WELCOME "< 05 0100000000000000 0200000000000000 2f61",
         "< 00 hangup", "< 00 hangup", B_REFUSES,
         OLD_WELCOME "< 03 0200000000000000 2f6e 0100000000000000 > 0100000000000000");
    ddp_store *store = connected();
    int64_t sum;
    cr_assert_eq(ddp_store_wait(store, (const char *[]){ "a" }, 1, 30, &err), DDP_ERR_TIMEOUT);
    cr_assert_eq(ddp_store_add(store, "n", 1, &sum, &err), DDP_OK, "%s", err.msg);
    done(store);
}

#define WAIT_A "< 06 0100000000000000 0200000000000000 2f61 "

Test(store_dialects, a_wait_is_cancelled_with_one_byte_and_answered_with_one)
{
    PLAY(WELCOME WAIT_A "< 0c > 01 < 07 > 0000000000000000");
    ddp_store *store = connected();
    cr_assert_eq(ddp_store_wait(store, (const char *[]){ "a" }, 1, 30, &err), DDP_ERR_TIMEOUT);
    cr_assert_eq(ddp_store_num_keys(store, &(int64_t){ 0 }, &err), DDP_OK, "%s", err.msg);
    done(store);
}

/* The key was set at the moment of the timeout. The store sends 00, the answer to WAIT, then 01, the answer to
 * CANCEL_WAIT. So the wait has succeeded. */
Test(store_dialects, a_wait_that_ends_while_it_is_cancelled_has_succeeded)
{
    PLAY(WELCOME WAIT_A "< 0c > 00 01 < 07 > 0000000000000000");
    ddp_store *store = connected();
    cr_assert_eq(ddp_store_wait(store, (const char *[]){ "a" }, 1, 30, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_num_keys(store, &(int64_t){ 0 }, &err), DDP_OK, "%s", err.msg);
    done(store);
}

Test(store_dialects, a_nonsense_answer_to_the_cancel_ends_the_handle)
{
    PLAY(WELCOME WAIT_A "< 0c > 00 00");
    ddp_store *store = connected();
    cr_assert_eq(ddp_store_wait(store, (const char *[]){ "a" }, 1, 30, &err), DDP_ERR_CORRUPT, "%s", err.msg);
    cr_expect_not_null(strstr(err.msg, "key 'a'"), "%s", err.msg);
    cr_assert_eq(ddp_store_num_keys(store, &(int64_t){ 0 }, &err), DDP_ERR_CLOSED, "%s", err.msg);
    done(store);
}

#define WAIT_AB "< 06 0200000000000000 0200000000000000 2f61 0200000000000000 2f62 "

/* The keys may exist, so the error blames none of them. */
Test(store_dialects, a_store_that_is_lost_during_a_wait_names_no_key)
{
    static const char *const keys[] = { "a", "b" };
    PLAY(WELCOME WAIT_AB "< 0c hangup");
    ddp_store *store = connected();
    cr_expect_eq(ddp_store_wait(store, keys, 2, 30, &err), DDP_ERR_CLOSED, "%s", err.msg);
    cr_expect_not_null(strstr(err.msg, " 2 keys"), "%s", err.msg);
    cr_expect_null(strstr(err.msg, "missing key"), "%s", err.msg);
    done(store);
}

Test(store_dialects, a_search_that_fails_names_no_key)
{
    static const char *const keys[] = { "a", "b" };
    PLAY(WELCOME WAIT_AB "< 0c > 01 < 05 0100000000000000 0200000000000000 2f61 hangup");
    ddp_store *store = connected();
    cr_expect_eq(ddp_store_wait(store, keys, 2, 30, &err), DDP_ERR_TIMEOUT, "%s", err.msg);
    cr_expect_null(strstr(err.msg, "missing key"), "%s", err.msg);
    done(store);
}

Test(store_dialects, replies_may_come_byte_by_byte)
{
    PLAY("slowly " WELCOME WAIT_A "> 00 < 03 0200000000000000 2f61 > 0200000000000000 6869");
    ddp_store *store = connected();
    void *value;
    size_t len;
    cr_assert_eq(ddp_store_get(store, "a", 0, &value, &len, &err), DDP_OK, "%s", err.msg);
    cr_assert_str_eq(value, "hi");
    free(value);
    done(store);
}

Test(store_dialects, a_web_server_is_not_a_store)
{
    PLAY(GREETING "> 'HTTP/1.1 20 '400 20 'Bad 20 'Request 0d0a hangup");
    ddp_store *store;
    cr_assert_eq(try_connect(&store, 5000, NULL), DDP_ERR_CORRUPT);
    cr_assert_null(store);
    expect_words("it answers \"HTTP");
    done(NULL);
}

Test(store_dialects, a_silent_peer_is_reported_as_silent)
{
    PLAY(GREETING);
    ddp_store *store;
    cr_assert_eq(try_connect(&store, 300, NULL), DDP_ERR_TIMEOUT);
    expect_words("no connection");
    expect_words("not answer");
    done(NULL);
}

Test(store_dialects, a_peer_that_hangs_up_on_everything_is_tried_until_the_deadline)
{
    PLAY("hangup");
    ddp_store *store;
    cr_assert_eq(try_connect(&store, 300, NULL), DDP_ERR_TIMEOUT);
    expect_words("first message");
    cr_assert_gt(fake_store_connections(fake), 3);
    done(NULL);
}

Test(store_dialects, a_refused_port_says_refused)
{
    int port, reserved = fake_port_reserve(&port);
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    ddp_store *store;
    options.connect_timeout_ms = 200;
    cr_assert_eq(ddp_store_connect("127.0.0.1", port, &options, &store, &err), DDP_ERR_TIMEOUT);
    expect_words("refused");
    close(reserved);
}

Test(store_dialects, an_unknown_name_says_so)
{
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    ddp_store *store;
    options.connect_timeout_ms = 200;
    cr_assert_eq(ddp_store_connect("no-such-host.invalid", 29500, &options, &store, &err), DDP_ERR_TIMEOUT);
    expect_words("no-such-host.invalid");
}

Test(store_dialects, a_bad_address_is_an_argument_error)
{
    ddp_store *store;
    cr_assert_eq(ddp_store_connect("", 29500, NULL, &store, &err), DDP_ERR_ARG);
    cr_assert_eq(ddp_store_connect("localhost", 0, NULL, &store, &err), DDP_ERR_ARG);
    cr_assert_eq(ddp_store_connect("localhost", 65536, NULL, &store, &err), DDP_ERR_ARG);
}

Test(store_dialects, a_huge_length_is_not_believed)
{
    PLAY(WELCOME WAIT_A "> 00 < 03 0200000000000000 2f61 > ffffffffffffff7f");
    ddp_store *store = connected();
    void *value;
    size_t len;
    cr_assert_eq(ddp_store_get(store, "a", 0, &value, &len, &err), DDP_ERR_CORRUPT);
    expect_words("9223372036854775807 bytes");
    expect_words("at most 8388608");
    cr_assert_eq(ddp_store_num_keys(store, &(int64_t){ 0 }, &err), DDP_ERR_CLOSED);
    done(store);
}

Test(store_dialects, an_end_in_the_middle_of_a_reply_is_an_error)
{
    PLAY(WELCOME WAIT_A "> 00 < 03 0200000000000000 2f61 > 0500000000000000 6869 hangup");
    ddp_store *store = connected();
    void *value;
    size_t len;
    cr_assert_eq(ddp_store_get(store, "a", 0, &value, &len, &err), DDP_ERR_CLOSED);
    cr_assert_null(value);
    expect_words("GET 'a', after");
    done(store);
}

Test(store_dialects, bytes_that_nobody_asked_for_end_the_handle)
{
    PLAY(WELCOME "< 07 > 0100000000000000 00");
    ddp_store *store = connected();
    cr_assert_eq(ddp_store_num_keys(store, &(int64_t){ 0 }, &err), DDP_OK, "%s", err.msg);
    while (ddp_store_set(store, "a", "", 0, &err) == DDP_OK) /* the unexpected byte may arrive late */
        usleep(1000);
    cr_assert_eq(err.code, DDP_ERR_CORRUPT);
    expect_words("unexpected bytes");
    ddp_store_close(store);
    fake_store_stop(fake);
}

Test(store_dialects, a_store_that_falls_silent_is_given_up_at_the_deadline)
{
    PLAY(WELCOME "< 07");
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    ddp_store *store;
    options.timeout_ms = 50;
    cr_assert_eq(ddp_store_connect("127.0.0.1", fake_store_port(fake), &options, &store, &err), DDP_OK);
    cr_assert_eq(ddp_store_num_keys(store, &(int64_t){ 0 }, &err), DDP_ERR_TIMEOUT);
    expect_words("GETNUMKEYS, after ");
    cr_assert_eq(ddp_store_num_keys(store, &(int64_t){ 0 }, &err), DDP_ERR_CLOSED);
    done(store);
}

Test(store_dialects, who_does_not_know_identify_is_not_ours)
{
    PLAY(WELCOME "< 80 hangup");
    ddp_store *store;
    cr_assert_eq(try_connect(&store, 5000, "worker"), DDP_ERR_UNSUPPORTED);
    expect_words("not ddprun's");
    done(NULL);
}

Test(store_dialects, our_requests_never_reach_a_foreign_store)
{
    PLAY(WELCOME);
    ddp_store *store = connected();
    char *reply;
    cr_assert_eq(ddp_store_control(store, "{}", 0, &reply, &err), DDP_ERR_UNSUPPORTED);
    cr_assert_eq(ddp_store_barrier(store, "b", NULL, 0, 0, &err), DDP_ERR_UNSUPPORTED);
    done(store);
}

#define IDENTIFIED WELCOME "< 80 blob > 00 0000000000000000 "
#define JOINS      "< 81 blob 1e00000000000000 blob "
#define LEAVES     "< 0c 0d ?? ?? ?? ?? "

static ddp_status join_with_30_ms(void)
{
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    ddp_store *store;
    int64_t n;
    options.role = "worker";
    options.rank = 0;
    cr_assert_eq(ddp_store_connect("127.0.0.1", fake_store_port(fake), &options, &store, &err), DDP_OK, "%s",
                 err.msg);
    cr_assert_eq(ddp_store_dialect(store), 'D');
    ddp_status status = ddp_store_barrier(store, "b", NULL, 0, 30, &err);
    struct ddp_err ignored;
    cr_assert_eq(ddp_store_num_keys(store, &n, &ignored), DDP_OK, "the handle is out of step: %s",
                 ignored.msg);
    done(store);
    return status;
}

Test(store_dialects, a_barrier_whose_store_says_nothing_is_left)
{
    PLAY(IDENTIFIED JOINS LEAVES "> 01 @ < 07 > 0000000000000000");
    cr_assert_eq(join_with_30_ms(), DDP_ERR_TIMEOUT);
    expect_words("without an");
}

/* The store sends its answer while the client cancels its wait. The answer contains 14 bytes of JSON:
 * {"message":""} */
Test(store_dialects, a_verdict_that_comes_while_leaving_counts)
{
    PLAY(IDENTIFIED JOINS LEAVES "> 02 0e00000000000000 '{\"message\":\"\"} 01 @ < 07 > 0000000000000000");
    cr_assert_eq(join_with_30_ms(), DDP_ERR_PEER_LOST);
}

Test(store_dialects, a_release_that_comes_while_leaving_counts)
{
    PLAY(IDENTIFIED JOINS LEAVES "> 00 0000000000000000 01 @ < 07 > 0000000000000000");
    cr_assert_eq(join_with_30_ms(), DDP_OK);
}

Test(store_dialects, a_refusal_is_told_in_the_stores_words)
{
    PLAY(WELCOME "< 80 blob > 01 0600000000000000 'no-one");
    ddp_store *store;
    cr_assert_eq(try_connect(&store, 5000, "worker"), DDP_ERR_MISMATCH);
    expect_words("rejected this worker: no-one");
    done(NULL);
}
