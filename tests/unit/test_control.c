/* IDENTIFY and CONTROL: who may say what, what is believed, what the questions answer. */
#include "store/encode.h"
#include "sim_job.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>

#define N(n) #n "00000000000000"

enum { CLIENT = 40, OTHER = 41 };

static struct sim sim;
static struct buf text;

static void set_up(void)
{
    sim_init(&sim, NULL);
    sim_client(&sim, CLIENT);
}

static void tear_down(void)
{
    sim_free(&sim);
    buf_free(&text);
}

TestSuite(control, .init = set_up, .fini = tear_down);

/* --- IDENTIFY ------------------------------------------------------------------------------------------------- */

static void expect_refusal(const char *json, const char *words)
{
    static conn_id conn = 100;
    sim_client(&sim, ++conn);
    text.len = 0;
    cr_assert_eq(sim_identify(&sim, conn, json, &text), 1, "%s", json);
    cr_assert_not_null(strstr((char *)text.data, words), "%s -> %s", json, (char *)text.data);
    sim_expect(&sim, conn, "closed: IDENTIFY refused");
}

Test(control, an_introduction_is_looked_at)
{
    expect_refusal("", "not a JSON object");
    expect_refusal("[]", "not a JSON object");
    expect_refusal("{\"role\":", "not a JSON object");
    expect_refusal("{}", "\"role\" is missing");
    expect_refusal("{\"role\":3}", "\"role\" must be a text");
    expect_refusal("{\"role\":\"king\"}", "role \"king\" is not known");
    expect_refusal("{\"role\":\"plain\"}", "role \"plain\" is not known");
    expect_refusal("{\"role\":\"worker\",\"rank\":0}", "\"world_size\" is missing");
    expect_refusal("{\"role\":\"worker\",\"world_size\":4}", "\"rank\" is missing");
    expect_refusal("{\"role\":\"worker\",\"world_size\":4,\"rank\":4}",
                   "\"rank\" must be a whole number from 0 to 3");
    expect_refusal("{\"role\":\"worker\",\"world_size\":4,\"rank\":-1}", "\"rank\" must be");
    expect_refusal("{\"role\":\"worker\",\"world_size\":4,\"rank\":1.5}", "\"rank\" must be");
    expect_refusal("{\"role\":\"worker\",\"world_size\":1e300,\"rank\":1}", "\"world_size\" must be");
    expect_refusal("{\"role\":\"worker\",\"world_size\":131073,\"rank\":1}", "\"world_size\" must be");
    expect_refusal("{\"role\":\"worker\",\"world_size\":4,\"rank\":1,\"pid\":\"x\"}", "\"pid\" must be");
}

Test(control, a_worker_must_fit_the_job)
{
    sim_job(&sim, 2, 4);
    expect_refusal("{\"role\":\"worker\",\"job\":\"other\",\"attempt\":2,\"world_size\":4,\"rank\":1}",
                   "serves job 'demo', not 'other'");
    expect_refusal("{\"role\":\"worker\",\"job\":\"demo\",\"attempt\":1,\"world_size\":4,\"rank\":1}",
                   "attempt 2 is running, not 1");
    expect_refusal("{\"role\":\"worker\",\"job\":\"demo\",\"attempt\":2,\"world_size\":8,\"rank\":1}",
                   "the world has 4 ranks, not 8");
}

Test(control, without_an_agent_the_first_worker_declares_the_job)
{
    sim_worker(&sim, 1, 0, 4);
    expect_refusal("{\"role\":\"worker\",\"job\":\"demo\",\"world_size\":2,\"rank\":0}",
                   "the world has 4 ranks");
    sim_worker(&sim, 2, 0, 4);
}

