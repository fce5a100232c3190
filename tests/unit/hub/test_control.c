/* Tests of IDENTIFY and CONTROL: the permissions of each role, the claims that are accepted, and the answers.
 * Clients send these texts as JSON of any form, so the tests use the bytes and not the structs. */
#include "hub/job.h"
#include "hub/session.h"
#include "sim_hub.h"
#include "store/encode.h"
#include "ddp/context.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>

#define N(n) #n "00000000000000"

enum { CLIENT = 40, OTHER = 41 };

static struct sim sim;
static struct buf words_back;

static void set_up(void)
{
    sim_init(&sim, NULL);
    sim_client(&sim, CLIENT);
}

static void tear_down(void)
{
    sim_free(&sim);
    buf_free(&words_back);
}

TestSuite(control, .init = set_up, .fini = tear_down);

/* --- IDENTIFY ------------------------------------------------------------------------------------------------- */

static void expect_refusal(const char *json, const char *words)
{
    static conn_id conn = 100;
    sim_client(&sim, ++conn);
    words_back.len = 0;
    cr_assert_eq(sim_identify(&sim, conn, json, &words_back), 1, "%s", json);
    cr_assert_not_null(strstr((char *)words_back.data, words), "%s -> %s", json, (char *)words_back.data);
    sim_expect(&sim, conn, "closed: IDENTIFY refused");
}

Test(control, an_introduction_is_looked_at)
{
    expect_refusal("", "not a JSON object");
    expect_refusal("[]", "not a JSON object");
    expect_refusal("{\"role\":", "not a JSON object");
    expect_refusal("{}", "\"role\": missing");
    expect_refusal("{\"role\":3}", "\"role\": expected a text");
    expect_refusal("{\"role\":\"king\"}", "\"king\" is not a known role");
    expect_refusal("{\"role\":\"plain\"}", "\"plain\" is not a known role");
    expect_refusal("{\"role\":\"worker\",\"rank\":0}", "\"world_size\": missing");
    expect_refusal("{\"role\":\"worker\",\"world_size\":4}", "\"rank\": missing");
    expect_refusal("{\"role\":\"worker\",\"world_size\":4,\"rank\":4}",
                   "\"rank\": expected a number from 0 to 3");
    expect_refusal("{\"role\":\"worker\",\"world_size\":4,\"rank\":-1}", "\"rank\": expected");
    expect_refusal("{\"role\":\"worker\",\"world_size\":4,\"rank\":1.5}", "\"rank\": expected");
    expect_refusal("{\"role\":\"worker\",\"world_size\":1e300,\"rank\":1}", "\"world_size\": expected");
    expect_refusal("{\"role\":\"worker\",\"world_size\":131073,\"rank\":1}", "\"world_size\": expected");
    expect_refusal("{\"role\":\"worker\",\"world_size\":4,\"rank\":1,\"pid\":\"x\"}", "\"pid\": expected");
}

Test(control, a_worker_must_fit_the_job)
{
    sim_job(&sim, 2, 4);
    expect_refusal("{\"role\":\"worker\",\"job\":\"other\",\"attempt\":2,\"world_size\":4,\"rank\":1}",
                   "serves job 'demo', not 'other'");
    expect_refusal("{\"role\":\"worker\",\"job\":\"demo\",\"attempt\":1,\"world_size\":4,\"rank\":1}",
                   "attempt 2 is running, not 1");
    expect_refusal("{\"role\":\"worker\",\"job\":\"demo\",\"attempt\":2,\"world_size\":8,\"rank\":1}",
                   "the job has world size 4, not 8");
}

Test(control, without_an_agent_the_first_worker_declares_the_job)
{
    sim_worker(&sim, 1, 0, 4);
    expect_refusal("{\"role\":\"worker\",\"job\":\"demo\",\"world_size\":2,\"rank\":0}",
                   "the job has world size 4");
    sim_worker(&sim, 2, 0, 4);
}

/* A store without agents serves one job after the other. If the same job returns, its keys are still in the store. */
Test(control, when_all_its_workers_have_gone_the_next_job_may_come)
{
    sim_worker(&sim, 1, 0, 4);
    sim_set_key(&sim, 1, "/k");
    sim_worker_gone(&sim, 1);
    sim_worker(&sim, 0, 0, 4);
    cr_assert_not_null(strstr(sim_control(&sim, CLIENT, "{\"op\":\"status\"}"), "\"keys\":1"));
    sim_worker_gone(&sim, 0);
    sim_worker(&sim, 0, 0, 2);
    sim_client(&sim, OTHER);
    cr_assert_not_null(strstr(sim_control(&sim, OTHER, "{\"op\":\"status\"}"), "\"keys\":0"));
}

/* OTHER connects before rank 1 declares the job with world size 2. OTHER sends IDENTIFY after this declaration. */
Test(control, a_worker_that_connected_before_its_attempt_may_set_keys)
{
    sim_worker(&sim, 0, 0, 4);
    sim_worker_gone(&sim, 0);
    sim_client(&sim, OTHER);
    sim_worker(&sim, 1, 0, 2);
    cr_assert_eq(
        sim_identify(&sim, OTHER, "{\"role\":\"worker\",\"job\":\"demo\",\"rank\":0,\"world_size\":2}", NULL),
        0);
    sim_feed(&sim, OTHER,
             "01" N(01) "6b" N(01) "76"
                                   "07");
    sim_expect(&sim, OTHER, N(01));
}

