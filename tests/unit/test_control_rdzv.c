/* Agents join, hear of rounds, stops and verdicts: JSON in, JSON out. What is decided is tested with rendezvous.h. */
#include "store/encode.h"
#include "sim_job.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { N0 = 10, N1, N2, PLAIN = 39, OPERATOR };

static struct sim sim;

static void set_up(void)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.instance = "feed";
    sim_init(&sim, &limits);
    sim_client(&sim, OPERATOR);
}

static void tear_down(void)
{
    sim_free(&sim);
}

TestSuite(control_rdzv, .init = set_up, .fini = tear_down);

/* --- one agent ------------------------------------------------------------------------------------------------- */

/* Take the object at `at` of what the agent got; its text is good until the next but one. */
static const char *take(conn_id conn, size_t at)
{
    static char kept[2][1 << 16];
    static int turn;
    struct buf *out = &sim.conn[conn].out;
    if (out->len <= at)
        return "(nothing)";
    char *text = kept[turn ^= 1];
    size_t len = get_u64(out->data + at);
    cr_assert(len < sizeof(kept[0]) && out->len >= at + 8 + len);
    memcpy(text, out->data + at + 8, len);
    text[len] = '\0';
    memmove(out->data + at, out->data + at + 8 + len, out->len - at - 8 - len);
    out->len -= 8 + len;
    return text;
}

/* What it gets next. */
static const char *hear(conn_id conn)
{
    return take(conn, 0);
}

static void expect_heard_at(conn_id conn, const char *words, int line)
{
    const char *heard = hear(conn);
    cr_assert_not_null(strstr(heard, words), "line %d: connection %d heard %s, not %s", line, (int)conn,
                       heard, words);
}
#define expect_heard(conn, words) expect_heard_at(conn, words, __LINE__)

/* Send; the answer is the first that came for it and is no push. Pushes stay to be heard. */
static const char *call(conn_id conn, const char *json)
{
    const struct buf *out = &sim.conn[conn].out;
    size_t at = out->len;
    sim_say(&sim, conn, json);
    while (at < out->len && memcmp(out->data + at + 8, "{\"push\"", 7) == 0)
        at += 8 + get_u64(out->data + at);
    return take(conn, at);
}

static void expect_answer_at(conn_id conn, const char *json, const char *words, int line)
{
    const char *heard = call(conn, json);
    cr_assert_not_null(strstr(heard, words), "line %d: %s -> %s, not %s", line, json, heard, words);
}
#define expect_answer(conn, json, words) expect_answer_at(conn, json, words, __LINE__)

static void agent(conn_id conn)
{
    sim_client(&sim, conn);
    sim_identify(&sim, conn, "{\"role\":\"agent\"}", NULL);
}

/* Node `node_rank` of a static job of `nnodes`, two workers each; `more` is put into the object. */
static const char *join(conn_id conn, int node_rank, int nnodes, const char *more)
{
    static char json[1024];
    if (!sim.conn[conn].open)
        agent(conn);
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"demo\",\"instance\":\"\",\"version\":\"0.1.0\",\"host\":\"n%d\","
             "\"pid\":%d,"
             "\"mode\":\"static\",\"nnodes_min\":%d,\"nnodes_max\":%d,\"node_rank\":%d,\"nproc\":2,"
             "\"max_restarts\":1,\"join_timeout_ms\":60000,\"node_timeout_ms\":3000,\"grace_ms\":1000%s}",
             node_rank, 100 + node_rank, nnodes, nnodes, node_rank, more);
    return call(conn, json);
}

static void expect_in(const char *text, const char *words)
{
    cr_assert_not_null(strstr(text, words), "%s has no %s", text, words);
}

static void two_nodes(void)
{
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    expect_heard(N0, "\"push\":\"round\",\"round\":1");
    expect_heard(N1, "\"push\":\"round\",\"round\":1");
}

/* --- joining --------------------------------------------------------------------------------------------------- */

