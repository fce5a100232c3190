/* PyTorch's ranks form a group, or fail to form it, through a hub without sockets. The tests check the reports to all
 * nodes and when they are sent. */
#include "hub/session.h"
#include "hub/job.h"
#include "run.h"
#include "sim_hub.h"
#include "store/encode.h"
#include "ddp/context.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { NODE = 10, RANK0 = 20, RANK1, OTHER0, OTHER1, OPERATOR = 40, WORLD = 2 };

#define BARRIER "//worker/attempt_0/default_pg/store_based_barrier_key:1"
#define ADDRESS "/default_pg/0//cpu//0/"
#define NCCL_ID "/default_pg/0//cuda//0"

static struct sim sim;

/* --- reports --------------------------------------------------------------------------------------- */

/* Return the agent's pushes since the last call, or "". */
static const char *told(void)
{
    static char text[65536];
    struct buf *out = &sim.conn[NODE].out;
    size_t used = 0;
    text[0] = '\0';
    for (size_t at = 0; at + 8 <= out->len;) {
        const size_t len = get_u64(out->data + at);
        cr_assert_lt(used + len + 1, sizeof(text));
        memcpy(text + used, out->data + at + 8, len);
        text[used += len] = '\0';
        at += 8 + len;
    }
    out->len = 0;
    return text;
}

static void say(const char *json)
{
    sim_say(&sim, NODE, json);
    (void)told();
}

static void expect_told(const char *words)
{
    const char *text = told();
    cr_expect(has_parts(text, words), "'%s' is not in: %s", words, text);
}

static void expect_operator(const char *op, const char *words)
{
    char json[64];
    snprintf(json, sizeof(json), "{\"op\":\"%s\"}", op);
    const char *text = sim_control(&sim, OPERATOR, json);
    cr_expect(has_parts(text, words), "'%s' is not in: %s", words, text);
}

/* --- division of the work ------------------------------------------------------------------------------- */

static void join(void)
{
    say("{\"op\":\"join\",\"job\":\"a\",\"version\":\"" DDP_VERSION
        "\",\"host\":\"n0\",\"pid\":7,\"nnodes_min\":1,"
        "\"nnodes_max\":1,\"node_rank\":0,\"nproc\":2,\"hang_ms\":0,\"max_restarts\":1,\"join_timeout_ms\":"
        "60000,\"node_"
        "timeout_ms\":100000000}");
}

static void node_joins(void)
{
    sim_client(&sim, NODE);
    sim_identify(&sim, NODE, "{\"role\":\"agent\"}", NULL);
    join();
    say("{\"op\":\"worker_started\",\"rank\":0,\"pid\":100,\"host\":\"n0\",\"round\":1}");
    say("{\"op\":\"worker_started\",\"rank\":1,\"pid\":101,\"host\":\"n0\",\"round\":1}");
}

static void set_up(void)
{
    sim_init(&sim, NULL);
    sim_client(&sim, OPERATOR);
    node_joins();
}

static void tear_down(void)
{
    sim_free(&sim);
}

static void request(conn_id conn, uint8_t opcode, bool is_list, const char *key, const void *rest, size_t len)
{
    struct buf bytes = { 0 };
    bool ok = append_u8(&bytes, opcode) && (!is_list || append_u64(&bytes, 1)) &&
              append_blob(&bytes, slice_str(key)) && (len == 0 || buf_append(&bytes, rest, len));
    cr_assert(ok);
    sim_feed_bytes(&sim, conn, buf_slice(&bytes));
    buf_free(&bytes);
}

static void add(conn_id conn, const char *key, int64_t delta)
{
    request(conn, 4, false, key, &delta, sizeof(delta));
}

static void wait_for(conn_id conn, const char *key)
{
    request(conn, 6, true, key, NULL, 0);
}

static void set(conn_id conn, const char *key)
{
    static const uint8_t value[9] = { 1, 0, 0, 0, 0, 0, 0, 0, 'x' };
    request(conn, 1, false, key, value, sizeof(value));
}

