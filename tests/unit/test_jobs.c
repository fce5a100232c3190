/* Many jobs in one hub, as in ddp-rendezvous: what one of them does must not touch the others. */
#include "store/encode.h"
#include "sim_job.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(n)  #n "00000000000000"
#define KEY_K N(02) "2f6b" /* blob "/k" */

enum {
    AGENT_A = 10,
    AGENT_B,
    WORKER_A = 20,
    WORKER_B,
    PLAIN = 30,
    OPERATOR = 40,
    HALF_AN_HOUR = 30 * 60 * 1000
};

static struct sim sim;

static void set_up(void)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.many_jobs = true;
    sim_init(&sim, &limits);
    sim_client(&sim, OPERATOR);
}

static void tear_down(void)
{
    sim_free(&sim);
}

TestSuite(jobs, .init = set_up, .fini = tear_down);

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

/* --- apart ----------------------------------------------------------------------------------------------------- */

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
    sim_expect(&sim, WORKER_A, "closed: it belongs to an earlier attempt");
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

/* --- who belongs where ----------------------------------------------------------------------------------------- */

/* Keys and connections that came before any name belong to the first job that is declared. */
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
    expect_words("{\"op\":\"status\"}", "2 jobs are served here: say which one");
    expect_words("{\"op\":\"status\",\"job\":\"b\"}", "\"job\":\"b\"");
    expect_words("{\"op\":\"keys\",\"job\":\"c\"}", "no job 'c' is known here");
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
    snprintf(
        text, sizeof(text),
        "{\"op\":\"join\",\"job\":\"%s\",\"version\":\"0.1.0\",\"host\":\"n\",\"pid\":7,\"nnodes_min\":1,"
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
        "{\"op\":\"notice\",\"job\":\"b\",\"code\":\"SHM_SMALL\",\"subject\":\"evil\",\"sentence\":\"t\"}",
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
    cr_expect_not_null(strstr(answer, "a node of job 'a', and its rendezvous places the ranks"), "%s",
                       answer);
    cr_expect_eq(hub_nodes(sim.hub), 2);
}

/* --- forgotten ------------------------------------------------------------------------------------------------- */

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
    expect_words("{\"op\":\"status\",\"job\":\"a\"}", "no job 'a' is known here");
    expect_words("{\"op\":\"status\"}", "\"job\":\"b\"");
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

/* Names are made up easily: what they cost is counted. */
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

/* One tenant writes until it is refused; another one still finds room for a value of 8 KiB. */
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

/* Two sources. A connection has a port of its own and, in an IPv6 network, perhaps an address of its own. */
static const struct source_case {
    const char *evil[2], *victim;
    uint32_t evil_uid, victim_uid; /* 0 = not known */
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

/* SET a key of its own to `size` bytes. False: the hub has closed the connection. */
static bool store(conn_id conn, size_t size)
{
    static int keys;
    char key[32];
    uint8_t *value = calloc(1, size);
    struct buf set = { 0 };
    snprintf(key, sizeof(key), "/key%d", keys++);
    cr_assert(put_u8(&set, 1) && put_blob(&set, slice_str(key)) && put_blob(&set, slice_of(value, size)));
    sim_feed_bytes(&sim, conn, buf_slice(&set));
    buf_free(&set);
    free(value);
    return sim.conn[conn].open;
}

/* One source declares many jobs and fills each of them. */
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

/* 16 KiB of the 16 MiB are reserved for each job. */
Test(jobs, a_job_has_its_reserve_though_its_own_source_is_full)
{
    start_with_16_mib();
    cr_expect(identify(WORKER_A, "10.0.0.1", 0, "victim"));
    fill_as((const char *const[]){ "10.0.0.1", "10.0.0.1" }, 0);
    const uint64_t full = used_bytes();
    cr_expect(store(WORKER_A, 4096), "%s", sim.conn[WORKER_A].closed);
    cr_expect_leq(used_bytes(), full + 64, "the value was not stored in the reserve");
}

/* The reserves of a source's jobs are a part of its share, so their number is limited. */
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
