/* test_store_link.c -- the agent's connection, against a real store on a free port and against worse. */
#include "node/store_link.h"

#include "ddp/store.h"
#include "server/store_server.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(store_link, .timeout = 30);

static uv_loop_t loop;
static struct store_server *server;
static struct store_link *link_;
static int ready, lost, asked, left;
static int64_t step;
static char left_words[128];
static char why_lost[512];

static void on_ready(void *user)
{
    (void)user;
    ready++;
}

static void on_lost(void *user, const char *why)
{
    (void)user;
    lost++;
    snprintf(why_lost, sizeof(why_lost), "%s", why);
}

static void on_progress(void *user, int64_t furthest)
{
    (void)user;
    asked++;
    step = furthest;
}

static void on_left_waiting(void *user, int rank, const char *barrier, const char *waiting)
{
    (void)user;
    left++;
    snprintf(left_words, sizeof(left_words), "%d %s %s", rank, barrier, waiting);
}

static void start_server(void)
{
    struct ddp_err err;
    const struct store_server_options options = { .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT };
    cr_assert_eq(store_server_start(&options, &server, &err), DDP_OK, "%s", err.msg);
    uv_loop_init(&loop);
}

static void open_link(int port)
{
    struct ddp_err err;
    const struct store_link_options options = { .loop = &loop,
                                                .address = "127.0.0.1",
                                                .port = port,
                                                .job = "myjob",
                                                .host = "n1",
                                                .world_size = 2,
                                                .ready = on_ready,
                                                .lost = on_lost,
                                                .progress = on_progress,
                                                .left_waiting = on_left_waiting };
    cr_assert_eq(store_link_open(&options, &link_, &err), DDP_OK, "%s", err.msg);
}

static void until(const int *flag)
{
    while (*flag == 0)
        uv_run(&loop, UV_RUN_ONCE);
}

static void on_stop(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, NULL);
    uv_stop(timer->loop);
}

/* Let the loop work for a moment. */
static void work_ms(uint64_t ms)
{
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_stop, ms, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_run(&loop, UV_RUN_NOWAIT); /* the timer's close callback */
}

static void close_all(void)
{
    store_link_close(link_);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(uv_loop_close(&loop), 0, "a handle is left open");
    store_server_stop(server);
}

/* What the store says of a rank to an operator: its "state". */
static void expect_state(int rank, const char *state)
{
    struct ddp_err err;
    struct ddp_store *store;
    char *text = NULL;
    const ddp_store_options options = { .size = sizeof(options), .role = "ctl", .rank = -1 };
    cr_assert_eq(ddp_store_connect("127.0.0.1", store_server_port(server), &options, &store, &err), DDP_OK,
                 "%s", err.msg);
    cr_assert_eq(ddp_store_control(store, "{\"op\":\"status\"}", 5000, &text, &err), DDP_OK, "%s", err.msg);
    cJSON *json = cJSON_Parse(text);
    const cJSON *member = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(json, "members"), rank);
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(member, "state");
    cr_expect(cJSON_IsString(found) && strcmp(found->valuestring, state) == 0, "rank %d is not %s: %s", rank,
              state, text);
    cJSON_Delete(json);
    free(text);
    ddp_store_close(store);
}

Test(store_link, the_job_is_told_and_then_its_workers, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    store_link_started(link_, 1, 1, 4711);
    work_ms(100);
    expect_state(1, "never_connected");
    store_link_exited(link_, 1, 4711, 0, 9);
    work_ms(100);
    expect_state(1, "exited");
    cr_expect_eq(lost, 0, "%s", why_lost);
    cr_expect_eq(ready, 1);
}

/* What is asked for before the connection stands is not forgotten. */
Test(store_link, early_words_go_out_later, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    store_link_started(link_, 0, 0, 99);
    store_link_exited(link_, 0, 99, 3, 0);
    until(&ready);
    work_ms(100);
    expect_state(0, "exited");
    cr_expect_eq(lost, 0, "%s", why_lost);
}