/* Connect a PyTorch client, whose agent reports this rank. If `rank` is -1, no agent reports the client. */
static void client(conn_id conn, int rank, int pid)
{
    char json[96];
    sim_client(&sim, conn);
    add(conn, "init/", 1);
    snprintf(json, sizeof(json), "{\"op\":\"vouch\",\"conn\":%d,\"rank\":%d,\"pid\":%d}", (int)conn, rank,
             pid);
    if (rank >= 0)
        say(json);
    (void)told();
}

static void other(conn_id conn, int pid)
{
    char json[160];
    snprintf(json, sizeof(json), "{\"op\":\"owner\",\"conn\":%d,\"pid\":%d,\"words\":\"python3 (pid %d)\"}",
             (int)conn, pid, pid);
    say(json);
}

static void four_count(void)
{
    client(RANK0, 0, 100);
    client(RANK1, 1, 101);
    client(OTHER0, -1, 0);
    client(OTHER1, -1, 0);
    add(RANK0, BARRIER, 1);
    add(OTHER0, BARRIER, 1);
    add(OTHER1, BARRIER, 1);
    add(RANK1, BARRIER, 1);
    add(RANK0, BARRIER, 0);
}

TestSuite(torch_watch, .init = set_up, .fini = tear_down);

/* --- a group that is not complete ----------------------------------------------------------------------- */

Test(torch_watch, a_polled_barrier_is_a_wait)
{
    client(RANK0, 0, 100);
    add(RANK0, BARRIER, 1);
    add(RANK0, BARRIER, 0);
    expect_operator("waiters", "\"rank\":0,\"host\":\"n0\",\"pid\":100,\"op\":\"ADD\"");
    expect_operator("waiters", "barrier of init_process_group");
    add(RANK0, "counter", 0);
    expect_operator("waiters", "\"waiters\":[]");
}

Test(torch_watch, a_complete_barrier_is_none)
{
    client(RANK0, 0, 100);
    client(RANK1, 1, 101);
    add(RANK0, BARRIER, 1);
    add(RANK1, BARRIER, 1);
    add(RANK0, BARRIER, 0);
    expect_operator("waiters", "\"waiters\":[]");
    sim_at(&sim, 60000);
    cr_assert_str_empty(told());
}

/* The first launch has completed the barrier, so only the client of the second launch waits. */
Test(torch_watch, who_has_passed_a_barrier_does_not_wait_in_it_again)
{
    client(RANK0, 0, 100);
    client(RANK1, 1, 101);
    add(RANK0, BARRIER, 1);
    add(RANK1, BARRIER, 1);
    add(RANK0, BARRIER, 0);
    add(RANK1, BARRIER, 0);
    client(OTHER0, -1, 0);
    add(OTHER0, BARRIER, 1);
    add(OTHER0, BARRIER, 0);
    sim_at(&sim, 1000);
    const char *answer = sim_control(&sim, OPERATOR, "{\"op\":\"waiters\"}");
    cr_expect(strstr(answer, "peer:22") != NULL && strstr(answer, "peer:20") == NULL &&
                  strstr(answer, "peer:21") == NULL,
              "%s", answer);
}

Test(torch_watch, after_ten_seconds_all_are_told_who_is_missing)
{
    client(RANK0, 0, 100);
    add(RANK0, BARRIER, 1);
    add(RANK0, BARRIER, 0);
    sim_at(&sim, 9900);
    cr_assert_str_empty(told());
    sim_at(&sim, 10100);
    const char *text = told();
    cr_expect(strstr(text, "init_process_group: 1 of 2 ranks") != NULL, "%s", text);
    cr_expect(strstr(text, "for 10.0 s") != NULL, "%s", text);
    cr_expect(strstr(text, "missing: rank 1") != NULL, "%s", text);
    cr_expect(strstr(text, "rank 1: started (n0, pid 101)") != NULL, "%s", text);
    sim_at(&sim, 200000);
    cr_assert_str_empty(told(), "a report is not repeated");
}

Test(torch_watch, who_has_ended_is_told_at_once)
{
    client(RANK0, 0, 100);
    wait_for(RANK0, ADDRESS "1");
    sim_at(&sim, 2000);
    say("{\"op\":\"worker_exited\",\"rank\":1,\"pid\":101,\"exit_code\":0,\"round\":1}");
    sim_at(&sim, 5000);
    const char *text = told();
    cr_expect(strstr(text, "rank 1: exited") != NULL && strstr(text, "code 0") != NULL, "%s", text);
    cr_expect(strstr(text, "init_process_group: 1 of 2 ranks") != NULL, "%s", text);
}