Test(control, a_worker_that_did_not_introduce_itself_joins_no_barrier)
{
    sim_feed(&sim, CLIENT, "81" N(01) "61" N(00) N(00));
    cr_assert_eq(sim.conn[CLIENT].out.data[0], 4);
}

/* --- calls ---------------------------------------------------------------------------------------------------- */

static void expect_error(conn_id conn, const char *json, const char *words)
{
    const char *answer = sim_control(&sim, conn, json);
    cr_assert_not_null(strstr(answer, "\"ok\":false"), "%s -> %s", json, answer);
    cr_assert_not_null(strstr(answer, words), "%s -> %s", json, answer);
    cr_assert(sim.conn[conn].open);
}

Test(control, a_bad_call_gets_a_sentence)
{
    expect_error(CLIENT, "", "not a JSON object");
    expect_error(CLIENT, "{}", "\\\"op\\\": missing");
    expect_error(CLIENT, "{\"op\":\"dance\"}", "\\\"dance\\\" is not a known call");
    expect_error(CLIENT, "{\"op\":\"job\",\"attempt\":0,\"world_size\":2}", "is for agents");
    expect_error(CLIENT, "{\"op\":\"barrier_cancel\",\"name\":\"x\"}", "no barrier 'x' is open");
    expect_error(CLIENT, "{\"op\":\"keys\",\"limit\":-1}", "\\\"limit\\\": expected");
}

Test(control, an_agent_is_held_to_its_job)
{
    sim_job(&sim, 2, 4);
    expect_error(SIM_AGENT, "{\"op\":\"job\",\"job\":\"demo\",\"attempt\":1,\"world_size\":4}",
                 "attempt 2 is running");
    expect_error(SIM_AGENT, "{\"op\":\"job\",\"job\":\"demo\",\"attempt\":2,\"world_size\":5}",
                 "attempt 2 has world size 4, not 5");
    expect_error(SIM_AGENT, "{\"op\":\"job\",\"job\":\"demo\",\"attempt\":3}", "\\\"world_size\\\": missing");
    cr_assert_str_eq(sim_control(&sim, SIM_AGENT, "{\"op\":\"heartbeat\"}"), "{\"ok\":true}");
    cr_assert_str_eq(sim_control(&sim, SIM_AGENT, "{\"op\":\"hello\"}"), "{\"ok\":true}");
}

Test(control, another_job_waits_until_the_agents_of_the_first_are_gone)
{
    const char *other_job = "{\"op\":\"job\",\"job\":\"other\",\"attempt\":0,\"world_size\":4}";
    sim_job(&sim, 0, 4);
    sim_identify(&sim, CLIENT, "{\"role\":\"agent\",\"job\":\"other\"}", NULL);
    expect_error(CLIENT, other_job, "this store already serves job 'demo'");
    sim_disconnect(&sim, SIM_AGENT);
    cr_assert_str_eq(sim_control(&sim, CLIENT, other_job), "{\"ok\":true}");
}

Test(control, an_exit_report_about_another_pid_is_about_the_past)
{
    sim_node(&sim, 2);
    expect_error(SIM_AGENT, "{\"op\":\"worker_started\",\"rank\":1}", "\\\"pid\\\": missing");
    expect_error(SIM_AGENT, "{\"op\":\"worker_exited\",\"rank\":-1,\"exit_code\":0}",
                 "\\\"rank\\\": expected");
    sim_started(&sim, 1);
    expect_error(SIM_AGENT, "{\"op\":\"worker_exited\",\"rank\":1,\"pid\":7,\"exit_code\":0}",
                 "rank 1 has pid 101, not 7");
    sim_exited(&sim, 1, 2, 0);
    cr_assert_not_null(
        strstr(sim_control(&sim, CLIENT, "{\"op\":\"status\"}"),
               "{\"rank\":1,\"state\":\"exited\",\"host\":\"n1\",\"pid\":101,\"exit_code\":2}"));
    sim_started(&sim, 1);
    cr_assert_null(strstr(sim_control(&sim, CLIENT, "{\"op\":\"status\"}"), "exited"));
}

/* An agent that has not joined must not report about ranks, even if it has declared a job. */
Test(control, only_a_node_reports_about_ranks)
{
    static const char *const reports[] = {
        "{\"op\":\"worker_started\",\"rank\":0,\"pid\":7}",
        "{\"op\":\"worker_exited\",\"rank\":0,\"exit_code\":1}",
        "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":1}",
        "{\"op\":\"cause\",\"round\":1,\"rank\":0,\"exit_code\":1}",
        "{\"op\":\"notice\",\"code\":\"LIMIT_NOFILE\",\"subject\":\"s\",\"sentence\":\"t\"}",
        "{\"op\":\"notice\",\"job\":\"demo\",\"code\":\"LIMIT_NOFILE\",\"subject\":\"s\",\"sentence\":\"t\"}",
    };
    sim_client(&sim, OTHER);
    sim_identify(&sim, OTHER, "{\"role\":\"agent\"}", NULL);
    expect_error(OTHER, reports[0], "has not joined a job; send `join` first");
    sim_node(&sim, 2);
    for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++)
        expect_error(OTHER, reports[i], "has not joined a job; send `join` first");
    cr_assert_null(strstr(sim_control(&sim, CLIENT, "{\"op\":\"status\"}"), "exited"));
    cr_assert_null(strstr(sim_control(&sim, CLIENT, "{\"op\":\"why\"}"), "LIMIT_NOFILE"));
}

