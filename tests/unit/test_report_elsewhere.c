/* The report of a node that did not fail itself: another one did, is lost, or the store is. */
#include "report/report.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

static struct cli cli = { .max_restarts = 0 };
static char *no_environment[] = { NULL };
static struct plan_facts facts = { .host = "n1", .environ_block = no_environment };
static struct plan_worker workers[2] = { { .rank = 0 }, { .rank = 1, .local_rank = 1 } };
static struct plan plan = { .cli = &cli,
                            .facts = &facts,
                            .master_addr = "127.0.0.1",
                            .master_port = 29500,
                            .nnodes = 2,
                            .world_size = 6,
                            .workers = workers };
static struct agent *agent;
static struct report report;
static struct buf text;

static void step(enum agent_event_type type, uint64_t now_ms, int r, int code)
{
    size_t n;
    struct agent_event e = { .type = type, .now_ms = now_ms, .local_rank = r, .pid = 4000 + r };
    e.exit_code = type == AGENT_EXITED && code > 0 ? code : 0;
    e.signal = type == AGENT_EXITED && code < 0 ? -code : 0;
    if (type == AGENT_TOLD_TO_STOP)
        e.exit_code = failure_code(report.elsewhere);
    agent_step(agent, &e, &n);
}

/* A job of `nproc` workers here, which all run since 1000 ms. */
static void start(int nproc)
{
    plan.nproc = nproc;
    agent = agent_new(&(struct agent_options){ .nproc = nproc, .grace_ms = 30000 });
    report = (struct report){
        .plan = &plan, .agent = agent, .started_ms = 500, .ended_ms = 9000, .best_step = -1
    };
    step(AGENT_START, 1000, 0, 0);
    for (int r = 0; r < nproc; r++)
        step(AGENT_SPAWNED, 1000, r, 0);
}

static void tear_down(void)
{
    agent_free(agent);
    buf_free(&text);
}

static void expect(const char *golden)
{
    cr_assert(report_text(&report, &text) && buf_append(&text, "", 1));
    cr_assert_str_eq((char *)text.data, golden, "the report is:\n%s", (char *)text.data);
}

/* What the other node has told is here; our own workers come behind it. */
Test(report_elsewhere, names_a_failure_on_another_node, .fini = tear_down)
{
    const struct failure cause = { .why = "failed",
                                   .node_rank = 1,
                                   .host = "n2",
                                   .rank = 5,
                                   .local_rank = 1,
                                   .pid = 77,
                                   .signal = SIGKILL,
                                   .after_ms = 2500,
                                   .words = "out of memory (SIGKILL)",
                                   .log = "logs/k3x9/attempt_0/1",
                                   .n_lines = 2,
                                   .lines = { "loading", "step 7" } };
    start(2);
    report.elsewhere = &cause;
    step(AGENT_TOLD_TO_STOP, 3500, 0, 0);
    for (int r = 0; r < 2; r++)
        step(AGENT_EXITED, 3600, r, -SIGTERM);
    expect("ddprun: rank 5 on n2 failed first: out of memory (SIGKILL), 2.5 s after the start\n"
           "  worker   rank 5 (local rank 1), pid 77, host n2, node 1; more is said there\n"
           "  its logs logs/k3x9/attempt_0/1 on n2\n"
           "  stderr   | loading\n"
           "           | step 7\n"
           "  then     ranks 0-1 were stopped by ddprun as a consequence (SIGTERM)\n"
           "  exit     137 = 128 + 9 (SIGKILL), because of rank 5 on n2\n");
}

Test(report_elsewhere, names_a_node_that_was_lost, .fini = tear_down)
{
    const struct failure cause = { .why = "node_lost",
                                   .node_rank = 1,
                                   .host = "n2",
                                   .rank = -1,
                                   .local_rank = -1,
                                   .words = "node 1 (n2) is lost: silent for 3 s" };
    start(1);
    report.elsewhere = &cause;
    step(AGENT_TOLD_TO_STOP, 3500, 0, 0);
    step(AGENT_EXITED, 3600, 0, 75);
    expect("ddprun: node 1 (n2) is lost: silent for 3 s\n"
           "  node     node 1, host n2\n"
           "  then     rank 0 ended with exit 75, gave up because another rank was lost\n"
           "  exit     125, because of node 1 on n2\n");
}

/* Nobody has failed, and yet the job cannot go on. */
Test(report_elsewhere, says_what_helps_when_the_store_is_lost, .fini = tear_down)
{
    start(1);
    plan.meeting.elsewhere = true;
    step(AGENT_STORE_LOST, 3500, 0, 0);
    step(AGENT_EXITED, 3600, 0, -SIGTERM);
    report.store.how = "it has said nothing for 3 s (--node_timeout)";
    expect(
        "ddprun: lost the store of the job at 127.0.0.1:29500: it has said nothing for 3 s (--node_timeout)\n"
        "  why      the ddprun that hosts it, or its host, has ended or is frozen; or the network between\n"
        "  try      look at what ddprun said on that host; a store of its own (ddp-rendezvous on another\n"
        "           host, --rdzv_endpoint) survives the death of any node\n"
        "  then     rank 0 was stopped by ddprun as a consequence (SIGTERM)\n"
        "  exit     123\n");
}

/* It was one too many, and the job went well without it. */
Test(report_elsewhere, tells_a_spare_node_that_the_job_is_over, .fini = tear_down)
{
    plan.nproc = 1;
    agent = agent_new(&(struct agent_options){ .nproc = 1, .grace_ms = 30000 });
    report = (struct report){
        .plan = &plan, .agent = agent, .started_ms = 500, .ended_ms = 9500, .best_step = -1
    };
    expect("ddprun: the job ended without this node, which waited for 9.0 s\n"
           "  exit     0\n");
}

/* The one that fails first is not the one to look at, wherever it is. */
Test(report_elsewhere, who_gave_up_is_told_with_its_reason, .fini = tear_down)
{
    const struct failure cause = { .why = "failed",
                                   .node_rank = 1,
                                   .host = "n2",
                                   .rank = 5,
                                   .local_rank = 1,
                                   .pid = 77,
                                   .exit_code = 1,
                                   .after_ms = 2500,
                                   .words = "exit 1" };
    start(2);
    report.elsewhere = &cause;
    report.left.sentence =
        "rank 5 (n2, pid 77) gave up init_process_group after 2.0 s of waiting for rank 1's Gloo "
        "address; rank 1: never connected";
    report.left.code = FINDING_SETUP_GIVEN_UP;
    step(AGENT_TOLD_TO_STOP, 3500, 0, 0);
    for (int r = 0; r < 2; r++)
        step(AGENT_EXITED, 3600, r, -SIGTERM);
    expect(
        "ddprun: rank 5 on n2 failed first: exit 1, 2.5 s after the start\n"
        "  why      rank 5 (n2, pid 77) gave up init_process_group after 2.0 s of waiting for rank 1's Gloo\n"
        "           address; rank 1: never connected [SETUP_GIVEN_UP]\n"
        "  worker   rank 5 (local rank 1), pid 77, host n2, node 1; more is said there\n"
        "  then     ranks 0-1 were stopped by ddprun as a consequence (SIGTERM)\n"
        "  exit     1, because of rank 5 on n2\n");
}