Test(torch_watch, a_job_that_comes_together_hears_nothing)
{
    client(RANK0, 0, 100);
    client(RANK1, 1, 101);
    wait_for(RANK0, ADDRESS "1");
    sim_at(&sim, 5000);
    set(RANK1, ADDRESS "1");
    sim_at(&sim, 100000);
    cr_assert_str_empty(told());
}

Test(torch_watch, an_id_that_nobody_sets_is_told_with_who_waits)
{
    client(RANK1, 1, 101);
    wait_for(RANK1, NCCL_ID);
    sim_at(&sim, 41000);
    expect_told("rank 1 (n0, pid 101)|0's NCCL id|(key '" NCCL_ID "')|10.0 s");
    expect_operator("why", "rank 1 (n0, pid 101)|0's NCCL id|(key '" NCCL_ID "')|41.0 s");
    expect_operator("status", "\"waits_for_torch\":{\"kind\":\"nccl_id\",\"text\":\"rank 0's NCCL id\"");
}

/* torch 2.x waits for ten seconds, reads the count, and waits again. The report must give the time since the first
 * wait. */
Test(torch_watch, who_waits_again_has_waited_since_the_first_time)
{
    client(RANK0, 0, 100);
    for (int i = 0; i < 3; i++) {
        wait_for(RANK0, "/default_pg/store_based_barrier_key:0:last_worker");
        sim_at(&sim, 10000 * ((uint64_t)i + 1));
        sim_feed(&sim, RANK0, "0c");
        add(RANK0, "/default_pg/store_based_barrier_key:0", 0);
    }
    wait_for(RANK0, "/default_pg/store_based_barrier_key:0:last_worker");
    expect_operator("waiters", "\"since_ms\":30000");
}

/* Both ranks wait for a third rank, which the program expects and which was never started. */
Test(torch_watch, a_world_that_is_larger_than_the_job_is_told)
{
    client(RANK0, 0, 100);
    client(RANK1, 1, 101);
    wait_for(RANK0, ADDRESS "2");
    wait_for(RANK1, ADDRESS "2");
    sim_at(&sim, 10100);
    const char *text = told();
    cr_expect(strstr(text, "10.0 s for") != NULL, "%s", text);
    cr_expect(strstr(text, "2's Gloo address") != NULL, "%s", text);
}

/* --- too many members ----------------------------------------------------------------------------------- */

Test(torch_watch, of_too_many_the_agents_are_asked_who_they_are)
{
    four_count();
    const char *text = told();
    cr_expect(strstr(text, "\"conn\":22,\"peer\":\"peer:22\",\"store\":\"\",\"owner\":true") != NULL, "%s",
              text);
    cr_expect(strstr(text, "\"conn\":20,") == NULL, "it is known: %s", text);
}

Test(torch_watch, two_launches_of_one_store_are_told_at_once)
{
    four_count();
    other(OTHER0, 900);
    other(OTHER1, 901);
    sim_at(&sim, 1000);
    const char *text = told();
    cr_expect(strstr(text, "\"code\":\"STORE_SHARED\"") != NULL, "%s", text);
    cr_expect(strstr(text, " for 800 ms (4 ") != NULL, "%s", text);
    cr_expect(strstr(text, " python3 (pid 900) on n0; python3 (pid 901) on n0; ") != NULL, "%s", text);
    cr_expect(strstr(text, " rank 0 (n0, pid 100); rank 1 (n0, pid 101)") != NULL, "%s", text);
    expect_operator("waiters", "\"pid\":900,\"owner\":\"python3 (pid 900) on n0\",\"op\":\"ADD\"");
}

/* The agent names the owner of the last connection only after the first check of the group. */
Test(torch_watch, an_owner_that_is_known_late_is_told_at_once)
{
    four_count();
    other(OTHER0, 0);
    sim_at(&sim, 1000);
    (void)told();
    sim_at(&sim, 5000);
    other(OTHER1, 901);
    sim_at(&sim, 7000);
    expect_told("\"code\":\"STORE_SHARED\"");
}

