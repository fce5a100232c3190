/* Plain c10d connections: agents report which job owns a connection. If the store serves several jobs, the requests of
 * a connection wait for this report. */
#include "store/encode.h"
#include "sim_hub.h"
#include "ddp/context.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define N(n)  #n "00000000000000"
#define KEY_K N(02) "2f6b" /* blob "/k" */
#define SET_K "01" KEY_K N(00)
#define COUNT "07"

enum { A = 10, B, PLAIN = 20, OPERATOR = 40, CLAIM_MS = 300 };

static struct sim sim;

static void start(bool many_jobs)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.many_jobs = many_jobs;
    sim_init(&sim, &limits);
    sim_client(&sim, OPERATOR);
}

static void one_job(void)
{
    start(false);
}

static void many_jobs(void)
{
    start(true);
}

static void tear_down(void)
{
    sim_free(&sim);
}

static void join(conn_id conn, const char *job)
{
    char json[512];
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"%s\",\"version\":\"" DDP_VERSION
             "\",\"host\":\"n0\",\"pid\":7,\"nnodes_min\":1,"
             "\"nnodes_max\":1,\"node_rank\":0,\"nproc\":2,\"max_restarts\":1,\"join_timeout_ms\":60000}",
             job);
    sim_say(&sim, conn, json);
    sim.conn[conn].out.len = 0;
}

/* Connect `conn` as the agent of a new job, which has one node with two workers. In this file, every connection comes
 * from the address "peer". */
static void node(conn_id conn, const char *job)
{
    sim_client(&sim, conn);
    sim_identify(&sim, conn, "{\"role\":\"agent\"}", NULL);
    join(conn, job);
}

/* Return the question that the store has sent to the agent, or "" if it has sent none. */
static const char *asked(conn_id conn)
{
    static char text[512];
    struct buf *out = &sim.conn[conn].out;
    size_t len = out->len >= 8 ? get_u64(out->data) : 0;
    cr_assert(len < sizeof(text));
    if (len > 0)
        memcpy(text, out->data + 8, len);
    text[len] = '\0';
    out->len = 0;
    return text;
}

static void vouch(conn_id agent, const char *json, const char *words)
{
    const char *answer = sim_control(&sim, agent, json);
    cr_assert_not_null(strstr(answer, words), "%s -> %s", json, answer);
}

/* --- one job ---------------------------------------------------------------------------------------------------- */

TestSuite(vouch, .init = one_job, .fini = tear_down);

Test(vouch, an_agent_is_asked_once_at_the_first_request_for_a_key)
{
    node(A, "a");
    sim_client(&sim, PLAIN);
    cr_assert_str_eq(asked(A), "");
    sim_feed(&sim, PLAIN, SET_K);
    cr_assert_str_eq(asked(A), "{\"push\":\"who\",\"conn\":20,\"peer\":\"peer:20\",\"store\":\"\"}");
    sim_feed(&sim, PLAIN, SET_K);
    cr_assert_str_eq(asked(A), "");
}

Test(vouch, workers_that_introduce_themselves_are_not_asked_for)
{
    node(A, "a");
    sim_client(&sim, PLAIN);
    sim_identify(&sim, PLAIN, "{\"role\":\"worker\",\"job\":\"a\",\"rank\":0,\"world_size\":2}", NULL);
    sim_feed(&sim, PLAIN, SET_K);
    cr_assert_str_eq(asked(A), "");
}

Test(vouch, its_wait_counts_as_the_rank_s)
{
    node(A, "a");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, "06" N(01) KEY_K);
    vouch(A, "{\"op\":\"vouch\",\"conn\":20,\"rank\":1,\"pid\":77}", "{\"ok\":true}");
    const char *waiters = sim_control(&sim, OPERATOR, "{\"op\":\"waiters\"}");
    cr_assert_not_null(strstr(waiters, "{\"peer\":\"peer:20\",\"rank\":1,"), "%s", waiters);
    const char *status = sim_control(&sim, OPERATOR, "{\"op\":\"status\"}");
    cr_assert_not_null(
        strstr(status, "{\"rank\":1,\"state\":\"connected\",\"silent_ms\":0,\"waits_for\":\"key '/k'\"}"),
        "%s", status);
    sim_disconnect(&sim, PLAIN);
    status = sim_control(&sim, OPERATOR, "{\"op\":\"status\"}");
    cr_assert_not_null(strstr(status, "{\"rank\":1,\"state\":\"disconnected\""), "%s", status);
}