/* --- questions ------------------------------------------------------------------------------------------------ */

static cJSON *ask(const char *json)
{
    cJSON *answer = cJSON_Parse(sim_control(&sim, CLIENT, json));
    cr_assert(cJSON_IsTrue(cJSON_GetObjectItem(answer, "ok")));
    return answer;
}

static double number(const cJSON *o, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(o, name);
    cr_assert(cJSON_IsNumber(item), "no number %s", name);
    return item->valuedouble;
}

Test(control, status_counts)
{
    sim_job(&sim, 0, 2);
    sim_worker(&sim, 0, 0, 2);
    sim_set_key(&sim, 0, "/k");
    sim_barrier(&sim, 0, "a", 1000, NULL);
    hub_count(sim.hub, HUB_REFUSED_NO_FD);
    cJSON *status = ask("{\"op\":\"status\"}");
    cr_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(status, "job")), "demo");
    cr_assert_eq(number(status, "world_size"), 2);
    cr_assert_eq(number(status, "keys"), 1);
    cr_assert_eq(number(status, "connections"), 3);
    cr_assert_eq(number(status, "waiters"), 1);
    cr_assert_eq(number(status, "barriers"), 1);
    cr_assert_eq(number(cJSON_GetObjectItem(status, "counters"), "refused_no_fd"), 1);
    cr_assert_eq(cJSON_GetArraySize(cJSON_GetObjectItem(status, "members")), 2);
    cJSON_Delete(status);
}

Test(control, of_a_large_barrier_the_first_ranks_are_shown)
{
    sim_job(&sim, 0, 2000);
    sim_worker(&sim, 0, 0, 2000);
    sim_barrier(&sim, 0, "a", 1000, NULL);
    cJSON *answer = ask("{\"op\":\"barriers\"}");
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(answer, "barriers"), 0);
    cr_assert_eq(cJSON_GetArraySize(cJSON_GetObjectItem(row, "arrived")), 1);
    const cJSON *missing = cJSON_GetObjectItem(row, "missing");
    cr_assert_eq(cJSON_GetArraySize(missing), 1024);
    cr_assert_eq(cJSON_GetNumberValue(cJSON_GetArrayItem(missing, 1023)), 1024);
    cJSON_Delete(answer);
}

Test(control, keys_are_shown_as_text_or_hex)
{
    sim_feed(&sim, CLIENT,
             "01" N(02) "2f61" N(02) "6869"
                                     "01" N(02) "2fff" N(02) "00ff");
    const char *answer = sim_control(&sim, CLIENT, "{\"op\":\"keys\"}");
    cr_assert_not_null(strstr(answer, "{\"key\":\"/a\",\"size\":2,\"value\":\"hi\"}"), "%s", answer);
    cr_assert_not_null(strstr(answer, "{\"key\":\"/\\\\xff\",\"size\":2,\"hex\":\"00ff\"}"), "%s", answer);
    answer = sim_control(&sim, CLIENT, "{\"op\":\"keys\",\"prefix\":\"/a\"}");
    cr_assert_null(strstr(answer, "xff"));
    answer = sim_control(&sim, CLIENT, "{\"op\":\"keys\",\"limit\":1}");
    cr_assert_not_null(strstr(answer, "\"cut\":true"));
}

Test(control, a_list_that_is_too_long_is_cut_below_1_mib)
{
    for (uint64_t i = 0; i < 30000; i++) {
        struct buf bytes = { 0 };
        cr_assert(append_u8(&bytes, 1) && append_blob(&bytes, slice_of(&i, sizeof(i))) &&
                  append_u64(&bytes, 0));
        sim_feed_bytes(&sim, CLIENT, buf_slice(&bytes));
        buf_free(&bytes);
    }
    const char *answer = sim_control(&sim, CLIENT, "{\"op\":\"keys\",\"limit\":100000}");
    cr_assert_lt(strlen(answer), 1 << 20);
    cr_assert_gt(strlen(answer), 1 << 18);
    cr_assert_not_null(strstr(answer, "\"cut\":true"));
}

Test(control, waiters_have_names)
{
    sim_job(&sim, 0, 2);
    sim_worker(&sim, 1, 0, 2);
    sim_wait_key(&sim, 1, "/weights");
    sim_at(&sim, 1500);
    cr_assert_str_eq(
        sim_control(&sim, CLIENT, "{\"op\":\"waiters\"}"),
        "{\"waiters\":[{\"peer\":\"peer:2\",\"rank\":1,\"host\":\"n1\",\"pid\":101,\"op\":\"WAIT\","
        "\"keys\":[\"/weights\"],\"since_ms\":1500}],\"ok\":true}");
}

