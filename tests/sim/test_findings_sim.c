/* Nodes wait for each other on a simulated clock. The tests check which node gets which finding, when, and with which
 * text. */
#include "sim_hub.h"
#include "run.h"
#include "store/encode.h"
#include "store/ops.h"
#include "ddp/context.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum { N0 = 10, N1, N2, N3, OPERATOR = 40, WORKERS = 50 };

static struct sim sim;
static int more_workers; /* number of workers of the next node that joins, minus 2 */
static cJSON *told;      /* the message "findings" or "left_waiting" that the test has read last */

static void set_up(void)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.endpoint = "10.0.0.1:29500";
    limits.host = "n0";
    sim_init(&sim, &limits);
    sim_client(&sim, OPERATOR);
}

static void tear_down(void)
{
    cJSON_Delete(told);
    told = NULL;
    sim_free(&sim);
}

/* --- events --------------------------------------------------------------------------------------------- */

/* Let node `node_rank` of `nnodes` join, with the members `more`. */
static void join_as(conn_id conn, const char *host, int node_rank, int nnodes, const char *more)
{
    char json[1024];
    const int n = (int)conn - N0;
    if (!sim.conn[conn].open) {
        sim_client(&sim, conn);
        sim_identify(&sim, conn, "{\"role\":\"agent\"}", NULL);
    }
    snprintf(
        json, sizeof(json),
        "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"" DDP_VERSION
        "\",\"host\":\"%s\",\"boot_id\":\"b-%s\","
        "\"pid\":%d,\"mode\":\"static\",\"nnodes_min\":%d,\"nnodes_max\":%d,\"node_rank\":%d,\"nproc\":%d,"
        "\"addr\":\"10.0.0.%d\",\"join_timeout_ms\":60000,\"node_timeout_ms\":3000,\"grace_ms\":1000%s}",
        host, host, 100 + n, nnodes, nnodes, node_rank, 2 + more_workers, n + 1, more);
    sim_say(&sim, conn, json);
}

static void join(conn_id conn, int node_rank, int nnodes, const char *more)
{
    char host[16];
    snprintf(host, sizeof(host), "n%d", (int)conn - N0);
    join_as(conn, host, node_rank, nnodes, more);
}

/* Move the clock, while all present nodes send a heartbeat every second. */
static void live_until(uint64_t now_ms)
{
    while (sim.now_ms < now_ms) {
        const uint64_t next = sim.now_ms + 1000 < now_ms ? sim.now_ms + 1000 : now_ms;
        for (conn_id conn = N0; conn <= N3; conn++)
            if (sim.conn[conn].open && sim.conn[conn].closed[0] == '\0')
                sim_say(&sim, conn, "{\"op\":\"heartbeat\"}");
        sim_at(&sim, next);
    }
}

/* --- received messages ---------------------------------------------------------------------------------- */

/* Read all bytes for `conn`. Return the last object with "push":kind, which the caller frees, or NULL. */
static cJSON *last_push(conn_id conn, const char *kind)
{
    struct buf *out = &sim.conn[conn].out;
    cJSON *found = NULL;
    for (size_t at = 0; at + 8 <= out->len;) {
        const size_t len = get_u64(out->data + at);
        cJSON *o = cJSON_ParseWithLength((const char *)out->data + at + 8, len);
        const char *push = cJSON_GetStringValue(cJSON_GetObjectItem(o, "push"));
        at += 8 + len;
        if (push != NULL && strcmp(push, kind) == 0) {
            cJSON_Delete(found);
            found = o;
        } else {
            cJSON_Delete(o);
        }
    }
    out->len = 0;
    return found;
}

static const char *text_of(const cJSON *o, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(o, name));
    return text != NULL ? text : "";
}

/* Return true if there is a finding with this code and subject. */
static bool has(const cJSON *o, const char *code, const char *subject)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(o, "findings"))
    {
        if (strcmp(text_of(row, "code"), code) == 0 &&
            (subject == NULL || strcmp(text_of(row, "subject"), subject) == 0))
            return true;
    }
    return false;
}

static void expect_told_at(conn_id conn, const char *code, const char *subject, int line)
{
    cJSON_Delete(told);
    told = last_push(conn, "findings");
    cr_assert(has(told, code, subject), "line %d: %s about %s, but: %s", line, code,
              subject != NULL ? subject : "it", text_of(told, "text"));
}
#define expect_told(conn, code, subject) expect_told_at(conn, code, subject, __LINE__)

static void expect_silence_at(conn_id conn, int line)
{
    cJSON *o = last_push(conn, "findings");
    cr_assert_null(o, "line %d: %s", line, text_of(o, "text"));
}
#define expect_silence(conn) expect_silence_at(conn, __LINE__)

static void expect_why_at(const char *code, const char *subject, int line)
{
    cJSON *o = cJSON_Parse(sim_control(&sim, OPERATOR, "{\"op\":\"why\"}"));
    cr_assert(has(o, code, subject), "line %d: %s about %s, but: %s", line, code,
              subject != NULL ? subject : "it", text_of(o, "text"));
    cJSON_Delete(o);
}
#define expect_why(code, subject) expect_why_at(code, subject, __LINE__)

static bool says(const char *words)
{
    return strstr(text_of(told, "text"), words) != NULL;
}

TestSuite(findings_sim, .init = set_up, .fini = tear_down);

Test(findings_sim, a_job_that_comes_together_soon_hears_nothing)
{
    join(N0, 0, 2, "");
    live_until(5000);
    join(N1, 1, 2, "");
    live_until(30000);
    expect_silence(N0);
    expect_silence(N1);
}

