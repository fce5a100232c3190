/* Tests of the agent's connection to the store. Most tests run a real store on a free port. */
#include "ddp/store.h"
#include "net/store_link.h"
#include "run.h"
#include "server/server.h"
#include "store_peers.h"
#include "store/encode.h"
#include "plan/scheduler.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uv_loop_t loop;
static struct store_server *server;
static struct store_link *link_;
static int ready, joined, refused, lost, left, told, judged, silent_ms;
static struct heard_round heard;
static struct heard_verdict verdict;
static struct failure cause;
static char left_words[128];
static char why_lost[512], why_refused[1024];

static const struct message_stopped stopped_0 = { .rank0_code = MESSAGE_NONE, .round = MESSAGE_NONE },
                                    stopped_7 = { .max_code = 7,
                                                  .rank0_code = MESSAGE_NONE,
                                                  .round = MESSAGE_NONE };

/* The options of the only node of a job, with two workers. */
static struct cli cli = { .nproc = { .kind = NPROC_NUMBER }, .grace_ms = 1000 };
static struct plan_facts facts = { .host = "n1" };
static struct plan plan = { .cli = &cli,
                            .facts = &facts,
                            .job = "myjob",
                            .nproc = 2,
                            .meeting = { .nnodes_min = 1,
                                         .nnodes_max = 1,
                                         .join_ms = 60000,
                                         .last_call_ms = 100,
                                         .node_timeout_ms = 3000,
                                         .program = "train" } };

static void on_round(void *user, struct heard_round *round)
{
    (void)user;
    ready++;
    heard = *round;
    free(round);
}

static void on_waiting(void *user, const struct heard_waiting *waiting)
{
    (void)user, (void)waiting;
}

static void on_told(void *user, const struct failure *why)
{
    (void)user;
    told++;
    cause = *why;
}

static void on_verdict(void *user, const struct heard_verdict *v)
{
    (void)user;
    judged++;
    verdict = *v;
}

static void on_findings(void *user, const cJSON *push)
{
    (void)user, (void)push;
}

static void on_joined(void *user, bool spare, const char *instance, uint64_t store_ms)
{
    (void)user, (void)spare, (void)instance, (void)store_ms;
    joined++;
}

static void on_refused(void *user, const char *code, const char *why, const char *advice)
{
    (void)user;
    refused++;
    snprintf(why_refused, sizeof(why_refused), "%s: %s; %s", code, why, advice);
}

static void on_beat(void *user, struct message_heartbeat *beat)
{
    (void)user, (void)beat;
}

static void on_who(void *user, int64_t conn, const char *peer, const char *store, bool any)
{
    (void)user, (void)conn, (void)peer, (void)store, (void)any;
}

static void on_status(void *user, const cJSON *answer)
{
    (void)user, (void)answer;
}

static void on_lost(void *user, const char *why)
{
    (void)user;
    lost++;
    snprintf(why_lost, sizeof(why_lost), "%s", why);
}

static void on_left_waiting(void *user, const cJSON *push)
{
    (void)user;
    left++;
    struct message_findings m;
    message_read_findings(push, &m);
    snprintf(left_words, sizeof(left_words), "%s", m.text);
}

static const char *address = "127.0.0.1";

static void start_server_with(const struct secret *secret, const char *credential)
{
    struct ddp_err err;
    struct store_server_options options = { .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT };
    options.limits.secret = secret;
    options.limits.credential = credential;
    cr_assert_eq(store_server_start(&options, &server, &err), DDP_OK, "%s", err.msg);
    uv_loop_init(&loop);
}

static void start_server(void)
{
    start_server_with(NULL, NULL);
}