/* A client may wait for thousands of keys. The answer lists 16 keys and the number of the other keys. */
Test(control, a_waiter_s_keys_are_cut_at_16)
{
    for (uint64_t n = 15; n <= 17; n++) {
        struct buf bytes = { 0 };
        cr_assert(append_u8(&bytes, 6) && append_u64(&bytes, n));
        for (uint64_t i = 0; i < n; i++)
            cr_assert(append_blob(&bytes, slice_of(&i, sizeof(i))));
        sim_client(&sim, OTHER);
        sim_feed_bytes(&sim, OTHER, buf_slice(&bytes));
        buf_free(&bytes);
        cJSON *answer = ask("{\"op\":\"waiters\"}");
        const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(answer, "waiters"), 0);
        cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(row, "keys")), n < 16 ? (int)n : 16);
        cr_expect_eq(cJSON_HasObjectItem(row, "more"), n > 16);
        cr_expect(n <= 16 || number(row, "more") == 1);
        cJSON_Delete(answer);
        sim_disconnect(&sim, OTHER);
    }
}

Test(control, barriers_say_who_is_missing)
{
    sim_job(&sim, 0, 4);
    sim_worker(&sim, 1, 0, 4);
    sim_barrier(&sim, 1, "epoch", 5000, "1 3");
    sim_at(&sim, 1500);
    cr_assert_str_eq(sim_control(&sim, CLIENT, "{\"op\":\"barriers\"}"),
                     "{\"barriers\":[{\"name\":\"epoch\",\"arrived\":[1],\"missing\":[3],\"age_ms\":1500,"
                     "\"left_ms\":3500}],\"ok\":true}");
    sim.now_ms = 5001; /* the deadline has passed, but the hub has had no tick since then */
    cr_assert_not_null(strstr(sim_control(&sim, CLIENT, "{\"op\":\"barriers\"}"), "\"left_ms\":0}"));
}

/* --- control rdzv --------------------------------------------------------------------------------------------- */

/* Tests of agents' JSON. The tests of rendezvous.h check the decisions. */

enum { N0 = 10, N1, N2, PLAIN = 39, OPERATOR };

static void set_up_rdzv(void)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.instance = "feed";
    sim_init(&sim, &limits);
    sim_client(&sim, OPERATOR);
}

static void tear_down_rdzv(void)
{
    sim_free(&sim);
}

TestSuite(control_rdzv, .init = set_up_rdzv, .fini = tear_down_rdzv);

/* --- one agent ------------------------------------------------------------------------------------------------- */

/* Remove the JSON object at byte `at` of the hub's output to `conn`, and return the object as text. Return "(nothing)"
 * if there is no such object. The next call of this function does not overwrite the text, so a caller can use two texts
 * at once. */
