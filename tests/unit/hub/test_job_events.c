/* The store sends its events to one agent that has asked for them. When this agent has left, the store sends its events
 * to the next agent. Findings go to all agents that have asked. */
#include "hub/job.h"
#include "store/encode.h"
#include "store/ops.h"
#include "sim_hub.h"
#include "ddp/context.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum { N0 = SIM_AGENT, N1 = SIM_OPERATOR }; /* connections that sim_hub.h does not use for workers */

static struct sim sim;
static char heard[1 << 17]; /* events that the latest check has found, one per line */

static void set_up(void)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.instance = "feed";
    sim_init(&sim, &limits);
}

static void tear_down(void)
{
    sim_free(&sim);
}

TestSuite(job_events, .init = set_up, .fini = tear_down);

static const char *job_name = "demo";

/* Read all messages that were sent to the agent. Write their events to `heard`, and return the number of events. */
static int events(conn_id conn)
{
    static const char front[] = "{\"push\":\"event\",";
    struct buf *out = &sim.conn[conn].out;
    size_t len = 0;
    int n = 0;
    heard[0] = '\0';
    for (size_t at = 0; at < out->len;) {
        const size_t size = get_u64(out->data + at);
        const char *text = (const char *)out->data + at + 8;
        if (size > sizeof(front) && memcmp(text, front, sizeof(front) - 1) == 0) {
            len += (size_t)snprintf(heard + len, sizeof(heard) - len, "%.*s\n", (int)size, text);
            n++;
        }
        at += 8 + size;
    }
    buf_consume(out, out->len);
    return n;
}

static void join(conn_id conn, int node_rank, int nnodes, bool asks)
{
    char json[512];
    if (!sim.conn[conn].open)
        sim_client(&sim, conn);
    sim_identify(&sim, conn, "{\"role\":\"agent\"}", NULL);
    snprintf(
        json, sizeof(json),
        "{\"op\":\"join\",\"job\":\"%s\",\"instance\":\"\",\"version\":\"" DDP_VERSION "\",\"host\":\"n%d\","
        "\"pid\":%d,\"mode\":\"static\",\"nnodes_min\":%d,\"nnodes_max\":%d,\"node_rank\":%d,\"nproc\":1,"
        "\"join_timeout_ms\":60000,\"grace_ms\":1000%s}",
        job_name, node_rank, 100 + node_rank, nnodes, nnodes, node_rank, asks ? ",\"events\":true" : "");
    sim_say(&sim, conn, json);
}

static void expect_event(const char *words)
{
    cr_expect_not_null(strstr(heard, words), "'%s' is not in:\n%s", words, heard);
}

Test(job_events, nobody_who_has_not_asked_is_told)
{
    join(N0, 0, 1, false);
    cr_expect_eq(events(N0), 0);
}

Test(job_events, a_join_and_a_round_are_told_with_the_time_of_the_store)
{
    sim_at(&sim, 1500);
    join(N0, 0, 1, true);
    cr_expect_eq(events(N0), 2);
    expect_event(
        "\"event\":{\"event\":\"join\",\"store_ms\":1500,\"job\":\"demo\",\"instance\":\"feed-1\",\"n\":1,"
        "\"round\":0,\"node\":511,\"node_rank\":0,\"host\":\"n0\",\"pid\":100,");
    expect_event(
        "\"event\":\"round\",\"store_ms\":1500,\"job\":\"demo\",\"instance\":\"feed-1\",\"n\":2,\"round\":1,"
        "\"nnodes\":1,\"world_size\":1,\"members\":[[511,0,0,1]],");
}

/* An agent rejects a message that is too long. So the store sends a long event without its list of nodes. */
Test(job_events, a_list_of_nodes_that_is_too_long_is_left_out)
{
    enum { NODES = WIRE_MAX_JSON / 2 / 8 };
    join(N0, 0, 1, true);
    events(N0);
    struct job *job = job_find(sim.hub, "demo");
    struct rdzv_row *rows = calloc(NODES, sizeof(*rows));
    cr_assert(job != NULL && rows != NULL);
    const struct rdzv_round world = { .nnodes = NODES, .world_size = NODES, .rows = rows };
    const struct rdzv_record record = {
        .kind = RDZV_RECORD_ROUND, .nnodes = NODES, .world_size = NODES, .host = "", .words = "large"
    };
    events_members(job, &world);
    events_record(job, &record);
    cr_expect_eq(events(N0), 1);
    expect_event("\"words\":\"large\"");
    cr_expect_null(strstr(heard, "\"members\""));
    free(rows);
}

