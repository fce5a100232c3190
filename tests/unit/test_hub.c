/* The hub as its peers see it: waiting, leaving, limits, deadlines, attempts. Bytes in, bytes out. */
#include "store/encode.h"
#include "sim_job.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

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
        "02" KEY_K N(00) N(01) "31", /* COMPARE_SET that creates */
        "12" KEY_K N(01),            /* BARRIER of one */
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

/* torch 1.13 says nothing when its wait times out, and asks for something else. */
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
    cr_assert(put_u8(&bytes, 6) && put_u64(&bytes, 100000));
    for (uint32_t i = 0; i < 100000; i++)
        cr_assert(put_blob(&bytes, slice_of(&i, sizeof(i))));
    sim_feed_bytes(&sim, 1, buf_slice(&bytes));
    buf_free(&bytes);
    cr_assert_not_null(strstr(sim_control(&sim, 2, "{\"op\":\"status\"}"), "\"waiters\":1"));
    sim_disconnect(&sim, 1);
    const char *status = sim_control(&sim, 2, "{\"op\":\"status\"}");
    cr_assert_not_null(strstr(status, "\"waiters\":0"));
    cr_assert_lt(atoi(strstr(status, "\"bytes\":") + 8), 4096, "%s", status);
}

/* --- what is refused ----------------------------------------------------------------------------------------- */

Test(hub, bad_requests_are_closed_with_a_reason)
{
    const struct {
        const char *bytes, *why;
    } bad[] = {
        { "13", "closed: unknown request 0x13" },
        { "83", "closed: AUTH is not served" },
        { "00 cef7853c", "closed: VALIDATE comes a second time" },
        { "03 0120000000000000", "closed: GET: a key or name of 8193 bytes, no more than 8192" },
        { "06 0100020000000000", "closed: WAIT: a list of 131073 items, no more than 131072" },
        { "01" KEY_K N(01) "78 04" KEY_K N(01), "closed: ADD on a value that is not a 64-bit number" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        sim_client(&sim, 10 + i);
        sim_feed(&sim, 10 + i, bad[i].bytes);
        sim_expect(&sim, 10 + i, bad[i].why);
    }
}

Test(hub, strangers_are_recognised)
{
    sim_connect(&sim, 10);
    sim_feed_bytes(&sim, 10, slice_str("GET / HTTP/1.1\r\n"));
    sim_expect(&sim, 10, "closed: unknown request 0x47 as first byte: not a store client");
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
    cr_assert(put_u8(&bytes, 1) && put_blob(&bytes, slice_of(zeros, key_len)) &&
              put_blob(&bytes, slice_of(zeros, value_len)) && put_u8(&bytes, 7));
    free(zeros);
    sim_feed_bytes(&sim, conn, buf_slice(&bytes));
    buf_free(&bytes);
}

Test(hub, keys_and_values_up_to_their_limits)
{
    feed_set(1, 8192, 8 << 20);
    sim_expect(&sim, 1, N(01));
    feed_set(1, 8193, 0);
    sim_expect(&sim, 1, "closed: SET: a key or name of 8193");
    feed_set(2, 1, (8 << 20) + 1);
    sim_expect(&sim, 2, "closed: SET: a value of 8388609");
}

/* The store says no to what it cannot keep, and goes on serving what it has. */
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
    sim_expect(&sim, 1, "closed: SET: the store is full");
    feed_set(2, 3, 40000);
    sim_expect(&sim, 2, "closed: SET: the store is full");
    sim_feed(&sim, 3,
             "07 08" N(01) "00"
                           "07");
    sim_expect(&sim, 3, N(01) N(01) N(00));
}

static void multi_get(int times)
{
    struct buf bytes = { 0 };
    cr_assert(put_u8(&bytes, 0x0a) && put_u64(&bytes, (uint64_t)times));
    for (int i = 0; i < times; i++)
        cr_assert(put_blob(&bytes, slice_of("\0", 1)));
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
    sim_expect(&sim, 1, "closed: MULTI_GET of 1500024 bytes, no more than 1000016 allowed");
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
    sim_expect(&sim, 10, "closed: its first request is unfinished after 30000 ms, with 3 bytes");
}

Test(hub, a_later_request_has_more_time)
{
    sim_feed(&sim, 1, "01" KEY_K);
    sim_at(&sim, 299000);
    cr_assert(sim.conn[1].open);
    sim_feed(&sim, 1, N(00) "01"); /* the next one begins: so does its time */
    sim_at(&sim, 301000);
    cr_assert(sim.conn[1].open);
    sim_at(&sim, 599000);
    sim_expect(&sim, 1, "closed: its request is unfinished after 300000 ms, with 1 bytes");
}

Test(hub, waiting_is_not_being_unfinished)
{
    sim_feed(&sim, 1, "06" N(01) KEY_K);
    cr_assert_eq(hub_deadline(sim.hub), UINT64_MAX);
}

/* --- attempts ------------------------------------------------------------------------------------------------ */

/* Conn 1 to 3 were there before any job: they belong to the first attempt. */
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

/* An identified worker is closed at once, a plain connection when it asks for something; one that is silent and the
 * agent stay. */
Test(hub, what_is_left_of_an_old_attempt_is_let_go)
{
    sim_job(&sim, 0, 21);
    sim_worker(&sim, 20, 0, 21);
    sim_connect(&sim, 10);
    sim_feed(&sim, 1, "06" N(01) KEY_K);
    sim_job(&sim, 1, 21);
    sim_expect(&sim, 21, "closed: it belongs to an earlier attempt");
    cr_assert(sim.conn[10].open);
    sim_client(&sim, 11);
    sim_feed(&sim, 11, "01" KEY_K N(00));
    sim_expect(&sim, 1, "");
    sim_feed(&sim, 1, "07");
    sim_expect(&sim, 1, "closed: GETNUMKEYS on a connection of an earlier attempt; now is attempt 1");
}

Test(hub, declaring_the_same_attempt_again_changes_nothing)
{
    sim_job(&sim, 3, 4);
    sim_feed(&sim, 1, "01" KEY_K N(00));
    sim_job(&sim, 3, 4);
    sim_feed(&sim, 1, "07");
    sim_expect(&sim, 1, N(01));
}

/* --- what comes out of order, or for nobody ------------------------------------------------------------------ */

Test(hub, bytes_for_a_connection_that_is_gone_are_ignored)
{
    hub_feed(sim.hub, 77, slice_of("\7", 1), 0);
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

/* --- many at once ---------------------------------------------------------------------------------------------- */

enum { MANY = 20000 };

static void put_adds(struct buf *out)
{
    char key[24];
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof(key), "/many/%d", i);
        cr_assert(put_u8(out, 4) && put_blob(out, slice_str(key)) && put_i64(out, 1 + i));
    }
}

/* A store that is large looks ahead in a pipeline, and answers as ever: also where it is cut, and up to what makes no sense. */
Test(hub, a_long_pipeline_is_answered_in_order)
{
    struct buf adds = { 0 };
    struct sim_conn *c = &sim.conn[1];
    put_adds(&adds);
    const size_t cut = adds.len / 2 + 7;
    cr_assert(put_u8(&adds, 0xee));
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
