/* Tests of the hub as its peers see it: bytes in, bytes out. The tests cover waits, peers that leave, limits, deadlines
 * and attempts. */
#include "hub/session.h"
#include "sim_hub.h"
#include "store/encode.h"
#include "vectors.h"
#include "ddp/context.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(n)  #n "00000000000000"
#define KEY_K N(02) "2f6b" /* blob "/k" */
#define KEY_J N(02) "2f6a"

static struct sim sim;

static void set_up(void)
{
    sim_init(&sim, NULL);
    for (conn_id conn = 1; conn <= 3; conn++)
        sim_client(&sim, conn);
}

static void tear_down(void)
{
    sim_free(&sim);
}

TestSuite(hub, .init = set_up, .fini = tear_down);

static void fresh(const struct hub_limits *limits)
{
    sim_free(&sim);
    sim_init(&sim, limits);
}

/* --- waiting ------------------------------------------------------------------------------------------------- */

Test(hub, each_kind_of_write_wakes_a_waiter)
{
    const char *const writes[] = {
        "01" KEY_K N(01) "31",       /* SET */
        "04" KEY_K N(00),            /* ADD */
        "09" KEY_K N(00),            /* APPEND */
        "0b" N(01) KEY_K N(01) "31", /* MULTI_SET */
        "02" KEY_K N(00) N(01) "31", /* COMPARE_SET that creates the key */
        "12" KEY_K N(01),            /* BARRIER of one client */
        "0e" KEY_K N(01) "31",       /* QUEUE_PUSH */
    };
    for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++) {
        sim_feed(&sim, 1, "06" N(01) KEY_K);
        sim_expect(&sim, 1, "");
        sim_feed(&sim, 2, writes[i]);
        sim_expect(&sim, 1, "00");
        sim_feed(&sim, 2, "08" KEY_K "0f" KEY_K);
        sim.conn[2].out.len = 0;
    }
}

Test(hub, two_keys_wake_in_either_order)
{
    sim_feed(&sim, 1, "06" N(02) KEY_K KEY_J);
    sim_feed(&sim, 3, "06" N(02) KEY_K KEY_J);
    sim_feed(&sim, 2, "01" KEY_J N(00));
    sim_expect(&sim, 1, "");
    sim_feed(&sim, 2, "01" KEY_K N(00));
    sim_expect(&sim, 1, "00");
    sim_expect(&sim, 3, "00");
}

Test(hub, cancel_before_the_key)
{
    sim_feed(&sim, 1, "06" N(01) KEY_K "0c");
    sim_expect(&sim, 1, "01");
    sim_feed(&sim, 2, "01" KEY_K N(00));
    sim_expect(&sim, 1, "");
}

Test(hub, cancel_after_the_key_makes_two_bytes)
{
    sim_feed(&sim, 1, "06" N(01) KEY_K);
    sim_feed(&sim, 2, "01" KEY_K N(00));
    sim_feed(&sim, 1, "0c");
    sim_expect(&sim, 1, "00 01");
}

Test(hub, cancel_without_a_wait)
{
    sim_feed(&sim, 1, "0c");
    sim_expect(&sim, 1, "01");
}

/* If a wait of torch 1.13 times out, torch sends no message about the timeout. Torch then sends its next request on the
 * same connection. */
Test(hub, the_next_request_ends_a_wait_without_a_stray_byte)
{
    sim_connect(&sim, 4);
    sim_feed(&sim, 4, "05" N(01) KEY_K "02" KEY_J);
    sim_expect(&sim, 4, N(00));
    sim_feed(&sim, 1, "01" KEY_K N(00));
    sim_expect(&sim, 4, "");
}

Test(hub, who_disconnects_in_a_wait_leaves_nothing)
{
    sim_feed(&sim, 1, "06" N(02) KEY_K KEY_J);
    sim_feed(&sim, 2, "12" KEY_J N(02));
    sim_disconnect(&sim, 1);
    sim_disconnect(&sim, 2);
    sim_feed(&sim, 3, "01" KEY_K N(00) "01" KEY_J N(00) "07");
    sim_expect(&sim, 3, N(02));
}

Test(hub, a_queue_item_passes_from_one_who_leaves_to_the_next)
{
    sim_feed(&sim, 1, "06" N(01) KEY_K);
    sim_feed(&sim, 2, "06" N(01) KEY_K);
    sim_feed(&sim, 3, "0e" KEY_K N(01) "78");
    sim_expect(&sim, 1, "00");
    sim_expect(&sim, 2, "");
    sim_disconnect(&sim, 1);
    sim_expect(&sim, 2, "00");
    sim_feed(&sim, 2, "0f" KEY_K);
    sim_expect(&sim, 2, N(01) N(01) "78");
}

Test(hub, one_who_gives_up_passes_the_item_on_too)
{
    sim_feed(&sim, 1, "06" N(01) KEY_K);
    sim_feed(&sim, 2, "06" N(01) KEY_K);
    sim_feed(&sim, 3, "0e" KEY_K N(01) "78");
    sim_feed(&sim, 1, "0c");
    sim_expect(&sim, 1, "00 01");
    sim_expect(&sim, 2, "00");
}