Test(findings_sim, a_node_that_never_comes_is_told_to_all_within_15_seconds_and_once)
{
    join(N0, 0, 3, "");
    join(N2, 2, 3, "");
    live_until(7000);
    expect_silence(N0);
    live_until(9000);
    expect_told(N0, "NODE_MISSING", "node 1");
    char *text = strdup(text_of(told, "text"));
    expect_told(N2, "NODE_MISSING", "node 1");
    cr_assert_str_eq(text, text_of(told, "text"), "all nodes read the same");
    cr_assert_not_null(strstr(text, "10.0.0.1:29500"), "%s", text);
    free(text);
    live_until(50000);
    expect_silence(N0);
}

Test(findings_sim, when_the_time_is_up_all_of_it_comes_before_the_verdict)
{
    join(N0, 0, 2, "");
    live_until(59000);
    last_push(N0, "");
    live_until(60500);
    const char *out = (const char *)sim.conn[N0].out.data;
    const char *findings = memmem(out, sim.conn[N0].out.len, "\"push\":\"findings\"", 17);
    const char *verdict = memmem(out, sim.conn[N0].out.len, "\"push\":\"verdict\"", 16);
    cr_assert(findings != NULL && verdict != NULL && findings < verdict);
    expect_told(N0, "NODE_MISSING", "node 1");
    cr_assert(cJSON_IsTrue(cJSON_GetObjectItem(told, "final")));
    cr_assert(has_parts(text_of(told, "text"), "1 of 2 nodes |60.0 s (|is 60 s)"), "%s",
              text_of(told, "text"));
}

Test(findings_sim, a_node_that_comes_and_dies_is_told_at_once)
{
    join(N0, 0, 3, "");
    join(N1, 1, 3, "");
    live_until(3000);
    sim_disconnect(&sim, N1);
    live_until(3500);
    expect_told(N0, "NODE_DIED_WAITING", "node 1 (n1, pid 101)");
}

Test(findings_sim, a_node_rank_that_is_claimed_twice_is_told_at_once)
{
    join(N0, 0, 3, "");
    live_until(2000);
    join(N1, 0, 3, "");
    live_until(2500);
    expect_told(N0, "NODE_RANK_TAKEN", "n1 (10.0.0.2, pid 101)");
    cr_assert(strstr(text_of(told, "text"), "--node_rank=0") && strstr(text_of(told, "text"), "n0 (pid 100)"),
              "%s", text_of(told, "text"));
    cr_assert(says("rank 1-2"), "%s", text_of(told, "text"));
}

Test(findings_sim, a_second_launch_on_the_same_machine)
{
    join(N0, 0, 3, "");
    live_until(2000);
    join_as(N1, "n0", 0, 3, "");
    live_until(2500);
    expect_told(N0, "LAUNCHED_TWICE", "n0 (10.0.0.2, pid 101)");
}

Test(findings_sim, a_launcher_for_each_task_of_a_scheduler)
{
    join_as(N0, "n0", 0, 3, ",\"task\":\"Slurm\"");
    join_as(N1, "n0", 0, 3, ",\"task\":\"Slurm\"");
    live_until(500);
    expect_told(N0, "WRONG_TASK_LAYOUT", "n0 (10.0.0.2, pid 101)");
    cr_assert_not_null(strstr(text_of(told, "text"), "--ntasks-per-node=1"));
}

Test(findings_sim, other_numbers_and_versions_are_told_to_those_who_wait)
{
    join(N0, 0, 3, "");
    join(N1, 1, 4, "");
    live_until(1000);
    expect_told(N0, "NNODES_DIFFERS", "n1 (10.0.0.2, pid 101)");
    cr_assert_not_null(strstr(text_of(told, "text"), "nnodes"), "%s", text_of(told, "text"));
}

/* The store rejects node 1, which then ends. Node 0 still waits for node 1. At once, and again at the timeout, node 0
 * gets the advice to restart node 1. */
Test(findings_sim, who_waits_for_a_node_that_was_refused_is_told_so)
{
    join(N0, 0, 2, "");
    join(N1, 1, 3, "");
    live_until(1000);
    expect_told(N0, "NODE_REJECTED", "node 1 (n1, pid 101)");
    cr_assert_not_null(strstr(text_of(told, "text"), "has exited"), "%s", text_of(told, "text"));
    live_until(40000);
    expect_silence(N0);
    live_until(61000);
    expect_told(N0, "NODE_REJECTED", "node 1 (n1, pid 101)");
    cr_assert_not(has(told, "NODE_MISSING", "node 1"));
}

Test(findings_sim, what_a_node_finds_on_itself_is_told_to_all)
{
    join(N0, 0, 3, "");
    join(N1, 1, 3, "");
    sim_say(
        &sim, N1,
        "{\"op\":\"notice\",\"code\":\"LIMIT_MEMLOCK\",\"subject\":\"n1\",\"sentence\":\"n1 allows 64 KiB\","
        "\"advice\":\"raise it\"}");
    live_until(1000);
    expect_told(N0, "LIMIT_MEMLOCK", "n1");
    cr_assert_not_null(
        strstr(text_of(told, "text"), "n1 allows 64 KiB  [LIMIT_MEMLOCK]\n    try    raise it"));
}

