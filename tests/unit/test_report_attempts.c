/* What the report says of attempts, of why there is no other, and of what is left behind. */
#include "report/final_report.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct agent *agent;
static char *argv[] = { "./train", NULL };
static struct plan_worker workers[2] = { { .rank = 0, .argv = argv },
                                         { .rank = 1, .local_rank = 1, .argv = argv } };
static char *no_environment[] = { NULL };
static struct plan_facts facts = { .host = "n1", .environ_block = no_environment };
static struct cli no_options;
static struct plan plan = {
    .cli = &no_options, .nproc = 2, .nnodes = 1, .world_size = 2, .workers = workers, .facts = &facts
};
static struct report report;
static struct buf text;
static struct failed_attempt failed[16];
static uint64_t now_ms;

static void step(enum agent_event_type type, uint64_t after_ms, int r, int code)
{
    size_t n;
    now_ms += after_ms;
    struct agent_event e = { .type = type, .now_ms = now_ms, .local_rank = r, .pid = 4000 + r };
    e.exit_code = type == AGENT_EXITED && code > 0 ? code : 0;
    e.signal = type == AGENT_EXITED && code < 0 ? -code : type == AGENT_STOP ? code : 0;
    e.error = type == AGENT_SPAWN_FAILED ? code : 0;
    e.verdict.restart = code == RESTART_ALLOWED;
    e.verdict.no_restart = (enum no_restart)code;
    e.verdict.exit_first = e.verdict.exit_max = e.verdict.exit_rank0 = 7;
    agent_step(agent, &e, &n);
}

static void make(int max_restarts)
{
    now_ms = 0;
    agent = agent_new(&(struct agent_options){ .nproc = 2, .grace_ms = 1000, .max_restarts = max_restarts });
    report = (struct report){ .plan = &plan, .agent = agent, .failed = failed, .best_step = -1 };
}

static void tear_down(void)
{
    agent_free(agent);
    buf_free(&text);
}

/* As effects.c writes it down. */
static void note(int code, int reached, const char *words)
{
    struct failed_attempt *a = &failed[report.n_failed];
    *a = (struct failed_attempt){ .attempt = (int)report.n_failed++,
                                  .failure = { .rank = 1, .local_rank = 1, .host = "n1", .exit_code = code },
                                  .verdict = WORKER_FAILED,
                                  .started_ms = now_ms - 1000,
                                  .worker_started_ms = now_ms - 1000,
                                  .failed_ms = now_ms,
                                  .ended_ms = now_ms,
                                  .step = reached };
    snprintf(a->failure.words, sizeof(a->failure.words), "%s", words);
    report.best_step = reached > report.best_step ? reached : report.best_step;
}

/* An attempt in which rank 1 fails after a second, at `reached`; and the way to the next one, or `why` there is none. */
static void fail_once(int code, int reached, enum no_restart why)
{
    char words[32];
    step(AGENT_START, 0, 0, 0);
    step(AGENT_SPAWNED, 0, 0, 0);
    step(AGENT_SPAWNED, 0, 1, 0);
    step(AGENT_EXITED, 1000, 1, code);
    step(AGENT_EXITED, 0, 0, -SIGTERM);
    step(AGENT_ALONE, 0, 0, 0);
    snprintf(words, sizeof(words), "exit %d", code);
    note(code, reached, words);
    step(AGENT_DRAINED, 0, 0, 0);
    step(AGENT_VERDICT, 0, 0, why);
    if (agent_deadline(agent) != UINT64_MAX)
        step(AGENT_TICK, agent_deadline(agent) - now_ms, 0, 0);
}

static void expect(const char *golden)
{
    struct rows rows = { .out = &text, .limit = 40, .ok = true };
    text.len = 0;
    report_attempts(&report, &rows);
    cr_assert(rows.ok && buf_append(&text, "", 1));
    cr_assert_str_eq((char *)text.data, golden, "it says:\n%s", (char *)text.data);
}

TestSuite(report_attempts, .fini = tear_down);

Test(report_attempts, one_attempt_without_restarts_needs_no_word)
{
    make(0);
    fail_once(7, -1, NO_RESTART_USED_UP);
    expect("");
}

Test(report_attempts, the_attempts_before_the_last_one_are_listed)
{
    make(2);
    for (int i = 0; i < 3; i++)
        fail_once(7 + i, 100 * i, i < 2 ? RESTART_ALLOWED : NO_RESTART_USED_UP);
    expect("  before   attempt 0: rank 1: exit 7, 1.0 s after its start, at step 0\n"
           "           attempt 1: rank 1: exit 8, 1.0 s after its start, at step 100\n"
           "  restart  none: all restarts of --max_restarts=2 are used up\n");
}

/* What the kernel knew of an attempt is gone when the next one begins; its words are not. */
Test(report_attempts, the_words_of_each_attempt_are_kept)
{
    const struct worker_evidence oom = { .oom = OOM_CGROUP };
    const struct agent_worker killed = { .verdict = WORKER_FAILED, .signal = SIGKILL };
    struct buf words = { 0 };
    make(1);
    for (int i = 0; i < 2; i++)
        fail_once(7, -1, i < 1 ? RESTART_ALLOWED : NO_RESTART_USED_UP);
    cr_assert(end_headline(&killed, &oom, &words) && buf_append(&words, "", 1));
    snprintf(failed[0].failure.words, sizeof(failed[0].failure.words), "%s", (const char *)words.data);
    expect("  before   attempt 0: rank 1: out of memory (SIGKILL), 1.0 s after its start\n"
           "  restart  none: the restart of --max_restarts=1 is used up\n");
    buf_free(&words);
}