/* The event log gets the same finding as the agents. */
Test(job_events, a_rank_that_left_others_waiting_is_an_event)
{
    join(N0, 0, 2, true);
    join(N1, 1, 2, false);
    sim_worker(&sim, 0, 0, 2);
    sim_barrier(&sim, 0, "a", 1000, NULL);
    sim_say(
        &sim, N1,
        "{\"op\":\"worker_started\",\"round\":1,\"rank\":1,\"local_rank\":0,\"pid\":201,\"host\":\"n1\"}");
    events(N0);
    sim_say(&sim, N1, "{\"op\":\"worker_exited\",\"round\":1,\"rank\":1,\"pid\":201,\"exit_code\":0}");
    events(N0);
    expect_event("\"event\":\"finding\"");
    expect_event("\"code\":\"RANK_EXITED_EARLY\",\"subject\":\"rank 1 (n1, pid 201)\"");
}

/* The node with the full GPU had reported another process on this GPU before the start. */
Test(job_events, the_process_on_a_full_gpu_is_an_event_of_the_end)
{
    join(N0, 0, 1, true);
    sim_say(&sim, N0,
            "{\"op\":\"notice\",\"code\":\"GPU_BUSY\",\"subject\":\"GPU 0 of n0\",\"sentence\":\"old\"}");
    sim_say(&sim, N0, "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":1,\"words\":\"exit 1\"}");
    events(N0);
    sim_say(&sim, N0,
            "{\"op\":\"cause\",\"round\":1,\"rank\":0,\"exit_code\":1,\"words\":\"exit 1\",\"gpu\":\"0\","
            "\"gpu_users\":\"pid 9\"}");
    sim_say(&sim, N0, "{\"op\":\"stopped\",\"round\":1,\"max_code\":1,\"rank0_code\":1}");
    events(N0);
    expect_event("\"code\":\"GPU_BUSY\",\"subject\":\"GPU 0 of n0\",\"words\":\"GPU 0 of n0 (rank 0) ");
    expect_event(" pid 9\"");
    const struct job *job = job_find(sim.hub, "demo");
    cr_expect_eq(job->notices.count, 1);
    cr_expect_not_null(strstr(job->notices.list[0].finding.sentence, "(rank 0)"),
                       "the new finding replaces the old");
    cr_expect_eq(job->troubles.count, 0);
}

/* Only one node receives all events, but every node that has requested events receives the findings. If this one node
 * leaves, the next node receives the earlier events, but no finding a second time. */
Test(job_events, a_finding_is_told_once_to_all_who_asked)
{
    const struct finding f = { .code = FINDING_RANK_SLEEPS, .subject = "rank 1", .sentence = "it sleeps" };
    join(N0, 0, 2, true);
    join(N1, 1, 2, true);
    events(N0);
    events_finding(job_find(sim.hub, "demo"), &f);
    cr_expect_eq(events(N0), 1);
    expect_event("\"code\":\"RANK_SLEEPS\"");
    cr_expect_eq(events(N1), 1);
    expect_event("\"code\":\"RANK_SLEEPS\"");
    sim_disconnect(&sim, N0);
    cr_expect_geq(events(N1), 4);
    cr_expect_null(strstr(heard, "RANK_SLEEPS"), "%s", heard);
}

Test(job_events, only_one_of_those_who_asked_is_told)
{
    join(N0, 0, 2, true);
    join(N1, 1, 2, true);
    cr_expect_eq(events(N0), 3);
    cr_expect_eq(events(N1), 0);
}

/* The first agent may have died before it read the events, so the next agent gets all of them. */
Test(job_events, the_next_one_takes_over_and_is_told_again)
{
    join(N0, 0, 2, true);
    join(N1, 1, 2, true);
    sim_disconnect(&sim, N0);
    cr_expect_geq(events(N1), 4);
    expect_event("\"n\":1,");
    expect_event("\"event\":\"lost\"");
    cr_expect_eq(strstr(strstr(heard, "\"n\":1,") + 1, "\"n\":1,"), NULL, "told twice:\n%s", heard);
}

Test(job_events, a_long_event_leaves_the_others_for_the_next_one)
{
    static char words[70 << 10];
    memset(words, 'x', sizeof(words) - 1);
    join(N0, 0, 2, true);
    join(N1, 1, 2, true);
    const struct rdzv_record record = { .kind = RDZV_RECORD_STALE, .host = "", .words = words };
    events_record(job_find(sim.hub, "demo"), &record);
    cr_expect_eq(events(N0), 4);
    sim_disconnect(&sim, N0);
    cr_expect_gt(events(N1), 3);
    expect_event("\"event\":\"round\"");
    cr_expect_null(strstr(heard, "xxx"));
}