static void open_link(int port)
{
    struct ddp_err err;
    const struct store_link_options options = { .loop = &loop,
                                                .fd = -1,
                                                .address = address,
                                                .port = port,
                                                .plan = &plan,
                                                .who = { .pid = getpid(), .boot_id = "boot" },
                                                .beat_ms = 200,
                                                .silent_ms = (uint64_t)silent_ms,
                                                .calls = { .round = on_round,
                                                           .waiting = on_waiting,
                                                           .stop = on_told,
                                                           .verdict = on_verdict,
                                                           .findings = on_findings,
                                                           .joined = on_joined,
                                                           .refused = on_refused,
                                                           .beat = on_beat,
                                                           .who = on_who,
                                                           .status = on_status,
                                                           .left_waiting = on_left_waiting,
                                                           .lost = on_lost } };
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

/* Run the loop for a moment. */
static void work_ms(uint64_t ms)
{
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_stop, ms, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_run(&loop, UV_RUN_NOWAIT); /* run the timer's close callback */
}

static void close_all(void)
{
    store_link_close(link_);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(uv_loop_close(&loop), 0, "a handle is left open");
    store_server_stop(server);
}

TestSuite(store_link, .timeout = 120);

/* Return true if the store shows that `rank` has the state `state`. */
static bool state_is(int rank, const char *state)
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
    const bool is = cJSON_IsString(found) && strcmp(found->valuestring, state) == 0;
    cJSON_Delete(json);
    free(text);
    ddp_store_close(store);
    return is;
}

static void until_state(int rank, const char *state)
{
    for (struct patience p = { 0 }; !state_is(rank, state); work_ms(5))
        cr_assert(patience_left(&p), "rank %d does not become %s", rank, state);
}

Test(store_link, the_job_is_told_and_then_its_workers, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    store_link_mention(link_, encode_started(1, 1, 4711, "n1"));
    until_state(1, "never_connected");
    store_link_send(link_, encode_exited(1, 4711, 0, 9, false));
    until_state(1, "exited");
    cr_expect_eq(lost, 0, "%s", why_lost);
    cr_expect_eq(ready, 1);
}