Test(vouch, a_wait_for_several_keys_shows_the_first_and_their_number)
{
    node(A, "a");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, "06" N(03) KEY_K N(02) "2f6c" N(02) "2f6d");
    vouch(A, "{\"op\":\"vouch\",\"conn\":20,\"rank\":1,\"pid\":77}", "{\"ok\":true}");
    const char *status = sim_control(&sim, OPERATOR, "{\"op\":\"status\"}");
    cr_assert_not_null(strstr(status, "\"waits_for\":\"key '/k' and 2 more\""), "%s", status);
}

Test(vouch, an_agent_speaks_for_its_own_ranks_and_address_only)
{
    node(A, "a");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K);
    vouch(A, "{\"op\":\"vouch\",\"conn\":20,\"rank\":2,\"pid\":77}", "rank 2 is");
    vouch(A, "{\"op\":\"vouch\",\"conn\":10,\"rank\":0,\"pid\":77}", "not belong");
    vouch(A, "{\"op\":\"vouch\",\"conn\":99,\"rank\":0,\"pid\":77}", "{\"ok\":true}"); /* no connection */
    vouch(OPERATOR, "{\"op\":\"vouch\",\"conn\":20,\"rank\":0,\"pid\":77}", "for agents");
}

Test(vouch, a_spare_runs_no_ranks)
{
    const char *const join_elastic = "{\"op\":\"join\",\"job\":\"a\",\"version\":\"" DDP_VERSION
                                     "\",\"host\":\"n0\",\"pid\":7,\"mode\":\"elastic\","
                                     "\"nnodes_min\":1,\"nnodes_max\":1,\"nproc\":2}";
    const conn_id nodes[] = { A, B };
    for (int i = 0; i < 2; i++) {
        sim_client(&sim, nodes[i]);
        sim_identify(&sim, nodes[i], "{\"role\":\"agent\"}", NULL);
        sim_say(&sim, nodes[i], join_elastic);
        sim.conn[nodes[i]].out.len = 0;
    }
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K);
    vouch(B, "{\"op\":\"vouch\",\"conn\":20,\"rank\":0,\"pid\":77}", "rank 0 is");
    vouch(A, "{\"op\":\"vouch\",\"conn\":20,\"rank\":0,\"pid\":77}", "{\"ok\":true}");
}

/* The agent has reported that the connection PLAIN belongs to rank 0. In the next attempt, another process is rank 0.
 * So PLAIN must not count as a connection of rank 0 any more. */
Test(vouch, it_is_forgotten_with_the_attempt)
{
    node(A, "a");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K);
    vouch(A, "{\"op\":\"vouch\",\"conn\":20,\"rank\":0,\"pid\":77}", "{\"ok\":true}");
    sim_say(&sim, A, "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":3,\"words\":\"x\"}");
    sim_say(&sim, A, "{\"op\":\"stopped\",\"round\":1,\"max_code\":3}");
    join(A, "a");
    const char *status = sim_control(&sim, OPERATOR, "{\"op\":\"status\"}");
    cr_assert_not_null(strstr(status, "\"attempt\":1"), "%s", status);
    cr_assert_null(strstr(status, "\"connected\""), "%s", status);
    sim_feed(&sim, PLAIN, COUNT);
    sim_expect(&sim, PLAIN, "closed: GETNUMKEYS is");
}

/* --- many jobs -------------------------------------------------------------------------------------------------- */

TestSuite(held, .init = many_jobs, .fini = tear_down);

Test(held, requests_wait_until_an_agent_vouches)
{
    node(A, "a");
    node(B, "b");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K COUNT);
    sim_feed(&sim, PLAIN, COUNT);
    sim_expect(&sim, PLAIN, "");
    cr_assert_not_null(strstr(asked(A), "\"conn\":20"));
    cr_assert_not_null(strstr(asked(B), "\"conn\":20"));
    vouch(A, "{\"op\":\"vouch\",\"conn\":20,\"rank\":-1,\"pid\":0}", "{\"ok\":true}");
    sim_expect(&sim, PLAIN, "");
    vouch(B, "{\"op\":\"vouch\",\"conn\":20,\"rank\":1,\"pid\":77}", "{\"ok\":true}");
    sim_expect(&sim, PLAIN, "");
    sim_at(&sim, CLAIM_MS);
    sim_expect(&sim, PLAIN, N(01) N(01));
    sim_client(&sim, OPERATOR + 1);
    const char *jobs = sim_control(&sim, OPERATOR + 1, "{\"op\":\"status\",\"job\":\"b\"}");
    cr_assert_not_null(strstr(jobs, "\"keys\":1"), "%s", jobs);
    jobs = sim_control(&sim, OPERATOR + 1, "{\"op\":\"status\",\"job\":\"a\"}");
    cr_assert_not_null(strstr(jobs, "\"keys\":0"), "%s", jobs);
}