static const char *take(conn_id conn, size_t at)
{
    static char kept[2][1 << 19];
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

/* Remove the oldest message that the hub has sent to `conn`, and return it. */
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

/* Send `json` and return the answer: the first received object that is not a push. Pushes stay in the queue. */
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

/* Join a static job of `nnodes` nodes as node `node_rank`, with two workers. `more` has further JSON members of the
 * request. Return the answer. */
static const char *join(conn_id conn, int node_rank, int nnodes, const char *more)
{
    static char json[1024];
    if (!sim.conn[conn].open)
        agent(conn);
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"demo\",\"instance\":\"\",\"version\":\"" DDP_VERSION
             "\",\"host\":\"n%d\","
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

static void count_refused(void *user)
{
    ++*(int *)user;
}

Test(control, a_store_with_a_refusal_rejects_nodes_and_serves_no_key)
{
    int refused = 0;
    const struct hub_refusal refusal = { .code = "NO_STORE_HOST",
                                         .sentence = "no node hosts the store",
                                         .advice = "pass another address",
                                         .on_refused = count_refused,
                                         .user = &refused };
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.host = "n0";
    limits.refusal = &refusal;
    sim_free(&sim);
    sim_init(&sim, &limits);
    cr_assert_str_eq(join(N1, 1, 2, ""),
                     "{\"code\":\"NO_STORE_HOST\",\"advice\":\"pass another address\",\"ok\":false,"
                     "\"error\":\"n0 reports: no node hosts the store\"}");
    cr_assert_eq(refused, 1);
    cr_assert_eq(hub_nodes(sim.hub), 0);
    sim_client(&sim, CLIENT);
    sim_feed(&sim, CLIENT, "01" N(01) "6b" N(01) "76");
    sim_expect(&sim, CLIENT,
               "closed: SET is not allowed: the host of this store cannot run the job, and the store only "
               "tells the reason");
}

static void two_nodes(void)
{
    join(N0, 0, 2, "");
    join(N1, 1, 2, "");
    expect_heard(N0, "\"push\":\"round\",\"round\":1");
    expect_heard(N1, "\"push\":\"round\",\"round\":1");
}

/* --- joining --------------------------------------------------------------------------------------------------- */

Test(control_rdzv, the_hang_rules_of_the_first_node_count)
{
    join(N0, 0, 2, ",\"hang_ms\":50000,\"on_hang\":\"stop\"");
    join(N1, 1, 2, ",\"hang_ms\":0,\"on_hang\":\"restart\"");
    const struct job *job = job_find(sim.hub, "demo");
    cr_assert_not_null(job);
    cr_expect_eq(job->hang.watch.limit_ms, 50000);
    cr_expect_not(job->hang.watch.is_off);
    cr_expect_str_eq(job->hang.action, "stop");
}

/* The answer to `join` and the round arrive together, so the first worker starts after one round trip. */
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

/* Two roles may have different programs and numbers of workers, and each role counts its own workers. */
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
    expect_in(join(N2, 1, 2, ",\"job\":\"other\""), "\"ok\":true"); /* this job has no other node yet */
}

Test(control_rdzv, a_join_is_looked_at)
{
    agent(N0);
    expect_answer(N0, "{\"op\":\"join\"}", "\\\"job\\\": missing");
    expect_answer(N0, "{\"op\":\"join\"}", "\"code\":\"BAD_JOIN\"");
    expect_in(join(N0, 0, 0, ""), "\\\"nnodes_min\\\": expected");
    expect_in(join(N0, -2, 1, ""), "\\\"node_rank\\\": expected");
    expect_in(join(N0, 0, 1, ",\"grow\":\"tall\""), "\\\"grow\\\": \\\"tall\\\" is not a known value");
    expect_answer(OPERATOR, "{\"op\":\"join\"}", "is for agents");
}

Test(control_rdzv, an_agent_of_another_life_of_the_store_is_refused)
{
    agent(N0);
    expect_answer(N0,
                  "{\"op\":\"join\",\"job\":\"demo\",\"instance\":\"beef-1\",\"version\":\"" DDP_VERSION
                  "\",\"host\":\"n0\","
                  "\"pid\":7,\"nnodes_min\":1,\"nnodes_max\":1,\"node_rank\":0,\"nproc\":2}",
                  "\"code\":\"STALE_INSTANCE\"");
}

/* A worker of an earlier launch, and an agent that declares an attempt by itself, are rejected. */
Test(control_rdzv, nobody_but_the_rendezvous_begins_an_attempt)
{
    struct buf words = { 0 };
    join(N0, 0, 2, "");
    sim_client(&sim, PLAIN);
    cr_assert_eq(sim_identify(&sim, PLAIN,
                              "{\"role\":\"worker\",\"job\":\"demo\",\"rank\":0,\"world_size\":4}", &words),
                 1);
    expect_in((char *)words.data, "the nodes of job 'demo' have not joined yet");
    buf_free(&words);
    expect_answer(N0, "{\"op\":\"job\",\"job\":\"demo\",\"attempt\":9,\"world_size\":4}",
                  "cannot declare a job");
}

/* --- end of a round -------------------------------------------------------------------------------------------- */

Test(control_rdzv, a_success_waits_for_all)
{
    two_nodes();
    expect_answer(N0, "{\"op\":\"done\",\"round\":1}", "{\"ok\":true}");
    cr_assert_str_eq(hear(N0), "(nothing)");
    expect_answer(N1, "{\"op\":\"done\",\"round\":1}", "{\"ok\":true}");
    expect_heard(N0, "\"push\":\"verdict\",\"round\":1,\"why\":\"done\"");
    expect_heard(N1, "\"next\":\"finish\"");
}

/* One node's failure stops both nodes. Details that arrive later are in the verdict. */
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
    expect_answer(
        N1,
        "{\"op\":\"stopped\",\"round\":1,\"max_code\":7,\"rank0_code\":null,\"stacks\":[{\"does\":\"runs\","
        "\"threads\":[{\"rank\":2}]}]}",
        "{\"ok\":true}");
    expect_answer(N0, "{\"op\":\"stopped\",\"round\":1,\"max_code\":0,\"rank0_code\":0}", "{\"ok\":true}");
    const char *verdict = hear(N0);
    expect_in(verdict, "\"next\":\"restart\",\"attempt\":1");
    expect_in(verdict, "\"rank\":3,\"local_rank\":1,\"pid\":77,\"exit_code\":7");
    expect_in(verdict, "\"stderr\":[\"oh\",\"no\"]");
    cr_expect_null(strstr(verdict, "stacks"), "no node prints a report before a restart: %s", verdict);
}

/* The cause of a failure names the process that uses the GPU. The user name of this process contains a control
 * character. `gpu_name` is a member that only newer agents send. */
Test(control_rdzv, the_process_on_a_full_gpu_is_in_the_verdict_and_in_why)
{
#define FULL_GPU                                                                                             \
    "\"round\":1,\"rank\":3,\"local_rank\":1,\"pid\":77,\"exit_code\":1,\"words\":\"exit 1\",\"gpu\":\"1\"," \
    "\"gpu_users\":\"pid 4242 (user \\u001bann, 31 GiB)\",\"gpu_name\":\"H100\"}"
    two_nodes();
    expect_answer(N1, "{\"op\":\"failed\",\"round\":1,\"rank\":3,\"local_rank\":1,\"exit_code\":1}",
                  "{\"ok\":true}");
    expect_answer(N1, "{\"op\":\"cause\"," FULL_GPU, "{\"ok\":true}");
    expect_answer(N1, "{\"op\":\"stopped\",\"round\":1,\"max_code\":1,\"rank0_code\":null}", "{\"ok\":true}");
    hear(N0);
    expect_answer(N0, "{\"op\":\"stopped\",\"round\":1,\"max_code\":0,\"rank0_code\":0}", "{\"ok\":true}");
    expect_heard(N0, "\"gpu\":\"1\",\"gpu_users\":\"pid 4242 (user \\u001bann, 31 GiB)\"}");
    expect_answer(OPERATOR, "{\"op\":\"why\"}",
                  "\"code\":\"GPU_BUSY\",\"grade\":\"warning\",\"subject\":\"GPU 1 of n1\",");
    expect_answer(OPERATOR, "{\"op\":\"why\"}",
                  "GPU 1 of n1 (rank 3) is used by pid 4242 (user ?ann, 31 GiB)");
#undef FULL_GPU
}