Test(findings_sim, a_notice_of_an_unknown_kind_is_passed_over)
{
    join(N0, 0, 3, "");
    sim_say(&sim, N0, "{\"op\":\"notice\",\"code\":\"OF_TOMORROW\",\"subject\":\"n0\",\"sentence\":\"y\"}");
    live_until(1000);
    expect_silence(N0);
}

Test(findings_sim, different_numbers_of_workers_are_told_in_one_line_when_the_round_begins)
{
    more_workers = 3;
    join(N0, 0, 2, "");
    more_workers = 0;
    join(N1, 1, 2, "");
    live_until(2000);
    expect_told(N0, "NPROC_UNEVEN", "node 0 (n0, pid 100)");
    expect_told(N1, "NPROC_UNEVEN", "node 0 (n0, pid 100)");
    cr_assert_not_null(strstr(text_of(told, "text"), "pid 101) has 2; "));
    cr_assert_not_null(strstr(text_of(told, "text"), " together have 7"));
}

Test(findings_sim, the_next_word_has_only_what_is_new)
{
    join(N0, 0, 4, "");
    join(N1, 1, 4, "");
    live_until(9000);
    expect_told(N0, "NODE_MISSING", "nodes 2-3");
    last_push(N1, "");
    join(N2, 2, 5, "");
    live_until(9500);
    for (conn_id conn = N0; conn <= N1; conn++) {
        expect_told(conn, "NNODES_DIFFERS", "n2 (10.0.0.3, pid 102)");
        cr_assert(says("NNODES_DIFFERS") && says("are unchanged"), "%s", text_of(told, "text"));
        cr_assert_not(has(told, "NODE_MISSING", "node 3") || says("NODE_MISSING"));
    }
    live_until(40000);
    expect_silence(N0);
}

/* Node 1 joins after node 0 has got the finding. Node 1 also waits for some seconds before it gets the finding. */
Test(findings_sim, a_node_that_comes_later_is_told_what_the_others_know)
{
    join(N0, 0, 3, "");
    live_until(9000);
    expect_told(N0, "NODE_MISSING", "nodes 1-2");
    join(N1, 1, 3, "");
    live_until(16000);
    expect_silence(N1);
    live_until(24000);
    expect_told(N1, "NODE_MISSING", "node 2");
    expect_silence(N0);
}

Test(findings_sim, a_later_node_hears_all_with_the_next_news)
{
    join(N0, 0, 4, "");
    live_until(9000);
    last_push(N0, "");
    join(N1, 1, 4, "");
    join(N2, 2, 5, "");
    live_until(9500);
    expect_told(N1, "NODE_MISSING", "node 3");
    cr_assert(has(told, "NNODES_DIFFERS", "n2 (10.0.0.3, pid 102)"));
    expect_told(N0, "NNODES_DIFFERS", "n2 (10.0.0.3, pid 102)");
    cr_assert_not(has(told, "NODE_MISSING", "node 3"));
}

static void knock(const char *bytes, size_t len)
{
    sim_connect(&sim, N3);
    sim_feed_bytes(&sim, N3, slice_of(bytes, len));
}

Test(findings_sim, who_may_be_a_node_that_was_started_wrongly_is_told_at_once)
{
    join(N0, 0, 2, "");
    live_until(2000);
    knock("\x16\x03\x01\x02\x00\x01\x00\x01", 8);
    live_until(2300);
    expect_told(N0, "TLS_CLIENT", "peer");
    sim_client(&sim, OPERATOR + 1);
    sim_feed(&sim, OPERATOR + 1, "06 0100000000000000 0100000000000000 78"); /* WAIT x, as torchrun sends */
    live_until(3300); /* a second after the previous check */
    expect_told(N0, "TORCHRUN_INSTEAD", "peer");
}

/* A client with another protocol may be a health check, or a node with wrong options. So a node that waits gets the
 * finding, but only once. */
Test(findings_sim, another_protocol_is_told_to_a_job_that_waits)
{
    join(N0, 0, 2, "");
    knock("GET / HTTP/1.0\r\n\r\n", 18);
    live_until(2000);
    expect_silence(N0);
    live_until(9000);
    expect_told(N0, "FOREIGN_CLIENT", "peer");
    knock("GET / HTTP/1.0\r\n\r\n", 18);
    live_until(30000);
    expect_silence(N0);
}

static void join_elastic(conn_id conn, int min, int max)
{
    char json[1024];
    const int n = (int)conn - N0;
    sim_client(&sim, conn);
    sim_identify(&sim, conn, "{\"role\":\"agent\"}", NULL);
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"" DDP_VERSION
             "\",\"host\":\"n%d\",\"pid\":%d,\"mode\":"
             "\"elastic\",\"nnodes_min\":%d,\"nnodes_max\":%d,\"nproc\":2,\"addr\":\"10.0.0.%d\","
             "\"join_timeout_ms\":60000,\"join_knob\":\"--rdzv_conf join_timeout\",\"node_timeout_ms\":3000,"
             "\"grace_ms\":1000}",
             n, 100 + n, min, max, n + 1);
    sim_say(&sim, conn, json);
}

/* Report to the store that the round has ended on a node. The node now waits for the next round. */
static void has_stopped(conn_id conn)
{
    sim_say(&sim, conn, "{\"op\":\"stopped\",\"round\":1}");
}