Test(store_link, heartbeats_go_on, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    work_ms(2300);
    cr_expect_eq(lost, 0, "%s", why_lost);
}

Test(store_link, a_port_where_nobody_listens_is_lost, .init = start_server, .fini = close_all)
{
    open_link(1);
    until(&lost);
    cr_expect_eq(ready, 0);
    cr_expect_not_null(strstr(why_lost, "refused"), "%s", why_lost);
}

Test(store_link, a_store_that_goes_away_is_lost_once, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    store_server_stop(server);
    server = NULL;
    until(&lost);
    work_ms(50);
    cr_expect_eq(lost, 1);
}

Test(store_link, closing_before_the_connection_stands_is_fine, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    cr_expect_eq(ready + lost, 0);
}

/* --- attempts ------------------------------------------------------------------------------------------- */

static struct ddp_store *connect_as(const char *role, int rank, int attempt)
{
    struct ddp_err err;
    struct ddp_store *store;
    const ddp_store_options options = { .size = sizeof(options),
                                        .role = role,
                                        .job = "myjob",
                                        .rank = rank,
                                        .world_size = 2,
                                        .attempt = attempt };
    cr_assert_eq(ddp_store_connect("127.0.0.1", store_server_port(server), &options, &store, &err), DDP_OK,
                 "%s", err.msg);
    return store;
}

static void set(struct ddp_store *store, const char *key, const char *value)
{
    struct ddp_err err;
    cr_assert_eq(ddp_store_set(store, key, value, strlen(value), &err), DDP_OK, "%s", err.msg);
}

static bool has(struct ddp_store *store, const char *key)
{
    struct ddp_err err;
    int all = 0;
    cr_assert_eq(ddp_store_check(store, &key, 1, &all, &err), DDP_OK, "%s", err.msg);
    return all;
}

Test(store_link, a_new_attempt_begins_without_the_keys_of_the_old, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    struct ddp_store *worker = connect_as(NULL, -1, 0);
    set(worker, "old", "x");
    cr_assert(has(worker, "old"));
    ddp_store_close(worker);
    ready = 0;
    store_link_attempt(link_, 1);
    until(&ready);
    worker = connect_as("worker", 1, 1);
    cr_expect_not(has(worker, "old"));
    ddp_store_close(worker);
    cr_expect_eq(lost, 0, "%s", why_lost);
}

Test(store_link, the_rank_that_came_furthest_counts, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    store_link_ask_progress(link_);
    until(&asked);
    cr_expect_eq(step, -1, "nobody has told a step");
    struct ddp_store *worker = connect_as("worker", 1, 0);
    set(worker, "ddprun/progress/0", "99");
    set(worker, "ddprun/progress/1", "100");
    set(worker, "ddprun/progress/7", "many");
    set(worker, "ddprun/progress/8", "-3");
    cr_assert(has(worker, "ddprun/progress/8")); /* SET has no answer, this one comes after all of them */
    asked = 0;
    store_link_ask_progress(link_);
    until(&asked);
    cr_expect_eq(step, 100);
    ddp_store_close(worker);
}

Test(store_link, who_ends_with_0_while_another_waits_is_told, .init = start_server, .fini = close_all)
{
    struct ddp_err err;
    open_link(store_server_port(server));
    until(&ready);
    store_link_started(link_, 0, 0, 4711);
    store_link_exited(link_, 0, 4711, 0, 0);
    work_ms(100);
    cr_expect_eq(left, 0, "nobody waits for it");
    struct ddp_store *worker = connect_as("worker", 1, 0);
    cr_expect_eq(ddp_store_barrier(worker, "b", NULL, 0, 5000, &err), DDP_ERR_PEER_LOST, "%s", err.msg);
    until(&left);
    cr_expect_str_eq(left_words, "0 b 1");
    ddp_store_close(worker);
}