/* All nodes exit with the code of the first failure. exit() keeps only the lowest 8 bits, so 256 would become 0. */
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
        expect_answer(N1, wrong[i], "expected a number from 0 to");
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
    expect_answer(N0, "{\"op\":\"heartbeat\",\"round\":1}", "round 1 is over; the current round is 2");
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
    expect_in(stop, "peer closed it");
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

/* The hub's clock jumps from 2 s to 60 s, as after a suspension of its machine. No node is lost because of the
 * jump. */
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

/* The last check of the job was an hour ago, and a check is due at once after the restart. The deadline of this check
 * must not lie in the past. Otherwise the hub would conclude that its machine was suspended for an hour. */
Test(control_rdzv, a_restart_after_an_hour_without_checks_is_no_suspension)
{
    sim_at(&sim, 1000);
    join(N0, 0, 1, "");
    beat_until(3600000, N0);
    call(N0, "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"pid\":77,\"exit_code\":7,\"words\":\"x\"}");
    call(N0, "{\"op\":\"stopped\",\"round\":1,\"max_code\":7}");
    sim_at(&sim, 3601000);
    expect_in(join(N0, 0, 1, ",\"instance\":\"feed-1\""), "\"ok\":true");
    sim_at(&sim, 3602000);
    cr_expect_eq(sim.hub->woke_ms, 0);
    cr_expect_eq(sim.hub->stood_ms, 0);
}

Test(control_rdzv, a_user_who_stops_a_node_is_named)
{
    two_nodes();
    expect_answer(N1, "{\"op\":\"leave\",\"signal\":15,\"by\":\"bash (pid 77, uid 1000)\"}", "{\"ok\":true}");
    const char *stop = hear(N0);
    expect_in(stop, "\"why\":\"node_left\"");
    expect_in(stop, "SIGTERM from bash (pid 77, uid 1000)");
}

/* --- content of heartbeats ------------------------------------------------------------------------------------- */

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

/* --- permitted messages of a node ------------------------------------------------------------------------------ */

static void expect_refused_role(conn_id conn, const char *json, const char *words)
{
    struct buf text = { 0 };
    cr_assert_eq(sim_identify(&sim, conn, json, &text), 1);
    expect_in((char *)text.data, words);
    buf_free(&text);
    sim_expect(&sim, conn, "closed: IDENTIFY refused");
}

/* The start of an attempt closes the connections of earlier workers. So a node's connection must not take the role of a
 * worker, because the rendezvous still uses this connection. */
Test(control_rdzv, a_node_cannot_change_its_role)
{
    two_nodes();
    cr_assert_eq(sim_identify(&sim, N0, "{\"role\":\"agent\"}", NULL), 0);
    expect_refused_role(
        N0, "{\"role\":\"worker\",\"job\":\"demo\",\"rank\":0,\"world_size\":4}",
        "this connection belongs to a node of job 'demo' and cannot change its role to \"worker\"");
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
             "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"" DDP_VERSION
             "\",\"host\":\"%s\",\"pid\":7,\"mode\":"
             "\"elastic\","
             "\"nnodes_min\":1,\"nnodes_max\":1,\"nproc\":2}",
             host);
    expect_answer(conn, json, "\"ok\":true");
}

/* A spare runs no worker, even if it reports ranks from 0 on. */
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

/* Expect that the lists of `status` are cut so that they fit into one answer. The names of nodes and ranks have 240
 * characters, and JSON prints each character as `escape`. Without a cut, the two lists would have more than
 * WIRE_MAX_JSON bytes together. */
static void expect_long_lists_fit(const char *escape)
{
    enum { RANKS = 2000, CHARACTERS = 240, FIRST = 100, END = 500 };
    char name[6 * CHARACTERS + 1] = "", json[4096];
    for (size_t i = 0; i < CHARACTERS; i++)
        memcpy(name + i * strlen(escape), escape, strlen(escape) + 1);
    for (conn_id conn = FIRST; conn < END; conn++) { /* one node, and many spares */
        agent(conn);
        snprintf(json, sizeof(json),
                 "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"" DDP_VERSION
                 "\",\"host\":\"%s\",\"addr\":\"%s\",\"pid\":7,\"mode\":\"elastic\",\"nnodes_min\":1,"
                 "\"nnodes_max\":1,\"nproc\":%d}",
                 name, name, RANKS);
        expect_answer(conn, json, "\"ok\":true");
    }
    for (int rank = 0; rank < RANKS; rank++) {
        snprintf(json, sizeof(json),
                 "{\"op\":\"worker_started\",\"round\":1,\"rank\":%d,\"pid\":7,\"host\":\"%s\"}", rank, name);
        expect_answer(FIRST, json, "{\"ok\":true}");
    }
    const char *status = sim_control(&sim, OPERATOR, "{\"op\":\"status\"}");
    cr_expect_lt(strlen(status), WIRE_MAX_JSON);
    cr_expect_not_null(strstr(status, "\"members\":[{\"rank\":0,"));
    const char *cut = strstr(status, "\"cut\":true");
    cr_assert_not_null(cut);
    cr_expect_null(strstr(cut + 1, "\"cut\":true"));
}