/* The hub holds the requests of a connection back until an agent reports which job owns the connection. Here the bytes
 * of a request arrive one by one, and the request is in an old dialect. After the report, the hub reads the held bytes
 * again from the first byte. */
Test(held, any_cut_and_dialect_is_held)
{
    node(A, "a");
    node(B, "b");
    sim_connect(&sim, PLAIN);
    sim_feed_cut(&sim, PLAIN, "03" KEY_K N(05), 1);
    sim_expect(&sim, PLAIN, "");
    vouch(B, "{\"op\":\"vouch\",\"conn\":20,\"rank\":0,\"pid\":77}", "{\"ok\":true}");
    sim_at(&sim, CLAIM_MS);
    sim_expect(&sim, PLAIN, N(05));
    sim_feed_cut(&sim, PLAIN, "03" KEY_K N(05), 1);
    sim_expect(&sim, PLAIN, "0a00000000000000");
}

/* Start two jobs, of which only one has an agent. */
static void one_job_with_agent_of_two(void)
{
    node(A, "a");
    sim_client(&sim, OPERATOR + 1);
    sim_identify(&sim, OPERATOR + 1, "{\"role\":\"agent\"}", NULL);
    sim_control(&sim, OPERATOR + 1, "{\"op\":\"job\",\"job\":\"b\",\"attempt\":0,\"world_size\":1}");
}

Test(held, the_only_job_with_an_agent_there_will_do)
{
    one_job_with_agent_of_two();
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K COUNT);
    sim_at(&sim, 2999);
    sim_expect(&sim, PLAIN, "");
    sim_at(&sim, 3000);
    sim_expect(&sim, PLAIN, N(01));
}

/* Each session that waits for its owner has a separate time limit. The end of one limit must not shorten another
 * limit. */
Test(held, each_has_its_own_time)
{
    one_job_with_agent_of_two();
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K COUNT);
    sim_at(&sim, 2900);
    sim_client(&sim, PLAIN + 1);
    sim_feed(&sim, PLAIN + 1, COUNT);
    sim_at(&sim, 3000);
    sim_expect(&sim, PLAIN, N(01));
    sim_expect(&sim, PLAIN + 1, "");
    sim_at(&sim, 5900);
    sim_expect(&sim, PLAIN + 1, N(01));
}

Test(held, nobody_s_connection_is_closed_and_named)
{
    node(A, "a");
    node(B, "b");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K);
    sim_at(&sim, 3000);
    sim_expect(&sim, PLAIN, "closed: the job");
    const char *rejects = sim_control(&sim, OPERATOR, "{\"op\":\"rejects\"}");
    cr_assert_not_null(strstr(rejects, "\"kind\":\"c10d_2\""), "%s", rejects);
}

Test(held, no_more_than_a_mebibyte)
{
    struct buf bytes = { 0 };
    node(A, "a");
    node(B, "b");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K);
    for (int i = 0; i < 200000; i++)
        cr_assert(buf_append(&bytes, "\7\7\7\7\7\7", 6));
    sim_feed_bytes(&sim, PLAIN, buf_slice(&bytes));
    buf_free(&bytes);
    sim_expect(&sim, PLAIN, "closed: the client");
}

Test(held, who_goes_while_it_is_held_leaves_nothing)
{
    node(A, "a");
    node(B, "b");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K);
    sim_disconnect(&sim, PLAIN);
    vouch(B, "{\"op\":\"vouch\",\"conn\":20,\"rank\":1,\"pid\":77}", "{\"ok\":true}");
    sim_at(&sim, 4000);
}

/* --- claims of foreign processes -------------------------------------------------------------------------------- */

#define CLAIM   "{\"op\":\"vouch\",\"conn\":20,\"rank\":1,\"pid\":77}"
#define REFUSED "\"code\":\"VOUCH_REFUSED\""

static void expect_keys(const char *job, const char *keys)
{
    char json[128];
    sim_client(&sim, OPERATOR + 1);
    snprintf(json, sizeof(json), "{\"op\":\"status\",\"job\":\"%s\"}", job);
    const char *status = sim_control(&sim, OPERATOR + 1, json);
    cr_assert_not_null(strstr(status, keys), "%s", status);
    sim_disconnect(&sim, OPERATOR + 1);
}

/* Two agents claim one connection. The first claim must not decide which job owns the connection, because then the
 * faster agent would win. For a connection from another host, the claims of the agents are the only evidence. */