/* The store has reported that rank 0 waits for the key of rank 1. Then two children of rank 1 (mp.spawn) set the keys
 * of PyTorch's ranks 0 and 1, so this wait ends. The store must be able to report the next wait. */
Test(torch_watch, a_wait_that_has_ended_is_not_the_present_wait)
{
    client(RANK0, 0, 100);
    set(RANK0, ADDRESS "0");
    wait_for(RANK0, ADDRESS "1");
    sim_at(&sim, 11000);
    expect_told("\"code\":\"INIT_INCOMPLETE\"");
    const struct job *job = session_find(sim.hub, NODE)->job;
    cr_assert(job->watch.torch_reported);
    client(OTHER0, 1, 900);
    set(OTHER0, ADDRESS "0");
    client(OTHER1, 1, 901);
    set(OTHER1, ADDRESS "1");
    sim_at(&sim, 13000);
    cr_expect_not(job->watch.torch_reported);
}

/* All four names fit into the report, so it does not end with "and N more". */
Test(torch_watch, two_launches_are_told_by_all_their_names)
{
    char words[141], json[256];
    memset(words, 'x', sizeof(words) - 1);
    words[sizeof(words) - 1] = '\0';
    four_count();
    for (int i = 0; i < 2; i++) {
        snprintf(json, sizeof(json), "{\"op\":\"owner\",\"conn\":%d,\"pid\":%d,\"words\":\"%s\"}", OTHER0 + i,
                 900 + i, words);
        say(json);
    }
    sim_at(&sim, 1000);
    expect_told(" rank 0 (n0, pid 100); rank 1 (n0, pid 101)  [STORE_SHARED]");
}

/* Process 900 registers over two connections, so the report counts registrations and not processes. */
Test(torch_watch, registrations_of_two_launches_are_not_counted_as_processes)
{
    four_count();
    other(OTHER0, 900);
    other(OTHER1, 900);
    sim_at(&sim, 1000);
    const char *text = told();
    cr_expect(strstr(text, "4 registrations") != NULL, "%s", text);
    cr_expect(strstr(text, "[STORE_SHARED]") != NULL, "%s", text);
}

Test(torch_watch, whom_nobody_knows_is_told_by_the_address)
{
    four_count();
    (void)told();
    sim_at(&sim, 9000);
    cr_assert_str_empty(told(), "an agent may yet say that they are workers");
    sim_at(&sim, 13000);
    expect_told("process at");
}

Test(torch_watch, children_of_ranks_are_no_second_launch)
{
    client(RANK0, 0, 100);
    client(RANK1, 1, 101);
    client(OTHER0, 0, 150);
    add(RANK0, BARRIER, 1);
    add(RANK1, BARRIER, 1);
    add(OTHER0, BARRIER, 1);
    sim_at(&sim, 9000);
    cr_assert_str_empty(told(), "with a separate world it may continue");
    sim_at(&sim, 12500);
    const char *text = told();
    cr_expect(strstr(text, "): pid 150, started") != NULL, "%s", text);
    cr_expect(strstr(text, " for 9.4 s (3 processes ") != NULL, "%s", text);
    cr_expect(strstr(text, "[GROUP_TOO_LARGE]") != NULL, "%s", text);
}

/* The clients lose their connections, connect again, and then only read the counter. The report must count the wait
 * from the new connections, and not from the start of the clock. */
Test(torch_watch, clients_that_connect_again_have_waited_since_then)
{
    static const conn_id conns[] = { RANK0, RANK1, OTHER0 };
    for (int again = 0; again <= 1; again++) {
        sim_at(&sim, 100000);
        for (int i = 0; i < 3; i++) {
            if (again)
                sim_disconnect(&sim, conns[i]);
            client(conns[i], i % 2, i < 2 ? 100 + i : 150);
            add(conns[i], BARRIER, again ? 0 : 1);
        }
    }
    sim_at(&sim, 112500);
    expect_operator("why", " for 12.5 s (3 |): pid 150, started|, for 12.5 s now");
}