Test(store_link, early_words_go_out_later, .init = start_server, .fini = close_all)
{
    plan.meeting.nnodes_min = plan.meeting.nnodes_max = 2;
    plan.meeting.node_rank = 1;
    open_link(store_server_port(server));
    store_link_send(link_, encode_leave(15, "the user", ""));
    until(&judged);
    cr_expect_eq(ready, 0);
    cr_expect_not(verdict.what.restart);
    cr_expect_eq(verdict.what.exit_first, 128 + 15);
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

Test(store_link, the_address_of_the_store_is_copied, .init = start_server, .fini = close_all)
{
    char text[] = "127.0.0.1";
    address = text;
    open_link(store_server_port(server));
    text[0] = '\0';
    cr_expect_str_eq(link_->options.address, "127.0.0.1");
}

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

static const struct failure failure = { .rank = 1,
                                        .local_rank = 1,
                                        .pid = 4711,
                                        .exit_code = 7,
                                        .words = "exit 7",
                                        .n_lines = 1,
                                        .lines = { "last lines" } };

Test(store_link, the_round_is_told_with_the_join, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    cr_expect_eq(joined, 1);
    cr_expect_eq(heard.round, 1);
    cr_expect_eq(heard.attempt, 0);
    cr_expect_eq(heard.nnodes, 1);
    cr_expect_eq(heard.world_size, 2);
    cr_expect_eq(heard.n_nodes, 1);
    cr_expect_str_eq(heard.nodes[0].host, "n1");
}

Test(store_link, a_failure_is_judged_and_the_next_round_has_no_old_keys, .init = start_server,
     .fini = close_all)
{
    cli.max_restarts = 1;
    open_link(store_server_port(server));
    until(&ready);
    struct ddp_store *worker = connect_as(NULL, -1, 0);
    set(worker, "old", "x");
    set(worker, "ddprun/progress/0", "99");
    set(worker, "ddprun/progress/1", "100");
    set(worker, "ddprun/progress/7", "many");
    /* SET has no answer. The answer of has() shows that the server has processed all SETs. */
    cr_assert(has(worker, "ddprun/progress/7"));
    ddp_store_close(worker);
    store_link_send(link_, message_encode_failure(MESSAGE_FAILED, &failure));
    store_link_send(link_, message_encode_failure(MESSAGE_EXPLAIN, &failure));
    store_link_send(link_, message_encode_stopped(&stopped_7));
    until(&judged);
    cr_expect(verdict.what.restart);
    cr_expect_eq(verdict.step, 100, "the rank that came furthest counts");
    cr_expect_eq(verdict.cause.rank, 1);
    cr_expect_str_eq(verdict.cause.words, "exit 7");
    cr_expect_str_eq(verdict.cause.lines[0], "last lines");
    ready = 0;
    store_link_join(link_);
    until(&ready);
    cr_expect_eq(heard.attempt, 1);
    worker = connect_as("worker", 1, 1);
    cr_expect_not(has(worker, "old"));
    ddp_store_close(worker);
    cr_expect_eq(lost, 0, "%s", why_lost);
}

/* An agent may send `stopped` before it receives the verdict. The message may then arrive after the end of the
 * round. */
Test(store_link, a_message_about_an_old_round_changes_nothing, .init = start_server, .fini = close_all)
{
    open_link(store_server_port(server));
    until(&ready);
    store_link_send(link_, message_encode_done(&(struct message_done){ .round = MESSAGE_NONE }));
    until(&judged);
    store_link_send(link_, message_encode_stopped(&stopped_0));
    work_ms(100);
    cr_expect_eq(lost, 0, "%s", why_lost);
    cr_expect_eq(verdict.what.exit_first, 0);
}

Test(store_link, a_node_that_does_not_fit_is_refused_with_the_reason, .init = start_server, .fini = close_all)
{
    plan.meeting.node_rank = 3;
    open_link(store_server_port(server));
    until(&refused);
    cr_expect_not_null(strstr(why_refused, "NODE_RANK_TOO_HIGH: "), "%s", why_refused);
    cr_expect_eq(lost, 0, "%s", why_lost);
}

Test(store_link, who_ends_with_0_while_another_waits_is_told, .init = start_server, .fini = close_all)
{
    struct ddp_err err;
    open_link(store_server_port(server));
    until(&ready);
    store_link_mention(link_, encode_started(0, 0, 4711, "n1"));
    store_link_send(link_, encode_exited(0, 4711, 0, 0, false));
    work_ms(100);
    cr_expect_eq(left, 0, "no client waits for it");
    struct ddp_store *worker = connect_as("worker", 1, 0);
    cr_expect_eq(ddp_store_barrier(worker, "b", NULL, 0, 5000, &err), DDP_ERR_PEER_LOST, "%s", err.msg);
    until(&left);
    cr_expect_not_null(strstr(left_words, "rank 0 (n1, pid 4711) "), "%s", left_words);
    cr_expect_not_null(strstr(left_words, "barrier 'b'  [RANK_EXITED_EARLY]\n  try    "), "%s", left_words);
    ddp_store_close(worker);
}

/* In these tests the agent connects to a peer that the test controls, instead of a store. The peer is a server of
 * another kind, sends invalid bytes, sends nothing, or reads nothing. */

TestSuite(store_link_peers, .timeout = 120);

/* A server that answers every connection with the same bytes, and reads nothing. */
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
    expect_lost(http, sizeof(http) - 1, "of ddprun");
}

Test(store_link_peers, a_refusal_is_told_in_the_stores_words, .init = start_server, .fini = close_all)
{
    static const char no[] = "\1\4\0\0\0\0\0\0\0full";
    expect_lost(no, sizeof(no) - 1, ": full");
}

Test(store_link_peers, an_answer_that_is_no_json_is_a_no, .init = start_server, .fini = close_all)
{
    static const char nonsense[] = "\0\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0{[}";
    expect_lost(nonsense, sizeof(nonsense) - 1, "rejected a");
}

