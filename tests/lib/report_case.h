/* report_case.h -- a job of local workers that end as the test chooses, and the report of the job. No process runs,
 * because the report is a pure function of the agent's facts. */
#ifndef REPORT_CASE_H
#define REPORT_CASE_H

#include "command_line.h"
#include "report/report.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { NPROC_MOST = 64 };

static struct cli cli;
static struct plan plan;
static struct plan_facts facts;
static struct agent *agent;
static struct tail out_tails[NPROC_MOST], err_tails[NPROC_MOST];
static struct report report;
static struct buf text;
static char *environment[] = { NULL };
static enum exit_policy policy;

static inline void step(enum agent_event_type type, uint64_t now_ms, int r, int code)
{
    size_t n;
    struct agent_event e = { .type = type, .now_ms = now_ms, .local_rank = r, .pid = 4000 + r };
    if (type == AGENT_EXITED && code > 0)
        e.exit_code = code;
    else if (type == AGENT_EXITED)
        e.signal = -code;
    else if (type == AGENT_STOP)
        e.signal = code;
    else
        e.error = code;
    agent_step(agent, &e, &n);
}

/* Plan a job of `nproc` workers, and start its agent at the time 1000 ms. run_all() then starts the workers. */
static inline void start(int nproc, const char *log_dir)
{
    char number[24], directory[64];
    struct ddp_err err;
    snprintf(number, sizeof(number), "--nproc_per_node=%d", nproc);
    snprintf(directory, sizeof(directory), "--log_dir=%s", log_dir != NULL ? log_dir : "/dev/null");
    static char *words[8];
    char *all[] = { "ddprun", number, directory, "./train", NULL };
    memcpy(words, all, sizeof(all));
    facts =
        (struct plan_facts){ .environ_block = environment, .host = "n1", .nonce = "k3x9", .tmp_dir = "/tmp" };
    cr_assert_eq(cli_parse(&cli, 4, words, environment, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(plan_make(&plan, &cli, &facts, &err), DDP_OK, "%s", err.msg);
    agent = agent_new(&(struct agent_options){ .nproc = nproc, .grace_ms = 30000, .exit_policy = policy });
    report = (struct report){ .plan = &plan,
                              .agent = agent,
                              .stdout_tails = out_tails,
                              .stderr_tails = err_tails,
                              .started_ms = 500,
                              .ended_ms = 9000,
                              .ended_unix_ms = UINT64_C(1700000009000), /* 22:13:29 on 2023-11-14, in UTC */
                              .path = "/usr/bin:/bin" };
    step(AGENT_START, 1000, 0, 0);
}

static inline void run_all(int nproc)
{
    for (int r = 0; r < nproc; r++)
        step(AGENT_SPAWNED, 1000, r, 0);
}

static inline void tear_down(void)
{
    for (int r = 0; r < NPROC_MOST; r++) {
        tail_free(&out_tails[r]);
        tail_free(&err_tails[r]);
    }
    agent_free(agent);
    plan_free(&plan);
    cli_free(&cli);
    buf_free(&text);
}

#endif
