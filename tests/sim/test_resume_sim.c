/* The connection between an agent and the hub breaks at random places. Still, every request and every push arrives once
 * and in order, and a node has only one connection at a time. */
#include "ddp/context.h"
#include "hub/job.h"
#include "sim_hub.h"
#include "store/encode.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum { REQUESTS_MAX = 4096, OPERATOR = SIM_CONNS - 1, TIMEOUT_MS = 60000 };

static struct sim sim;

/* The agent's end of the connection, which behaves as launcher/net/store_link.c does. */
static struct model {
    conn_id conn;
    bool up; /* false = the connection is broken, and the requests are only kept */
    char token[64];
    uint64_t asked, answered, heard;
    bool is_echo[REQUESTS_MAX];
    struct kept unanswered;
    int last_sample;
} m;

static unsigned seed;

static unsigned dice(unsigned sides)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 16) % sides;
}

static void begin(void)
{
    m = (struct model){ .conn = 1 };
    sim_init(&sim, NULL);
}

static void end(void)
{
    buf_free(&m.unanswered.bytes);
    sim_free(&sim);
}

static void connect_agent(conn_id conn)
{
    m.conn = conn;
    sim_client(&sim, conn);
    cr_assert_eq(sim_identify(&sim, conn, "{\"role\":\"agent\",\"job\":\"demo\"}", NULL), 0);
}

/* Return the next frame of the connection as JSON, which the caller frees. Return NULL if no frame is complete. */
static cJSON *next_frame(conn_id conn)
{
    struct buf *out = &sim.conn[conn].out;
    if (out->len < 8 || out->len < 8 + get_u64(out->data))
        return NULL;
    const size_t len = get_u64(out->data);
    cJSON *o = cJSON_ParseWithLength((const char *)out->data + 8, len);
    cr_assert_not_null(o);
    buf_consume(out, 8 + len);
    return o;
}

static const char *text_of(const cJSON *o, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(o, name));
    return text != NULL ? text : "";
}

static void join(const char *more)
{
    char json[512];
    cJSON *o;
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"" DDP_VERSION
             "\",\"host\":\"n1\",\"pid\":99,\"nnodes_min\":1,\"nnodes_max\":1,\"node_rank\":0,\"nproc\":2,"
             "\"node_timeout_ms\":%d%s}",
             TIMEOUT_MS, more);
    connect_agent(1);
    sim_say(&sim, 1, json);
    while (m.token[0] == '\0' && (o = next_frame(1)) != NULL) {
        snprintf(m.token, sizeof(m.token), "%s", text_of(o, "token"));
        cJSON_Delete(o);
    }
    m.heard = m.token[0] != '\0';
    m.up = true;
}

static void ask(const char *json, bool is_echo)
{
    cr_assert_lt(m.asked + 1, REQUESTS_MAX);
    m.is_echo[++m.asked] = is_echo;
    kept_add(&m.unanswered, slice_str(json));
    if (m.up)
        sim_say(&sim, m.conn, json);
}

static void process_answer(const cJSON *o)
{
    char want[64];
    const uint64_t n = ++m.answered;
    cr_assert_leq(n, m.asked);
    snprintf(want, sizeof(want), "\"echo-%d\"", (int)n);
    if (m.is_echo[n])
        cr_assert_not_null(strstr(text_of(o, "error"), want), "answer %d is %s", (int)n, text_of(o, "error"));
    else
        cr_assert(cJSON_IsTrue(cJSON_GetObjectItem(o, "ok")), "answer %d is %s", (int)n, text_of(o, "error"));
    kept_confirm(&m.unanswered, n);
}

static void take_push(const cJSON *o)
{
    char json[96];
    if (strcmp(text_of(o, "push"), "sample") != 0)
        return;
    const int id = cJSON_GetObjectItem(o, "id")->valueint;
    cr_assert_eq(id, m.last_sample + 1, "sample %d follows sample %d", id, m.last_sample);
    m.last_sample = id;
    snprintf(json, sizeof(json), "{\"op\":\"sampled\",\"id\":%d,\"stacks\":[],\"round\":1}", id);
    ask(json, false);
}