/* The answer and the round come at once: one round trip before the first worker starts. */
Test(control_rdzv, one_node_starts_after_one_round_trip)
{
    const char *answer = join(N0, 0, 1, ",\"addr\":\"10.0.0.1\"");
    cr_assert_str_eq(answer, "{\"job\":\"demo\",\"instance\":\"feed-1\",\"state\":\"waiting\",\"ok\":true}");
    cr_assert_str_eq(
        hear(N0), "{\"push\":\"round\",\"round\":1,\"attempt\":0,\"restarts\":0,\"node_rank\":0,\"nnodes\":1,"
                  "\"first_rank\":0,\"world_size\":2,\"nodes\":[{\"node_rank\":0,\"host\":\"n0\",\"nproc\":2,"
                  "\"addr\":\"10.0.0.1\"}]}");
    cr_assert_str_eq(hear(N0), "(nothing)");
}

Test(control_rdzv, two_nodes_wait_for_each_other)
{
    expect_in(join(N1, 1, 2, ""), "\"state\":\"waiting\"");
    sim_at(&sim, 1000);
    expect_heard(N1, "\"push\":\"waiting\",\"state\":\"gathering\",\"joined\":1,\"min\":2,\"max\":2");
    expect_in(join(N0, 0, 2, ""), "\"ok\":true");
    expect_heard(N0, "\"node_rank\":0,\"nnodes\":2,\"first_rank\":0,\"world_size\":4");
    expect_heard(N1, "\"node_rank\":1,\"nnodes\":2,\"first_rank\":2,\"world_size\":4");
    expect_answer(OPERATOR, "{\"op\":\"status\"}", "\"job\":\"demo\",\"attempt\":0,\"world_size\":4");
}

/* Programs and numbers of workers of two roles may differ, and each role counts its own. */
Test(control_rdzv, workers_are_counted_by_role_where_there_are_several)
{
    join(N0, 0, 3, ",\"role\":\"trainer\",\"program\":\"train\"");
    join(N1, 1, 3, ",\"role\":\"reader\",\"program\":\"read\"");
    join(N2, 2, 3, ",\"role\":\"trainer\",\"program\":\"train\"");
    expect_heard(N0, "\"role_rank\":0,\"role_size\":4}");
    expect_heard(N1, "\"role_rank\":0,\"role_size\":2}");
    expect_heard(N2, "\"role_rank\":2,\"role_size\":4}");
}

Test(control_rdzv, a_node_s_port_for_a_store_goes_to_all)
{
    join(N0, 0, 1, ",\"addr\":\"10.0.0.1\",\"store_port\":4711");
    expect_heard(N0, "\"addr\":\"10.0.0.1\",\"store_port\":4711}]");
}

Test(control_rdzv, the_address_is_the_peer_s_when_none_is_said)
{
    join(N0, 0, 1, "");
    expect_heard(N0, "\"addr\":\"peer\"");
}

Test(control_rdzv, who_is_refused_hears_a_code_and_what_to_do)
{
    join(N0, 0, 2, "");
    const char *answer = join(N1, 0, 2, "");
    expect_in(answer, "\"code\":\"LAUNCHED_TWICE\"");
    expect_in(answer, "\"advice\":\"");
    expect_in(answer, "\"ok\":false");
    expect_in(join(N2, 1, 3, ""), "\"code\":\"NNODES_DIFFERS\"");
    expect_in(join(N2, 1, 2, ",\"job\":\"other\""), "\"ok\":true"); /* the first of two counts */
}

Test(control_rdzv, a_join_is_looked_at)
{
    agent(N0);
    expect_answer(N0, "{\"op\":\"join\"}", "\\\"job\\\" is missing");
    expect_answer(N0, "{\"op\":\"join\"}", "\"code\":\"BAD_JOIN\"");
    expect_in(join(N0, 0, 0, ""), "\\\"nnodes_min\\\" must be");
    expect_in(join(N0, -2, 1, ""), "\\\"node_rank\\\" must be");
    expect_in(join(N0, 0, 1, ",\"grow\":\"tall\""), "\\\"grow\\\" \\\"tall\\\" is not known");
    expect_answer(OPERATOR, "{\"op\":\"join\"}", "is for agents");
}