Test(hub, a_hundred_thousand_keys_are_waited_for_and_left)
{
    struct buf bytes = { 0 };
    cr_assert(append_u8(&bytes, 6) && append_u64(&bytes, 100000));
    for (uint32_t i = 0; i < 100000; i++)
        cr_assert(append_blob(&bytes, slice_of(&i, sizeof(i))));
    sim_feed_bytes(&sim, 1, buf_slice(&bytes));
    buf_free(&bytes);
    cr_assert_not_null(strstr(sim_control(&sim, 2, "{\"op\":\"status\"}"), "\"waiters\":1"));
    sim_disconnect(&sim, 1);
    const char *status = sim_control(&sim, 2, "{\"op\":\"status\"}");
    cr_assert_not_null(strstr(status, "\"waiters\":0"));
    cr_assert_lt(atoi(strstr(status, "\"bytes\":") + 8), 4096, "%s", status);
}

/* --- rejected input ------------------------------------------------------------------------------------------ */

Test(hub, bad_requests_are_closed_with_a_reason)
{
    const struct {
        const char *bytes, *why;
    } bad[] = {
        { "13", "closed: unknown request 0x13" },
        { "83 0000000000000000", "closed: AUTH: malformed message" },
        { "00 cef7853c", "closed: VALIDATE: *sent again" },
        { "03 0120000000000000", "closed: GET: the key*8193 *8192" },
        { "06 0100020000000000", "closed: WAIT: the list*131073 *131072" },
        { "01" KEY_K N(01) "78 04" KEY_K N(01), "closed: ADD: the value*64-bit" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        sim_client(&sim, 10 + i);
        sim_feed(&sim, 10 + i, bad[i].bytes);
        sim_expect(&sim, 10 + i, bad[i].why);
    }
}

Test(hub, strangers_are_recognized)
{
    sim_connect(&sim, 10);
    sim_feed_bytes(&sim, 10, slice_str("GET / HTTP/1.1\r\n"));
    sim_expect(&sim, 10, "closed: unknown request 0x47 *the store's protocol");
}

Test(hub, answers_go_out_before_the_close)
{
    sim_feed(&sim, 1, "07 13");
    sim_expect(&sim, 1, N(00));
    sim_expect(&sim, 1, "closed: unknown request");
}

static void feed_set(conn_id conn, size_t key_len, size_t value_len)
{
    struct buf bytes = { 0 };
    void *zeros = calloc(1, key_len + value_len);
    cr_assert(append_u8(&bytes, 1) && append_blob(&bytes, slice_of(zeros, key_len)) &&
              append_blob(&bytes, slice_of(zeros, value_len)) && append_u8(&bytes, 7));
    free(zeros);
    sim_feed_bytes(&sim, conn, buf_slice(&bytes));
    buf_free(&bytes);
}

Test(hub, keys_and_values_up_to_their_limits)
{
    feed_set(1, 8192, 8 << 20);
    sim_expect(&sim, 1, N(01));
    feed_set(1, 8193, 0);
    sim_expect(&sim, 1, "closed: SET: the key*8193 *8192");
    feed_set(2, 1, (8 << 20) + 1);
    sim_expect(&sim, 2, "closed: SET: the value*8388609 *8388608");
}

Test(hub, a_full_store_still_answers)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.max_bytes = 100000;
    fresh(&limits);
    sim_client(&sim, 1);
    sim_client(&sim, 2);
    sim_client(&sim, 3);
    feed_set(1, 1, 80000);
    feed_set(1, 2, 80000);
    sim_expect(&sim, 1, "closed: SET: the store*full");
    feed_set(2, 3, 40000);
    sim_expect(&sim, 2, "closed: SET: the store*full");
    sim_feed(&sim, 3,
             "07 08" N(01) "00"
                           "07");
    sim_expect(&sim, 3, N(01) N(01) N(00));
}

static void multi_get(int times)
{
    struct buf bytes = { 0 };
    cr_assert(append_u8(&bytes, 0x0a) && append_u64(&bytes, (uint64_t)times));
    for (int i = 0; i < times; i++)
        cr_assert(append_blob(&bytes, slice_of("\0", 1)));
    sim_feed_bytes(&sim, 1, buf_slice(&bytes));
    buf_free(&bytes);
}

Test(hub, an_answer_that_could_not_wait_for_its_client_is_refused)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.max_unread = 2 * (8 + 500000);
    fresh(&limits);
    sim_client(&sim, 1);
    feed_set(1, 1, 500000);
    sim.conn[1].out.len = 0;
    multi_get(2);
    cr_assert_eq(sim.conn[1].out.len, limits.max_unread);
    sim.conn[1].out.len = 0;
    multi_get(3);
    sim_expect(&sim, 1, "closed: MULTI_GET: the*1500024 *1000016");
}