Test(torch_watch, two_that_are_the_same_rank_are_told)
{
    client(RANK0, 0, 100);
    set(RANK0, ADDRESS "0");
    client(OTHER0, -1, 0);
    set(OTHER0, ADDRESS "0");
    other(OTHER0, 900);
    sim_at(&sim, 1000);
    const char *text = told();
    cr_expect(strstr(text, " python3 (pid 900) on n0, as rank 0; ") != NULL, "%s", text);
    cr_expect(strstr(text, " rank 0 (n0, pid 100)  [STORE_SHARED]") != NULL, "%s", text);
}

static void fail_rank_0(void)
{
    sim_say(&sim, NODE,
            "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"local_rank\":0,\"pid\":100,\"exit_code\":1,"
            "\"words\":\"exit 1\"}");
}

/* Two processes register as rank 0. A worker fails and ends the round before the store's next check is due. */
Test(torch_watch, a_failure_after_two_processes_were_one_rank_names_that_rank)
{
    client(OTHER0, -1, 0);
    client(OTHER1, -1, 0);
    set(OTHER0, ADDRESS "0");
    set(OTHER1, ADDRESS "0");
    sim_at(&sim, 100);
    fail_rank_0();
    const char *text = told();
    cr_expect(strstr(text, " 100 ms ago") != NULL, "%s", text);
    cr_expect(strstr(text, "rank 0 has") != NULL && strstr(text, "[RANK_REPEATED]") != NULL, "%s", text);
}

/* The store has reported that rank 1 is missing. Then another process registers as rank 0, and a failure ends the
 * round. */
Test(torch_watch, a_failure_names_a_rank_of_two_processes_after_a_report_of_a_missing_rank)
{
    client(RANK0, 0, 100);
    set(RANK0, ADDRESS "0");
    add(RANK0, BARRIER, 1);
    add(RANK0, BARRIER, 0);
    sim_at(&sim, 10100);
    cr_assert_not_null(strstr(told(), "missing: rank 1"));
    client(OTHER0, -1, 0);
    set(OTHER0, ADDRESS "0");
    fail_rank_0();
    const char *text = told();
    cr_expect(strstr(text, "[RANK_REPEATED]") != NULL, "%s", text);
}

Test(torch_watch, a_failure_does_not_repeat_a_report_of_two_processes_as_one_rank)
{
    client(RANK0, 0, 100);
    client(OTHER0, -1, 0);
    set(RANK0, ADDRESS "0");
    set(OTHER0, ADDRESS "0");
    other(OTHER0, 200);
    sim_at(&sim, 10100);
    const char *text = told();
    cr_expect(strstr(text, "[STORE_SHARED]") != NULL, "%s", text);
    fail_rank_0();
    text = told();
    cr_expect_null(strstr(text, "[RANK_REPEATED]"), "%s", text);
}

Test(torch_watch, a_failure_of_a_process_that_registered_again_names_no_second_one)
{
    client(RANK0, 0, 100);
    client(OTHER0, 0, 100);
    set(RANK0, ADDRESS "0");
    set(OTHER0, ADDRESS "0");
    fail_rank_0();
    cr_expect_null(strstr(told(), "registered twice"));
}

Test(torch_watch, a_process_that_begins_anew_is_no_second_one)
{
    client(RANK0, 0, 100);
    client(OTHER0, 0, 100);
    set(RANK0, ADDRESS "0");
    set(OTHER0, ADDRESS "0");
    sim_at(&sim, 60000);
    cr_assert_str_empty(told());
}

Test(torch_watch, a_group_of_some_ranks_may_count_as_it_likes)
{
    for (int i = 0; i < 4; i++) {
        client(RANK0 + (conn_id)i, -1, 0);
        add(RANK0 + (conn_id)i, "/default_pg/0//4f//store_based_barrier_key:4f", 1);
    }
    sim_at(&sim, 60000);
    cr_assert_str_empty(told());
}

Test(torch_watch, is_forgotten_with_the_attempt)
{
    four_count();
    say("{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":3,\"words\":\"x\"}");
    say("{\"op\":\"stopped\",\"round\":1,\"max_code\":3}");
    join();
    expect_operator("waiters", "\"waiters\":[]");
}

