/* Nodes that wait for each other on a clock that stands still: who is told what is wrong, when, and in which words. */
#include "findings_case.h"

TestSuite(findings_sim, .init = set_up, .fini = tear_down);

/* --- gathering ------------------------------------------------------------------------------------------ */

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
    expect_told(N0, "NODE_NEVER_CAME", "node 1");
    char *text = strdup(text_of(told, "text"));
    expect_told(N2, "NODE_NEVER_CAME", "node 1");
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
    expect_told(N0, "NODE_NEVER_CAME", "node 1");
    cr_assert(cJSON_IsTrue(cJSON_GetObjectItem(told, "final")));
    cr_assert_not_null(
        strstr(text_of(told, "text"), "given up: 1 of 2 nodes is here after 60.0 s (--timeout is 60 s)"),
        "%s", text_of(told, "text"));
}

Test(findings_sim, a_node_that_comes_and_dies_is_told_at_once)
{
    join(N0, 0, 3, "");
    join(N1, 1, 3, "");
    live_until(3000);
    sim_disconnect(&sim, N1);
    live_until(3500);
    expect_told(N0, "NODE_CAME_AND_DIED", "node 1 (n1, pid 101)");
}

Test(findings_sim, a_node_rank_that_is_claimed_twice_is_told_at_once)
{
    join(N0, 0, 3, "");
    live_until(2000);
    join(N1, 0, 3, "");
    live_until(2500);
    expect_told(N0, "NODE_RANK_TAKEN", "n1 (pid 101)");
    cr_assert_not_null(
        strstr(text_of(told, "text"),
               "n1 (pid 101) says --node_rank=0, which n0 (pid 100) has already; nobody has claimed 1-2"),
        "%s", text_of(told, "text"));
}

Test(findings_sim, a_second_launch_on_the_same_machine)
{
    join(N0, 0, 3, "");
    live_until(2000);
    join_as(N1, "n0", 0, 3, "");
    live_until(2500);
    expect_told(N0, "LAUNCHED_TWICE", "n0 (pid 101)");
}

Test(findings_sim, a_launcher_for_each_task_of_a_scheduler)
{
    join_as(N0, "n0", 0, 3, ",\"task\":\"Slurm\"");
    join_as(N1, "n0", 0, 3, ",\"task\":\"Slurm\"");
    live_until(500);
    expect_told(N0, "WRONG_TASK_LAYOUT", "n0 (pid 101)");
    cr_assert_not_null(strstr(text_of(told, "text"), "--ntasks-per-node=1"));
}

Test(findings_sim, other_numbers_and_versions_are_told_to_those_who_wait)
{
    join(N0, 0, 3, "");
    join(N1, 1, 4, "");
    live_until(1000);
    expect_told(N0, "NNODES_DIFFERS", "n1 (pid 101)");
    cr_assert_not_null(strstr(text_of(told, "text"), "nnodes"), "%s", text_of(told, "text"));
}

/* The refused one has ended; those that wait are told that it has to be started again, at once and when the time is up. */
Test(findings_sim, who_waits_for_a_node_that_was_refused_is_told_so)
{
    join(N0, 0, 2, "");
    join(N1, 1, 3, "");
    live_until(1000);
    expect_told(N0, "NODE_WAS_REFUSED", "node 1 (n1, pid 101)");
    cr_assert_not_null(strstr(text_of(told, "text"), "was refused and has ended"), "%s",
                       text_of(told, "text"));
    live_until(40000);
    expect_silence(N0);
    live_until(61000);
    expect_told(N0, "NODE_WAS_REFUSED", "node 1 (n1, pid 101)");
    cr_assert_not(has(told, "NODE_NEVER_CAME", "node 1"));
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
    sim_say(&sim, N0, "{\"op\":\"notice\",\"code\":\"OF_TOMORROW\",\"subject\":\"x\",\"sentence\":\"y\"}");
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
    cr_assert_str_eq(text_of(told, "text"),
                     "node 0 (n0, pid 100) brings 5 workers and node 1 (n1, pid 101) 2; together 7");
}

/* --- what was told is not told again -------------------------------------------------------------------- */