Test(findings_sim, too_few_nodes_that_are_left_hear_at_once_how_long_they_wait)
{
    for (conn_id conn = N0; conn <= N2; conn++)
        join_elastic(conn, 3, 3);
    live_until(5000);
    sim_say(&sim, N2, "{\"op\":\"leave\",\"signal\":15,\"by\":\"bob\"}");
    for (conn_id conn = N0; conn <= N2; conn++)
        has_stopped(conn);
    live_until(5300);
    for (conn_id conn = N0; conn <= N1; conn++) {
        expect_told(conn, "TOO_FEW_LEFT", NULL);
        cr_assert(says("2 nodes") && says("at least 3"), "%s", text_of(told, "text"));
        cr_assert(says("because node 2 (n2, pid 102)"), "%s", text_of(told, "text"));
        cr_assert(says("1 more node") && says("--rdzv_conf join_timeout is 60.0 s"), "%s",
                  text_of(told, "text"));
        cr_assert(has(told, "NODE_LEFT", "node 2 (n2, pid 102)"), "%s", text_of(told, "text"));
    }
    expect_why("TOO_FEW_LEFT", NULL);
    live_until(40000);
    expect_silence(N0);
}

Test(findings_sim, why_answers_before_anything_is_told)
{
    join(N0, 0, 2, "");
    live_until(4000);
    expect_why("NODE_MISSING", "node 1");
}

Test(findings_sim, a_stranger_at_the_door)
{
    join(N0, 0, 2, "");
    sim_connect(&sim, N3);
    sim_feed_bytes(&sim, N3, slice_str("GET / HTTP/1.0\r\nHost: n0\r\n\r\n"));
    live_until(1000);
    expect_why("FOREIGN_CLIENT", "peer");
}

/* The findings about ranks for which other ranks wait, and about rounds that end. */

TestSuite(findings_ranks_sim, .init = set_up, .fini = tear_down);

static void enter(int rank, const char *barrier)
{
    struct buf out = { 0 };
    cr_assert(append_u8(&out, (uint8_t)op_table[OP_BARRIER_NAMED].code[DIALECT_C]) &&
              append_blob(&out, slice_str(barrier)) && append_i64(&out, 60000) &&
              append_blob(&out, slice_of(NULL, 0)));
    sim_feed_bytes(&sim, WORKERS + (conn_id)rank, buf_slice(&out));
    buf_free(&out);
}

/* Let the agent of a rank report that the process of this rank has started. */
static void announce_worker(int rank)
{
    char json[256];
    snprintf(
        json, sizeof(json),
        "{\"op\":\"worker_started\",\"round\":1,\"rank\":%d,\"local_rank\":%d,\"pid\":%d,\"host\":\"n%d\"}",
        rank, rank % 2, 200 + rank, rank / 2);
    sim_say(&sim, rank < 2 ? N0 : N1, json);
}

static void start_worker(int rank)
{
    char json[256];
    announce_worker(rank);
    snprintf(json, sizeof(json),
             "{\"role\":\"worker\",\"job\":\"demo\",\"attempt\":0,\"rank\":%d,\"world_size\":4}", rank);
    sim_client(&sim, WORKERS + (conn_id)rank);
    cr_assert_eq(sim_identify(&sim, WORKERS + (conn_id)rank, json, NULL), 0);
}

#define CANNOT "{\"op\":\"trouble\",\"code\":\"PORTS_CLOSED\",\"words\":\"misses n0 (10.9.0.1:41234)\"}"

Test(findings_ranks_sim, ports_that_are_closed_are_told_to_all_when_a_rank_finds_them)
{
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    start_worker(3);
    sim_say(&sim, WORKERS + 3, CANNOT);
    sim_at(&sim, sim.now_ms);
    for (conn_id conn = N0; conn <= N1; conn++) {
        expect_told(conn, "PORTS_CLOSED", "rank 3 (n1, pid 203)");
        cr_assert(says("rank 3 (n1, pid 203) misses n0 (10.9.0.1:41234)") &&
                      says("[PORTS_CLOSED]\n  try    "),
                  "%s", text_of(told, "text"));
    }
    start_worker(2);
    sim_say(&sim, WORKERS + 2, CANNOT);
    sim_at(&sim, sim.now_ms);
    expect_silence(N0); /* the finding is sent only once */
    expect_why("PORTS_CLOSED", "rank 2 (n1, pid 202)");
}

/* The store sends a rank's report to the nodes at once, even directly after other findings. The rank ends after its
 * report, so the round may end before a delayed report is sent. */
Test(findings_ranks_sim, what_a_rank_meets_is_told_at_once_also_right_after_another_look)
{
    cJSON *looked = NULL;
    join(N0, 0, 2, "");
    for (uint64_t at_ms = 500; looked == NULL && at_ms < 60000; at_ms += 500) {
        live_until(at_ms);
        looked = last_push(N0, "findings");
    }
    cr_assert_not_null(looked);
    cJSON_Delete(looked);
    join(N1, 1, 2, "");
    start_worker(3);
    sim_say(&sim, WORKERS + 3, CANNOT);
    sim_at(&sim, sim.now_ms);
    expect_told(N0, "PORTS_CLOSED", "rank 3 (n1, pid 203)");
}

Test(findings_ranks_sim, only_ranks_say_what_they_have_met_and_only_what_is_theirs)
{
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    start_worker(0);
    cr_assert_not_null(strstr(sim_control(&sim, OPERATOR, CANNOT), "a rank"));
    cr_assert_not_null(
        strstr(sim_control(&sim, WORKERS, "{\"op\":\"trouble\",\"code\":\"RANK_EXITED\",\"words\":\"x\"}"),
               "cannot report"));
}