/* --- a peer that is no store ------------------------------------------------------------------------------------ */

/* Answers every connection with the same bytes, and reads none. */
static uv_tcp_t listener, peer;
static const char *answer;
static size_t answer_len;

static void on_answered(uv_write_t *write, int status)
{
    (void)write;
    (void)status;
}

static void on_connection(uv_stream_t *from, int status)
{
    static uv_write_t write_request;
    uv_buf_t bytes = uv_buf_init((char *)(uintptr_t)answer, (unsigned)answer_len);
    cr_assert_eq(status, 0);
    uv_tcp_init(&loop, &peer);
    uv_accept(from, (uv_stream_t *)&peer);
    uv_write(&write_request, (uv_stream_t *)&peer, &bytes, 1, on_answered);
}

static int listen_anywhere(void)
{
    struct sockaddr_in at;
    int len = sizeof(at);
    uv_ip4_addr("127.0.0.1", 0, &at);
    uv_tcp_init(&loop, &listener);
    uv_tcp_bind(&listener, (struct sockaddr *)&at, 0);
    uv_listen((uv_stream_t *)&listener, 1, on_connection);
    uv_tcp_getsockname(&listener, (struct sockaddr *)&at, &len);
    return ntohs(at.sin_port);
}

static void expect_lost(const char *bytes, size_t len, const char *words)
{
    answer = bytes;
    answer_len = len;
    open_link(listen_anywhere());
    until(&lost);
    cr_expect_eq(ready, 0);
    cr_expect_not_null(strstr(why_lost, words), "%s", why_lost);
    uv_close((uv_handle_t *)&listener, NULL);
    uv_close((uv_handle_t *)&peer, NULL);
}

Test(store_link, a_web_server_is_no_store, .init = start_server, .fini = close_all)
{
    static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    expect_lost(http, sizeof(http) - 1, "not a store");
}

Test(store_link, a_refusal_is_told_in_the_stores_words, .init = start_server, .fini = close_all)
{
    static const char refused[] = "\1\4\0\0\0\0\0\0\0full";
    expect_lost(refused, sizeof(refused) - 1, "refused this agent: full");
}

Test(store_link, an_answer_that_is_no_json_is_a_no, .init = start_server, .fini = close_all)
{
    static const char nonsense[] = "\0\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0{[}";
    expect_lost(nonsense, sizeof(nonsense) - 1, "said no");
}

/* --- a store that does not take our messages --------------------------------------------------------------------- */

enum { ROUND = 1000, ROUNDS_MAX = 1000 };

static void tell_much(void)
{
    for (int i = 0; i < ROUND; i++)
        store_link_exited(link_, i, i, 0, 0);
}

Test(store_link, a_store_that_does_not_read_is_lost_before_memory_is, .init = start_server, .fini = close_all)
{
    int rounds = 0;
    answer = "";
    open_link(listen_anywhere());
    for (; lost == 0 && rounds < ROUNDS_MAX; rounds++) {
        tell_much();
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    cr_expect_eq(lost, 1, "%d messages were queued", rounds * ROUND);
    cr_expect_not_null(strstr(why_lost, "does not take our messages"), "%s", why_lost);
    cr_expect_not_null(strstr(why_lost, "have no answer"), "%s", why_lost);
    tell_much();
    uv_run(&loop, UV_RUN_NOWAIT);
    cr_expect_eq(lost, 1, "once is enough");
    uv_close((uv_handle_t *)&listener, NULL);
    uv_close((uv_handle_t *)&peer, NULL);
}

Test(store_link, the_owner_hears_of_a_full_queue_when_his_step_is_done, .init = start_server,
     .fini = close_all)
{
    open_link(store_server_port(server));
    for (int i = 0; i < 100; i++)
        tell_much();
    cr_expect_eq(lost, 0, "not inside of a call");
    uv_run(&loop, UV_RUN_NOWAIT);
    cr_expect_eq(lost, 1);
}