Test(hub, a_big_value_comes_back_whole)
{
    feed_set(1, 1, 300000);
    sim.conn[1].out.len = 0;
    sim_feed(&sim, 1,
             "07 03" N(01) "00"
                           "07");
    cr_assert_eq(sim.conn[1].out.len, 8 + 8 + 300000 + 8);
    cr_assert_eq(get_u64(sim.conn[1].out.data + 8), 300000);
}

/* --- deadlines ----------------------------------------------------------------------------------------------- */

Test(hub, a_silent_connection_is_left_in_peace)
{
    sim_connect(&sim, 10);
    cr_assert_eq(hub_deadline(sim.hub), UINT64_MAX);
    sim_at(&sim, 1000ull * 3600 * 24);
    cr_assert(sim.conn[10].open);
    sim_feed(&sim, 10, "06");
    sim_expect(&sim, 10, N(00));
}

Test(hub, a_first_request_must_be_whole_in_time)
{
    sim_connect(&sim, 10);
    sim_at(&sim, 1000);
    sim_feed(&sim, 10, "00");
    cr_assert_eq(hub_deadline(sim.hub), 31000);
    sim_at(&sim, 30000);
    sim_feed(&sim, 10, "ce f7");
    sim_at(&sim, 30999);
    cr_assert(sim.conn[10].open);
    sim_at(&sim, 31000);
    sim_expect(&sim, 10, "closed: the first*30.0 s (3 bytes ");
}

Test(hub, a_later_request_has_more_time)
{
    sim_feed(&sim, 1, "01" KEY_K);
    sim_at(&sim, 299000);
    cr_assert(sim.conn[1].open);
    sim_feed(&sim, 1, N(00) "01"); /* the next request begins, and gets its own deadline */
    sim_at(&sim, 301000);
    cr_assert(sim.conn[1].open);
    sim_at(&sim, 599000);
    sim_expect(&sim, 1, "closed: the request*5.0 min (1 byte ");
}

Test(hub, waiting_is_not_being_unfinished)
{
    sim_feed(&sim, 1, "06" N(01) KEY_K);
    cr_assert_eq(hub_deadline(sim.hub), UINT64_MAX);
}

/* --- attempts ------------------------------------------------------------------------------------------------ */

/* Connections 1 to 3 precede the job's declaration. */
Test(hub, an_attempt_begins_with_an_empty_key_space)
{
    sim_feed(&sim, 1, "01" KEY_K N(00));
    sim_job(&sim, 0, 4);
    sim_feed(&sim, 1, "07");
    sim_expect(&sim, 1, N(01));
    sim_job(&sim, 1, 4);
    sim_client(&sim, 10);
    sim_feed(&sim, 10, "07");
    sim_expect(&sim, 10, N(00));
}

/* When attempt 1 begins, the store closes the connections of identified workers of attempt 0. The store closes a plain
 * connection when this connection sends a request. Silent connections and the agent's connection stay open. */
Test(hub, what_is_left_of_an_old_attempt_is_let_go)
{
    sim_job(&sim, 0, 21);
    sim_worker(&sim, 20, 0, 21);
    sim_connect(&sim, 10);
    sim_feed(&sim, 1, "06" N(01) KEY_K);
    sim_job(&sim, 1, 21);
    sim_expect(&sim, 21, "closed: *attempt*ended");
    cr_assert(sim.conn[10].open);
    sim_client(&sim, 11);
    sim_feed(&sim, 11, "01" KEY_K N(00));
    sim_expect(&sim, 1, "");
    sim_feed(&sim, 1, "07");
    sim_expect(&sim, 1, "closed: GETNUMKEYS is*earlier attempt*attempt is 1");
}

Test(hub, declaring_the_same_attempt_again_changes_nothing)
{
    sim_job(&sim, 3, 4);
    sim_feed(&sim, 1, "01" KEY_K N(00));
    sim_job(&sim, 3, 4);
    sim_feed(&sim, 1, "07");
    sim_expect(&sim, 1, N(01));
}

/* --- bytes out of order, or for closed connections ------------------------------------------------------------ */

Test(hub, bytes_for_a_connection_that_is_gone_are_ignored)
{
    hub_receive(sim.hub, 77, slice_of("\7", 1), 0);
    hub_disconnect(sim.hub, 77, "", 0);
    sim_feed(&sim, 1, "");
    sim_expect(&sim, 1, "");
}

Test(hub, many_connections_come_and_go)
{
    for (int round = 0; round < 3; round++) {
        for (conn_id conn = 10; conn < 500; conn++)
            sim_client(&sim, conn);
        for (conn_id conn = 10; conn < 500; conn++) {
            sim_feed(&sim, conn, "06" N(01) KEY_K);
            if (conn % 2)
                sim_disconnect(&sim, conn);
        }
        sim_feed(&sim, 1, "01" KEY_K N(00) "08" KEY_K);
        for (conn_id conn = 10; conn < 500; conn++) {
            sim_expect(&sim, conn, conn % 2 ? "" : "00");
            sim_disconnect(&sim, conn);
        }
    }
}

/* --- many requests at once ------------------------------------------------------------------------------------- */

