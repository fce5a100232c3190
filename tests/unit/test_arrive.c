/* Agents come to named barriers for ranks of their nodes: JSON in, one push out; alone, and together with ranks that come
 * by themselves. */
#include "core/encode.h"
#include "sim_job.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* Agents of two nodes with two workers each, ranks 0 and 1, 2 and 3; on connections that no worker has. */
enum { N0 = SIM_OPERATOR, N1 = SIM_AGENT, OPERATOR = 100 };

static struct sim sim;

static void join(conn_id conn, int node_rank)
{
    char json[512];
    sim_client(&sim, conn);
    sim_identify(&sim, conn, "{\"role\":\"agent\"}", NULL);
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"0.1.0\",\"host\":\"n%d\",\"pid\":%d,\"nnodes_"
             "min\":2,"
             "\"nnodes_max\":2,\"node_rank\":%d,\"nproc\":2,\"join_timeout_ms\":60000,\"max_restarts\":1}",
             node_rank, 10 + node_rank, node_rank);
    sim_say(&sim, conn, json);
}

static void forget(void)
{
    for (int i = 0; i < SIM_CONNS; i++)
        sim.conn[i].out.len = 0;
    sim.trace.len = 0;
}

static void set_up(void)
{
    sim_init(&sim, NULL);
    join(N0, 0);
    join(N1, 1);
    sim_client(&sim, OPERATOR);
    forget();
}

static void tear_down(void)
{
    sim_free(&sim);
}

TestSuite(arrive, .init = set_up, .fini = tear_down);

static void arrive(conn_id conn, const char *name, int timeout_ms, int first, int last)
{
    char json[256];
    snprintf(json, sizeof(json),
             "{\"op\":\"arrive\",\"round\":1,\"barrier\":\"%s\",\"timeout_ms\":%d,\"ranks\":[%d,%d]}", name,
             timeout_ms, first, last);
    sim_say(&sim, conn, json);
}

/* The next object that an agent got, "" = none; valid until the next call. */
static const char *hear(conn_id conn)
{
    static char text[1 << 16];
    struct buf *out = &sim.conn[conn].out;
    size_t len = out->len >= 8 ? get_u64(out->data) : 0;
    cr_assert(len < sizeof(text) && (out->len == 0 || out->len >= 8 + len));
    if (out->len == 0)
        return "";
    memcpy(text, out->data + 8, len);
    text[len] = '\0';
    memmove(out->data, out->data + 8 + len, out->len - 8 - len);
    out->len -= 8 + len;
    return text;
}

static void expect(conn_id conn, const char *words, int line)
{
    const char *text = hear(conn);
    bool ok = words[0] == '\0' ? text[0] == '\0' : strstr(text, words) != NULL;
    cr_assert(ok, "line %d: connection %d heard '%s', not '%s'", line, (int)conn, text, words);
}
#define expect_heard(conn, words) expect(conn, words, __LINE__)
#define expect_nothing(conn)      expect(conn, "", __LINE__)
#define PASSED(name)              "{\"push\":\"barrier\",\"name\":\"" name "\",\"outcome\":\"released\"}"

static void expect_trace_has(const char *words)
{
    cr_assert(buf_append(&sim.trace, "", 1));
    cr_assert_not_null(strstr((char *)sim.trace.data, words), "%s has no '%s'", (char *)sim.trace.data,
                       words);
    sim.trace.len = 0;
}

/* --- how it goes ------------------------------------------------------------------------------------------------ */

Test(arrive, one_message_of_each_node_and_one_push_back)
{
    arrive(N0, "a", 1000, 0, 1);
    expect_nothing(N0);
    arrive(N1, "a", 1000, 2, 3);
    expect_heard(N0, PASSED("a"));
    expect_heard(N1, PASSED("a"));
    expect_nothing(N0);
    expect_nothing(N1);
}

/* The bytes: CONTROL and a blob; a push is a blob alone, and nothing else is sent. */
Test(arrive, bytes)
{
    static const char said[] =
        "{\"op\":\"arrive\",\"round\":1,\"barrier\":\"b\",\"timeout_ms\":9,\"ranks\":[2,3]}";
    struct buf bytes = { 0 };
    arrive(N0, "b", 9, 0, 1);
    sim_feed(&sim, N1, "82 4400000000000000");
    cr_assert_eq(sizeof(said) - 1, 0x44);
    for (size_t i = 0; i < sizeof(said) - 1; i++)
        sim_feed_bytes(&sim, N1, slice_of(said + i, 1));
    cr_assert(put_blob(&bytes, slice_str(PASSED("b"))));
    cr_assert(slice_equal(buf_slice(&sim.conn[N0].out), buf_slice(&bytes)));
    cr_assert(slice_equal(buf_slice(&sim.conn[N1].out), buf_slice(&bytes)));
    buf_free(&bytes);
}