/* The store accepts the connection, and then hangs. */
Test(store_link_peers, a_store_that_says_nothing_is_lost_in_time, .init = start_server, .fini = close_all)
{
    silent_ms = 600;
    expect_lost("", 0, "for 600 ms");
}

/* The machine is so overloaded that every heartbeat is late. The agent might believe that it was suspended, but must
 * still detect that the store is silent. */
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

/* Append an object, as a store would send it. If `out` is empty, first append the welcome. */
static void put_object(struct buf *out, const char *json)
{
    if (out->len == 0)
        buf_append(out, "\0\0\0\0\0\0\0\0", 9);
    append_blob(out, slice_str(json));
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

/* Sleep until a heartbeat is due. Meanwhile the store's message arrives, so the loop reads this message before it sends
 * the heartbeat. */
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

/* Pause this process twice: before and after the loop reads a message of the store. The pauses must not count as
 * silence of the store. */
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

/* The agent must ignore a round of other nodes, and a round that begins while workers of an earlier round run. A `stop`
 * of another round must stop no worker. */
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
        work_ms(100); /* a message that must not arrive would arrive now */
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

enum { ROUND = 1000, ROUNDS_MAX = 1000 };

static void tell_much(void)
{
    for (int i = 0; i < ROUND; i++)
        store_link_send(link_, encode_exited(i, i, 0, 0, false));
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
    cr_expect_not_null(strstr(why_lost, "not read"), "%s", why_lost);
    cr_expect_not_null(strstr(why_lost, "no answer"), "%s", why_lost);
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

/* --- a changed byte ----------------------------------------------------------------------------------------------
 *
 * A relay on the path between the agent and the store flips one bit of a byte from the store. */

static struct {
    pthread_t thread;
    int listener, port;
    size_t flips; /* index of the changed byte among all bytes from the store; SIZE_MAX = none */
    _Atomic bool flipped;
    bool closed; /* the agent closed the connection before the store */
} path;

/* Offsets in the bytes from the store. The store answers first AUTH, then IDENTIFY, then `join`. The answer to IDENTIFY
 * is a status, an empty text and a tag. Its status begins at AT_WELCOME, and its tag at AT_TAG. The text that answers
 * `join` begins at AT_ANSWER. LENGTH is the size of the number before each text. */
enum {
    LENGTH = 8,
    AT_WELCOME = LENGTH + AUTH_ANSWER_BYTES,
    AT_TAG = AT_WELCOME + 1 + LENGTH,
    AT_ANSWER = AT_TAG + AUTH_TAG_BYTES + LENGTH
};

/* Forward bytes until one side closes. Return true if the agent has closed the connection. */
static bool forward(int agent, int store)
{
    uint8_t bytes[4096];
    for (size_t at = 0;;) {
        struct pollfd ends[] = { { .fd = agent, .events = POLLIN }, { .fd = store, .events = POLLIN } };
        if (poll(ends, 2, PATIENCE_MS) <= 0)
            return false;
        ssize_t n = ends[0].revents != 0 ? recv(agent, bytes, sizeof(bytes), 0) : 1;
        if (n <= 0)
            return true;
        if (ends[0].revents != 0)
            (void)!send(store, bytes, (size_t)n, MSG_NOSIGNAL);
        if (ends[1].revents == 0)
            continue;
        n = recv(store, bytes, sizeof(bytes), 0);
        if (n <= 0)
            return false;
        if (path.flips >= at && path.flips < at + (size_t)n) {
            bytes[path.flips - at] ^= 4;
            path.flipped = true;
        }
        at += (size_t)n;
        (void)!send(agent, bytes, (size_t)n, MSG_NOSIGNAL);
    }
}

static void *relay_one(void *unused)
{
    (void)unused;
    const int agent = accept(path.listener, NULL, NULL), store = peer_connect(store_server_port(server));
    cr_assert_geq(agent, 0);
    path.closed = forward(agent, store);
    close(agent);
    close(store);
    return NULL;
}

static void open_path(size_t flips)
{
    path.listener = fake_port_reserve(&path.port);
    path.flips = flips;
    path.flipped = path.closed = false;
    ready = joined = lost = 0;
    cr_assert_eq(listen(path.listener, 1), 0);
    cr_assert_eq(pthread_create(&path.thread, NULL, relay_one, NULL), 0);
    open_link(path.port);
}

static void close_path(void)
{
    pthread_join(path.thread, NULL);
    close(path.listener);
}

/* In each case except the last, change one byte: in the status or the tag of the answer to IDENTIFY, or in the answer
 * to `join`. The last case changes no byte, and checks that the link works. */
Test(store_link_peers, a_changed_byte_of_the_store_ends_the_link_with_the_reason)
{
    static const size_t flips[] = { AT_WELCOME, AT_TAG,         AT_TAG + AUTH_TAG_BYTES - 1,
                                    AT_ANSWER,  AT_ANSWER + 20, SIZE_MAX };
    static struct secret key = { .key = { 1, 2, 3 } };
    plan.secret = &key;
    for (size_t i = 0; i < sizeof(flips) / sizeof(flips[0]); i++) {
        const bool changes = flips[i] != SIZE_MAX;
        start_server_with(&key, NULL);
        open_path(flips[i]);
        until(changes ? &lost : &joined);
        close_all();
        close_path();
        cr_expect(path.closed, "byte %zu: the agent has not closed the link", flips[i]);
        cr_expect_eq(path.flipped, changes);
        cr_expect_eq(lost, changes);
        cr_expect_eq(joined, !changes, "byte %zu", flips[i]);
        cr_expect(!changes || strstr(why_lost, "authentication tag") != NULL, "byte %zu: %s", flips[i],
                  why_lost);
    }
}

/* --- MUNGE -------------------------------------------------------------------------------------------------------
 *
 * tests/fake/fake_munge.c takes the place of libmunge. The variable FAKE_MUNGE selects a failure. MUNGE is only used
 * for stores that other hosts can reach, so the store's address is 0.0.0.0. On Linux, connecting to 0.0.0.0 reaches
 * this host. */

TestSuite(store_link_munge, .timeout = 120);

static struct secret *secret;
static char credential[SECRET_CREDENTIAL_MAX];

static void begin_munge(void)
{
    static struct scheduler slurm;
    struct ddp_err err;
    setenv("DDP_MUNGE_LIBRARY", bin("tests/fake/libfake_gpu.so"), 1);
    cr_assert_eq(secret_make(&secret, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(peer_seal(secret, credential, &err), DDP_OK, "%s", err.msg);
    facts.scheduler = &slurm;
    plan.meeting.nnodes_min = plan.meeting.nnodes_max = 2;
    plan.meeting.node_rank = 1;
    address = "0.0.0.0";
}

static void end_munge(void)
{
    close_all();
    secret_free(secret);
}

/* Run the loop in periods of 20 ms until the link is lost, and return the number of periods. */
static unsigned until_lost(const char *words)
{
    unsigned turns = 0;
    for (; lost == 0; turns++)
        work_ms(20);
    cr_expect_eq(joined, 0);
    cr_expect_not_null(strstr(why_lost, words), "%s", why_lost);
    return turns;
}

Test(store_link_munge, an_agent_without_a_secret_joins, .init = begin_munge, .fini = end_munge)
{
    start_server_with(secret, credential);
    open_link(store_server_port(server));
    store_link_send(link_, encode_leave(15, "the user", ""));
    until(&judged);
    cr_expect_eq(joined, 1);
    cr_expect_eq(lost, 0, "%s", why_lost);
}

Test(store_link_munge, a_link_may_end_while_munged_hangs, .init = begin_munge, .fini = end_munge)
{
    start_server_with(secret, credential);
    setenv("FAKE_MUNGE", "hang", 1);
    open_link(store_server_port(server));
    for (struct patience p = { 0 }; link_->call == NULL && patience_left(&p);)
        uv_run(&loop, UV_RUN_NOWAIT);
    cr_expect_not_null(link_->call);
}

Test(store_link_munge, a_munged_that_hangs_is_named_and_does_not_stop_the_loop, .init = begin_munge,
     .fini = end_munge)
{
    start_server_with(secret, credential);
    setenv("FAKE_MUNGE", "hang", 1);
    open_link(store_server_port(server));
    cr_expect_gt(until_lost("within 3 s"), 2);
    cr_expect_not_null(strstr(why_lost, "--secret_file"), "%s", why_lost);
}

Test(store_link_munge, a_store_of_another_user_is_refused, .init = begin_munge, .fini = end_munge)
{
    start_server_with(secret, credential);
    setenv("FAKE_MUNGE", "foreign", 1);
    open_link(store_server_port(server));
    until_lost("user id");
}

Test(store_link_munge, a_store_with_a_secret_file_is_named, .init = begin_munge, .fini = end_munge)
{
    start_server_with(secret, NULL);
    open_link(store_server_port(server));
    until_lost("use MUNGE");
}

Test(store_link_munge, an_agent_does_not_join_an_open_store, .init = begin_munge, .fini = end_munge)
{
    start_server_with(NULL, NULL);
    open_link(store_server_port(server));
    until_lost("no secret");
}

Test(store_link_munge, under_the_name_torchrun_it_does, .init = begin_munge, .fini = end_munge)
{
    start_server_with(NULL, NULL);
    cli.torchrun = true;
    open_link(store_server_port(server));
    until(&joined);
    cr_expect_eq(lost, 0, "%s", why_lost);
    cr_expect(link_->is_open);
}

/* The round arrives before the answer to `join`. */
Test(store_link_munge, an_open_store_starts_no_workers, .init = begin_munge, .fini = end_munge)
{
    static const char welcome[9];
    struct buf bytes = { 0 };
    uint8_t gift[AUTH_GIFT_BYTES];
    start_server_with(NULL, NULL);
    plan.meeting.node_rank = 0; /* the node rank in ROUND_1 */
    const size_t n = auth_give(NULL, NULL, gift);
    cr_assert(append_blob(&bytes, slice_of(gift, n)) && buf_append(&bytes, welcome, sizeof(welcome)));
    put_object(&bytes, ROUND_1);
    expect_lost((const char *)bytes.data, bytes.len, "no secret");
    buf_free(&bytes);
}

/* The peer sends two messages of the true store from an earlier connection: a credential, and the proof for the nonce
 * of that connection. The agent has not sent its own nonce yet. So the agent expects no proof, and rejects the second
 * message as a second credential. */
Test(store_link_munge, a_recorded_store_proves_nothing, .init = begin_munge, .fini = end_munge)
{
    static const uint8_t nonce[AUTH_NONCE_BYTES] = { 7 };
    struct auth client, store = { 0 };
    struct buf bytes = { 0 };
    uint8_t hello[AUTH_HELLO_BYTES], gift[AUTH_GIFT_BYTES], proof[AUTH_ANSWER_BYTES];
    start_server_with(secret, credential);
    const size_t n = auth_give(secret, credential, gift);
    auth_hello(&client, secret, AUTH_AGENT, plan.job, nonce, hello);
    cr_assert_eq(auth_answer(&store, secret, "x", nonce, slice_of(hello, sizeof(hello)), proof), AUTH_OK);
    cr_assert(append_blob(&bytes, slice_of(gift, n)) && append_blob(&bytes, slice_of(proof, sizeof(proof))));
    expect_lost((const char *)bytes.data, bytes.len, "second credential");
    buf_free(&bytes);
}