enum { MANY = 20000 };

static void put_adds(struct buf *out)
{
    char key[24];
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof(key), "/many/%d", i);
        cr_assert(append_u8(out, 4) && append_blob(out, slice_str(key)) && append_i64(out, 1 + i));
    }
}

/* A large store prefetches the keys of a pipeline. The answers must stay the same, even if the pipeline is cut in the
 * middle of a request or ends with invalid bytes. */
Test(hub, a_long_pipeline_is_answered_in_order)
{
    struct buf adds = { 0 };
    struct sim_conn *c = &sim.conn[1];
    put_adds(&adds);
    const size_t cut = adds.len / 2 + 7;
    cr_assert(append_u8(&adds, 0xee));
    sim_feed_bytes(&sim, 1, slice_of(adds.data, adds.len - 1));
    c->out.len = 0;
    sim_feed_bytes(&sim, 1, slice_of(adds.data, cut));
    sim_feed_bytes(&sim, 1, slice_of(adds.data + cut, adds.len - cut));
    cr_assert_eq(c->out.len, (size_t)MANY * 8);
    for (uint64_t i = 0; i < MANY; i++)
        cr_expect_eq(get_u64(c->out.data + 8 * i), 2 * (i + 1));
    cr_expect_str_neq(c->closed, "");
    buf_free(&adds);
}

/* --- hub vectors ---------------------------------------------------------------------------------------------- */

static bool has_read_most(void *user, conn_id conn, uint64_t bytes)
{
    const struct sim *its = user;
    return bytes > 0 || its->conn[conn].out.len <= 1 << 20;
}

/* A client sends many calls with long answers, but reads none. The hub must not make all answers at once. */
Test(hub, calls_wait_until_the_client_reads_earlier_answers)
{
    enum { KEYS = 3000, CALLS = 20 };
    static const char call[] = "{\"op\":\"keys\",\"limit\":3000}";
    static const uint8_t value[256];
    struct buf bytes = { 0 };
    int answers = 0;
    for (uint64_t i = 0; i < KEYS; i++)
        cr_assert(append_u8(&bytes, 1) && append_blob(&bytes, slice_of(&i, sizeof(i))) &&
                  append_blob(&bytes, slice_of(value, sizeof(value))));
    sim_feed_bytes(&sim, 1, buf_slice(&bytes));
    bytes.len = 0;
    for (int i = 0; i < CALLS; i++)
        cr_assert(append_u8(&bytes, 0x82) && append_blob(&bytes, slice_str(call)));
    sim.hub->sink.may_reply = has_read_most;
    sim_feed_bytes(&sim, 1, buf_slice(&bytes));
    buf_free(&bytes);
    for (size_t len; answers < CALLS && (len = sim.conn[1].out.len) > 0; hub_resume(sim.hub, 1, sim.now_ms)) {
        cr_expect_lt(len, 3 << 20);
        for (size_t at = 0; at < len; at += 8 + get_u64(sim.conn[1].out.data + at))
            answers++;
        sim.conn[1].out.len = 0;
    }
    cr_expect_eq(answers, CALLS);
}

/* The tests send captured conversations to the hub, cut into pieces of different sizes. */

static void set_up_vectors(void)
{
    sim_init(&sim, NULL);
}

TestSuite(hub_vectors, .init = set_up_vectors, .fini = tear_down);

/* Play the conversations one after the other, each cut into pieces of `step` bytes. */
static void play(const struct vector *v, int n, size_t step)
{
    sim_connect(&sim, 1);
    for (int i = 0; i < n; i++) {
        sim_feed_cut(&sim, 1, v[i].client, step);
        sim_expect(&sim, 1, v[i].server);
    }
}

/* Send the requests of all conversations in two pieces, the first with `first` bytes. Then compare all answers. */
static void play_joined(const struct vector *v, int n, size_t first)
{
    struct buf bytes = { 0 }, answers = { 0 };
    sim_connect(&sim, 1);
    for (int i = 0; i < n; i++) {
        hex_read(v[i].client, &bytes);
        cr_assert(buf_printf(&answers, "%s", v[i].server));
    }
    first = first < bytes.len ? first : bytes.len;
    sim_feed_bytes(&sim, 1, slice_of(bytes.data, first));
    sim_feed_bytes(&sim, 1, slice_of(bytes.data + first, bytes.len - first));
    sim_expect(&sim, 1, (char *)answers.data);
    buf_free(&bytes);
    buf_free(&answers);
}

Test(hub_vectors, dialect_a_whole)
{
    play(vectors_a, VECTORS_A, SIZE_MAX / 2);
}

Test(hub_vectors, dialect_c_whole)
{
    play(vectors_c, VECTORS_C, SIZE_MAX / 2);
}

Test(hub_vectors, dialect_a_byte_by_byte)
{
    play(vectors_a, VECTORS_A, 1);
}

Test(hub_vectors, dialect_c_byte_by_byte)
{
    play(vectors_c, VECTORS_C, 1);
}