Test(torch_watch, an_owner_is_said_by_nodes_of_the_job_only)
{
    client(OTHER0, -1, 0);
    const char *answer =
        sim_control(&sim, OPERATOR, "{\"op\":\"owner\",\"conn\":22,\"pid\":5,\"words\":\"x\"}");
    cr_expect(strstr(answer, "for agents") != NULL, "%s", answer);
    answer = sim_control(&sim, NODE, "{\"op\":\"owner\",\"conn\":22,\"pid\":5}");
    cr_expect(strstr(answer, "\"ok\":false") != NULL, "%s", answer);
    answer = sim_control(&sim, NODE, "{\"op\":\"owner\",\"conn\":99,\"pid\":5,\"words\":\"gone\"}");
    cr_expect(strstr(answer, "\"ok\":true") != NULL, "%s", answer);
}

/* Any client can make the store ask the agents which process owns a connection. To answer, an agent searches its whole
 * machine. So the store limits how often it asks. */
Test(torch_watch, agents_are_asked_for_a_few_only)
{
    for (int i = 0; i < 12; i++) {
        client(OTHER0 + (conn_id)i, -1, 0);
        add(OTHER0 + (conn_id)i, BARRIER, 1);
        sim_at(&sim, 2000 * (uint64_t)(i + 1));
    }
    int asked = 0;
    for (const char *at = told(); (at = strstr(at, "\"owner\":true")) != NULL; at++)
        asked++;
    cr_expect_leq(asked, 6);
}

Test(torch_watch, who_is_missing_is_not_guessed)
{
    client(OTHER0, -1, 0);
    wait_for(OTHER0, ADDRESS "1");
    sim_at(&sim, 11000);
    const char *text = told();
    cr_expect(strstr(text, "1 of 2 ranks") != NULL, "%s", text);
    cr_expect(strstr(text, "10.0 s for") != NULL, "%s", text);
    cr_expect(has_parts(text, "1's Gloo address|missing: unknown"), "%s", text);
}

/* Each rank increments the count of one barrier twice. In PyTorch 1.13 a barrier whose count is too high never opens,
 * so the ranks read the count again and again. */
Test(torch_watch, ranks_that_set_a_group_up_again_are_no_second_launch)
{
    client(RANK0, 0, 100);
    client(RANK1, 1, 101);
    add(RANK0, BARRIER, 1);
    add(RANK1, BARRIER, 1);
    client(OTHER0, 0, 100);
    client(OTHER1, 1, 101);
    add(OTHER0, BARRIER, 1);
    add(OTHER1, BARRIER, 1);
    add(OTHER0, BARRIER, 0);
    sim_at(&sim, 13000);
    const char *text = told();
    cr_expect(strstr(text, "4 registrations") != NULL, "%s", text);
    cr_expect(strstr(text, ": rank 0 (n0, pid 100); rank 1 (n0, pid 101); 2 ") != NULL, "%s", text);
    cr_expect(strstr(text, "[GROUP_TOO_LARGE]") != NULL, "%s", text);
}

Test(torch_watch, who_does_not_fit_is_counted)
{
    char words[161], json[256];
    memset(words, 'x', sizeof(words) - 1);
    words[sizeof(words) - 1] = '\0';
    for (int i = 0; i < 4; i++) {
        client(OTHER0 + (conn_id)i, -1, 0);
        add(OTHER0 + (conn_id)i, BARRIER, 1);
        snprintf(json, sizeof(json), "{\"op\":\"owner\",\"conn\":%d,\"pid\":%d,\"words\":\"%s\"}", OTHER0 + i,
                 900 + i, words);
        say(json);
    }
    sim_at(&sim, 1000);
    expect_told("x on n0; and 2 more  [STORE_SHARED]");
}

Test(torch_watch, an_agent_knows_a_process_better_than_it_itself)
{
    client(RANK0, 0, 100);
    sim_feed(&sim, RANK0, "0d05000000");
    set(RANK0, ADDRESS "0");
    client(OTHER0, 0, 100);
    set(OTHER0, ADDRESS "0");
    sim_at(&sim, 60000);
    cr_assert_str_empty(told());
}