Test(control_rdzv, the_two_long_lists_of_a_status_fit_into_one_answer)
{
    expect_long_lists_fit("\\\"");
}

Test(control_rdzv, so_do_lists_of_names_with_control_characters)
{
    expect_long_lists_fit("\\u0001");
}

/* --- stacks ----------------------------------------------------------------------------------------------------- */

#define SAMPLED(id, rank, does)                                                                           \
    "{\"op\":\"sampled\",\"id\":" #id ",\"stacks\":[{\"does\":\"" does "\",\"threads\":[{\"rank\":" #rank \
    ",\"pid\":7,\"host\":\"n\",\"main\":true}]}]}"

/* The store asks both nodes. The operator waits for both answers, and equal rows are shown once. */
Test(control_rdzv, stacks_of_all_nodes_are_one_answer)
{
    two_nodes();
    sim_say(&sim, OPERATOR, "{\"op\":\"stacks\"}");
    expect_heard(N0, "{\"push\":\"sample\",\"id\":1,\"ranks\":\"\",\"native\":false}");
    expect_heard(N1, "\"push\":\"sample\",\"id\":1");
    expect_answer(N0, SAMPLED(1, 0, "running"), "{\"ok\":true}");
    cr_assert_str_eq(hear(OPERATOR), "(nothing)");
    expect_answer(N0, SAMPLED(1, 1, "running"), "{\"ok\":true}"); /* this node has already answered */
    expect_answer(N1, SAMPLED(1, 2, "running"), "{\"ok\":true}");
    const char *answer = hear(OPERATOR);
    expect_in(answer, "{\"stacks\":[{\"does\":\"running\",\"threads\":[{\"rank\":0,");
    expect_in(answer, "{\"rank\":2,");
    expect_in(answer, "\"missing\":[],\"ok\":true}");
    cr_assert_null(strstr(answer, "{\"rank\":1,"), "%s", answer);
    expect_answer(OPERATOR, "{\"op\":\"stacks\",\"ranks\":\"9\"}", "ranks from 0 to 3");
    cr_assert_str_eq(hear(N0), "(nothing)");
}

Test(control_rdzv, only_the_nodes_of_the_ranks_are_asked)
{
    two_nodes();
    sim_say(&sim, OPERATOR, "{\"op\":\"stacks\",\"ranks\":\"2-3\",\"native\":true}");
    expect_heard(N1, "\"ranks\":\"2-3\",\"native\":true}");
    cr_assert_str_eq(hear(N0), "(nothing)");
    expect_answer(N1, SAMPLED(1, 3, "running"), "{\"ok\":true}");
    expect_heard(OPERATOR, "\"rank\":3");
}

Test(control_rdzv, a_node_that_does_not_answer_is_named)
{
    two_nodes();
    sim_say(&sim, OPERATOR, "{\"op\":\"stacks\"}");
    sim_say(&sim, N0, SAMPLED(1, 0, "running"));
    const uint64_t asked_ms = sim.now_ms;
    sim_at(&sim, asked_ms + 2000);
    sim_say(&sim, N0, "{\"op\":\"heartbeat\"}"); /* without a heartbeat the node would be lost */
    sim_say(&sim, N1, "{\"op\":\"heartbeat\"}");
    sim_at(&sim, asked_ms + 3999);
    cr_assert_str_eq(hear(OPERATOR), "(nothing)");
    sim_at(&sim, asked_ms + 4000);
    const char *answer = hear(OPERATOR);
    expect_in(answer, "\"rank\":0");
    expect_in(answer, "\"missing\":[{\"node_rank\":1,\"host\":\"n1\"");
    sim_say(&sim, N1, SAMPLED(1, 2, "running")); /* the answer comes too late, but does no harm */
    cr_assert_str_eq(hear(OPERATOR), "(nothing)");
}

/* Operators with the same question share one sample and get the same answer. A different question is rejected
 * meanwhile. */
Test(control_rdzv, operators_share_a_question)
{
    two_nodes();
    sim_client(&sim, OTHER);
    sim_client(&sim, PLAIN);
    sim_say(&sim, OPERATOR, "{\"op\":\"stacks\",\"ranks\":\"0\"}");
    sim_say(&sim, OTHER, "{\"op\":\"stacks\",\"ranks\":\"0\"}");
    expect_answer(PLAIN, "{\"op\":\"stacks\"}", "another request for stacks is in progress");
    expect_heard(N0, "\"push\":\"sample\"");
    cr_assert_str_eq(hear(N0), "(nothing)");
    sim_disconnect(&sim, OPERATOR);
    sim_say(&sim, N0, SAMPLED(2, 0, "stale"));
    sim_say(&sim, N0, SAMPLED(1, 0, "running"));
    expect_heard(OTHER, "\"does\":\"running\"");
    expect_answer(OTHER, "{\"op\":\"hello\"}", "{\"ok\":true}");
}