Test(hub_vectors, dialect_a_joined_and_cut_at_every_byte)
{
    for (size_t cut = 0; cut < 250; cut++) {
        play_joined(vectors_a, VECTORS_A, cut);
        sim_free(&sim);
        sim_init(&sim, NULL);
    }
}

Test(hub_vectors, dialect_c_joined_and_cut_at_every_byte)
{
    for (size_t cut = 0; cut < 560; cut++) {
        play_joined(vectors_c, VECTORS_C, cut);
        sim_free(&sim);
        sim_init(&sim, NULL);
    }
}

Test(hub_vectors, list_keys_names_every_key_once)
{
    sim_connect(&sim, 1);
    sim_feed(&sim, 1, "00 cef7853c 01" N(02) "2f61" N(00) "0e" N(02) "2f71" N(01) "65 11");
    sim_expect(&sim, 1, N(01) N(02) "2f61");
}

/* --- jobs ----------------------------------------------------------------------------------------------------- */

/* Tests of many jobs in one hub. */

enum {
    AGENT_A = 10,
    AGENT_B,
    WORKER_A = 20,
    WORKER_B,
    PLAIN = 30,
    OPERATOR = 40,
    HALF_AN_HOUR = 30 * 60 * 1000
};

static void set_up_jobs(void)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.many_jobs = true;
    sim_init(&sim, &limits);
    sim_client(&sim, OPERATOR);
}

TestSuite(jobs, .init = set_up_jobs, .fini = tear_down);

static void agent(conn_id conn, const char *job, int attempt)
{
    char text[128];
    if (!sim.conn[conn].open) {
        sim_client(&sim, conn);
        sim_identify(&sim, conn, "{\"role\":\"agent\"}", NULL);
    }
    snprintf(text, sizeof(text), "{\"op\":\"job\",\"job\":\"%s\",\"attempt\":%d,\"world_size\":2}", job,
             attempt);
    cr_assert_str_eq(sim_control(&sim, conn, text), "{\"ok\":true}");
}

static void worker(conn_id conn, const char *job, int attempt)
{
    char text[128];
    sim_client(&sim, conn);
    snprintf(text, sizeof(text),
             "{\"role\":\"worker\",\"job\":\"%s\",\"attempt\":%d,\"rank\":0,\"world_size\":2}", job, attempt);
    cr_assert_eq(sim_identify(&sim, conn, text, NULL), 0);
}

static void set_k(conn_id conn)
{
    sim_feed(&sim, conn, "01" KEY_K N(00));
}

static void expect_keys(conn_id conn, const char *count)
{
    sim_feed(&sim, conn, "07");
    sim_expect(&sim, conn, count);
}

static void expect_words(const char *call, const char *words)
{
    const char *answer = sim_control(&sim, OPERATOR, call);
    cr_assert_not_null(strstr(answer, words), "%s -> %s", call, answer);
}

/* --- jobs do not affect each other ----------------------------------------------------------------------------- */

Test(jobs, keys_of_two_jobs_do_not_mix)
{
    agent(AGENT_A, "a", 0);
    agent(AGENT_B, "b", 0);
    worker(WORKER_A, "a", 0);
    worker(WORKER_B, "b", 0);
    sim_feed(&sim, WORKER_B, "06" N(01) KEY_K);
    set_k(WORKER_A);
    sim_expect(&sim, WORKER_B, "");
    expect_keys(WORKER_B, N(00));
    expect_keys(WORKER_A, N(01));
}

Test(jobs, a_restart_of_one_leaves_the_other_alone)
{
    agent(AGENT_A, "a", 0);
    agent(AGENT_B, "b", 0);
    worker(WORKER_A, "a", 0);
    worker(WORKER_B, "b", 0);
    set_k(WORKER_B);
    agent(AGENT_A, "a", 1);
    sim_expect(&sim, WORKER_A, "closed: *attempt*ended");
    expect_keys(WORKER_B, N(01));
    worker(WORKER_A, "a", 1);
    expect_keys(WORKER_A, N(00));
}

Test(jobs, the_same_barrier_name_is_two_barriers)
{
    agent(AGENT_A, "a", 0);
    agent(AGENT_B, "b", 0);
    worker(WORKER_A, "a", 0);
    worker(WORKER_B, "b", 0);
    const char *arrive = "81" N(01) "78"
                                    "e803000000000000" N(00);
    sim_feed(&sim, WORKER_A, arrive);
    sim_feed(&sim, WORKER_B, arrive);
    expect_words("{\"op\":\"barriers\",\"job\":\"a\"}", "\"arrived\":[0],\"missing\":[1]");
    sim_at(&sim, 1000);
    cr_assert_eq(sim.conn[WORKER_A].out.data[0], 1);
    cr_assert_eq(sim.conn[WORKER_B].out.data[0], 1);
}

/* --- jobs of clients, and questions about jobs ----------------------------------------------------------------- */