/* Start two nodes of two workers; ranks 0 to 2 wait in a barrier. */
static void three_wait(void)
{
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    for (int rank = 0; rank < 4; rank++)
        start_worker(rank);
    for (int rank = 0; rank < 3; rank++)
        enter(rank, "step-7");
}

Test(findings_ranks_sim, a_rank_that_never_connects_is_told_with_the_time_of_the_round)
{
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    for (int rank = 0; rank < 3; rank++)
        start_worker(rank);
    announce_worker(3);
    for (int rank = 0; rank < 3; rank++)
        enter(rank, "step-7");
    live_until(sim.now_ms + 8000);
    cJSON_Delete(told);
    told = cJSON_Parse(sim_control(&sim, OPERATOR, "{\"op\":\"why\"}"));
    cr_assert(has(told, "RANK_NOT_CONNECTED", "rank 3") && says(" within 8.0 s"), "%s",
              text_of(told, "text"));
}

Test(findings_ranks_sim, a_stopped_rank_that_others_wait_for)
{
    three_wait();
    live_until(5000);
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"T\",0,null]]}");
    live_until(8000);
    expect_why("RANK_STOPPED", "rank 3");
}

/* Each node gets the finding once, without asking for it. All nodes get the same text. */
Test(findings_ranks_sim, a_barrier_that_hangs_is_told_long_before_its_time_out)
{
    three_wait();
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"T\",0,null]]}");
    last_push(N0, "");
    last_push(N1, "");
    live_until(sim.now_ms + 9000);
    expect_silence(N0);
    live_until(sim.now_ms + 3000);
    for (conn_id conn = N0; conn <= N1; conn++) {
        expect_told(conn, "RANK_STOPPED", "rank 3");
        cr_expect(has(told, "BARRIER_INCOMPLETE", "barrier 'step-7'") && says("barrier 'step-7'"), "%s",
                  text_of(told, "text"));
    }
    live_until(sim.now_ms + 35000);
    expect_silence(N0);
}

/* The missing rank still makes steps, so it may be on its way to the barrier. */
Test(findings_ranks_sim, a_barrier_whose_last_rank_still_moves_is_left_alone)
{
    three_wait();
    last_push(N0, "");
    for (int i = 0; i < 40; i++) {
        char steps[64];
        snprintf(steps, sizeof(steps), "{\"op\":\"heartbeat\",\"steps\":[[1,%d,%d,\"\"]]}", i, i);
        sim_say(&sim, N1, steps);
        live_until(sim.now_ms + 1000);
    }
    expect_silence(N0);
}

/* If the missing rank reports no steps, this rank is reported only after half a minute. */
Test(findings_ranks_sim, a_rank_that_does_not_come_and_tells_nothing_is_told_later)
{
    three_wait();
    last_push(N0, "");
    live_until(sim.now_ms + 28000);
    expect_silence(N0);
    live_until(sim.now_ms + 10000);
    expect_told(N0, "RANK_MISSING", "rank 3");
}

/* All ranks have passed the barrier in time, so there is no finding and no snapshot. */
Test(findings_ranks_sim, barriers_that_are_passed_are_no_news)
{
    three_wait();
    enter(3, "step-7");
    last_push(N0, "");
    live_until(sim.now_ms + 30000);
    expect_silence(N0);
}

Test(findings_ranks_sim, a_rank_in_the_kernel_and_one_that_computes)
{
    three_wait();
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"D\",0,\"nfs_wait_bit\"]]}");
    live_until(8000);
    expect_why("RANK_IN_KERNEL", "rank 3");
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"R\",100,null]]}");
    expect_why("RANK_BUSY", "rank 3");
}

Test(findings_ranks_sim, a_rank_that_waits_in_another_barrier)
{
    three_wait();
    enter(3, "epoch_end");
    live_until(8000);
    expect_why("RANKS_DIVERGED", "rank 3 waits");
    expect_why("RANK_WAITS_ELSEWHERE", "rank 3");
}

Test(findings_ranks_sim, a_barrier_s_time_out_has_the_same_codes)
{
    three_wait();
    live_until(2000);
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"T\",0,null]]}");
    live_until(60500);
    struct buf *out = &sim.conn[WORKERS].out;
    cr_assert(out->len > 9 && buf_append(out, "", 1));
    const char *json = (const char *)out->data + 9;
    cr_assert(has_parts(json, "rank 3: stopped (|(n1, pid 203), for"), "%s", json);
    cr_assert_not_null(strstr(json, "\"code\":\"RANK_STOPPED\""), "%s", json);
}

static void end_well(int rank)
{
    char json[128];
    snprintf(json, sizeof(json),
             "{\"op\":\"worker_exited\",\"round\":1,\"rank\":%d,\"pid\":%d,\"exit_code\":0}", rank,
             200 + rank);
    sim_say(&sim, rank < 2 ? N0 : N1, json);
}

static void expect_left(conn_id conn, const char *subject, const char *words)
{
    cJSON_Delete(told);
    told = last_push(conn, "left_waiting");
    cr_assert(has(told, "RANK_EXITED_EARLY", subject) && says(words), "%s", text_of(told, "text"));
}

#define LEFT      "rank 3 (n1, pid 203)"
#define PROCESS_3 "(pid 203 on n1)"

Test(findings_ranks_sim, a_rank_that_ends_well_while_others_wait_for_it_is_told_to_all_at_once)
{
    three_wait();
    end_well(3);
    for (conn_id conn = N0; conn <= N1; conn++) {
        expect_left(conn, LEFT, " barrier 'step-7'  [RANK_EXITED_EARLY]\n  try    ");
        cr_expect(says("ranks 0-2 waited"), "%s", text_of(told, "text"));
    }
    expect_why("RANK_EXITED_EARLY", LEFT);
    enter(0, "step-8"); /* no second report, because the same exit causes this wait, too */
    cr_expect_null(last_push(N0, "left_waiting"));
}