Test(arrive, a_node_may_tell_of_its_ranks_one_by_one)
{
    arrive(N1, "a", 1000, 3, 3);
    arrive(N0, "a", 1000, 0, 1);
    expect_nothing(N0);
    arrive(N1, "a", 1000, 2, 2);
    expect_heard(N0, PASSED("a"));
    expect_heard(N1, PASSED("a"));
    expect_heard(N1, PASSED("a"));
}

Test(arrive, in_several_barriers_at_once)
{
    arrive(N0, "a", 1000, 0, 1);
    arrive(N0, "b", 1000, 0, 1);
    arrive(N1, "b", 1000, 2, 3);
    expect_heard(N0, PASSED("b"));
    expect_heard(N1, PASSED("b"));
    arrive(N1, "a", 1000, 2, 3);
    expect_heard(N0, PASSED("a"));
    expect_heard(N1, PASSED("a"));
}

/* A beat while its ranks wait: unlike a rank that comes by itself, an agent goes on talking. */
Test(arrive, the_agent_goes_on_talking)
{
    arrive(N0, "a", 1000, 0, 1);
    cr_assert_str_eq(sim_control(&sim, N0, "{\"op\":\"heartbeat\",\"round\":1,\"workers\":[]}"),
                     "{\"ok\":true}");
    arrive(N1, "a", 1000, 2, 3);
    expect_heard(N0, PASSED("a"));
}

Test(arrive, together_with_ranks_that_come_by_themselves)
{
    sim_worker(&sim, 2, 0, 4);
    sim_worker(&sim, 3, 0, 4);
    forget();
    sim_barrier(&sim, 2, "mixed", 1000, NULL);
    arrive(N0, "mixed", 1000, 0, 1);
    expect_nothing(N0);
    sim_barrier(&sim, 3, "mixed", 1000, NULL);
    expect_heard(N0, PASSED("mixed"));
    expect_trace_has("rank 3 passes");
}

Test(arrive, a_name_that_json_must_escape)
{
    arrive(N0, "a\\\"\\u0001", 1000, 0, 1);
    arrive(N1, "a\\\"\\u0001", 1000, 2, 3);
    expect_heard(N0, PASSED("a\\\"\\\\x01"));
}

/* --- how it fails ----------------------------------------------------------------------------------------------- */

Test(arrive, a_time_out_names_the_ranks_that_are_missing)
{
    sim_worker(&sim, 2, 0, 4);
    forget();
    sim_barrier(&sim, 2, "a", 100, NULL);
    arrive(N0, "a", 100, 0, 1);
    sim_later(&sim, 200);
    const char *heard = hear(N0);
    cr_assert_not_null(strstr(heard, "\"outcome\":\"timed_out\",\"report\":{\"barrier\":\"a\""), "%s", heard);
    cr_assert_not_null(strstr(heard, "\"missing\":[{\"rank\":3"), "%s", heard);
    cr_assert_not_null(strstr(heard, "\"missing_count\":1"), "%s", heard);
    expect_trace_has("rank 2 gets outcome 1");
}

Test(arrive, whoever_comes_after_the_end_gets_the_same_report)
{
    arrive(N0, "a", 100, 0, 1);
    sim_later(&sim, 200);
    expect_heard(N0, "\"outcome\":\"timed_out\"");
    arrive(N1, "a", 100, 2, 3);
    expect_heard(N1, "\"outcome\":\"timed_out\",\"report\":{\"barrier\":\"a\"");
    arrive(N1, "a", 100, 2, 3);
    expect_heard(N1, "\"outcome\":\"misuse\"");
}

Test(arrive, a_rank_that_ends_while_its_agent_waits_fails_the_barrier)
{
    arrive(N0, "a", 1000, 0, 1);
    sim_say(&sim, N0, "{\"op\":\"worker_exited\",\"round\":1,\"rank\":1,\"pid\":7,\"exit_code\":3}");
    expect_heard(N0, "\"outcome\":\"lost\",\"report\":");
    expect_heard(N0, "{\"ok\":true}");
    arrive(N1, "a", 1000, 2, 3);
    expect_heard(N1, "\"outcome\":\"lost\"");
}

/* As when a rank's connection goes: they are not here any more. */
Test(arrive, an_agent_that_dies_takes_its_ranks_out_of_the_barrier)
{
    sim_worker(&sim, 0, 0, 4);
    forget();
    arrive(N1, "a", 100, 2, 3);
    sim_barrier(&sim, 0, "a", 100, NULL);
    sim_disconnect(&sim, N1);
    sim_later(&sim, 200);
    expect_trace_has("1 of 4 ranks have come");
}

