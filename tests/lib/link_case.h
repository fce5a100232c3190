/* link_case.h -- the agent's connection to a store on a free port, and what it has told its owner. */
#ifndef LINK_CASE_H
#define LINK_CASE_H

#include "net/store_link.h"
#include "server/server.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

static uv_loop_t loop;
static struct store_server *server;
static struct store_link *link_;
static int ready, joined, refused, lost, left, told, judged, silent_ms;
static struct heard_round heard;
static struct heard_verdict verdict;
static struct failure cause;
static char left_words[128];
static char why_lost[512], why_refused[1024];

/* One node with two workers, of a job of one node. */
static struct cli cli = { .nproc = { .kind = NPROC_NUMBER }, .grace_ms = 1000 };
static struct plan_facts facts = { .host = "n1" };
static struct plan plan = { .cli = &cli,
                            .facts = &facts,
                            .job = "myjob",
                            .nproc = 2,
                            .meeting = { .nnodes_min = 1,
                                         .nnodes_max = 1,
                                         .join_ms = 60000,
                                         .last_call_ms = 100,
                                         .node_timeout_ms = 3000,
                                         .program = "train" } };

static inline void on_round(void *user, const struct heard_round *round)
{
    (void)user;
    ready++;
    heard = *round;
}

static inline void on_waiting(void *user, const struct heard_waiting *waiting)
{
    (void)user, (void)waiting;
}

static inline void on_told(void *user, const struct failure *why)
{
    (void)user;
    told++;
    cause = *why;
}

static inline void on_verdict(void *user, const struct heard_verdict *v)
{
    (void)user;
    judged++;
    verdict = *v;
}

static inline void on_findings(void *user, const cJSON *push)
{
    (void)user, (void)push;
}

static inline void on_joined(void *user, bool spare, const char *instance, uint64_t store_ms)
{
    (void)user, (void)spare, (void)instance, (void)store_ms;
    joined++;
}

static inline void on_refused(void *user, const char *code, const char *why, const char *advice)
{
    (void)user;
    refused++;
    snprintf(why_refused, sizeof(why_refused), "%s: %s; %s", code, why, advice);
}

static inline void on_beat(void *user, struct message_heartbeat *beat)
{
    (void)user, (void)beat;
}

static inline void on_who(void *user, int64_t conn, const char *peer, const char *store, bool any)
{
    (void)user, (void)conn, (void)peer, (void)store, (void)any;
}

static inline void on_status(void *user, const cJSON *answer)
{
    (void)user, (void)answer;
}

static inline void on_lost(void *user, const char *why)
{
    (void)user;
    lost++;
    snprintf(why_lost, sizeof(why_lost), "%s", why);
}

static inline void on_left_waiting(void *user, const cJSON *push)
{
    (void)user;
    left++;
    struct message_findings m;
    message_read_findings(push, &m);
    snprintf(left_words, sizeof(left_words), "%s", m.text);
}

static inline void start_server(void)
{
    struct ddp_err err;
    const struct store_server_options options = { .host = "127.0.0.1", .limits = HUB_LIMITS_DEFAULT };
    cr_assert_eq(store_server_start(&options, &server, &err), DDP_OK, "%s", err.msg);
    uv_loop_init(&loop);
}

static inline void open_link(int port)
{
    struct ddp_err err;
    const struct store_link_options options = { .loop = &loop,
                                                .fd = -1,
                                                .address = "127.0.0.1",
                                                .port = port,
                                                .plan = &plan,
                                                .who = { .pid = getpid(), .boot_id = "boot" },
                                                .beat_ms = 200,
                                                .silent_ms = (uint64_t)silent_ms,
                                                .calls = { .round = on_round,
                                                           .waiting = on_waiting,
                                                           .stop = on_told,
                                                           .verdict = on_verdict,
                                                           .findings = on_findings,
                                                           .joined = on_joined,
                                                           .refused = on_refused,
                                                           .beat = on_beat,
                                                           .who = on_who,
                                                           .status = on_status,
                                                           .left_waiting = on_left_waiting,
                                                           .lost = on_lost } };
    cr_assert_eq(store_link_open(&options, &link_, &err), DDP_OK, "%s", err.msg);
}

static inline void until(const int *flag)
{
    while (*flag == 0)
        uv_run(&loop, UV_RUN_ONCE);
}

static inline void on_stop(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, NULL);
    uv_stop(timer->loop);
}

/* Let the loop work for a moment. */
static inline void work_ms(uint64_t ms)
{
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_stop, ms, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_run(&loop, UV_RUN_NOWAIT); /* the timer's close callback */
}

static inline void close_all(void)
{
    store_link_close(link_);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(uv_loop_close(&loop), 0, "a handle is left open");
    store_server_stop(server);
}

#endif
