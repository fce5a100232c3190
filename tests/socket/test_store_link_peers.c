/* test_store_link_peers.c -- the agent's connection to what is no store, or one that makes no sense or takes nothing. */
#include "store/encode.h"
#include "link_case.h"
#include "run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

TestSuite(store_link_peers, .timeout = 120);

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

Test(store_link_peers, a_web_server_is_no_store, .init = start_server, .fini = close_all)
{
    static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    expect_lost(http, sizeof(http) - 1, "not a store");
}

Test(store_link_peers, a_refusal_is_told_in_the_stores_words, .init = start_server, .fini = close_all)
{
    static const char no[] = "\1\4\0\0\0\0\0\0\0full";
    expect_lost(no, sizeof(no) - 1, "refused this agent: full");
}

Test(store_link_peers, an_answer_that_is_no_json_is_a_no, .init = start_server, .fini = close_all)
{
    static const char nonsense[] = "\0\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0{[}";
    expect_lost(nonsense, sizeof(nonsense) - 1, "said no");
}

/* The connection stands, its owner hangs. */
Test(store_link_peers, a_store_that_says_nothing_is_lost_in_time, .init = start_server, .fini = close_all)
{
    silent_ms = 600;
    expect_lost("", 0, "said nothing for 0.6 s");
}

/* On a machine with too much to do every beat is so late that we seem to have slept. */
Test(store_link_peers, a_silent_store_is_lost_however_late_we_look, .init = start_server, .fini = close_all)
{
    silent_ms = 600;
    answer = "";
    open_link(listen_anywhere());
    for (int looks = 0; lost == 0 && looks < 20; looks++) {
        usleep(750 * 1000);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    cr_expect_eq(lost, 1);
    uv_close((uv_handle_t *)&listener, NULL);
    uv_close((uv_handle_t *)&peer, NULL);
}

/* --- rounds that make no sense -------------------------------------------------------------------------- */

/* Queue what a store would send: the welcome, and then one object after the other. */
static void put_object(struct buf *out, const char *json)
{
    if (out->len == 0)
        buf_append(out, "\0\0\0\0\0\0\0\0", 9);
    put_blob(out, slice_str(json));
}

#define JOINED "{\"ok\":true,\"instance\":\"i\",\"state\":\"waiting\"}"
#define ROUND_1                                                                                            \
    "{\"push\":\"round\",\"round\":1,\"attempt\":0,\"node_rank\":0,\"nnodes\":1,\"first_rank\":0,\"world_" \
    "size\":2}"
#define ROUND_2                                                                                            \
    "{\"push\":\"round\",\"round\":2,\"attempt\":1,\"node_rank\":0,\"nnodes\":1,\"first_rank\":0,\"world_" \
    "size\":2}"
#define OTHERS_PLACE                                                                                       \
    "{\"push\":\"round\",\"round\":1,\"attempt\":0,\"node_rank\":1,\"nnodes\":2,\"first_rank\":2,\"world_" \
    "size\":4}"
#define STOP_2    "{\"push\":\"stop\",\"round\":2,\"why\":\"failed\",\"cause\":{\"rank\":0}}"
#define VERDICT_0 "{\"push\":\"verdict\",\"round\":0,\"next\":\"restart\"}"

/* Sleeps from before a beat was due until behind it, and what the store says meanwhile is read before the beat goes out. */
static void sleep_over_a_beat(uv_idle_t *idle)
{
    static char news[] = "\x0f\0\0\0\0\0\0\0{\"push\":\"news\"}";
    const uv_buf_t bytes = uv_buf_init(news, sizeof(news) - 1);
    cr_assert_eq(uv_try_write((uv_stream_t *)&peer, &bytes, 1), (int)bytes.len);
    usleep(250 * 1000);
    uv_close((uv_handle_t *)idle, NULL);
}

static void sleep_long(uv_check_t *check)
{
    usleep(700 * 1000);
    uv_close((uv_handle_t *)check, NULL);
}

/* Our sleep is no silence of the store's, wherever its word fell. */
Test(store_link_peers, a_store_that_spoke_before_we_slept_is_not_lost, .init = start_server,
     .fini = close_all)
{
    struct buf bytes = { 0 };
    uv_idle_t idle;
    uv_check_t check;
    put_object(&bytes, JOINED);
    answer = (const char *)bytes.data;
    answer_len = bytes.len;
    silent_ms = 3000;
    open_link(listen_anywhere());
    until(&joined);
    uv_idle_init(&loop, &idle);
    uv_check_init(&loop, &check);
    uv_idle_start(&idle, sleep_over_a_beat);
    uv_check_start(&check, sleep_long);
    work_ms(50);
    cr_expect_eq(lost, 0, "%s", why_lost);
    uv_close((uv_handle_t *)&listener, NULL);
    uv_close((uv_handle_t *)&peer, NULL);
    buf_free(&bytes);
}

/* Nobody may be started in a place of others or beside workers that run, nor stopped for another round's sake. */
Test(store_link_peers, a_round_is_for_whom_it_is_meant, .init = start_server, .fini = close_all)
{
    static const struct {
        const char *say[3];
        int rounds;
        bool loses;
    } cases[] = {
        { { JOINED, ROUND_1, ROUND_1 }, 1, true },    { { JOINED, ROUND_1, ROUND_2 }, 1, true },
        { { JOINED, OTHERS_PLACE, NULL }, 0, true },  { { JOINED, ROUND_1, STOP_2 }, 1, false },
        { { JOINED, ROUND_1, VERDICT_0 }, 1, false },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf bytes = { 0 };
        for (int k = 0; k < 3 && cases[i].say[k] != NULL; k++)
            put_object(&bytes, cases[i].say[k]);
        answer = (const char *)bytes.data;
        answer_len = bytes.len;
        ready = lost = told = judged = 0;
        open_link(listen_anywhere());
        for (struct patience p = { 0 };
             (ready < cases[i].rounds || lost < cases[i].loses) && patience_left(&p);)
            work_ms(5);
        work_ms(100); /* for what must not come */
        uv_close((uv_handle_t *)&listener, NULL);
        uv_close((uv_handle_t *)&peer, NULL);
        store_link_close(link_);
        link_ = NULL;
        uv_run(&loop, UV_RUN_DEFAULT);
        cr_expect_eq(ready, cases[i].rounds, "case %zu", i);
        cr_expect_eq(lost, cases[i].loses, "case %zu: %s", i, why_lost);
        cr_expect_eq(told + judged, 0, "case %zu", i);
        buf_free(&bytes);
    }
}

/* --- a store that does not take our messages --------------------------------------------------------------------- */

enum { ROUND = 1000, ROUNDS_MAX = 1000 };

static void tell_much(void)
{
    for (int i = 0; i < ROUND; i++)
        store_link_tell(link_, encode_exited(i, i, 0, 0, false));
}

Test(store_link_peers, a_store_that_does_not_read_is_lost_before_memory_is, .init = start_server,
     .fini = close_all)
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

Test(store_link_peers, the_owner_hears_of_a_full_queue_when_his_step_is_done, .init = start_server,
     .fini = close_all)
{
    open_link(store_server_port(server));
    for (int i = 0; i < 100; i++)
        tell_much();
    cr_expect_eq(lost, 0, "not inside of a call");
    uv_run(&loop, UV_RUN_NOWAIT);
    cr_expect_eq(lost, 1);
}