/* The first wait of rank 0 ends well. Its next wait is for rank 1, which has already ended. */
Test(torch_watch, after_an_end_it_is_looked_again_soon)
{
    client(RANK0, 0, 100);
    client(RANK1, 1, 101);
    wait_for(RANK0, ADDRESS "1");
    sim_at(&sim, 500);
    say("{\"op\":\"worker_exited\",\"rank\":1,\"pid\":101,\"exit_code\":0,\"round\":1}");
    sim_at(&sim, 1500);
    set(RANK1, ADDRESS "1");
    wait_for(RANK0, NCCL_ID);
    sim_at(&sim, 4500);
    cr_assert_str_not_empty(told());
}

/* --- ranks that give up --------------------------------------------------------------------------------------- */

/* Tests of ranks that give up their wait for a group, and end. */

TestSuite(init_abandoned, .init = set_up, .fini = tear_down);

/* Send the messages of a node whose rank 0 has failed. After the last message, "stopped", the store sends its
 * verdict. */
static void rank_0_fails(const char *how)
{
    char json[128];
    snprintf(json, sizeof(json), "{\"op\":\"failed\",\"round\":1,\"rank\":0,%s,\"words\":\"exit 1\"}", how);
    say(json);
    sim_say(&sim, NODE, "{\"op\":\"stopped\",\"round\":1,\"max_code\":1}");
}

static void expect_given_up(const char *how, bool is_told)
{
    rank_0_fails(how);
    const char *text = told();
    cr_expect_eq(strstr(text, "INIT_ABANDONED") != NULL, is_told, "%s", text);
    cr_expect(!is_told || strstr(text, "12.0 s for") != NULL, "%s", text);
    cr_expect(!is_told || has_parts(text, "1's Gloo address|rank 1: started (n0, pid 101)"), "%s", text);
}

static void rank_0_waits(uint64_t until_ms)
{
    client(RANK0, 0, 100);
    wait_for(RANK0, ADDRESS "1");
    sim_at(&sim, until_ms);
    (void)told();
}

/* torch 1.13 does not cancel its wait: it only closes the connection. */
Test(init_abandoned, who_gave_up_is_told_with_whom_it_has_waited_for)
{
    rank_0_waits(12000);
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", true);
}

/* torch 2.x cancels its wait, prints the error, and then closes the connection. */
Test(init_abandoned, who_takes_its_wait_back_and_goes_has_given_up)
{
    rank_0_waits(12000);
    sim_feed(&sim, RANK0, "0c");
    sim_at(&sim, 13000);
    sim_disconnect(&sim, RANK0);
    sim_at(&sim, 40000);
    expect_given_up("\"exit_code\":1", true);
}

/* The node reports the failure before the store detects the end of the connection. */
Test(init_abandoned, who_gave_up_may_still_be_connected)
{
    rank_0_waits(12000);
    expect_given_up("\"exit_code\":1", true);
}

static void expect_barrier(const char *words)
{
    sim_at(&sim, 9000);
    (void)told();
    sim_disconnect(&sim, RANK0);
    rank_0_fails("\"exit_code\":1");
    const char *text = told();
    cr_expect(strstr(text, "9.0 s for") != NULL && strstr(text, words) != NULL, "'%s' is not in: %s", words,
              text);
}

Test(init_abandoned, the_barrier_of_torch_1_is_given_up_as_well)
{
    client(RANK0, 0, 100);
    add(RANK0, BARRIER, 1);
    add(RANK0, BARRIER, 0);
    expect_barrier("1 of the 2 ");
}

/* The ranks of two launches have arrived in one barrier. No rank is missing, so the report gives the number of ranks
 * that have arrived. */
Test(init_abandoned, who_gave_up_a_barrier_of_too_many_is_told_how_many)
{
    four_count();
    expect_barrier("4 ranks");
}

/* The node disconnects, so the job ends. The store must send no more bytes to this node: sim_hub.c fails the test if
 * bytes are sent to a closed connection. */