Test(jobs, the_first_job_adopts_what_is_there)
{
    sim_client(&sim, PLAIN);
    set_k(PLAIN);
    agent(AGENT_A, "a", 0);
    expect_keys(PLAIN, N(01));
    agent(AGENT_B, "b", 0);
    worker(WORKER_B, "b", 0);
    expect_keys(WORKER_B, N(00));
    expect_keys(PLAIN, N(01));
}

Test(jobs, a_question_must_name_one_of_several)
{
    agent(AGENT_A, "a", 0);
    expect_words("{\"op\":\"status\"}", "\"job\":\"a\"");
    agent(AGENT_B, "b", 0);
    expect_words("{\"op\":\"status\"}", "2 jobs; ");
    expect_words("{\"op\":\"status\",\"job\":\"b\"}", "\"job\":\"b\"");
    expect_words("{\"op\":\"keys\",\"job\":\"c\"}", "no job 'c'");
}

Test(jobs, all_of_them_are_listed)
{
    agent(AGENT_A, "a", 3);
    worker(WORKER_A, "a", 3);
    set_k(WORKER_A);
    cr_assert_str_eq(
        sim_control(&sim, OPERATOR, "{\"op\":\"jobs\"}"),
        "{\"jobs\":[{\"job\":\"a\",\"attempt\":3,\"world_size\":2,\"keys\":1,\"connections\":2}],"
        "\"ok\":true}");
}

/* --- nodes ----------------------------------------------------------------------------------------------------- */

static void node(conn_id conn, const char *job)
{
    char text[256];
    sim_client(&sim, conn);
    sim_identify(&sim, conn, "{\"role\":\"agent\"}", NULL);
    snprintf(text, sizeof(text),
             "{\"op\":\"join\",\"job\":\"%s\",\"version\":\"" DDP_VERSION
             "\",\"host\":\"n\",\"pid\":7,\"nnodes_min\":1,"
             "\"nnodes_max\":1,\"node_rank\":0,\"nproc\":2}",
             job);
    sim_say(&sim, conn, text);
    sim.conn[conn].out.len = 0;
}

/* A node belongs to one job until its connection ends. */
Test(jobs, a_node_says_nothing_about_another_job)
{
    static const char *const calls[] = {
        "{\"op\":\"worker_exited\",\"job\":\"b\",\"rank\":0,\"exit_code\":7}",
        "{\"op\":\"notice\",\"job\":\"b\",\"code\":\"SHM_SMALL\",\"subject\":\"evil n\",\"sentence\":\"t\"}",
    };
    node(AGENT_A, "a");
    node(AGENT_B, "b");
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        cr_assert_str_eq(sim_control(&sim, AGENT_A, calls[i]), "{\"ok\":true}");
    cr_expect_null(strstr(sim_control(&sim, OPERATOR, "{\"op\":\"status\",\"job\":\"b\"}"), "exited"));
    cr_expect_null(strstr(sim_control(&sim, OPERATOR, "{\"op\":\"why\",\"job\":\"b\"}"), "evil"));
    expect_words("{\"op\":\"status\",\"job\":\"a\"}", "exited");
    expect_words("{\"op\":\"why\",\"job\":\"a\"}", "evil");
    const char *answer =
        sim_control(&sim, AGENT_A, "{\"op\":\"job\",\"job\":\"c\",\"attempt\":0,\"world_size\":2}");
    cr_expect_not_null(strstr(answer, " job 'a'"), "%s", answer);
    cr_expect_eq(hub_nodes(sim.hub), 2);
}

/* --- jobs without connections, and the quota ------------------------------------------------------------------- */

Test(jobs, one_that_nobody_is_connected_to_is_forgotten_after_a_while)
{
    agent(AGENT_A, "a", 0);
    agent(AGENT_B, "b", 0);
    worker(WORKER_A, "a", 0);
    set_k(WORKER_A);
    sim_disconnect(&sim, AGENT_A);
    sim_at(&sim, 1000);
    sim_disconnect(&sim, WORKER_A);
    sim_at(&sim, HALF_AN_HOUR + 999);
    expect_words("{\"op\":\"status\",\"job\":\"a\"}", "\"keys\":1");
    sim_at(&sim, HALF_AN_HOUR + 1000);
    expect_words("{\"op\":\"status\",\"job\":\"a\"}", "no job 'a'");
    expect_words("{\"op\":\"status\"}", "\"job\":\"b\"");
}

/* The hub rejects the first join, so the job has a name but no node. */
Test(jobs, one_that_gets_its_name_after_days_is_kept_from_then_on)
{
    const uint64_t days_ms = 72ull * 3600 * 1000;
    sim_at(&sim, days_ms);
    sim_client(&sim, AGENT_A);
    sim_identify(&sim, AGENT_A, "{\"role\":\"agent\"}", NULL);
    sim_say(&sim, AGENT_A,
            "{\"op\":\"join\",\"job\":\"a\",\"version\":\"0.0.0\",\"host\":\"n\",\"pid\":7,\"nnodes_min\":1,"
            "\"nnodes_max\":1,\"node_rank\":0,\"nproc\":2}");
    sim_at(&sim, days_ms + HALF_AN_HOUR - 1);
    cr_expect_not_null(job_find(sim.hub, "a"));
    cr_expect_eq(sim.hub->stood_ms, 0);
    sim_at(&sim, days_ms + HALF_AN_HOUR);
    cr_expect_null(job_find(sim.hub, "a"));
}