Test(findings_sim, the_next_word_has_only_what_is_new)
{
    join(N0, 0, 4, "");
    join(N1, 1, 4, "");
    live_until(9000);
    expect_told(N0, "NODE_NEVER_CAME", "nodes 2-3");
    last_push(N1, "");
    join(N2, 2, 5, "");
    live_until(9500);
    for (conn_id conn = N0; conn <= N1; conn++) {
        expect_told(conn, "NNODES_DIFFERS", "n2 (pid 102)");
        cr_assert(says("NNODES_DIFFERS") && says("the rest is as told before"), "%s", text_of(told, "text"));
        cr_assert_not(has(told, "NODE_NEVER_CAME", "node 3") || says("NODE_NEVER_CAME"));
    }
    live_until(40000);
    expect_silence(N0);
}

/* It was not there when the others heard it; so much patience as they had it has, too. */
Test(findings_sim, a_node_that_comes_later_is_told_what_the_others_know)
{
    join(N0, 0, 3, "");
    live_until(9000);
    expect_told(N0, "NODE_NEVER_CAME", "nodes 1-2");
    join(N1, 1, 3, "");
    live_until(16000);
    expect_silence(N1);
    live_until(24000);
    expect_told(N1, "NODE_NEVER_CAME", "node 2");
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
    expect_told(N1, "NODE_NEVER_CAME", "node 3");
    cr_assert(has(told, "NNODES_DIFFERS", "n2 (pid 102)"));
    expect_told(N0, "NNODES_DIFFERS", "n2 (pid 102)");
    cr_assert_not(has(told, "NODE_NEVER_CAME", "node 3"));
}

/* --- strangers ------------------------------------------------------------------------------------------ */

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
    sim_feed(&sim, OPERATOR + 1, "06 0100000000000000 0100000000000000 78"); /* WAIT x: a torchrun's */
    live_until(3300); /* a second after the last look */
    expect_told(N0, "TORCHRUN_INSTEAD", "peer");
}

/* It may be a health check; but it is told, once, to who waits for somebody anyway. */
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

/* --- a smaller job -------------------------------------------------------------------------------------- */

static void join_elastic(conn_id conn, int min, int max)
{
    char json[1024];
    const int n = (int)conn - N0;
    sim_client(&sim, conn);
    sim_identify(&sim, conn, "{\"role\":\"agent\"}", NULL);
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"0.1.0\",\"host\":\"n%d\",\"pid\":%d,\"mode\":"
             "\"elastic\",\"nnodes_min\":%d,\"nnodes_max\":%d,\"nproc\":2,\"addr\":\"10.0.0.%d\","
             "\"join_timeout_ms\":60000,\"join_knob\":\"--rdzv_conf join_timeout\",\"node_timeout_ms\":3000,"
             "\"grace_ms\":1000}",
             n, 100 + n, min, max, n + 1);
    sim_say(&sim, conn, json);
}

/* By that it waits for the next round. */
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
        expect_told(conn, "TOO_FEW_LEFT", "2 of at least 3 nodes");
        cr_assert(says("the job waits for 1 more node to join") && says("--rdzv_conf join_timeout is 60.0 s"),
                  "%s", text_of(told, "text"));
        cr_assert(has(told, "NODE_LEFT", "node 2 (n2, pid 102)"), "%s", text_of(told, "text"));
    }
    expect_why("TOO_FEW_LEFT", "2 of at least 3 nodes");
    live_until(40000);
    expect_silence(N0);
}

/* --- at any moment -------------------------------------------------------------------------------------- */

Test(findings_sim, why_answers_before_anything_is_told)
{
    join(N0, 0, 2, "");
    live_until(4000);
    expect_why("NODE_NEVER_CAME", "node 1");
}

Test(findings_sim, a_stranger_at_the_door)
{
    join(N0, 0, 2, "");
    sim_connect(&sim, N3);
    sim_feed_bytes(&sim, N3, slice_str("GET / HTTP/1.0\r\nHost: n0\r\n\r\n"));
    live_until(1000);
    expect_why("FOREIGN_CLIENT", "peer");
}