/* Read up to `most` frames. */
static void read_frames(unsigned most)
{
    cJSON *o;
    while (m.up && most-- > 0 && (o = next_frame(m.conn)) != NULL) {
        m.heard++;
        if (text_of(o, "push")[0] != '\0')
            take_push(o);
        else
            process_answer(o);
        cJSON_Delete(o);
    }
}

/* Break the connection. The unread bytes are lost. In a third of the cases, the store does not detect the break. */
static void cut(void)
{
    m.up = false;
    if (dice(3) == 0 || !sim.conn[m.conn].open)
        return;
    sim.conn[m.conn].open = false;
    hub_cut(sim.hub, m.conn, "connection reset by peer", sim.now_ms);
}

/* Connect again. The connection may break before the answer is read. */
static bool resume(void)
{
    char json[256];
    struct slice frame;
    cJSON *o;
    const conn_id before = m.conn;
    connect_agent(m.conn + 1);
    snprintf(json, sizeof(json), "{\"op\":\"resume\",\"job\":\"demo\",\"token\":\"%s\",\"heard\":%d}",
             m.token, (int)m.heard);
    sim_say(&sim, m.conn, json);
    cr_assert_not(sim.conn[before].open, "the node has two connections");
    if (dice(4) == 0) {
        cut();
        return false;
    }
    cr_assert_not_null(o = next_frame(m.conn));
    cr_assert(cJSON_IsTrue(cJSON_GetObjectItem(o, "ok")), "%s", text_of(o, "error"));
    const uint64_t received = (uint64_t)cJSON_GetObjectItem(o, "received")->valueint;
    cJSON_Delete(o);
    cr_assert(received >= m.answered && received <= m.asked);
    m.up = true;
    uint64_t number = m.unanswered.done;
    struct buf copy = { 0 };
    for (size_t at = 0; kept_next(&m.unanswered, &at, &frame);)
        if (++number > received) {
            copy.len = 0;
            cr_assert(buf_append(&copy, frame.data, frame.len) && buf_append(&copy, "", 1));
            sim_say(&sim, m.conn, (const char *)copy.data);
        }
    buf_free(&copy);
    return true;
}

static void run_seed(unsigned s)
{
    char json[64];
    int stacks = 0;
    seed = s;
    begin();
    join(",\"resumes\":true");
    cr_assert_eq(strlen(m.token), 32);
    sim_client(&sim, OPERATOR);
    cr_assert_eq(sim_identify(&sim, OPERATOR, "{\"role\":\"ctl\"}", NULL), 0);
    for (int step = 0; step < 600; step++) {
        sim_at(&sim, sim.now_ms + dice(20));
        switch (dice(m.conn < OPERATOR - 40 ? 8 : 7)) {
        case 0:
        case 1:
            snprintf(json, sizeof(json), "{\"op\":\"echo-%d\"}", (int)m.asked + 1);
            ask(json, true);
            break;
        case 2:
            snprintf(json, sizeof(json), "{\"op\":\"heartbeat\",\"heard\":%d}", (int)m.heard);
            ask(json, false);
            break;
        case 3:
            sim.conn[OPERATOR].out.len = 0;
            sim_say(&sim, OPERATOR, "{\"op\":\"stacks\"}");
            stacks++;
            break;
        case 7:
            cut();
            while (!resume())
                continue;
            break;
        default:
            read_frames(dice(6));
        }
    }
    read_frames(REQUESTS_MAX);
    cr_expect_eq(m.answered, m.asked, "seed %u: %d of %d requests are answered", s, (int)m.answered,
                 (int)m.asked);
    cr_expect(m.last_sample > 0 && m.last_sample <= stacks);
    end();
}

TestSuite(resume_sim, .timeout = 120);

Test(resume_sim, every_frame_arrives_once_and_in_order)
{
    for (unsigned s = 1; s <= 100; s++)
        run_seed(s);
}

/* Send `resume` on connection `conn`; return whether the store accepts it. */
static bool try_resume(conn_id conn, const char *token, int heard)
{
    char json[256];
    cJSON *o;
    sim_client(&sim, conn);
    cr_assert_eq(sim_identify(&sim, conn, "{\"role\":\"agent\",\"job\":\"demo\"}", NULL), 0);
    snprintf(json, sizeof(json), "{\"op\":\"resume\",\"job\":\"demo\",\"token\":\"%s\",\"heard\":%d}", token,
             heard);
    sim_say(&sim, conn, json);
    cr_assert_not_null(o = next_frame(conn));
    const bool ok = cJSON_IsTrue(cJSON_GetObjectItem(o, "ok"));
    cJSON_Delete(o);
    return ok;
}