Test(control_rdzv, who_asks_something_else_waits_no_more)
{
    two_nodes();
    sim_say(&sim, OPERATOR, "{\"op\":\"stacks\"}");
    expect_answer(OPERATOR, "{\"op\":\"hello\"}", "{\"ok\":true}");
    sim_say(&sim, N0, SAMPLED(1, 0, "running"));
    sim_say(&sim, N1, SAMPLED(1, 2, "running"));
    cr_assert_str_eq(hear(OPERATOR), "(nothing)");
}

/* Let rank 1 fail in a way that forbids a restart. */
static void fail_for_good(void)
{
    two_nodes();
    expect_answer(N0, "{\"op\":\"failed\",\"round\":1,\"rank\":1,\"exit_code\":2,\"no_retry\":\"usage\"}",
                  "{\"ok\":true}");
    expect_heard(N0, "\"push\":\"stop\"");
    expect_heard(N1, "\"push\":\"stop\"");
}

#define THREAD(rank)         "{\"rank\":" #rank ",\"pid\":7,\"host\":\"n\",\"main\":true}"
#define ROW(does, threads)   "{\"does\":\"" does "\",\"threads\":[" threads "]}"
#define STOPPED(round, rows) "{\"op\":\"stopped\",\"round\":" #round ",\"stacks\":" rows "}"

/* The store accepts only the first message with stacks that a node sends in the current round. The store drops stacks
 * of ranks that the node does not run. */
Test(control_rdzv, the_last_verdict_has_the_stacks_of_all_survivors)
{
    fail_for_good();
    expect_answer(N0, STOPPED(2, "[" ROW("early", THREAD(0)) "]"), "STALE_ROUND");
    expect_answer(N0, STOPPED(1, "[" ROW("run\\u001bning", THREAD(0) "," THREAD(2)) ",7]"), "{\"ok\":true}");
    expect_answer(N0, STOPPED(1, "[" ROW("again", THREAD(0)) "]"), "{\"ok\":true}");
    expect_answer(N1, STOPPED(1, "[" ROW("run\\u001bning", THREAD(3)) "]"), "{\"ok\":true}");
    expect_heard(N0, "},\"stacks\":[" ROW("run?ning", THREAD(0) "," THREAD(3)) "]}");
    expect_heard(N1, "},\"stacks\":[" ROW("run?ning", THREAD(0) "," THREAD(3)) "]}");
}

Test(control_rdzv, a_node_without_stacks_changes_nothing_for_the_others)
{
    fail_for_good();
    expect_answer(N0, STOPPED(1, "\"none\""), "{\"ok\":true}");
    expect_answer(N1, STOPPED(1, "[" ROW("running", THREAD(3)) "]"), "{\"ok\":true}");
    expect_heard(N0, "},\"stacks\":[" ROW("running", THREAD(3)) "]}");
}

Test(control_rdzv, without_stacks_the_verdict_has_none)
{
    fail_for_good();
    expect_answer(N0, "{\"op\":\"stopped\",\"round\":1}", "{\"ok\":true}");
    expect_answer(N1, "{\"op\":\"stopped\",\"round\":1}", "{\"ok\":true}");
    cr_expect_null(strstr(hear(N0), "stacks"));
}

/* Let the first node send more stack rows than fit into its half of the verdict. The row of the second node must still
 * fit. `bytes` is the length of each row's note. */
static void expect_fair(int bytes)
{
    struct buf many = { 0 };
    fail_for_good();
    buf_printf(&many, "{\"op\":\"stopped\",\"round\":1,\"stacks\":[");
    for (int i = 0; i < STACKS_ROWS_MAX; i++)
        buf_printf(&many, "{\"note\":\"%0*d\",\"threads\":[" THREAD(0) "]},", bytes, i);
    buf_printf(&many, "7]}");
    cr_assert(buf_append(&many, "", 1));
    expect_answer(N0, (const char *)many.data, "{\"ok\":true}");
    expect_answer(N1, STOPPED(1, "[" ROW("running", THREAD(3)) "]"), "{\"ok\":true}");
    const char *verdict = hear(N1);
    expect_in(verdict, "0100\",\"threads\":[" THREAD(0));
    expect_in(verdict, "," ROW("running", THREAD(3)) "]}");
    cr_expect_lt(strlen(verdict), STACKS_AGENT_BYTES / 2 + 4096);
    buf_free(&many);
}

Test(control_rdzv, large_stacks_of_a_node_leave_room_for_the_others)
{
    expect_fair(500);
}

Test(control_rdzv, many_stacks_of_a_node_leave_room_for_the_others)
{
    expect_fair(4);
}

Test(control_rdzv, stacks_need_workers_and_only_nodes_report_them)
{
    expect_answer(OPERATOR, "{\"op\":\"stacks\"}", "no worker with one of these ranks is running");
    expect_answer(OPERATOR, SAMPLED(1, 0, "running"), "is for agents");
    agent(N0);
    expect_answer(N0, SAMPLED(1, 0, "running"), "send `join` first");
    two_nodes();
    expect_answer(N0, SAMPLED(1, 0, "running"), "{\"ok\":true}");
    expect_answer(N0, "{\"op\":\"sampled\",\"id\":0}", "expected a number");
}