Test(findings_ranks_sim, a_rank_that_has_ended_before_others_come_is_told_when_they_do)
{
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    for (int rank = 0; rank < 4; rank++)
        start_worker(rank);
    end_well(3);
    cr_expect_null(last_push(N0, "left_waiting"));
    live_until(sim.now_ms + 4000);
    enter(1, "step-7");
    expect_left(N0, LEFT, "rank 1 waited");
    cr_expect(says(", 4.0 s ago, "), "%s", text_of(told, "text"));
}

/* A user stops the job on one node. The program on this node saves its state and exits with 0. */
Test(findings_ranks_sim, a_rank_that_was_told_to_stop_has_not_left_a_barrier_early)
{
    three_wait();
    sim_say(&sim, N1,
            "{\"op\":\"worker_exited\",\"round\":1,\"rank\":3,\"pid\":203,\"exit_code\":0,\"told\":true}");
    cr_expect_null(last_push(N0, "left_waiting"));
}

/* Rank 0 gives up in a collective, and its report does not name the rank that it has lost. Rank 2 ended because its
 * agent stopped it. Rank 3 ended by itself with exit code 0, so the finding names rank 3. */
Test(findings_ranks_sim, a_rank_that_ends_well_is_what_one_that_gave_up_has_lost)
{
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    for (int rank = 0; rank < 4; rank++)
        start_worker(rank);
    sim_say(&sim, N0, "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":75,\"words\":\"gave up\"}");
    sim_say(&sim, N1,
            "{\"op\":\"worker_exited\",\"round\":1,\"rank\":2,\"pid\":202,\"exit_code\":0,\"told\":true}");
    end_well(3);
    sim_say(&sim, N0, "{\"op\":\"stopped\",\"round\":1,\"max_code\":75}");
    sim_say(&sim, N1, "{\"op\":\"stopped\",\"round\":1,\"max_code\":0}");
    for (conn_id conn = N0; conn <= N1; conn++) {
        expect_left(conn, LEFT, " a collective  [RANK_EXITED_EARLY]");
        cr_expect(says("rank 0 waited"), "%s", text_of(told, "text"));
    }
}

/* Let ranks 2 and 3 exit with code 0, and let rank 0 give up. `words` is the end of rank 0's log. */
static void two_leave_and_one_gives_up(const char *words)
{
    char json[256];
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    for (int rank = 0; rank < 4; rank++)
        start_worker(rank);
    end_well(2);
    end_well(3);
    snprintf(json, sizeof(json),
             "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":75,\"words\":\"gave "
             "up\",\"stderr\":[\"%s\"]}",
             words);
    sim_say(&sim, N0, json);
    sim_say(&sim, N0, "{\"op\":\"stopped\",\"round\":1,\"max_code\":75}");
    sim_say(&sim, N1, "{\"op\":\"stopped\",\"round\":1,\"max_code\":0}");
}

/* Ranks 2 and 3 have exited with code 0. Rank 0's log names only rank 3 as missing, so rank 2 is not reported. */
Test(findings_ranks_sim, of_those_that_ended_well_the_one_that_was_missed_is_named)
{
    two_leave_and_one_gives_up("rank 3 " PROCESS_3 " has ended");
    expect_left(N1, LEFT, " a collective  [RANK_EXITED_EARLY]");
    cr_expect(says("rank 0 waited"), "%s", text_of(told, "text"));
}

Test(findings_ranks_sim, all_that_ended_well_are_named_when_nobody_says_who_was_missed)
{
    two_leave_and_one_gives_up("Broken pipe");
    expect_left(N1, "ranks 2-3", " a collective  [RANK_EXITED_EARLY]");
    cr_expect(says("rank 0 waited"), "%s", text_of(told, "text"));
}

/* Let rank 0 fail with `line` as the end of its log. `lost_bytes` is the size of packets that are lost on its path. No
 * other rank ends by itself. */
static void one_loses_its_path(const char *line, int lost_bytes)
{
    char json[512];
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    for (int rank = 0; rank < 4; rank++)
        start_worker(rank);
    sim_at(&sim, 500);
    snprintf(json, sizeof(json),
             "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":1,\"victim\":true,\"words\":\"exit 1\","
             "\"stderr\":[\"%s\"],\"lost_bytes\":%d}",
             line, lost_bytes);
    sim_say(&sim, N0, json);
    sim_say(&sim, N0, "{\"op\":\"stopped\",\"round\":1,\"max_code\":1}");
    sim_say(&sim, N1, "{\"op\":\"stopped\",\"round\":1,\"max_code\":143}");
}

static void one_loses_its_connection(const char *line)
{
    one_loses_its_path(line, 0);
}

