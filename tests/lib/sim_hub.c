/* sim_hub.c -- see sim_hub.h. sim_hub.c copies bytes to the heap before the hub gets them, so that a sanitizer
 * detects reads past the end. */
#include "sim_hub.h"

#include "store/encode.h"
#include "store/ops.h"
#include "ddp/context.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void keep(void *user, conn_id conn, struct slice bytes, struct shared *holder)
{
    (void)holder;
    struct sim *sim = user;
    cr_assert(sim->conn[conn].open, "bytes for connection %d, which is closed", (int)conn);
    cr_assert(buf_append(&sim->conn[conn].out, bytes.data, bytes.len));
}

static void note_close(void *user, conn_id conn, const char *why, bool is_news)
{
    (void)is_news;
    struct sim *sim = user;
    cr_assert(sim->conn[conn].open, "connection %d is closed twice", (int)conn);
    sim->conn[conn].open = false;
    snprintf(sim->conn[conn].closed, sizeof(sim->conn[conn].closed), "%s", why);
}

static void note_read(void *user, conn_id conn, bool reads)
{
    struct sim *sim = user;
    sim->conn[conn].is_stopped = !reads;
}

static void note_line(void *user, const char *line)
{
    sim_note(user, "%s", line);
}

void sim_note(struct sim *sim, const char *fmt, ...)
{
    char line[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    cr_assert(buf_printf(&sim->trace, "[%6llu] %s\n", (unsigned long long)sim->now_ms, line));
}

/* Set `n` bytes to the number of this call. So the bytes differ between calls, but not between runs of the test. */
static bool count_up(void *user, void *bytes, size_t n)
{
    static uint8_t next;
    (void)user;
    memset(bytes, ++next, n);
    return true;
}

void sim_init(struct sim *sim, const struct hub_limits *limits)
{
    struct hub_limits defaults = HUB_LIMITS_DEFAULT;
    struct hub_sink sink = { .user = sim,
                             .send = keep,
                             .close = note_close,
                             .read = note_read,
                             .log = note_line,
                             .random = count_up };
    memset(sim, 0, sizeof(*sim));
    sim->hub = hub_new(limits ? limits : &defaults, &sink);
    cr_assert_not_null(sim->hub);
}

void sim_free(struct sim *sim)
{
    hub_free(sim->hub);
    buf_free(&sim->trace);
    for (int i = 0; i < SIM_CONNS; i++)
        buf_free(&sim->conn[i].out);
}

void sim_at(struct sim *sim, uint64_t now_ms)
{
    for (uint64_t due; (due = hub_deadline(sim->hub)) <= now_ms;) {
        sim->now_ms = due > sim->now_ms ? due : sim->now_ms;
        hub_tick(sim->hub, sim->now_ms);
        cr_assert(hub_deadline(sim->hub) > sim->now_ms, "the hub asks for a tick that is over");
    }
    sim->now_ms = now_ms;
}

void sim_connect(struct sim *sim, conn_id conn)
{
    char peer[32];
    snprintf(peer, sizeof(peer), "peer:%d", (int)conn);
    sim->conn[conn].open = true;
    sim->conn[conn].is_stopped = false;
    sim->conn[conn].closed[0] = '\0';
    cr_assert(hub_connect(sim->hub, conn, peer, sim->now_ms));
}

void sim_disconnect(struct sim *sim, conn_id conn)
{
    if (!sim->conn[conn].open)
        return;
    sim->conn[conn].open = false;
    hub_disconnect(sim->hub, conn, "peer closed it", sim->now_ms);
}

void sim_feed_bytes(struct sim *sim, conn_id conn, struct slice bytes)
{
    /* Copy the bytes to the heap, so that a sanitizer detects a read past the end. */
    struct buf copy = { 0 };
    cr_assert(buf_append(&copy, bytes.data, bytes.len));
    uint8_t *exact = bytes.len ? realloc(copy.data, bytes.len) : NULL;
    hub_receive(sim->hub, conn, slice_of(exact, bytes.len), sim->now_ms);
    free(exact);
}

void sim_feed_cut(struct sim *sim, conn_id conn, const char *hex, size_t step)
{
    struct buf bytes = { 0 };
    hex_read(hex, &bytes);
    for (size_t at = 0; at < bytes.len && sim->conn[conn].open; at += step) {
        size_t n = bytes.len - at < step ? bytes.len - at : step;
        sim_feed_bytes(sim, conn, slice_of(bytes.data + at, n));
    }
    buf_free(&bytes);
}

void sim_feed(struct sim *sim, conn_id conn, const char *hex)
{
    sim_feed_cut(sim, conn, hex, SIZE_MAX / 2);
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = strchr(digits, c);
    cr_assert(c != '\0' && at != NULL, "'%c' is not hex", c);
    return (int)(at - digits);
}

void hex_read(const char *hex, struct buf *out)
{
    for (; *hex; hex++) {
        if (*hex == ' ' || *hex == '\n')
            continue;
        uint8_t byte = (uint8_t)(hex_digit(hex[0]) << 4 | hex_digit(hex[1]));
        cr_assert(buf_append(out, &byte, 1));
        hex++;
    }
}

void hex_write(struct slice bytes, struct buf *out)
{
    for (size_t i = 0; i < bytes.len; i++)
        cr_assert(buf_printf(out, "%02x", ((const uint8_t *)bytes.data)[i]));
    cr_assert(buf_printf(out, "%s", ""));
    out->data[out->len] = '\0';
}

/* Expect a closed connection. The reason begins with `why`, in which '*' stands for any text. */
static void expect_closed(struct sim *sim, conn_id conn, const char *why, const char *file, int line)
{
    char pattern[160];
    snprintf(pattern, sizeof(pattern), "%s*", why);
    cr_assert(!sim->conn[conn].open, "%s:%d: connection %d is still open", file, line, (int)conn);
    cr_assert(fnmatch(pattern, sim->conn[conn].closed, 0) == 0, "%s:%d: connection %d closed: %s", file, line,
              (int)conn, sim->conn[conn].closed);
}

void sim_expect_at(struct sim *sim, conn_id conn, const char *hex, const char *file, int line)
{
    struct buf want = { 0 }, want_hex = { 0 }, got_hex = { 0 };
    if (strncmp(hex, "closed: ", 8) == 0) {
        expect_closed(sim, conn, hex + 8, file, line);
        return;
    }
    hex_read(hex, &want);
    cr_assert(want.len > 0 || sim->conn[conn].closed[0] == '\0', "%s:%d: connection %d closed: %s", file,
              line, (int)conn, sim->conn[conn].closed);
    hex_write(buf_slice(&want), &want_hex);
    hex_write(buf_slice(&sim->conn[conn].out), &got_hex);
    cr_assert_str_eq((char *)got_hex.data, (char *)want_hex.data, "%s:%d: connection %d got %s, not %s%s%s",
                     file, line, (int)conn, (char *)got_hex.data, (char *)want_hex.data,
                     sim->conn[conn].closed[0] ? "; closed: " : "", sim->conn[conn].closed);
    sim->conn[conn].out.len = 0;
    buf_free(&want);
    buf_free(&want_hex);
    buf_free(&got_hex);
}

void sim_expect_trace_at(struct sim *sim, const char *text, const char *file, int line)
{
    cr_assert(buf_append(&sim->trace, "", 1));
    cr_assert_str_eq((char *)sim->trace.data, text, "%s:%d: the trace is\n%s", file, line,
                     (char *)sim->trace.data);
    sim->trace.len = 0;
}

/* --- sim job ---------------------------------------------------------------------------------------------- */

static conn_id conn_of(int rank)
{
    return (conn_id)rank + 1;
}

static void begin(struct buf *out, enum op_id op)
{
    *out = (struct buf){ 0 };
    cr_assert(append_u8(out, (uint8_t)op_table[op].code[DIALECT_C]));
}

static void feed_and_free(struct sim *sim, conn_id conn, struct buf *out)
{
    sim_feed_bytes(sim, conn, buf_slice(out));
    buf_free(out);
}

/* --- input of workers ---------------------------------------------------------------------------------------- */

static void note_message(struct sim *sim, int rank, int outcome, struct slice json)
{
    cJSON *o = cJSON_ParseWithLength(json.data, json.len);
    char *text = strdup(cJSON_GetStringValue(cJSON_GetObjectItem(o, "message")));
    sim_note(sim, "rank %d gets outcome %d: %s", rank, outcome, strtok(text, "\n"));
    for (char *line; (line = strtok(NULL, "\n")) != NULL;)
        sim_note(sim, "   %s", line);
    free(text);
    cJSON_Delete(o);
}

/* Read everything that the hub has sent to workers. The answer to a wait in a barrier is a u8 and a blob. The answer to
 * a wait for a key is only a u8. Both answers may begin with the same byte, so check the length. */
static void read_answers(struct sim *sim)
{
    for (int rank = 0; rank < SIM_OPERATOR - 1; rank++) {
        struct buf *out = &sim->conn[conn_of(rank)].out;
        if (out->len == 1) {
            sim_note(sim, out->data[0] ? "rank %d left its wait" : "rank %d has its key", rank);
        } else if (out->len >= 9) {
            size_t len = get_u64(out->data + 1);
            cr_assert_eq(out->len, 9 + len);
            if (out->data[0] == 0)
                sim_note(sim, "rank %d passes", rank);
            else
                note_message(sim, rank, out->data[0], slice_of(out->data + 9, len));
        }
        out->len = 0;
    }
}

/* --- effects ------------------------------------------------------------------------------------------------- */

void sim_client(struct sim *sim, conn_id conn)
{
    sim_connect(sim, conn);
    sim_feed(sim, conn, "00 cef7853c");
}

int sim_identify(struct sim *sim, conn_id conn, const char *json, struct buf *text)
{
    struct buf out;
    struct buf *answer = &sim->conn[conn].out;
    begin(&out, OP_IDENTIFY);
    cr_assert(append_blob(&out, slice_str(json)));
    feed_and_free(sim, conn, &out);
    cr_assert(answer->len >= 9);
    if (text != NULL)
        cr_assert(buf_append(text, answer->data + 9, answer->len - 9) && buf_append(text, "", 1));
    answer->len = 0;
    return answer->data[0];
}

void sim_say(struct sim *sim, conn_id conn, const char *json)
{
    struct buf out;
    begin(&out, OP_CONTROL);
    cr_assert(append_blob(&out, slice_str(json)));
    feed_and_free(sim, conn, &out);
}

const char *sim_control(struct sim *sim, conn_id conn, const char *json)
{
    struct buf *answer = &sim->conn[conn].out;
    answer->len = 0;
    sim_say(sim, conn, json);
    cr_assert(answer->len >= 8 && answer->len == 8 + get_u64(answer->data), "no answer to %s", json);
    cr_assert(buf_append(answer, "", 1));
    answer->len = 0;
    return (const char *)answer->data + 8;
}

static void connect_agent(struct sim *sim)
{
    if (sim->conn[SIM_AGENT].open)
        return;
    sim_client(sim, SIM_AGENT);
    cr_assert_eq(sim_identify(sim, SIM_AGENT, "{\"role\":\"agent\",\"job\":\"demo\"}", NULL), 0);
}

void sim_node(struct sim *sim, int world)
{
    char json[256];
    struct buf *out = &sim->conn[SIM_AGENT].out;
    connect_agent(sim);
    snprintf(json, sizeof(json),
             "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"" DDP_VERSION
             "\",\"host\":\"n1\",\"pid\":99,\"nnodes_min\":1,"
             "\"nnodes_max\":1,\"node_rank\":0,\"nproc\":%d}",
             world);
    sim_say(sim, SIM_AGENT, json);
    cr_assert(memmem(out->data, out->len, "\"push\":\"round\"", 14) != NULL);
    out->len = 0;
}

static void agent_says(struct sim *sim, const char *json)
{
    const char *answer = sim_control(sim, SIM_AGENT, json);
    cr_assert_str_eq(answer, "{\"ok\":true}", "%s -> %s", json, answer);
    read_answers(sim);
}

void sim_job(struct sim *sim, int attempt, int world)
{
    char json[128];
    connect_agent(sim);
    snprintf(json, sizeof(json), "{\"op\":\"job\",\"job\":\"demo\",\"attempt\":%d,\"world_size\":%d}",
             attempt, world);
    agent_says(sim, json);
}

void sim_started(struct sim *sim, int rank)
{
    char json[128];
    snprintf(json, sizeof(json), "{\"op\":\"worker_started\",\"rank\":%d,\"pid\":%d,\"host\":\"n1\"}", rank,
             100 + rank);
    agent_says(sim, json);
}

void sim_exited(struct sim *sim, int rank, int exit_code, int signal)
{
    char json[128];
    snprintf(json, sizeof(json), "{\"op\":\"worker_exited\",\"rank\":%d,\"pid\":%d,\"%s\":%d}", rank,
             100 + rank, signal ? "signal" : "exit_code", signal ? signal : exit_code);
    agent_says(sim, json);
}

void sim_worker(struct sim *sim, int rank, int attempt, int world)
{
    char json[192];
    snprintf(
        json, sizeof(json),
        "{\"role\":\"worker\",\"job\":\"demo\",\"attempt\":%d,\"rank\":%d,\"world_size\":%d,\"host\":\"n1\","
        "\"pid\":%d}",
        attempt, rank, world, 100 + rank);
    sim_client(sim, conn_of(rank));
    cr_assert_eq(sim_identify(sim, conn_of(rank), json, NULL), 0);
}

void sim_barrier(struct sim *sim, int rank, const char *name, int64_t timeout_ms, const char *members)
{
    struct buf out, ranks = { 0 };
    for (char *end; members != NULL && *members != '\0'; members = end)
        cr_assert(append_u32(&ranks, (uint32_t)strtoul(members, &end, 10)));
    begin(&out, OP_BARRIER_NAMED);
    cr_assert(append_blob(&out, slice_str(name)) && append_i64(&out, timeout_ms) &&
              append_blob(&out, buf_slice(&ranks)));
    feed_and_free(sim, conn_of(rank), &out);
    buf_free(&ranks);
    read_answers(sim);
}

void sim_cancel_wait(struct sim *sim, int rank)
{
    sim_feed(sim, conn_of(rank), "0c");
    read_answers(sim);
}

void sim_wait_key(struct sim *sim, int rank, const char *key)
{
    struct buf out;
    begin(&out, OP_WAIT);
    cr_assert(append_u64(&out, 1) && append_blob(&out, slice_str(key)));
    feed_and_free(sim, conn_of(rank), &out);
    read_answers(sim);
}

void sim_set_key(struct sim *sim, int rank, const char *key)
{
    struct buf out;
    begin(&out, OP_SET);
    cr_assert(append_blob(&out, slice_str(key)) && append_blob(&out, slice_str("1")));
    feed_and_free(sim, conn_of(rank), &out);
    read_answers(sim);
}

void sim_worker_gone(struct sim *sim, int rank)
{
    sim_disconnect(sim, conn_of(rank));
    read_answers(sim);
}

void sim_later(struct sim *sim, uint64_t now_ms)
{
    sim_at(sim, now_ms);
    read_answers(sim);
}