Test(control_rdzv, an_agent_of_another_life_of_the_store_is_refused)
{
    agent(N0);
    expect_answer(
        N0,
        "{\"op\":\"join\",\"job\":\"demo\",\"instance\":\"beef-1\",\"version\":\"0.1.0\",\"host\":\"n0\","
        "\"pid\":7,\"nnodes_min\":1,\"nnodes_max\":1,\"node_rank\":0,\"nproc\":2}",
        "\"code\":\"STALE_INSTANCE\"");
}

/* Yesterday's worker, and an agent that counts ranks by itself. */
Test(control_rdzv, nobody_but_the_rendezvous_begins_an_attempt)
{
    struct buf words = { 0 };
    join(N0, 0, 2, "");
    sim_client(&sim, PLAIN);
    cr_assert_eq(sim_identify(&sim, PLAIN,
                              "{\"role\":\"worker\",\"job\":\"demo\",\"rank\":0,\"world_size\":4}", &words),
                 1);
    expect_in((char *)words.data, "the nodes of job 'demo' have not come together yet");
    buf_free(&words);
    expect_answer(N0, "{\"op\":\"job\",\"job\":\"demo\",\"attempt\":9,\"world_size\":4}",
                  "its rendezvous places the ranks");
}

/* --- an end ---------------------------------------------------------------------------------------------------- */

Test(control_rdzv, a_success_waits_for_all)
{
    two_nodes();
    expect_answer(N0, "{\"op\":\"done\",\"round\":1}", "{\"ok\":true}");
    cr_assert_str_eq(hear(N0), "(nothing)");
    expect_answer(N1, "{\"op\":\"done\",\"round\":1}", "{\"ok\":true}");
    expect_heard(N0, "\"push\":\"verdict\",\"round\":1,\"why\":\"done\"");
    expect_heard(N1, "\"next\":\"finish\"");
}

/* One node's failure stops both; the words that come later are in the verdict. */
Test(control_rdzv, a_failure_is_told_to_all_and_comes_back_as_the_cause)
{
    two_nodes();
    expect_answer(N1,
                  "{\"op\":\"failed\",\"round\":1,\"rank\":3,\"local_rank\":1,\"pid\":77,\"exit_code\":7,"
                  "\"words\":\"ended with code 7\"}",
                  "{\"ok\":true}");
    expect_heard(N0, "{\"push\":\"stop\",\"round\":1,\"why\":\"failed\",\"cause\":{\"why\":\"failed\","
                     "\"node_rank\":1,\"host\":\"n1\"");
    expect_answer(N1,
                  "{\"op\":\"cause\",\"round\":1,\"rank\":3,\"local_rank\":1,\"pid\":77,\"exit_code\":7,"
                  "\"words\":\"ended with code 7\",\"stderr\":[\"oh\",3,\"no\"],\"log\":\"/tmp/3.log\"}",
                  "{\"ok\":true}");
    expect_answer(N1, "{\"op\":\"stopped\",\"round\":1,\"max_code\":7,\"rank0_code\":null}", "{\"ok\":true}");
    expect_answer(N0, "{\"op\":\"stopped\",\"round\":1,\"max_code\":0,\"rank0_code\":0}", "{\"ok\":true}");
    const char *verdict = hear(N0);
    expect_in(verdict, "\"next\":\"restart\",\"attempt\":1");
    expect_in(verdict, "\"rank\":3,\"local_rank\":1,\"pid\":77,\"exit_code\":7");
    expect_in(verdict, "\"stderr\":[\"oh\",\"no\"]");
}

/* All nodes exit with the first failure's code, and exit() cuts it to a byte. */
Test(control_rdzv, a_code_that_no_process_ends_with_is_refused)
{
    static const char *const wrong[] = {
        "{\"op\":\"failed\",\"round\":1,\"rank\":3,\"exit_code\":256}",
        "{\"op\":\"failed\",\"round\":1,\"rank\":3,\"exit_code\":-1}",
        "{\"op\":\"failed\",\"round\":1,\"rank\":3,\"signal\":128}",
        "{\"op\":\"stopped\",\"round\":1,\"max_code\":256}",
        "{\"op\":\"stopped\",\"round\":1,\"rank0_code\":256}",
        "{\"op\":\"leave\",\"signal\":128}",
    };
    two_nodes();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect_answer(N1, wrong[i], "must be a whole number from 0 to");
    expect_answer(OPERATOR, "{\"op\":\"status\"}", "\"state\":\"running\"");
}