Test(held, two_claims_close_it_and_name_both)
{
    node(A, "a");
    node(B, "b");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K COUNT);
    vouch(A, CLAIM, "{\"ok\":true}");
    vouch(A, CLAIM, "{\"ok\":true}");
    sim_at(&sim, CLAIM_MS - 1);
    sim_expect(&sim, PLAIN, "");
    vouch(B, CLAIM, REFUSED);
    sim_expect(&sim, PLAIN, "closed: job 'a'*job 'b' (*n0) both");
    sim_at(&sim, 4000);
    expect_keys("a", "\"keys\":0");
    expect_keys("b", "\"keys\":0");
}

Test(held, a_late_second_claim_closes_it_too)
{
    node(A, "a");
    node(B, "b");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K COUNT);
    vouch(A, CLAIM, "{\"ok\":true}");
    sim_at(&sim, CLAIM_MS);
    sim_expect(&sim, PLAIN, N(01));
    vouch(B, CLAIM, REFUSED);
    sim_expect(&sim, PLAIN, "closed: job 'a'*job 'b' (*n0) both");
}

/* The agent of job a has named the process when no other job had an agent at the address. The processes of job b start
 * later, so the connection cannot belong to job b. */
Test(held, a_job_that_comes_later_closes_no_connection)
{
    node(A, "a");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K COUNT);
    vouch(A, CLAIM, "{\"ok\":true}");
    sim_expect(&sim, PLAIN, N(01));
    node(B, "b");
    vouch(B, CLAIM, REFUSED);
    sim_feed(&sim, PLAIN, COUNT);
    sim_expect(&sim, PLAIN, N(01));
}

/* The client itself has sent this pid in its PING, but no agent has named the process. So the pid does not count as a
 * claim. */
Test(held, a_pid_of_the_client_itself_is_no_claim)
{
    one_job_with_agent_of_two();
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, "0d4d000000" COUNT);
    sim_at(&sim, 3000);
    sim_expect(&sim, PLAIN, "4d000000" N(00));
    node(B, "c");
    vouch(B, CLAIM, REFUSED);
    sim_feed(&sim, PLAIN, COUNT);
    sim_expect(&sim, PLAIN, N(00));
}

/* An agent may claim only a connection that the hub has asked about. */
Test(held, a_claim_to_a_connection_that_has_sent_nothing_is_refused)
{
    node(A, "a");
    node(B, "b");
    sim_client(&sim, PLAIN);
    vouch(A, CLAIM, REFUSED);
    sim_feed(&sim, PLAIN, SET_K COUNT);
    vouch(B, CLAIM, "{\"ok\":true}");
    sim_at(&sim, CLAIM_MS);
    expect_keys("b", "\"keys\":1");
}

/* On the store's host the kernel reports the user of each connection. The claim of an agent of another user is
 * rejected. The claim of an agent of the same user counts at once. */
Test(held, the_user_decides)
{
    node(A, "a");
    node(B, "b");
    hub_set_uid(sim.hub, A, 1001);
    hub_set_uid(sim.hub, B, 1002);
    sim_client(&sim, PLAIN);
    hub_set_uid(sim.hub, PLAIN, 1002);
    sim_feed(&sim, PLAIN, SET_K COUNT);
    cr_expect_str_eq(asked(A), "");
    cr_expect_not_null(strstr(asked(B), "\"conn\":20"));
    vouch(A, CLAIM, REFUSED);
    sim_expect(&sim, PLAIN, "");
    vouch(B, CLAIM, "{\"ok\":true}");
    sim_expect(&sim, PLAIN, N(01));
    vouch(A, CLAIM, REFUSED);
    sim_expect(&sim, PLAIN, "");
    expect_keys("a", "\"keys\":0");
    expect_keys("b", "\"keys\":1");
}

Test(held, a_job_of_another_user_will_not_do)
{
    node(A, "a");
    node(B, "b");
    hub_set_uid(sim.hub, A, 1001);
    hub_set_uid(sim.hub, B, 1002);
    sim_client(&sim, PLAIN);
    hub_set_uid(sim.hub, PLAIN, 1003);
    sim_feed(&sim, PLAIN, SET_K);
    sim_at(&sim, 3000);
    sim_expect(&sim, PLAIN, "closed: the job");
}

/* The client sends IDENTIFY before its agent sends `vouch`, so the store refuses the `vouch`. */
Test(vouch, a_refused_claim_has_a_code)
{
    node(A, "a");
    sim_client(&sim, PLAIN);
    sim_feed(&sim, PLAIN, SET_K);
    sim_identify(&sim, PLAIN, "{\"role\":\"worker\",\"job\":\"a\",\"rank\":1,\"world_size\":2}", NULL);
    vouch(A, CLAIM, REFUSED);
}
