/* torch_case.h -- ranks of PyTorch that come together, or do not, through a hub without sockets, and what their node is told. */
#ifndef TESTS_LIB_TORCH_CASE_H
#define TESTS_LIB_TORCH_CASE_H

#include "store/encode.h"
#include "sim_job.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { NODE = 10, RANK0 = 20, RANK1, OTHER0, OTHER1, OPERATOR = 40, WORLD = 2 };

#define BARRIER "//worker/attempt_0/default_pg/store_based_barrier_key:1"
#define ADDRESS "/default_pg/0//cpu//0/"
#define NCCL_ID "/default_pg/0//cuda//0"

static struct sim sim;

/* --- what is said --------------------------------------------------------------------------------------- */

/* Everything that has been pushed to the agent since the last call; "" = nothing. */
static inline const char *told(void)
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

static inline void say(const char *json)
{
    sim_say(&sim, NODE, json);
    (void)told();
}

static inline void expect_told(const char *words)
{
    const char *text = told();
    cr_expect(strstr(text, words) != NULL, "'%s' is not in: %s", words, text);
}

static inline void expect_operator(const char *op, const char *words)
{
    char json[64];
    snprintf(json, sizeof(json), "{\"op\":\"%s\"}", op);
    const char *text = sim_control(&sim, OPERATOR, json);
    cr_expect(strstr(text, words) != NULL, "'%s' is not in: %s", words, text);
}

/* --- who does what -------------------------------------------------------------------------------------- */

static inline void join(void)
{
    say("{\"op\":\"join\",\"job\":\"a\",\"version\":\"0.1.0\",\"host\":\"n0\",\"pid\":7,\"nnodes_min\":1,"
        "\"nnodes_max\":1,\"node_rank\":0,\"nproc\":2,\"max_restarts\":1,\"join_timeout_ms\":60000,\"node_"
        "timeout_ms\":100000000}");
}

static inline void node_joins(void)
{
    sim_client(&sim, NODE);
    sim_identify(&sim, NODE, "{\"role\":\"agent\"}", NULL);
    join();
    say("{\"op\":\"worker_started\",\"rank\":0,\"pid\":100,\"host\":\"n0\",\"round\":1}");
    say("{\"op\":\"worker_started\",\"rank\":1,\"pid\":101,\"host\":\"n0\",\"round\":1}");
}

static inline void set_up(void)
{
    sim_init(&sim, NULL);
    sim_client(&sim, OPERATOR);
    node_joins();
}

static inline void tear_down(void)
{
    sim_free(&sim);
}

static inline void request(conn_id conn, uint8_t opcode, bool is_list, const char *key, const void *rest,
                           size_t len)
{
    struct buf bytes = { 0 };
    bool ok = put_u8(&bytes, opcode) && (!is_list || put_u64(&bytes, 1)) &&
              put_blob(&bytes, slice_str(key)) && (len == 0 || buf_append(&bytes, rest, len));
    cr_assert(ok);
    sim_feed_bytes(&sim, conn, buf_slice(&bytes));
    buf_free(&bytes);
}

static inline void add(conn_id conn, const char *key, int64_t delta)
{
    request(conn, 4, false, key, &delta, sizeof(delta));
}

static inline void wait_for(conn_id conn, const char *key)
{
    request(conn, 6, true, key, NULL, 0);
}

static inline void set(conn_id conn, const char *key)
{
    static const uint8_t value[9] = { 1, 0, 0, 0, 0, 0, 0, 0, 'x' };
    request(conn, 1, false, key, value, sizeof(value));
}

/* A client of PyTorch's whose agent says that it is that rank, -1 = nobody says so. */
static inline void client(conn_id conn, int rank, int pid)
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

static inline void other(conn_id conn, int pid)
{
    char json[160];
    snprintf(json, sizeof(json), "{\"op\":\"owner\",\"conn\":%d,\"pid\":%d,\"words\":\"python3 (pid %d)\"}",
             (int)conn, pid, pid);
    say(json);
}

static inline void four_count(void)
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

#endif