/* With several nodes a rank is found by its host; a node that was lost has no rank to name. */
Test(report_attempts, attempts_that_failed_elsewhere_name_the_host)
{
    make(3);
    plan.nnodes = 2;
    fail_once(7, -1, RESTART_ALLOWED);
    fail_once(7, -1, RESTART_ALLOWED);
    fail_once(7, -1, NO_RESTART_TOO_FEW_NODES);
    plan.meeting.join_knob = "--timeout";
    snprintf(failed[0].failure.host, sizeof(failed[0].failure.host), "n2");
    failed[1].failure.rank = -1;
    snprintf(failed[1].failure.words, sizeof(failed[1].failure.words), "node 1 (n2) is lost: it is silent");
    expect("  before   attempt 0: rank 1 on n2: exit 7, 1.0 s after its start\n"
           "           attempt 1: node 1 (n2) is lost: it is silent, 1.0 s after the start\n"
           "  restart  none: too few nodes are left, or joined again in time (--nnodes, --timeout)\n");
    plan.nnodes = 1;
}

Test(report_attempts, many_are_cut_from_the_front)
{
    make(9);
    for (int i = 0; i < 10; i++)
        fail_once(7, -1, i < 9 ? RESTART_ALLOWED : NO_RESTART_USED_UP);
    expect("  before   5 earlier attempts failed, too\n"
           "           attempt 5: rank 1: exit 7, 1.0 s after its start\n"
           "           attempt 6: rank 1: exit 7, 1.0 s after its start\n"
           "           attempt 7: rank 1: exit 7, 1.0 s after its start\n"
           "           attempt 8: rank 1: exit 7, 1.0 s after its start\n"
           "  restart  none: all restarts of --max_restarts=9 are used up\n");
}

Test(report_attempts, standing_still_is_told_with_the_step)
{
    make(9);
    for (int i = 0; i < 3; i++)
        fail_once(7, 42, i < 2 ? RESTART_ALLOWED : NO_RESTART_NO_PROGRESS);
    expect("  before   attempt 0: rank 1: exit 7, 1.0 s after its start, at step 42\n"
           "           attempt 1: rank 1: exit 7, 1.0 s after its start, at step 42\n"
           "  restart  none: the attempts come no further than step 42 (--max_no_progress)\n");
}

Test(report_attempts, a_usage_error_is_told_with_its_code)
{
    make(1);
    fail_once(2, -1, NO_RESTART_USAGE);
    expect("  restart  none: exit 2 within 5 s of the start is taken for a usage error, which would only "
           "repeat\n"
           "           itself\n");
}

Test(report_attempts, what_is_left_behind_is_named)
{
    const struct stuck stuck[] = {
        { .pid = 12, .rank = 1, .name = "python3", .state = 'D', .where = "nfs_wait" },
        { .pid = 13, .rank = -1, .name = "loader", .state = 'D' }
    };
    make(0);
    report.stuck = stuck;
    report.n_stuck = 2;
    report.left.sentence = "rank 0 (n1, pid 7) ended with 0 while rank 1 waited for it at barrier 'b'";
    report.left.code = FINDING_RANK_LEFT_EARLY;
    expect(
        "  left     rank 0 (n1, pid 7) ended with 0 while rank 1 waited for it at barrier 'b'\n"
        "           [RANK_LEFT_EARLY]\n"
        "  alive    pid 12 (rank 1, python3) cannot be killed: state D in nfs_wait\n"
        "           pid 13 (loader) cannot be killed: state D\n"
        "           it dies when the call it hangs in returns; if that never happens, only a reboot helps\n");
}

Test(report_attempts, the_same_is_in_the_json)
{
    const struct stuck stuck = { .pid = 12, .rank = -1, .name = "loader", .state = 'D' };
    make(1);
    fail_once(7, 5, RESTART_ALLOWED);
    fail_once(8, -1, NO_RESTART_USED_UP);
    report.stuck = &stuck;
    report.n_stuck = 1;
    static const char *const names[] = { "failed_attempts", "unkillable",   "max_restarts",
                                         "not_restarted",   "left_waiting", "left_waiting_code" };
    cJSON *all = report_json(&report), *o = cJSON_CreateObject();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        cJSON_AddItemToObject(o, names[i], cJSON_DetachItemFromObjectCaseSensitive(all, names[i]));
    cJSON_Delete(all);
    char *printed = cJSON_PrintUnformatted(o);
    cr_expect_str_eq(
        printed,
        "{\"failed_attempts\":["
        "{\"attempt\":0,\"rank\":1,\"local_rank\":1,\"node_rank\":0,\"host\":\"n1\",\"verdict\":\"failed\","
        "\"ending\":\"exit "
        "7\",\"exit_code\":7,"
        "\"started_s\":0,\"failed_s\":1,\"ended_s\":1,\"step\":5},"
        "{\"attempt\":1,\"rank\":1,\"local_rank\":1,\"node_rank\":0,\"host\":\"n1\",\"verdict\":\"failed\","
        "\"ending\":\"exit "
        "8\",\"exit_code\":8,"
        "\"started_s\":1,\"failed_s\":2,\"ended_s\":2,\"step\":null}],"
        "\"unkillable\":[{\"pid\":12,\"rank\":null,\"name\":\"loader\",\"state\":\"D\",\"wchan\":null}],"
        "\"max_restarts\":1,\"not_restarted\":\"the restart of --max_restarts=1 is used "
        "up\",\"left_waiting\":null,\"left_waiting_code\":null}");
    cJSON_free(printed);
    cJSON_Delete(o);
}