Test(jobs, one_that_is_taken_up_again_in_time_keeps_its_keys)
{
    worker(WORKER_A, "a", 0);
    set_k(WORKER_A);
    sim_disconnect(&sim, WORKER_A);
    sim_at(&sim, HALF_AN_HOUR - 1);
    worker(WORKER_A, "a", 0);
    sim_at(&sim, 2 * HALF_AN_HOUR);
    expect_keys(WORKER_A, N(01));
}

Test(jobs, the_last_one_leaves_an_empty_store)
{
    worker(WORKER_A, "a", 0);
    set_k(WORKER_A);
    sim_disconnect(&sim, WORKER_A);
    sim_at(&sim, HALF_AN_HOUR);
    cr_assert_str_eq(sim_control(&sim, OPERATOR, "{\"op\":\"jobs\"}"), "{\"jobs\":[],\"ok\":true}");
    worker(WORKER_B, "b", 0);
    expect_keys(WORKER_B, N(00));
}

/* A client can invent any number of job names, so even an empty job uses a part of the hub's quota. */
Test(jobs, made_up_jobs_end_with_the_quota)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.many_jobs = true;
    limits.max_bytes = 128 << 10;
    sim_free(&sim);
    sim_init(&sim, &limits);
    int made = 0;
    for (int i = 0; i < 100; i++) {
        char text[128];
        sim_client(&sim, 1);
        snprintf(text, sizeof(text), "{\"role\":\"worker\",\"job\":\"j%d\",\"rank\":0,\"world_size\":1}", i);
        made += sim_identify(&sim, 1, text, NULL) == 0;
        sim_disconnect(&sim, 1);
    }
    cr_assert(made > 4 && made < 20, "%d jobs were made", made);
}

/* One tenant writes until the store rejects a value. Another tenant still finds room for a value of 8 KiB. */
Test(jobs, a_job_cannot_use_up_the_quota_of_the_others)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.many_jobs = true;
    limits.max_bytes = 1 << 20;
    sim_free(&sim);
    sim_init(&sim, &limits);
    worker(WORKER_A, "a", 0);
    for (int i = 0; i < 1000 && sim.conn[WORKER_A].open; i++) {
        char set[2 * (1 + 8 + 8 + 8 + 4096) + 1];
        int n = snprintf(set, sizeof(set), "010800000000000000%016x0010000000000000", i);
        memset(set + n, '7', 2 * 4096);
        set[n + 2 * 4096] = '\0';
        sim_feed(&sim, WORKER_A, set);
    }
    cr_expect_not(sim.conn[WORKER_A].open, "a job may hold everything");

    worker(WORKER_B, "b", 0);
    char set[2 * 8192 + 64];
    int n = snprintf(set, sizeof(set), "01" KEY_K "0020000000000000");
    memset(set + n, '7', 2 * 8192);
    set[n + 2 * 8192] = '\0';
    sim_feed(&sim, WORKER_B, set);
    cr_assert(sim.conn[WORKER_B].open, "the second job has no room");
    expect_keys(WORKER_B, N(01));
}

/* --- the shares of sources -------------------------------------------------------------------------------------- */

enum { STORE_BYTES = 16 << 20, EVIL_JOBS = 12, NEWCOMER = 50, EVIL = 100 };

static void start_with_16_mib(void)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.many_jobs = true;
    limits.max_bytes = STORE_BYTES;
    sim_free(&sim);
    sim_init(&sim, &limits);
    sim_client(&sim, OPERATOR);
}

/* Each case has two sources of connections: `evil` and `victim`. Connections of one source have different ports. The
 * connections of `evil` use two addresses in turn, which may be equal. */
static const struct source_case {
    const char *evil[2], *victim;
    uint32_t evil_uid, victim_uid; /* 0 if not known */
} source_cases[] = {
    { { "127.0.0.1", "127.0.0.2" }, "127.0.0.1", 1001, 1002 },
    { { "10.0.0.1", "10.0.0.1" }, "10.0.0.2", 0, 0 },
    { { "[2001:db8::1]", "[2001:db8::ff:2]" }, "[2001:db8:0:1::1]", 0, 0 },
};

static bool identify(conn_id conn, const char *address, uint32_t uid, const char *job)
{
    char peer[64], text[128];
    snprintf(peer, sizeof(peer), "%s:%d", address, (int)conn);
    sim_disconnect(&sim, conn);
    sim.conn[conn].open = true;
    sim.conn[conn].out.len = 0;
    cr_assert(hub_connect(sim.hub, conn, peer, sim.now_ms));
    if (uid != 0)
        hub_set_uid(sim.hub, conn, uid);
    sim_feed(&sim, conn, "00 cef7853c");
    snprintf(text, sizeof(text), "{\"role\":\"worker\",\"job\":\"%s\",\"rank\":0,\"world_size\":1}", job);
    return sim_identify(&sim, conn, text, NULL) == 0;
}