Test(control_rdzv, after_a_restart_the_keys_are_gone_and_the_round_is_another)
{
    join(N0, 0, 1, "");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, "01 0200000000000000 2f6b 0000000000000000");
    expect_heard(N0, "\"round\":1");
    call(N0, "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"pid\":77,\"exit_code\":7,\"words\":\"x\"}");
    call(N0, "{\"op\":\"stopped\",\"round\":1,\"max_code\":7}");
    expect_answer(N0, "{\"op\":\"status\"}", "\"keys\":1");
    expect_in(join(N0, 0, 1, ",\"instance\":\"feed-1\""), "\"ok\":true");
    expect_answer(OPERATOR, "{\"op\":\"status\"}", "\"attempt\":1,\"world_size\":2,\"keys\":0");
    expect_answer(N0, "{\"op\":\"done\",\"round\":1}", "\"code\":\"STALE_ROUND\"");
    expect_answer(N0, "{\"op\":\"worker_started\",\"round\":1,\"rank\":0,\"pid\":9}",
                  "\"code\":\"STALE_ROUND\"");
    expect_answer(N0, "{\"op\":\"heartbeat\",\"round\":1}", "round 1 is over, now is round 2");
    expect_answer(N0, "{\"op\":\"worker_started\",\"round\":2,\"rank\":0,\"pid\":9}", "{\"ok\":true}");
}

/* --- losses ---------------------------------------------------------------------------------------------------- */

Test(control_rdzv, a_closed_connection_is_a_lost_node_at_once)
{
    two_nodes();
    sim_disconnect(&sim, N1);
    const char *stop = hear(N0);
    expect_in(stop, "\"push\":\"stop\",\"round\":1,\"why\":\"node_lost\"");
    expect_in(stop, "\"host\":\"n1\"");
    expect_in(stop, "closed by the peer");
}

static void beat_until(uint64_t until_ms, conn_id conn)
{
    for (uint64_t at = sim.now_ms + 1000; at <= until_ms; at += 1000) {
        sim_at(&sim, at);
        if (sim.conn[conn].open)
            sim_say(&sim, conn, "{\"op\":\"heartbeat\"}");
    }
}

Test(control_rdzv, a_silent_node_is_lost_and_closed)
{
    two_nodes();
    beat_until(4000, N0);
    sim_expect(&sim, N1, "closed: ");
    expect_heard(N1, "{\"push\":\"dropped\",\"why\":\"silent for 3");
    expect_in(call(OPERATOR, "{\"op\":\"status\"}"), "\"connections\":2");
}

/* The clock of a machine that was stopped jumps: nobody is judged by it. */
Test(control_rdzv, a_hub_that_stood_still_gives_everybody_another_beat)
{
    two_nodes();
    beat_until(2000, N0);
    sim.now_ms = 60000;
    hub_tick(sim.hub, sim.now_ms);
    cr_assert(sim.conn[N0].open && sim.conn[N1].open);
    sim_at(&sim, 62500);
    cr_assert(sim.conn[N0].open && sim.conn[N1].open);
    sim_at(&sim, 64000);
    cr_assert_not(sim.conn[N1].open);
}

Test(control_rdzv, a_user_who_stops_a_node_is_named)
{
    two_nodes();
    expect_answer(N1, "{\"op\":\"leave\",\"signal\":15,\"by\":\"pid 77 (bash) of bob\"}", "{\"ok\":true}");
    const char *stop = hear(N0);
    expect_in(stop, "\"why\":\"node_left\"");
    expect_in(stop, "bob");
}

/* --- what heartbeats tell -------------------------------------------------------------------------------------- */

Test(control_rdzv, the_states_of_workers_come_with_the_heartbeat)
{
    two_nodes();
    expect_answer(N1,
                  "{\"op\":\"heartbeat\",\"round\":1,\"workers\":[[1,\"D\",0,\"nfs_wait\"],[0,\"R\",99,null],"
                  "[9,\"R\",1,\"\"],\"x\",[]]}",
                  "{\"ok\":true}");
    const char *status = call(OPERATOR, "{\"op\":\"status\"}");
    expect_in(status, "{\"rank\":2,\"state\":\"never_connected\",\"proc\":\"R\",\"cpu\":99}");
    expect_in(status,
              "{\"rank\":3,\"state\":\"never_connected\",\"proc\":\"D\",\"cpu\":0,\"wchan\":\"nfs_wait\"}");
}