/* A daemon that stands alone serves one job after the other; the same one keeps its keys. */
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
    expect_error(CLIENT, "{}", "\\\"op\\\" is missing");
    expect_error(CLIENT, "{\"op\":\"dance\"}", "op \\\"dance\\\" is not known");
    expect_error(CLIENT, "{\"op\":\"job\",\"attempt\":0,\"world_size\":2}", "is for agents");
    expect_error(CLIENT, "{\"op\":\"barrier_cancel\",\"name\":\"x\"}", "no barrier 'x' is open");
    expect_error(CLIENT, "{\"op\":\"keys\",\"limit\":-1}", "\\\"limit\\\" must be");
}

Test(control, an_agent_is_held_to_its_job)
{
    sim_job(&sim, 2, 4);
    expect_error(SIM_AGENT, "{\"op\":\"job\",\"job\":\"demo\",\"attempt\":1,\"world_size\":4}",
                 "attempt 2 is running");
    expect_error(SIM_AGENT, "{\"op\":\"job\",\"job\":\"demo\",\"attempt\":2,\"world_size\":5}",
                 "has 4 ranks already");
    expect_error(SIM_AGENT, "{\"op\":\"job\",\"job\":\"demo\",\"attempt\":3}",
                 "\\\"world_size\\\" is missing");
    cr_assert_str_eq(sim_control(&sim, SIM_AGENT, "{\"op\":\"heartbeat\"}"), "{\"ok\":true}");
    cr_assert_str_eq(sim_control(&sim, SIM_AGENT, "{\"op\":\"hello\"}"), "{\"ok\":true}");
}

Test(control, another_job_waits_until_the_agents_of_the_first_are_gone)
{
    const char *other_job = "{\"op\":\"job\",\"job\":\"other\",\"attempt\":0,\"world_size\":4}";
    sim_job(&sim, 0, 4);
    sim_identify(&sim, CLIENT, "{\"role\":\"agent\",\"job\":\"other\"}", NULL);
    expect_error(CLIENT, other_job, "job 'demo' is running here");
    sim_disconnect(&sim, SIM_AGENT);
    cr_assert_str_eq(sim_control(&sim, CLIENT, other_job), "{\"ok\":true}");
}

Test(control, an_exit_report_about_another_pid_is_about_the_past)
{
    sim_node(&sim, 2);
    expect_error(SIM_AGENT, "{\"op\":\"worker_started\",\"rank\":1}", "\\\"pid\\\" is missing");
    expect_error(SIM_AGENT, "{\"op\":\"worker_exited\",\"rank\":-1,\"exit_code\":0}", "\\\"rank\\\" must be");
    sim_started(&sim, 1);
    expect_error(SIM_AGENT, "{\"op\":\"worker_exited\",\"rank\":1,\"pid\":7,\"exit_code\":0}",
                 "rank 1 is pid 101, not 7");
    sim_exited(&sim, 1, 2, 0);
    cr_assert_not_null(
        strstr(sim_control(&sim, CLIENT, "{\"op\":\"status\"}"),
               "{\"rank\":1,\"state\":\"exited\",\"host\":\"n1\",\"pid\":101,\"exit_code\":2}"));
    sim_started(&sim, 1);
    cr_assert_null(strstr(sim_control(&sim, CLIENT, "{\"op\":\"status\"}"), "exited"));
}

/* An agent that has not joined, or only declared a job, reports nothing about ranks. */
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
    expect_error(OTHER, reports[0], "no node of a job: join first");
    sim_node(&sim, 2);
    for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++)
        expect_error(OTHER, reports[i], "no node of a job: join first");
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
        cr_assert(put_u8(&bytes, 1) && put_blob(&bytes, slice_of(&i, sizeof(i))) && put_u64(&bytes, 0));
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

/* A client may wait for thousands of keys: 16 are listed, and the others counted. */
Test(control, a_waiter_s_keys_are_cut_at_16)
{
    for (uint64_t n = 15; n <= 17; n++) {
        struct buf bytes = { 0 };
        cr_assert(put_u8(&bytes, 6) && put_u64(&bytes, n));
        for (uint64_t i = 0; i < n; i++)
            cr_assert(put_blob(&bytes, slice_of(&i, sizeof(i))));
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
}