/* Set a new key to `size` bytes. Return false if the hub has closed the connection. */
static bool store(conn_id conn, size_t size)
{
    static int keys;
    char key[32];
    uint8_t *value = calloc(1, size);
    struct buf set = { 0 };
    snprintf(key, sizeof(key), "/key%d", keys++);
    cr_assert(append_u8(&set, 1) && append_blob(&set, slice_str(key)) &&
              append_blob(&set, slice_of(value, size)));
    sim_feed_bytes(&sim, conn, buf_slice(&set));
    buf_free(&set);
    free(value);
    return sim.conn[conn].open;
}

/* Declare many jobs from one source. Set keys in each job until the hub rejects a key. */
static void fill_as(const char *const address[2], uint32_t uid)
{
    for (int i = 0; i < EVIL_JOBS; i++)
        for (size_t size = 1 << 20; size >= 1 << 12; size >>= 4) {
            char job[16];
            snprintf(job, sizeof(job), "evil%d", i);
            const bool is_declared = identify(EVIL + i, address[i % 2], uid, job);
            while (is_declared && store(EVIL + i, size))
                ;
        }
}

static uint64_t used_bytes(void)
{
    const char *answer = sim_control(&sim, OPERATOR, "{\"op\":\"status\",\"job\":\"victim\"}");
    const char *bytes = strstr(answer, "\"bytes\":");
    cr_assert_not_null(bytes, "%s", answer);
    return strtoull(bytes + strlen("\"bytes\":"), NULL, 10);
}

static void expect_room_beside(const struct source_case *at)
{
    start_with_16_mib();
    cr_expect(identify(WORKER_A, at->victim, at->victim_uid, "victim"));
    cr_assert(store(WORKER_A, 100000));
    const uint64_t before = used_bytes();
    fill_as(at->evil, at->evil_uid);
    cr_expect_gt(used_bytes() - before, STORE_BYTES / 4, "the source has hardly stored anything");
    cr_expect_leq(used_bytes() - before, STORE_BYTES / 2, "one source holds more than half of the store");

    cr_expect(store(WORKER_A, 1 << 20), "%s: %s", at->victim, sim.conn[WORKER_A].closed);
    cr_expect(identify(NEWCOMER, at->victim, at->victim_uid, "newcomer"));
    cr_expect(store(NEWCOMER, 1 << 20), "%s: %s", at->victim, sim.conn[NEWCOMER].closed);
}

Test(jobs, one_source_with_many_jobs_leaves_room_for_others)
{
    for (size_t i = 0; i < sizeof(source_cases) / sizeof(source_cases[0]); i++)
        expect_room_beside(&source_cases[i]);
}

/* The store reserves 16 KiB of its 16 MiB for each job. */
Test(jobs, a_job_has_its_reserve_though_its_own_source_is_full)
{
    start_with_16_mib();
    cr_expect(identify(WORKER_A, "10.0.0.1", 0, "victim"));
    fill_as((const char *const[]){ "10.0.0.1", "10.0.0.1" }, 0);
    const uint64_t full = used_bytes();
    cr_expect(store(WORKER_A, 4096), "%s", sim.conn[WORKER_A].closed);
    cr_expect_leq(used_bytes(), full + 64, "the value was not stored in the reserve");
}

/* A source can declare only a limited number of jobs, because the reserve of each job is a part of the source's
 * share. */
Test(jobs, one_source_declares_jobs_until_its_share_is_used)
{
    start_with_16_mib();
    cr_expect(identify(WORKER_A, "10.0.0.1", 0, "victim"));
    int made = 0;
    for (bool is_declared = true; is_declared && made < 2000; made += is_declared) {
        char text[128];
        sim_client(&sim, EVIL);
        snprintf(text, sizeof(text), "{\"role\":\"worker\",\"job\":\"j%d\",\"rank\":0,\"world_size\":1}",
                 made);
        is_declared = sim_identify(&sim, EVIL, text, NULL) == 0;
        sim_disconnect(&sim, EVIL);
    }
    cr_expect(made > 100 && made <= 512, "%d jobs were made", made);
    cr_expect(identify(NEWCOMER, "10.0.0.2", 0, "newcomer"));
    cr_expect(store(NEWCOMER, 1 << 20), "%s", sim.conn[NEWCOMER].closed);
}

Test(jobs, a_source_gets_its_share_back_when_its_jobs_are_forgotten)
{
    start_with_16_mib();
    cr_expect(identify(WORKER_A, "10.0.0.1", 0, "victim"));
    const uint64_t before = used_bytes();
    fill_as((const char *const[]){ "10.0.0.2", "10.0.0.2" }, 0);
    for (int i = 0; i < EVIL_JOBS; i++)
        sim_disconnect(&sim, EVIL + i);
    sim_at(&sim, HALF_AN_HOUR);
    cr_expect_eq(used_bytes(), before);
}
