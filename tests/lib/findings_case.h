/* findings_case.h -- nodes that wait for each other on a clock that stands still, and what they are told of what is wrong. */
#ifndef FINDINGS_CASE_H
#define FINDINGS_CASE_H

#include "store/encode.h"
#include "store/ops.h"
#include "sim_hub.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

enum { N0 = 10, N1, N2, N3, OPERATOR = 40, WORKERS = 50 };

static struct sim sim;
static int more_workers; /* of the next node that joins, than 2 */
static cJSON *told;      /* the last push "findings" that expect_told has seen */

static inline void set_up(void)
{
    struct hub_limits limits = HUB_LIMITS_DEFAULT;
    limits.endpoint = "10.0.0.1:29500";
    limits.host = "n0";
    sim_init(&sim, &limits);
    sim_client(&sim, OPERATOR);
}

static inline void tear_down(void)
{
    cJSON_Delete(told);
    told = NULL;
    sim_free(&sim);
}

/* --- what happens --------------------------------------------------------------------------------------- */

/* Node `node_rank` of a static job of `nnodes` joins; `more` is put into the object. */
static inline void join_as(conn_id conn, const char *host, int node_rank, int nnodes, const char *more)
{
    char json[1024];
    const int n = (int)conn - N0;
    if (!sim.conn[conn].open) {
        sim_client(&sim, conn);
        sim_identify(&sim, conn, "{\"role\":\"agent\"}", NULL);
    }
    snprintf(
        json, sizeof(json),
        "{\"op\":\"join\",\"job\":\"demo\",\"version\":\"0.1.0\",\"host\":\"%s\",\"boot_id\":\"b-%s\","
        "\"pid\":%d,\"mode\":\"static\",\"nnodes_min\":%d,\"nnodes_max\":%d,\"node_rank\":%d,\"nproc\":%d,"
        "\"addr\":\"10.0.0.%d\",\"join_timeout_ms\":60000,\"node_timeout_ms\":3000,\"grace_ms\":1000%s}",
        host, host, 100 + n, nnodes, nnodes, node_rank, 2 + more_workers, n + 1, more);
    sim_say(&sim, conn, json);
}

static inline void join(conn_id conn, int node_rank, int nnodes, const char *more)
{
    char host[16];
    snprintf(host, sizeof(host), "n%d", (int)conn - N0);
    join_as(conn, host, node_rank, nnodes, more);
}

/* Time goes on, and all nodes that are there say every second that they live. */
static inline void live_until(uint64_t now_ms)
{
    while (sim.now_ms < now_ms) {
        const uint64_t next = sim.now_ms + 1000 < now_ms ? sim.now_ms + 1000 : now_ms;
        for (conn_id conn = N0; conn <= N3; conn++)
            if (sim.conn[conn].open && sim.conn[conn].closed[0] == '\0')
                sim_say(&sim, conn, "{\"op\":\"heartbeat\"}");
        sim_at(&sim, next);
    }
}

/* --- what is heard -------------------------------------------------------------------------------------- */

/* Take everything that `conn` was sent; the last object with "push":kind is returned, yours, or NULL. */
static inline cJSON *last_push(conn_id conn, const char *kind)
{
    struct buf *out = &sim.conn[conn].out;
    cJSON *found = NULL;
    for (size_t at = 0; at + 8 <= out->len;) {
        const size_t len = get_u64(out->data + at);
        cJSON *o = cJSON_ParseWithLength((const char *)out->data + at + 8, len);
        const char *push = cJSON_GetStringValue(cJSON_GetObjectItem(o, "push"));
        at += 8 + len;
        if (push != NULL && strcmp(push, kind) == 0) {
            cJSON_Delete(found);
            found = o;
        } else {
            cJSON_Delete(o);
        }
    }
    out->len = 0;
    return found;
}

static inline const char *text_of(const cJSON *o, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(o, name));
    return text != NULL ? text : "";
}

/* Is there a finding with this code and subject? */
static inline bool has(const cJSON *o, const char *code, const char *subject)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(o, "findings"))
    {
        if (strcmp(text_of(row, "code"), code) == 0 && strcmp(text_of(row, "subject"), subject) == 0)
            return true;
    }
    return false;
}

static inline void expect_told_at(conn_id conn, const char *code, const char *subject, int line)
{
    cJSON_Delete(told);
    told = last_push(conn, "findings");
    cr_assert(has(told, code, subject), "line %d: %s about %s, but: %s", line, code, subject,
              text_of(told, "text"));
}
#define expect_told(conn, code, subject) expect_told_at(conn, code, subject, __LINE__)

static inline void expect_silence_at(conn_id conn, int line)
{
    cJSON *o = last_push(conn, "findings");
    cr_assert_null(o, "line %d: %s", line, text_of(o, "text"));
}
#define expect_silence(conn) expect_silence_at(conn, __LINE__)

static inline void expect_why_at(const char *code, const char *subject, int line)
{
    cJSON *o = cJSON_Parse(sim_control(&sim, OPERATOR, "{\"op\":\"why\"}"));
    cr_assert(has(o, code, subject), "line %d: %s about %s, but: %s", line, code, subject,
              text_of(o, "text"));
    cJSON_Delete(o);
}
#define expect_why(code, subject) expect_why_at(code, subject, __LINE__)

static inline bool says(const char *words)
{
    return strstr(text_of(told, "text"), words) != NULL;
}

#endif