/* --- what a node may say --------------------------------------------------------------------------------------- */

static void expect_refused_role(conn_id conn, const char *json, const char *words)
{
    struct buf text = { 0 };
    cr_assert_eq(sim_identify(&sim, conn, json, &text), 1);
    expect_in((char *)text.data, words);
    buf_free(&text);
    sim_expect(&sim, conn, "closed: IDENTIFY refused");
}

/* The start of an attempt closes the workers of the one before, and would free a node that the rendezvous uses. */
Test(control_rdzv, a_node_cannot_change_its_role)
{
    two_nodes();
    cr_assert_eq(sim_identify(&sim, N0, "{\"role\":\"agent\"}", NULL), 0);
    expect_refused_role(N0, "{\"role\":\"worker\",\"job\":\"demo\",\"rank\":0,\"world_size\":4}",
                        "this connection is a node of job 'demo' and cannot change its role to \"worker\"");
    expect_heard(N1, "\"push\":\"stop\",\"round\":1,\"why\":\"node_lost\"");
    expect_refused_role(N1, "{\"role\":\"ctl\"}", "cannot change its role to \"ctl\"");
}

static void expect_other_rank(conn_id conn, const char *op, int rank, const char *words)
{
    char json[128];
    snprintf(json, sizeof(json), "{\"op\":\"%s\",\"round\":1,\"rank\":%d,\"pid\":7,\"exit_code\":7}", op,
             rank);
    expect_answer(conn, json, words);
}

Test(control_rdzv, a_node_reports_about_its_own_ranks_only)
{
    static const char *const ops[] = { "failed", "cause", "worker_exited", "worker_started" };
    two_nodes();
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        expect_other_rank(N1, ops[i], 1, "\"error\":\"rank 1 is not on this node, which runs ranks 2 to 3\"");
        expect_other_rank(N1, ops[i], 4, "\"error\":\"rank 4 is not on this node, which runs ranks 2 to 3\"");
        expect_other_rank(N0, ops[i], 99999, "rank 99999 is not on this node, which runs ranks 0 to 1");
    }
    const char *status = call(OPERATOR, "{\"op\":\"status\"}");
    expect_in(status, "\"state\":\"running\"");
    cr_assert_null(strstr(status, "exited"), "%s", status);
    cr_assert_str_eq(hear(N0), "(nothing)");
    expect_other_rank(N1, "worker_exited", 2, "{\"ok\":true}");
    expect_other_rank(N1, "worker_exited", 3, "{\"ok\":true}");
}

static void elastic_node(conn_id conn, const char *host)
{
    char json[256];
    agent(conn);
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"0.1.0\",\"host\":\"%s\",\"pid\":7,\"mode\":"
             "\"elastic\","
             "\"nnodes_min\":1,\"nnodes_max\":1,\"nproc\":2}",
             host);
    expect_answer(conn, json, "\"ok\":true");
}

/* It runs nothing, whatever it says of ranks that begin at 0. */
Test(control_rdzv, a_spare_has_no_ranks)
{
    elastic_node(N0, "n0");
    elastic_node(N1, "n1");
    expect_answer(N1, "{\"op\":\"worker_exited\",\"rank\":0,\"exit_code\":7}", "\"code\":\"NO_MEMBER\"");
    expect_answer(N1, "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":7}", "\"code\":\"NO_MEMBER\"");
    expect_answer(N1, "{\"op\":\"heartbeat\",\"workers\":[[0,\"Z\",0,\"\"]],\"steps\":[[0,77,1,\"\"]]}",
                  "{\"ok\":true}");
    const char *status = call(OPERATOR, "{\"op\":\"status\"}");
    expect_in(status, "{\"rank\":0,\"state\":\"never_connected\"}");
    expect_in(status, "\"state\":\"running\"");
}