Test(job_events, who_is_refused_does_not_take_them)
{
    join(N0, 0, 2, false);
    join(N1, 0, 2, true); /* rejected, because the node rank is taken */
    cr_expect_eq(events(N1), 1);
    expect_event("\"event\":\"refused\"");
    cr_expect_eq(events(N0), 0);
}

Test(job_events, a_barrier_tells_who_came_when_and_who_was_last)
{
    join(N0, 0, 1, true);
    events(N0);
    sim_worker(&sim, 0, 0, 1);
    sim_barrier(&sim, 0, "a\"<b>", 1000, NULL);
    cr_expect_eq(events(N0), 2);
    expect_event("\"event\":\"barrier_open\"");
    expect_event("\"barrier\":\"a\\\"<b>\",\"opened_by\":0,\"needs\":1,");
    expect_event("\"outcome\":\"released\",\"arrived\":[[0,0]],\"last\":0}");
}

Test(job_events, too_many_are_counted_and_the_rest_is_told_later)
{
    char name[32];
    join(N0, 0, 1, true);
    events(N0);
    sim_worker(&sim, 0, 0, 1);
    int told = 0;
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "%d", i);
        sim_barrier(&sim, 0, name, 1000, NULL);
        told += events(N0);
    }
    cr_expect_eq(told, 5000);
    sim_at(&sim, 2000);
    sim_barrier(&sim, 0, "late", 1000, NULL);
    cr_expect_eq(events(N0), 3);
    expect_event("\"event\":\"events_lost\"");
    expect_event("\"count\":1000}");
}

/* --- the next job of a store of many jobs ------------------------------------------------------------------- */

enum { N2 = N1 - 1, N3 = N2 - 1, OPERATOR = N3 - 1, HOUR = 3600 * 1000 };

/* Run a job to its end: one node with a notice and a failed worker, and one node that is rejected. */
static void run_to_the_end(void)
{
    join(N0, 0, 1, true);
    join(N1, 1, 2, false);
    sim_say(&sim, N0, "{\"op\":\"notice\",\"code\":\"SHM_SMALL\",\"subject\":\"n0\",\"sentence\":\"old\"}");
    sim_say(&sim, N0, "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":1,\"words\":\"exit 1\"}");
    sim_say(&sim, N0, "{\"op\":\"stopped\",\"round\":1,\"max_code\":1,\"rank0_code\":1}");
    cr_expect_geq(events(N0), 3);
    expect_event("\"event\":\"refused\"");
    sim_disconnect(&sim, N1);
}

static void expect_no_trace_of_it(const char *name, int number)
{
    char why[64];
    job_name = name;
    join(N2, 0, 2, true);
    cr_expect_eq(events(N2), 1, "job %d:\n%s", number, heard);
    expect_event("\"event\":\"join\"");
    snprintf(why, sizeof(why), "{\"op\":\"why\",\"job\":\"%s\"}", name);
    sim_client(&sim, OPERATOR);
    const char *answer = sim_control(&sim, OPERATOR, why);
    cr_expect(strstr(answer, "_DIFFERS") == NULL && strstr(answer, "SHM_SMALL") == NULL, "job %d: %s", number,
              answer);
    join(N3, 1, 2, false);
    cr_expect_eq(events(N2), 2);
    expect_event("\"event\":\"round\"");
}

Test(job_events, the_next_job_of_a_store_hears_nothing_of_a_finished_one)
{
    static const struct {
        const char *next;
        uint64_t after_ms; /* time at which the next job begins, in ms; if 0, the next job begins at once,
                            * while the first node is still connected */
        bool has_other;    /* the store has another job, so it frees the finished job */
    } cases[] = { { "demo", 0, false },
                  { "demo", HOUR, false },
                  { "other", HOUR, false },
                  { "demo", 0, true },
                  { "demo", HOUR, true } };
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.many_jobs = true;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_free(&sim);
        sim_init(&sim, &limits);
        job_name = "demo";
        run_to_the_end();
        if (cases[i].after_ms > 0)
            sim_disconnect(&sim, N0);
        job_name = "stays";
        if (cases[i].has_other)
            join(N1, 0, 2, false);
        sim_at(&sim, cases[i].after_ms);
        expect_no_trace_of_it(cases[i].next, (int)i);
    }
}