Test(resume_sim, only_the_token_of_a_node_opens_its_place, .init = begin, .fini = end)
{
    char wrong[64];
    join(",\"resumes\":true");
    snprintf(wrong, sizeof(wrong), "%s", m.token);
    wrong[31] ^= 1;
    cr_expect_not(try_resume(2, wrong, 1));
    cr_expect_not(try_resume(3, "", 1));
    cr_expect_not(try_resume(4, m.token, 1000), "the node cannot have received so many frames");
    cr_expect(sim.conn[1].open);
    cr_expect(try_resume(5, m.token, 1));
    cr_expect_not(sim.conn[1].open, "the old connection must end");
    cr_expect(try_resume(6, m.token, 1));
    cr_expect_not(sim.conn[5].open);
}

Test(resume_sim, a_node_withdraws_its_finding_on_a_new_connection, .init = begin, .fini = end)
{
    join(",\"resumes\":true");
    sim_say(&sim, 1,
            "{\"op\":\"notice\",\"code\":\"SHM_SMALL\",\"subject\":\"n1\",\"sentence\":\"is full\"}");
    cr_assert(try_resume(2, m.token, 1));
    const struct notices *notices = &job_find(sim.hub, "demo")->notices;
    cr_assert_eq(notices->count, 1);
    cr_expect_eq(notices->list[0].sender, 2);
    sim_say(&sim, 2, "{\"op\":\"notice\",\"code\":\"SHM_SMALL\",\"subject\":\"n1\",\"sentence\":\"\"}");
    cr_expect_eq(notices->count, 0);
}

Test(resume_sim, a_node_that_does_not_come_back_is_lost, .init = begin, .fini = end)
{
    join(",\"resumes\":true");
    sim.conn[1].open = false;
    hub_cut(sim.hub, 1, "connection reset by peer", sim.now_ms);
    cr_expect_eq(hub_nodes(sim.hub), 1);
    sim_at(&sim, TIMEOUT_MS - 2);
    cr_expect_eq(hub_nodes(sim.hub), 1);
    sim_at(&sim, TIMEOUT_MS + 1);
    cr_expect_eq(hub_nodes(sim.hub), 0);
    cr_expect_not_null(memmem(sim.trace.data, sim.trace.len, "within 60.0", 11));
    cr_expect_not(try_resume(2, m.token, 1));
}

Test(resume_sim, a_node_that_cannot_connect_again_is_lost_at_once, .init = begin, .fini = end)
{
    join("");
    cr_expect_str_eq(m.token, "");
    sim.conn[1].open = false;
    hub_cut(sim.hub, 1, "connection reset by peer", sim.now_ms);
    cr_expect_eq(hub_nodes(sim.hub), 0);
}

/* A finished node exits, and its kernel may reset the connection because of unread pushes. */
Test(resume_sim, the_place_of_a_finished_node_is_not_kept, .init = begin, .fini = end)
{
    join(",\"resumes\":true");
    sim_say(&sim, 1, "{\"op\":\"failed\",\"round\":1,\"rank\":0,\"exit_code\":1}");
    sim_say(&sim, 1, "{\"op\":\"stopped\",\"round\":1}");
    cr_assert_not_null(memmem(sim.conn[1].out.data, sim.conn[1].out.len, "\"verdict\"", 9));
    sim.conn[1].open = false;
    hub_cut(sim.hub, 1, "connection reset by peer", sim.now_ms);
    cr_expect_eq(hub_nodes(sim.hub), 0);
}

/* A node that never confirms a frame loses the right to connect again, and the store keeps no frames for this node. */
Test(resume_sim, the_kept_frames_have_a_limit, .init = begin, .fini = end)
{
    char long_op[512];
    join(",\"resumes\":true");
    snprintf(long_op, sizeof(long_op), "{\"op\":\"%060d\"}", 7);
    for (int i = 0; i < 60000; i++) {
        sim_say(&sim, 1, long_op);
        sim.conn[1].out.len = 0;
    }
    cr_expect_not(try_resume(2, m.token, 1));
    cr_expect(sim.conn[1].open);
}