Test(findings_ranks_sim, a_connection_that_breaks_while_all_ranks_live_is_named_by_its_nodes)
{
    static const char *const lines[] = { "[pair.cc:598] Connection closed by peer [10.0.0.2]:41234",
                                         "socketProgress: Connection closed by remote peer 10.0.0.2<41234>",
                                         "socketProgress: Connection closed by remote peer n1<41234>" };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (i > 0) {
            tear_down();
            set_up();
        }
        one_loses_its_connection(lines[i]);
        for (conn_id conn = N0; conn <= N1; conn++) {
            cJSON_Delete(told);
            told = last_push(conn, "left_waiting");
            cr_assert(has(told, "CONNECTION_BROKE", NULL), "%s", lines[i]);
            cr_assert(has_parts(text_of(told, "text"), "between node 0 (n0) |node 1 (n1) "), "%s",
                      text_of(told, "text"));
            cr_assert(says("broke 500 ms ") && says(": rank 0 reported '") && says(lines[i]) &&
                          says("(last messages ") && !says("packets"),
                      "%s", text_of(told, "text"));
        }
    }
}

Test(findings_ranks_sim, a_connection_that_breaks_on_a_path_that_loses_large_packets)
{
    one_loses_its_path("Connection closed by peer [10.0.0.2]:41234", 1500);
    told = last_push(N1, "left_waiting");
    cr_assert(has_parts(text_of(told, "text"), "1500 bytes from n0 |n1 ") && says("(PATH_LOSES_LARGE)"), "%s",
              text_of(told, "text"));
}

/* Node 1 has stopped its workers. Its last message is older than two heartbeats, but not older than the node
 * timeout. */
Test(findings_ranks_sim, a_connection_that_breaks_to_a_node_that_is_silent)
{
    for (int node = 0; node < 3; node++)
        join((conn_id)(N0 + node), node, 3, "");
    sim_say(&sim, N0,
            "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":1,\"victim\":true,"
            "\"words\":\"exit 1\",\"stderr\":[\"Connection closed by peer [10.0.0.2]:41234\"]}");
    sim_say(&sim, N1, "{\"op\":\"stopped\",\"round\":1,\"max_code\":143}");
    sim_at(&sim, sim.now_ms + 2500);
    sim_say(&sim, N0, "{\"op\":\"stopped\",\"round\":1,\"max_code\":1}");
    sim_say(&sim, N2, "{\"op\":\"stopped\",\"round\":1,\"max_code\":143}");
    told = last_push(N2, "left_waiting");
    cr_assert(has(told, "CONNECTION_BROKE", NULL));
    cr_assert(says("ddprun on n1 ") && says("2.5 s ago") && !says("ddprun on n0 ") && !says("last messages "),
              "%s", text_of(told, "text"));
}

/* In each log the lost peer has no address, an address of the rank's own node, or an address that only resembles the
 * other node's address. So the log shows no broken connection between two nodes. */
Test(findings_ranks_sim, a_lost_peer_that_no_other_node_has_breaks_no_connection)
{
    static const char *const lines[] = { "Connection closed by peer [10.0.0.1]:41234",
                                         "Connection closed by peer [10.0.0.22]:41234",
                                         "Connection closed by peer n1", "Connection reset by peer" };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (i > 0) {
            tear_down();
            set_up();
        }
        one_loses_its_connection(lines[i]);
        cr_expect_null(last_push(N1, "left_waiting"), "%s", lines[i]);
    }
}

static void expect_stopped_by(conn_id conn, const char *code)
{
    cJSON *o = last_push(conn, "stop");
    cr_assert_str_eq(text_of(cJSON_GetObjectItem(o, "cause"), "code"), code);
    cJSON_Delete(o);
}

Test(findings_ranks_sim, the_others_hear_at_once_under_which_code_a_round_ends)
{
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    sim_disconnect(&sim, N1);
    expect_stopped_by(N0, "NODE_LOST_CLOSED");
}

Test(findings_ranks_sim, a_node_that_falls_silent_is_told_after_three_beats)
{
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    for (int i = 0; i < 4; i++) {
        sim_say(&sim, N0, "{\"op\":\"heartbeat\"}");
        sim_at(&sim, sim.now_ms + 1000);
    }
    expect_stopped_by(N0, "NODE_LOST_SILENT");
}

Test(findings_ranks_sim, a_failure_and_a_program_that_is_missing_are_told_to_the_other_node)
{
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    sim_say(&sim, N1, "{\"op\":\"failed\",\"round\":1,\"rank\":2,\"error\":2,\"words\":\"no such file\"}");
    expect_stopped_by(N0, "PROGRAM_MISSING_ON_NODE");
    expect_why("PROGRAM_MISSING_ON_NODE", "node 1 (n1)");
}

Test(findings_ranks_sim, a_lost_node_is_told_by_why)
{
    join(N0, 0, 2, ",\"max_restarts\":3");
    join(N1, 1, 2, "");
    live_until(2000);
    sim_disconnect(&sim, N1);
    expect_why("NODE_LOST_CLOSED", "node 1 (n1, pid 101)");
}

/* Start two nodes whose agents send heartbeats. Ranks 0 and 1 are on N0, ranks 2 and 3 on N1. */
static void two_nodes_run(void)
{
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    last_push(N0, "");
    last_push(N1, "");
}

static void beat(conn_id conn, const char *steps)
{
    char json[512];
    snprintf(json, sizeof(json), "{\"op\":\"heartbeat\",\"steps\":[%s]}", steps);
    sim_say(&sim, conn, json);
}