Test(init_abandoned, a_node_that_has_gone_is_told_nothing)
{
    rank_0_waits(12000);
    say("{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":1,\"words\":\"exit 1\"}");
    sim_disconnect(&sim, NODE);
    cr_expect_str_eq(told(), "");
    expect_operator("why", "INIT_ABANDONED");
}

Test(init_abandoned, who_is_killed_has_not_given_up)
{
    rank_0_waits(12000);
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"signal\":9", false);
}

Test(init_abandoned, who_waited_for_a_moment_only_has_not_given_up)
{
    rank_0_waits(900);
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", false);
}

/* The second wait of rank 0 succeeds. So the later failure of rank 0 has another reason. */
Test(init_abandoned, who_waits_again_and_goes_on_has_not_given_up)
{
    rank_0_waits(12000);
    sim_feed(&sim, RANK0, "0c");
    wait_for(RANK0, ADDRESS "1");
    client(RANK1, 1, 101);
    set(RANK1, ADDRESS "1");
    sim_at(&sim, 13000);
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", false);
}

/* Let rank 0 call init_process_group again after its first call has failed. Rank 1 has joined meanwhile. */
static void rank_0_tries_again(conn_id conn)
{
    client(RANK1, 1, 101);
    set(RANK1, ADDRESS "1");
    set(conn, ADDRESS "0");
    wait_for(conn, ADDRESS "1");
}

Test(init_abandoned, who_finds_the_others_at_once_when_it_waits_again_has_not_given_up)
{
    rank_0_waits(12000);
    sim_feed(&sim, RANK0, "0c");
    rank_0_tries_again(RANK0);
    sim_at(&sim, 13000);
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", false);
}

/* Rank 0 tries again on a second connection, OTHER0. The agent reports the rank of OTHER0 to the store only after
 * OTHER0 has found all keys. */
Test(init_abandoned, who_tries_again_on_another_connection_has_not_given_up)
{
    rank_0_waits(12000);
    sim_feed(&sim, RANK0, "0c");
    sim_client(&sim, OTHER0);
    rank_0_tries_again(OTHER0);
    say("{\"op\":\"vouch\",\"conn\":22,\"rank\":0,\"pid\":100}");
    sim_at(&sim, 13000);
    sim_disconnect(&sim, OTHER0);
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", false);
}

Test(init_abandoned, who_tries_again_after_its_connection_has_ended_has_not_given_up)
{
    rank_0_waits(12000);
    sim_disconnect(&sim, RANK0);
    sim_at(&sim, 13000);
    client(OTHER0, 0, 100);
    rank_0_tries_again(OTHER0);
    expect_given_up("\"exit_code\":1", false);
}

/* The group has formed. Then rank 0 waits for a key of the program, not of PyTorch. */
Test(init_abandoned, who_waits_for_a_key_of_its_own_gives_up_no_group)
{
    rank_0_waits(5000);
    client(RANK1, 1, 101);
    set(RANK1, ADDRESS "1");
    wait_for(RANK0, "/mine");
    sim_at(&sim, 12000);
    sim_feed(&sim, RANK0, "0c");
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", false);
}

Test(init_abandoned, who_went_on_for_long_without_the_others_has_not_given_up)
{
    rank_0_waits(12000);
    sim_feed(&sim, RANK0, "0c");
    sim_at(&sim, 30000);
    (void)told();
    sim_disconnect(&sim, RANK0);
    expect_given_up("\"exit_code\":1", false);
}

/* --- subscribers ---------------------------------------------------------------------------------------------- */

/* Keys of nodes and identified workers are not observed. */
Test(torch_watch, only_a_plain_client_makes_the_store_look_into_keys)
{
    const struct job *job = job_only(sim.hub, &(struct session){ .id = 0 });
    sim_client(&sim, RANK0);
    cr_assert_eq(sim_identify(&sim, RANK0,
                              "{\"role\":\"worker\",\"job\":\"a\",\"attempt\":0,\"rank\":0,\"world_size\":2}",
                              NULL),
                 0);
    set(RANK0, "/k");
    cr_expect_not(job->is_observed);
    sim_client(&sim, OTHER0);
    cr_expect_not(job->is_observed, "it has asked for no key yet");
    set(OTHER0, "/k");
    cr_expect(job->is_observed);
}