Test(arrive, a_new_round_ends_every_wait_without_a_word)
{
    arrive(N0, "a", 1000, 0, 1);
    sim_say(&sim, N1, "{\"op\":\"failed\",\"round\":1,\"rank\":2,\"pid\":7,\"exit_code\":3}");
    sim_say(&sim, N0, "{\"op\":\"stopped\",\"round\":1,\"max_code\":0}");
    sim_say(&sim, N1, "{\"op\":\"stopped\",\"round\":1,\"max_code\":3}");
    sim_later(&sim, 100);
    forget();
    join(N0, 0); /* on the same connections */
    join(N1, 1);
    while (sim.conn[N0].out.len > 0)
        cr_assert_null(strstr(hear(N0), "\"push\":\"barrier\""));
    cr_assert_str_eq(sim_control(&sim, OPERATOR, "{\"op\":\"barriers\"}"), "{\"barriers\":[],\"ok\":true}");
}

/* --- what is refused -------------------------------------------------------------------------------------------- */

static void expect_refused_at(const char *fields, const char *why, int line)
{
    char json[256];
    snprintf(json, sizeof(json), "{\"op\":\"arrive\",%s}", fields);
    sim_say(&sim, N1, json);
    const char *heard = hear(N1);
    cr_assert(strstr(heard, "\"push\":\"barrier\"") && strstr(heard, "\"outcome\":\"refused\"") &&
                  strstr(heard, why),
              "line %d: %s", line, heard);
}
#define expect_refused(fields, why) expect_refused_at(fields, why, __LINE__)

Test(arrive, a_refusal_is_the_push_that_is_waited_for)
{
    expect_refused("\"round\":1,\"timeout_ms\":9,\"ranks\":[2,3]", "\\\"barrier\\\" is missing");
    expect_refused("\"round\":1,\"barrier\":\"a\",\"ranks\":[2,3]", "\\\"timeout_ms\\\" is missing");
    expect_refused("\"round\":1,\"barrier\":\"a\",\"timeout_ms\":9,\"ranks\":[1,3]",
                   "those of this node, 2 to 3");
    expect_refused("\"round\":1,\"barrier\":\"a\",\"timeout_ms\":9,\"ranks\":[3,2]", "those of this node");
    expect_refused("\"round\":1,\"barrier\":\"a\",\"timeout_ms\":9,\"ranks\":[2,4]", "those of this node");
    expect_refused("\"round\":1,\"barrier\":\"a\",\"timeout_ms\":9,\"ranks\":[2,1e300]",
                   "those of this node");
    expect_refused("\"round\":1,\"barrier\":\"a\",\"timeout_ms\":9,\"ranks\":[2]", "the first and the last");
    expect_refused("\"round\":1,\"barrier\":\"a\",\"timeout_ms\":9,\"ranks\":{\"x\":2}",
                   "the first and the last");
    expect_refused("\"round\":7,\"barrier\":\"a\",\"timeout_ms\":9,\"ranks\":[2,3]", "STALE_ROUND");
    cr_assert_str_eq(sim_control(&sim, OPERATOR, "{\"op\":\"barriers\"}"), "{\"barriers\":[],\"ok\":true}");
}

Test(arrive, only_for_nodes)
{
    cr_assert_not_null(strstr(sim_control(&sim, OPERATOR, "{\"op\":\"arrive\"}"), "is for agents"));
    sim_client(&sim, 50);
    sim_identify(&sim, 50, "{\"role\":\"agent\"}", NULL);
    sim_say(&sim, 50, "{\"op\":\"arrive\",\"barrier\":\"a\",\"timeout_ms\":9,\"ranks\":[0,1]}");
    expect_heard(50, "join first");
}

Test(arrive, ranks_that_are_in_it_already)
{
    arrive(N0, "a", 1000, 0, 0);
    arrive(N0, "a", 1000, 0, 1);
    expect_heard(N0, "\"outcome\":\"misuse\"");
    arrive(N0, "a", 1000, 1, 1);
    arrive(N1, "a", 1000, 2, 3);
    expect_heard(N0, PASSED("a"));
}

Test(arrive, so_many_barriers_at_a_time_and_no_more)
{
    char name[16];
    for (int i = 0; i < 64; i++) {
        snprintf(name, sizeof(name), "b%d", i);
        arrive(N0, name, 1000, 0, 1);
        expect_nothing(N0);
    }
    arrive(N0, "one more", 1000, 0, 1);
    expect_heard(N0, "waits in 64 barriers already");
}

/* --- what others see -------------------------------------------------------------------------------------------- */

Test(arrive, a_rank_waits_where_its_agent_says)
{
    arrive(N0, "step-7", 60000, 0, 1);
    sim_later(&sim, 5000);
    const char *status = sim_control(&sim, OPERATOR, "{\"op\":\"status\"}");
    cr_assert_not_null(strstr(status, "\"waits_for\":\"barrier 'step-7'"), "%s", status);
    const char *why = sim_control(&sim, OPERATOR, "{\"op\":\"why\"}");
    cr_assert_not_null(strstr(why, "2 ranks wait in barrier 'step-7'"), "%s", why);
}