Test(findings_ranks_sim, a_rank_that_stands_still_is_named_on_all_nodes_while_the_others_wait)
{
    two_nodes_run();
    beat(N0, "[0,120,123,\"all_reduce\"],[1,120,123,\"all_reduce\"]");
    beat(N1, "[0,120,123,\"all_reduce\"],[1,119,122,\"\"]");
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"T\",0,\"do_signal_stop\"]]}");
    live_until(sim.now_ms + 4000);
    expect_why("RANK_STALLED", "rank 3");
    expect_silence(N0);
    live_until(sim.now_ms + 7000);
    expect_told(N0, "RANK_STALLED", "rank 3");
    cr_expect(says("(last step: 119); 3 others") && says("in all_reduce #123; it is") && says("(state T)"),
              "%s", text_of(told, "text"));
    expect_told(N1, "RANK_STALLED", "rank 3");
    live_until(sim.now_ms + 100000);
    expect_silence(N0);
}

/* The heartbeat of node 0 came 1.9 s before the heartbeat of node 1, the node of the missing rank. So the finding may
 * come at most 1.9 s later than in a job whose heartbeats come at the same time. */
Test(findings_ranks_sim, beats_of_different_times_cost_little)
{
    two_nodes_run();
    beat(N0, "[0,1,9,\"all_reduce\"],[1,1,9,\"all_reduce\"]");
    live_until(sim.now_ms + 1900);
    beat(N1, "[0,1,9,\"all_reduce\"],[1,1,8,\"\"]");
    live_until(sim.now_ms + 9000);
    expect_silence(N0);
    live_until(sim.now_ms + 4000);
    expect_told(N0, "RANK_STALLED", "rank 3");
}

/* Let the other ranks wait for `rank` (2 or 3) in an all_reduce for `ms`. Then go_on() lets all ranks continue for a
 * minute. */
static void keep_waiting(int number, int rank, uint64_t ms)
{
    char all[96], most[96];
    snprintf(all, sizeof(all), "[0,1,%d,\"all_reduce\"],[1,1,%d,\"all_reduce\"]", number, number);
    snprintf(most, sizeof(most), "[%d,1,%d,\"all_reduce\"],[%d,1,%d,\"\"]", 3 - rank, number, rank - 2,
             number - 1);
    beat(N0, all);
    beat(N1, most);
    live_until(sim.now_ms + ms);
}

static void go_on(int number)
{
    char steps[96];
    snprintf(steps, sizeof(steps), "[0,2,%d,\"\"],[1,2,%d,\"\"]", number, number);
    beat(N0, steps);
    beat(N1, steps);
    live_until(sim.now_ms + 60000);
    last_push(N1, "");
}

/* Rank 2 saves a checkpoint, or tests the model, now and then. */
Test(findings_ranks_sim, a_wait_that_is_usual_for_the_job_is_told_once)
{
    two_nodes_run();
    keep_waiting(10, 2, 12000);
    expect_told(N0, "RANK_STALLED", "rank 2");
    go_on(10);
    beat(N0, "[0,2,10,\"\"]");
    live_until(sim.now_ms + 1000);
    cJSON *over = last_push(N0, "findings");
    cr_assert_not_null(over, "the wait is over");
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(over, "findings")), 0);
    cr_expect_str_eq(text_of(over, "text"), "");
    cJSON_Delete(over);
    for (int i = 11; i <= 14; i++) {
        keep_waiting(i, 2, 12000 + (uint64_t)i * 1000);
        go_on(i);
        expect_silence(N0);
    }
    keep_waiting(15, 2, 300000);
    expect_told(N0, "RANK_STALLED", "rank 2");
}

Test(findings_ranks_sim, another_rank_is_told_at_once_and_so_is_one_that_is_stopped)
{
    two_nodes_run();
    keep_waiting(10, 2, 12000);
    expect_told(N0, "RANK_STALLED", "rank 2");
    go_on(10);
    keep_waiting(11, 3, 12000);
    expect_told(N0, "RANK_STALLED", "rank 3");
    go_on(11);
    sim_say(&sim, N1, "{\"op\":\"heartbeat\",\"workers\":[[1,\"T\",0,\"do_signal_stop\"]]}");
    keep_waiting(12, 3, 12000);
    expect_told(N0, "RANK_STALLED", "rank 3");
}

/* Rank 3 is late at one barrier per epoch. Each barrier has another name, but only the first is reported. */
Test(findings_ranks_sim, barriers_that_are_passed_late_are_told_once)
{
    three_wait();
    last_push(N0, "");
    live_until(sim.now_ms + 40000);
    expect_told(N0, "RANK_MISSING", "rank 3");
    enter(3, "step-7");
    live_until(sim.now_ms + 40000);
    last_push(N0, "");
    for (int rank = 0; rank < 3; rank++)
        enter(rank, "step-8");
    live_until(sim.now_ms + 50000);
    expect_silence(N0);
    enter(3, "step-8");
    live_until(sim.now_ms + 40000);
    expect_silence(N0);
}

Test(findings_ranks_sim, ranks_that_move_are_left_alone)
{
    two_nodes_run();
    for (int i = 0; i < 30; i++) {
        char both[96];
        snprintf(both, sizeof(both), "[0,%d,%d,\"all_reduce\"],[1,%d,%d,\"\"]", i, i, i, i);
        beat(N0, both);
        beat(N1, both);
        live_until(sim.now_ms + 1000);
    }
    live_until(sim.now_ms + 6000);
    expect_silence(N0);
}

Test(findings_ranks_sim, steps_of_nobody_change_nothing)
{
    two_nodes_run();
    beat(N0,
         "7,[],[9,1,1,\"x\"],[-1,1,1,\"x\"],[0,-2,1,\"x\"],[0,1,-1,\"x\"],[0,1e300,1,\"x\"],[0,1],[0,1,1,5]");
    live_until(sim.now_ms + 30000);
    expect_silence(N0);
}
