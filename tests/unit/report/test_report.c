/* Tests of the report at the end of a job: the first failure on this node or on another node, the other workers, and
 * the attempts. This is the golden file of the report, so its lines are compared word by word. */
#include "report/final_report.c"
#include "report/cause.c"
#include "report/report.c"
#include "report_case.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void expect(const char *golden)
{
    text.len = 0;
    cr_assert(report_text(&report, &text));
    cr_assert(buf_append(&text, "", 1));
    cr_assert_str_eq((char *)text.data, golden, "the report is:\n%s", (char *)text.data);
}

/* --- golden texts --------------------------------------------------------------------------------------- */

Test(report, names_the_first_failure_and_its_last_words, .fini = tear_down)
{
    start(4, "logs");
    run_all(4);
    tail_add(&err_tails[2], slice_str("loading\nTraceback:\n  boom at line 7\n"));
    step(AGENT_EXITED, 3500, 2, 7);
    step(AGENT_EXITED, 3503, 0, 1);
    step(AGENT_EXITED, 3600, 1, -SIGTERM);
    step(AGENT_EXITED, 3700, 3, 1);
    expect("ddprun: rank 2 on n1 failed first: exit 7, 2.5 s after its start\n"
           "  worker   rank 2 (local rank 2), pid 4002, host n1\n"
           "  times    started 2023-11-14 22:13:21.000, ended 22:13:23.500\n"
           "  stderr   | loading\n"
           "           | Traceback:\n"
           "           |   boom at line 7\n"
           "  then     ranks 0,3 ended 3 ms to 200 ms later with exit 1\n"
           "           rank 1 was stopped by ddprun as a consequence (SIGTERM)\n"
           "  logs     logs/k3x9; logs of the first failed worker: logs/k3x9/attempt_0/2\n"
           "  exit     7, because of rank 2 on n1\n");
}

Test(report, says_when_the_code_is_not_that_of_the_first_failure, .fini = tear_down)
{
    size_t n;
    policy = EXIT_POLICY_RANK0;
    start(2, NULL);
    run_all(2);
    agent_step(agent, &(struct agent_event){ .type = AGENT_EXITED, .now_ms = 2000 }, &n);
    step(AGENT_EXITED, 3000, 1, 7);
    cr_assert(report_text(&report, &text) && buf_append(&text, "", 1));
    cr_assert_not_null(strstr((char *)text.data, "\n  exit     0, because of --exit_code=rank0\n"), "%s",
                       (char *)text.data);
}

/* Expect this code in the JSON report, and as the argument of the hint in the printed report. */
static void expect_code(const char *code)
{
    struct buf json = { 0 };
    char row[80];
    text.len = 0;
    report.explain = true;
    cr_assert(report_text(&report, &text) && buf_append(&text, "", 1));
    cr_assert(event_finished(&json, &report) && buf_append(&json, "", 1));
    snprintf(row, sizeof(row), "(ddprun explain %s)\n", code);
    cr_expect_not_null(strstr((char *)text.data, row), "%s", (char *)text.data);
    snprintf(row, sizeof(row), ",\"code\":\"%s\",", code);
    cr_expect_not_null(strstr((char *)json.data, row), "%s", (char *)json.data);
    buf_free(&json);
}

/* The report has a code that the user can pass to `ddprun explain`. If the report has a finding about a hang, this code
 * is the code of the finding. Without a finding, this code is the exit code. */
Test(report, has_a_code_for_every_exit_that_can_be_explained, .fini = tear_down)
{
    const struct finding hang = { .code = FINDING_RANK_SLEEPS, .sentence = "rank 1 sleeps" };
    const struct failure victim = {
        .rank = 1, .local_rank = 1, .exit_code = 75, .victim = true, .host = "n1"
    };
    start(1, NULL);
    run_all(1);
    report.elsewhere = &victim;
    expect_code("75");
    report.hang = &hang;
    expect_code("RANK_SLEEPS");
    report.elsewhere = NULL;
    report.hang = NULL;
    step(AGENT_STOP, 3000, 0, SIGTERM);
    step(AGENT_EXITED, 3100, 0, -SIGTERM);
    expect_code("143");
}

/* Rank 1 has broken the connection. The victim, rank 0, ended before rank 1. */
Test(report, tells_how_long_before_the_first_failure_a_victim_ended, .fini = tear_down)
{
    start(3, NULL);
    run_all(3);
    step(AGENT_EXITED, 3000, 0, 75);
    step(AGENT_EXITED, 3400, 1, 7);
    step(AGENT_EXITED, 3500, 2, -SIGTERM);
    cr_assert(report_text(&report, &text) && buf_append(&text, "", 1));
    cr_assert(strstr((char *)text.data,
                     "  then     rank 0 ended 400 ms earlier with exit 75, because another rank was "
                     "lost\n") != NULL,
              "%s", (char *)text.data);
}

static void expect_calls(const char *flights, const char *row)
{
    report.flights = flights;
    text.len = 0;
    cr_assert(report_text(&report, &text) && buf_append(&text, "", 1));
    cr_assert_not_null(strstr((char *)text.data, row), "%s", (char *)text.data);
}

/* The report has a row with the command that compares the records of all ranks, whatever file names the user has
 * chosen. */
Test(report, says_how_to_compare_the_records_of_all_ranks, .fini = tear_down)
{
    start(2, NULL);
    run_all(2);
    step(AGENT_EXITED, 3000, 1, 7);
    expect_calls("logs", "\n  calls    ddpctl flight logs/flight_*.json compares");
    expect_calls("/a/%r.json", "\n  calls    ddpctl flight /a/*.json compares");
    expect_calls("/a/%r/calls-%r", "\n  calls    ddpctl flight /a/*/calls-* compares");
    expect_calls("%r%", "\n  calls    ddpctl flight *% compares");
}

Test(report, shows_a_segfault_with_address_and_core_file, .fini = tear_down)
{
    struct worker_evidence e = { .fault_known = true,
                                 .fault = 0x10,
                                 .object = "libnccl.so.2+0x4a1b0",
                                 .coredump_kind = CORE_FILE,
                                 .core = "/tmp/core.4000",
                                 .coredump_size = 12 << 20 };
    start(1, NULL);
    report.evidence = &e;
    run_all(1);
    tail_add(&out_tails[0], slice_str("step 1\rstep 2\r\nlast"));
    step(AGENT_EXITED, 1100, 0, -SIGSEGV);
    expect("ddprun: rank 0 on n1 failed: killed by SIGSEGV (signal 11), 100 ms after its start\n"
           "  why      the worker accessed address 0x10, which is not mapped or is protected; the "
           "instruction is\n           in libnccl.so.2+0x4a1b0\n"
           "  core     /tmp/core.4000 (12 MiB); 'gdb ./train /tmp/core.4000' shows the place of the crash\n"
           "  worker   rank 0 (local rank 0), pid 4000, host n1\n"
           "  times    started 2023-11-14 22:13:21.000, ended 22:13:21.100\n"
           "  stdout   | step 2\n"
           "           | last\n"
           "           (the worker wrote nothing to stderr)\n"
           "  exit     139 = 128 + 11 (SIGSEGV), because of rank 0 on n1\n");
}

Test(report, claims_nothing_about_output_that_ddprun_has_not_read, .fini = tear_down)
{
    start(1, NULL);
    report.stdout_tails = NULL;
    run_all(1);
    step(AGENT_EXITED, 2000, 0, 3);
    expect("ddprun: rank 0 on n1 failed: exit 3, 1.0 s after its start\n"
           "  worker   rank 0 (local rank 0), pid 4000, host n1\n"
           "  times    started 2023-11-14 22:13:21.000, ended 22:13:22.000\n"
           "  output   the worker wrote nothing to stderr; its stdout does not pass through ddprun\n"
           "  exit     3, because of rank 0 on n1\n");
}

Test(report, calls_a_cgroup_out_of_memory_by_its_name, .fini = tear_down)
{
    struct worker_evidence e = { .oom = OOM_CGROUP,
                                 .kills = 1,
                                 .cgroup = "/job_123",
                                 .cgroup_v2 = true,
                                 .limit = 64 << 20,
                                 .peak = 64 << 20,
                                 .peak_rss = 1288490189 };
    start(2, NULL);
    report.evidence = &e;
    run_all(2);
    step(AGENT_EXITED, 2000, 0, -SIGKILL);
    step(AGENT_EXITED, 2000, 1, -SIGTERM);
    expect("ddprun: rank 0 on n1 failed first: out of memory (SIGKILL), 1.0 s after its start\n"
           "  why      out of memory: limit 64 MiB of cgroup /job_123, peak 64 MiB; the kernel killed 1 "
           "process\n"
           "           there\n"
           "  try      use less memory: a smaller batch, fewer loader workers, less pinned memory; or raise "
           "the\n"
           "           limit: memory.max of that cgroup, --mem of the scheduler, --memory of the container\n"
           "  worker   rank 0 (local rank 0), pid 4000, host n1, peak memory 1.2 GiB\n"
           "  times    started 2023-11-14 22:13:21.000, ended 22:13:22.000\n"
           "  output   the worker wrote nothing\n"
           "  then     rank 1 was stopped by ddprun as a consequence (SIGTERM)\n"
           "  exit     137 = 128 + 9 (SIGKILL), because of rank 0 on n1\n");
}

Test(report, says_that_a_sigkill_was_not_ours, .fini = tear_down)
{
    start(2, NULL);
    run_all(2);
    step(AGENT_EXITED, 2000, 0, -SIGKILL);
    step(AGENT_EXITED, 2000, 1, -SIGTERM);
    expect(
        "ddprun: rank 0 on n1 failed first: killed by SIGKILL (signal 9), 1.0 s after its start\n"
        "  why      ddprun did not send this signal, and no memory limit was reached; Linux does not report\n"
        "           the sender\n"
        "  try      look for a user or a script that ran 'kill -9', a time limit of the scheduler, or a\n"
        "           stopped container\n"
        "  worker   rank 0 (local rank 0), pid 4000, host n1\n"
        "  times    started 2023-11-14 22:13:21.000, ended 22:13:22.000\n"
        "  output   the worker wrote nothing\n"
        "  then     rank 1 was stopped by ddprun as a consequence (SIGTERM)\n"
        "  exit     137 = 128 + 9 (SIGKILL), because of rank 0 on n1\n");
}

Test(report, says_that_dev_shm_is_full, .fini = tear_down)
{
    struct worker_evidence e = { .shm_size = 64 << 20, .shm_free = 0, .coredump_kind = CORE_NO_LIMIT };
    start(1, NULL);
    report.evidence = &e;
    run_all(1);
    step(AGENT_EXITED, 2000, 0, -SIGBUS);
    expect("ddprun: rank 0 on n1 failed: /dev/shm is full (SIGBUS), 1.0 s after its start\n"
           "  why      /dev/shm is full (size 64 MiB, nothing free), so the worker could not use more "
           "shared\n"
           "           memory\n"
           "  try      enlarge /dev/shm with 'docker run --shm-size=8g' (or --ipc=host), or with 'mount -o\n"
           "           remount,size=8g /dev/shm'; delete the files of earlier jobs there\n"
           "  core     none: the limit for core files is 0; to get one, run 'ulimit -c unlimited' before "
           "ddprun\n"
           "  worker   rank 0 (local rank 0), pid 4000, host n1\n"
           "  times    started 2023-11-14 22:13:21.000, ended 22:13:22.000\n"
           "  output   the worker wrote nothing\n"
           "  exit     135 = 128 + 7 (SIGBUS), because of rank 0 on n1\n");
}

Test(report, shows_what_the_worker_recorded_and_what_it_means, .fini = tear_down)
{
    struct error_text error = { .message = "RuntimeError: CUDA error: invalid device ordinal\nCompile with X",
                                .callstack = "" };
    start(1, NULL);
    report.error = &error;
    run_all(1);
    step(AGENT_EXITED, 2000, 0, 1);
    expect(
        "ddprun: rank 0 on n1 failed: exit 1, 1.0 s after its start\n"
        "  worker   rank 0 (local rank 0), pid 4000, host n1\n"
        "  times    started 2023-11-14 22:13:21.000, ended 22:13:22.000\n"
        "  error    RuntimeError: CUDA error: invalid device ordinal\n"
        "           Compile with X\n"
        "  hint     the worker chose a GPU that does not exist: use LOCAL_RANK as the index, and start at\n"
        "           most one worker for each GPU in CUDA_VISIBLE_DEVICES\n"
        "  output   the worker wrote nothing\n"
        "  exit     1, because of rank 0 on n1\n");
}

/* The report breaks the line before [KEY_NOT_SET], and drops the blanks between the sentence and this code. */
Test(report, no_line_ends_with_a_blank, .fini = tear_down)
{
    const struct finding hang = { .code = FINDING_KEY_NOT_SET,
                                  .sentence = "rank 1 (n1, pid 812) waits for key 'model-ready', for 32.0 s "
                                              "now; no rank has set it" };
    start(1, NULL);
    report.hang = &hang;
    run_all(1);
    step(AGENT_EXITED, 2000, 0, 1);
    expect("ddprun: rank 0 on n1 failed: exit 1, 1.0 s after its start\n"
           "  worker   rank 0 (local rank 0), pid 4000, host n1\n"
           "  times    started 2023-11-14 22:13:21.000, ended 22:13:22.000\n"
           "  output   the worker wrote nothing\n"
           "  hang     rank 1 (n1, pid 812) waits for key 'model-ready', for 32.0 s now; no rank has set it\n"
           "           [KEY_NOT_SET]\n"
           "  exit     1, because of rank 0 on n1\n");
}

/* A rank that lost another rank or waited for a missing rank is a witness, and the report shows this. */
Test(report, tells_a_witness_of_another_ranks_trouble)
{
    static const struct {
        const char *says, *means;
    } cases[] = {
        { "RuntimeError: [pair.cc:598] Connection closed by peer [127.0.0.1]:2", "at the other end exited" },
        { "Timed out waiting 8000ms for recv operation to complete",
          "did not enter this collective in time" },
        { "Watchdog caught collective operation timeout: WorkNCCL(",
          "did not enter this collective in time" },
        { "[enforce fail at context.cc:23] rank < size. 3 vs 3", "world_size that is less" },
        { "Connection closed by peer\nDataLoader worker (pid 7) is killed by signal: Killed.",
          "DataLoader worker" },
    };
    const struct hint_facts none = { 0 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct buf hint = { 0 };
        cr_assert(append_hint(find_hint(slice_str(cases[i].says), &none), &none, &hint) &&
                  buf_append(&hint, "", 1));
        cr_expect_not_null(strstr((char *)hint.data, cases[i].means), "%s", cases[i].says);
        buf_free(&hint);
    }
}

/* Rank 1 runs out of GPU memory, but the finding names the network. The report then has no hint about the memory, and
 * does not ask which processes use the GPU. */
Test(report, a_full_gpu_after_a_broken_connection_has_no_hint, .fini = tear_down)
{
    struct buf hint = { 0 };
    start(2, NULL);
    run_all(2);
    tail_add(&err_tails[1], slice_str("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried\n"));
    step(AGENT_EXITED, 3500, 1, 1);
    cr_expect(cause_is_gpu_in_use(&report));
    report.left.code = FINDING_CONNECTION_BROKE;
    report.left.sentence = "the connection between n0 and n1 broke";
    cr_expect_not(cause_is_gpu_in_use(&report));
    cr_expect(cause_hint(&report, &hint) && hint.len == 0);
    buf_free(&hint);
}

Test(report, an_unusable_error_file_hides_nothing, .fini = tear_down)
{
    start(1, NULL);
    report.error_trouble = "/tmp/e/error.json: not JSON (error at byte 3 of 9)";
    run_all(1);
    tail_add(&err_tails[0], slice_str("boom\n"));
    step(AGENT_EXITED, 2000, 0, 1);
    expect(
        "ddprun: rank 0 on n1 failed: exit 1, 1.0 s after its start\n"
        "  worker   rank 0 (local rank 0), pid 4000, host n1\n"
        "  times    started 2023-11-14 22:13:21.000, ended 22:13:22.000\n"
        "  error    cannot use the worker's error file: /tmp/e/error.json: not JSON (error at byte 3 of 9)\n"
        "  stderr   | boom\n"
        "  exit     1, because of rank 0 on n1\n");
}

Test(report, of_a_user_stop_blames_nobody, .fini = tear_down)
{
    start(4, NULL);
    run_all(4);
    step(AGENT_EXITED, 1500, 1, 0);
    step(AGENT_STOP, 2000, 0, SIGINT);
    step(AGENT_EXITED, 2100, 0, -SIGINT);
    step(AGENT_EXITED, 2200, 3, 4);
    expect("ddprun: stopped by SIGINT after 8.5 s\n"
           "  then     rank 0 was stopped by ddprun as a consequence (SIGINT)\n"
           "           rank 1 exited with code 0\n"
           "           rank 2 did not end after SIGKILL\n"
           "           rank 3 ended with exit 4\n"
           "  exit     130 = 128 + 2 (SIGINT)\n");
}

Test(report, is_silent_about_success_but_can_say_it, .fini = tear_down)
{
    start(2, NULL);
    run_all(2);
    step(AGENT_EXITED, 2000, 0, 0);
    step(AGENT_EXITED, 2000, 1, 0);
    cr_assert_not(report_needed(&report));
    expect("ddprun: all workers exited with code 0 after 8.5 s\n");
}

Test(report, of_a_program_that_cannot_be_started_names_path_reason_and_cure, .fini = tear_down)
{
    static const struct program_file look = { .path = "./train", .kind = PATH_NO_X };
    start(2, "logs");
    report.file = &look;
    step(AGENT_SPAWN_FAILED, 1000, 0, EACCES);
    expect("ddprun: rank 0 on n1 could not be started: ./train is not executable, 500 ms after the start\n"
           "  try      run 'chmod +x ./train'; for a Python script, run 'python3 -u ./train' instead\n"
           "  worker   rank 0 (local rank 0), host n1\n"
           "  times    start failed 2023-11-14 22:13:21.000\n"
           "  then     rank 1 was never started\n"
           "  logs     logs/k3x9; logs of the first failed worker: logs/k3x9/attempt_0/0\n"
           "  exit     126, because of rank 0 on n1\n");
}

Test(report, in_colour_has_the_same_text, .fini = tear_down)
{
    start(1, NULL);
    report.colour = true;
    run_all(1);
    step(AGENT_EXITED, 2000, 0, 1);
    cr_assert(report_text(&report, &text));
    cr_assert(buf_append(&text, "", 1));
    cr_assert_not_null(strstr((char *)text.data,
                              "\033[1;31mddprun: rank 0 on n1 failed: exit 1, 1.0 s after its start\033[0m\n"
                              "\033[2m  worker   \033[0mrank 0"));
}

Test(report, lets_no_escape_of_a_worker_reach_the_terminal, .fini = tear_down)
{
    start(1, NULL);
    run_all(1);
    tail_add(&err_tails[0], slice_of("\033[2Jgone\0\a\xc2\x9b\xff\ttab\n", 18));
    step(AGENT_EXITED, 2000, 0, 1);
    cr_assert(report_text(&report, &text));
    cr_assert(buf_append(&text, "", 1));
    cr_assert_not_null(strstr((char *)text.data, "| \\x1b[2Jgone\\x00\\x07\\xc2\\x9b\\xff\ttab\n"), "%s",
                       (char *)text.data);
}

static int lines_of_text(void)
{
    int lines = 0;
    for (size_t i = 0; i < text.len; i++)
        lines += text.data[i] == '\n';
    return lines;
}

/* All parts of the report have their maximum length. */
Test(report, never_has_more_than_forty_lines, .fini = tear_down)
{
    enum { N = NPROC_MOST };
    static char essay[4000];
    memset(essay, 'w', sizeof(essay) - 1);
    for (size_t i = 7; i < sizeof(essay) - 1; i += 8)
        essay[i] = i % 3 == 0 ? '\n' : ' ';
    struct error_text error = { .message = essay, .callstack = "" };
    struct worker_evidence e = { .oom = OOM_CGROUP, .kills = 1, .coredump_kind = CORE_LOST };
    memset(e.cgroup, 'c', sizeof(e.cgroup) - 1);
    memset(e.core, 'c', sizeof(e.core) - 1);
    start(N, "logs");
    struct stacks stacks;
    cr_assert(stacks_init(&stacks, STACKS_AGENT_BYTES));
    for (int i = 0; i < 30; i++) {
        struct stack_thread t = { .rank = i, .pid = 100 + i, .is_main = true, .host = "n1" };
        snprintf(t.does, sizeof(t.does), "sleeping in call %d", i);
        stacks_add_thread(&stacks, &t);
    }
    report.stacks = stacks.rows;
    report.error = &error;
    report.evidence = &e;
    run_all(N);
    for (int i = 0; i < 1000; i++)
        tail_add(&err_tails[1], slice_str("No space left on device\n"));
    step(AGENT_EXITED, 2000, 1, 1);
    for (int r = 0; r < N; r++)
        step(AGENT_EXITED, 2100, r, 2 + r);
    cr_assert(report_text(&report, &text));
    cr_assert(buf_append(&text, "", 1));
    cr_assert_leq(lines_of_text(), REPORT_LINES_MAX, "%s", (char *)text.data);
    cr_assert_not_null(strstr((char *)text.data, "ended in other ways"), "%s", (char *)text.data);
    cr_assert_not_null(strstr((char *)text.data, "\n  exit     1, because of rank 1 on n1\n"), "%s",
                       (char *)text.data);
    cr_assert_not_null(strstr((char *)text.data, "  stacks   rank 0 (n1, pid 100): sleeping in call 0\n"),
                       "%s", (char *)text.data);
    cr_assert_not_null(strstr((char *)text.data, " more stacks: see report.json\n"), "%s", (char *)text.data);
    stacks_free(&stacks);
}

Test(report, folds_many_ranks_and_cuts_long_lines, .fini = tear_down)
{
    static char long_line[1000];
    start(NPROC_MOST, NULL);
    run_all(NPROC_MOST);
    memset(long_line, 'x', sizeof(long_line));
    tail_add(&err_tails[63], slice_of(long_line, sizeof(long_line)));
    step(AGENT_EXITED, 2000, 63, 1);
    for (int r = 0; r < 63; r++)
        step(AGENT_EXITED, 2100, r, r % 2 == 0 ? -SIGTERM : 1);
    cr_assert(report_text(&report, &text));
    cr_assert(buf_append(&text, "", 1));
    cr_assert_not_null(strstr((char *)text.data, "xxx ...\n"));
    cr_assert_not_null(strstr((char *)text.data, "ranks 0,2,4,6,8,10,"));
    cr_assert_not_null(strstr((char *)text.data, ",... were stopped by"));
}

/* --- on other nodes ------------------------------------------------------------------------------------------- */

/* Tests of the report of a node that did not fail itself. */

static struct cli elsewhere_cli = { .max_restarts = 0 };
static char *no_environment[] = { NULL };
static struct plan_facts elsewhere_facts = { .host = "n1", .environ_block = no_environment };
static struct plan_worker workers[2] = { { .rank = 0 }, { .rank = 1, .local_rank = 1 } };
static struct plan elsewhere_plan = { .cli = &elsewhere_cli,
                                      .facts = &elsewhere_facts,
                                      .master_addr = "127.0.0.1",
                                      .master_port = 29500,
                                      .nnodes = 2,
                                      .world_size = 6,
                                      .workers = workers };
static struct agent *elsewhere_agent;
static struct report elsewhere_report;
static struct buf elsewhere_text;

static void elsewhere_step(enum agent_event_type type, uint64_t now_ms, int r, int code)
{
    size_t n;
    struct agent_event e = { .type = type, .now_ms = now_ms, .local_rank = r, .pid = 4000 + r };
    e.exit_code = type == AGENT_EXITED && code > 0 ? code : 0;
    e.signal = type == AGENT_EXITED && code < 0 ? -code : 0;
    if (type == AGENT_NOTIFIED)
        e.exit_code = failure_code(elsewhere_report.elsewhere);
    agent_step(elsewhere_agent, &e, &n);
}

/* Start a job with `nproc` workers on this node. All workers start at 1000 ms. */
static void elsewhere_start(int nproc)
{
    elsewhere_plan.nproc = nproc;
    elsewhere_agent = agent_new(&(struct agent_options){ .nproc = nproc, .grace_ms = 30000 });
    elsewhere_report = (struct report){ .plan = &elsewhere_plan,
                                        .agent = elsewhere_agent,
                                        .started_ms = 500,
                                        .ended_ms = 9000,
                                        .best_step = -1 };
    elsewhere_step(AGENT_START, 1000, 0, 0);
    for (int r = 0; r < nproc; r++)
        elsewhere_step(AGENT_SPAWNED, 1000, r, 0);
}

static void elsewhere_tear_down(void)
{
    agent_free(elsewhere_agent);
    buf_free(&elsewhere_text);
}

static void elsewhere_expect(const char *golden)
{
    cr_assert(report_text(&elsewhere_report, &elsewhere_text) && buf_append(&elsewhere_text, "", 1));
    cr_assert_str_eq((char *)elsewhere_text.data, golden, "the report is:\n%s", (char *)elsewhere_text.data);
}

/* The report of the other node arrives first. Then the workers of this node end. */
Test(report_elsewhere, names_a_failure_on_another_node, .fini = elsewhere_tear_down)
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
    elsewhere_start(2);
    elsewhere_report.elsewhere = &cause;
    elsewhere_step(AGENT_NOTIFIED, 3500, 0, 0);
    for (int r = 0; r < 2; r++)
        elsewhere_step(AGENT_EXITED, 3600, r, -SIGTERM);
    elsewhere_expect(
        "ddprun: rank 5 on n2 failed first: out of memory (SIGKILL), 2.5 s after the start\n"
        "  worker   rank 5 (local rank 1), pid 77, host n2, node 1; that node's report has more details\n"
        "  its logs logs/k3x9/attempt_0/1 on n2\n"
        "  stderr   | loading\n"
        "           | step 7\n"
        "  then     ranks 0-1 of node 0 (n1) were stopped by ddprun as a consequence (SIGTERM)\n"
        "  exit     137 = 128 + 9 (SIGKILL), because of rank 5 on n2\n");
}

Test(report_elsewhere, names_a_node_that_was_lost, .fini = elsewhere_tear_down)
{
    const struct failure cause = { .why = "node_lost",
                                   .code = "NODE_LOST_SILENT",
                                   .node_rank = 1,
                                   .host = "n2",
                                   .rank = -1,
                                   .local_rank = -1,
                                   .after_ms = 2500,
                                   .words = "node 1 (n2) is lost: silent for 3 s" };
    elsewhere_start(1);
    elsewhere_report.elsewhere = &cause;
    elsewhere_step(AGENT_NOTIFIED, 3500, 0, 0);
    elsewhere_step(AGENT_EXITED, 3600, 0, 75);
    elsewhere_expect("ddprun: node 1 (n2) is lost: silent for 3 s, 2.5 s after the start\n"
                     "  try      check whether that host is down or frozen, or its network is cut: run "
                     "'ping' between that\n"
                     "           host and the store's host, in both directions\n"
                     "  node     node 1, host n2\n"
                     "  then     rank 0 of node 0 (n1) ended with exit 75, because another rank was lost\n"
                     "  exit     125, because of node 1 on n2\n");
}

/* No node is the culprit: the missing nodes are unknown to the store. */
Test(report_elsewhere, says_what_helps_when_nodes_do_not_join, .fini = elsewhere_tear_down)
{
    const struct failure cause = {
        .why = "timeout", .node_rank = -1, .rank = -1, .local_rank = -1, .words = "only 1 of 2 nodes joined"
    };
    elsewhere_start(1);
    elsewhere_report.elsewhere = &cause;
    elsewhere_step(AGENT_NOTIFIED, 3500, 0, 0);
    elsewhere_step(AGENT_EXITED, 3600, 0, -SIGTERM);
    elsewhere_expect(
        "ddprun: only 1 of 2 nodes joined\n"
        "  try      check that ddprun runs on each missing node with its --node_rank and the same\n"
        "           --master_addr; if so, check the output of ddprun there\n"
        "  then     rank 0 of node 0 (n1) was stopped by ddprun as a consequence (SIGTERM)\n"
        "  exit     125\n");
}

/* The store stops the job (--on_hang). */
Test(report_elsewhere, names_the_hang_that_ended_the_job_and_its_remedy, .fini = elsewhere_tear_down)
{
    const struct failure cause = { .why = "hangs",
                                   .code = "RANK_SLEEPS",
                                   .node_rank = -1,
                                   .rank = -1,
                                   .local_rank = -1,
                                   .words = "rank 1 is in f (a.py:1) and sleeps" };
    const struct finding hang = { .code = FINDING_RANK_SLEEPS,
                                  .sentence =
                                      "rank 1 is in f (a.py:1) and sleeps, longer than `words` can be",
                                  .advice = "look at its stacks" };
    elsewhere_start(1);
    elsewhere_report.elsewhere = &cause;
    elsewhere_report.hang = &hang;
    elsewhere_step(AGENT_NOTIFIED, 3500, 0, 0);
    elsewhere_step(AGENT_EXITED, 3600, 0, -SIGTERM);
    elsewhere_expect("ddprun: rank 1 is in f (a.py:1) and sleeps\n"
                     "  try      look at its stacks\n"
                     "  then     rank 0 of node 0 (n1) was stopped by ddprun as a consequence (SIGTERM)\n"
                     "  exit     125\n");
}

/* No worker has failed, but the job cannot continue. */
Test(report_elsewhere, says_what_helps_when_the_store_is_lost, .fini = elsewhere_tear_down)
{
    elsewhere_start(1);
    elsewhere_plan.meeting.elsewhere = true;
    elsewhere_step(AGENT_STORE_LOST, 3500, 0, 0);
    elsewhere_step(AGENT_EXITED, 3600, 0, -SIGTERM);
    elsewhere_report.store.how = "it has said nothing for 3 s (--node_timeout)";
    elsewhere_report.store.lost_ms = 3500;
    elsewhere_expect(
        "ddprun: lost the store of the job at 127.0.0.1:29500 after 3.0 s: it has said nothing for 3 s "
        "(--node_timeout)\n"
        "  why      the ddprun that hosts the store has exited, or its host is down or frozen, or the "
        "network\n"
        "           between the hosts failed\n"
        "  try      check the output of ddprun on the store's host; for a store that outlives any node, run\n"
        "           ddp-rendezvous on another host and pass its address to --rdzv_endpoint\n"
        "  then     rank 0 of node 0 (n1) was stopped by ddprun as a consequence (SIGTERM)\n"
        "  exit     123\n");
}

/* The node was not needed, and the job succeeded without it. */
Test(report_elsewhere, tells_a_spare_node_that_the_job_is_over, .fini = elsewhere_tear_down)
{
    elsewhere_plan.nproc = 1;
    elsewhere_agent = agent_new(&(struct agent_options){ .nproc = 1, .grace_ms = 30000 });
    elsewhere_report = (struct report){ .plan = &elsewhere_plan,
                                        .agent = elsewhere_agent,
                                        .started_ms = 500,
                                        .ended_ms = 9500,
                                        .best_step = -1 };
    elsewhere_expect("ddprun: the job ended without this node, which waited for 9.0 s\n"
                     "  exit     0\n");
}

/* Rank 5 failed first only because it gave up its wait for rank 1. The report of every node must name this reason. */
Test(report_elsewhere, who_gave_up_is_told_with_its_reason, .fini = elsewhere_tear_down)
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
    elsewhere_start(2);
    elsewhere_report.elsewhere = &cause;
    elsewhere_report.left.sentence =
        "rank 5 (n2, pid 77) gave up init_process_group after it waited 2.0 s for rank 1's Gloo "
        "address; rank 1: never connected";
    elsewhere_report.left.code = FINDING_INIT_ABANDONED;
    elsewhere_step(AGENT_NOTIFIED, 3500, 0, 0);
    for (int r = 0; r < 2; r++)
        elsewhere_step(AGENT_EXITED, 3600, r, -SIGTERM);
    elsewhere_expect(
        "ddprun: rank 5 on n2 failed first: exit 1, 2.5 s after the start\n"
        "  why      rank 5 (n2, pid 77) gave up init_process_group after it waited 2.0 s for rank 1's Gloo\n"
        "           address; rank 1: never connected [INIT_ABANDONED]\n"
        "  worker   rank 5 (local rank 1), pid 77, host n2, node 1; that node's report has more details\n"
        "  then     ranks 0-1 of node 0 (n1) were stopped by ddprun as a consequence (SIGTERM)\n"
        "  exit     1, because of rank 5 on n2\n");
}

/* --- attempts ------------------------------------------------------------------------------------------------- */

/* Tests of attempts, the reason for no further attempt, and remaining processes. */

static struct agent *attempts_agent;
static char *argv[] = { "./train", NULL };
static struct plan_worker attempts_workers[2] = { { .rank = 0, .argv = argv },
                                                  { .rank = 1, .local_rank = 1, .argv = argv } };
static char *attempts_no_environment[] = { NULL };
static struct plan_facts attempts_facts = { .host = "n1", .environ_block = attempts_no_environment };
static struct cli no_options;
static struct plan attempts_plan = { .cli = &no_options,
                                     .nproc = 2,
                                     .nnodes = 1,
                                     .world_size = 2,
                                     .workers = attempts_workers,
                                     .facts = &attempts_facts };
static struct report attempts_report;
static struct buf attempts_text;
static struct failed_attempt failed[16];
static uint64_t now_ms;

static void attempts_step(enum agent_event_type type, uint64_t after_ms, int r, int code)
{
    size_t n;
    now_ms += after_ms;
    struct agent_event e = { .type = type, .now_ms = now_ms, .local_rank = r, .pid = 4000 + r };
    e.exit_code = type == AGENT_EXITED && code > 0 ? code : 0;
    e.signal = type == AGENT_EXITED && code < 0 ? -code : type == AGENT_STOP ? code : 0;
    e.error = type == AGENT_SPAWN_FAILED ? code : 0;
    e.verdict.restart = code == NO_RESTART_NONE;
    e.verdict.no_restart = (enum no_restart)code;
    e.verdict.exit_first = e.verdict.exit_max = e.verdict.exit_rank0 = 7;
    agent_step(attempts_agent, &e, &n);
}

static void make(int max_restarts)
{
    now_ms = 0;
    attempts_agent =
        agent_new(&(struct agent_options){ .nproc = 2, .grace_ms = 1000, .max_restarts = max_restarts });
    attempts_report =
        (struct report){ .plan = &attempts_plan, .agent = attempts_agent, .failed = failed, .best_step = -1 };
}

static void attempts_tear_down(void)
{
    agent_free(attempts_agent);
    buf_free(&attempts_text);
}

/* Note a failure as effects.c does. */
static void note(int code, int reached, const char *words)
{
    struct failed_attempt *a = &failed[attempts_report.n_failed];
    *a = (struct failed_attempt){ .attempt = (int)attempts_report.n_failed++,
                                  .failure = { .rank = 1, .local_rank = 1, .host = "n1", .exit_code = code },
                                  .verdict = WORKER_FAILED,
                                  .started_ms = now_ms - 1000,
                                  .worker_started_ms = now_ms - 1000,
                                  .failed_ms = now_ms,
                                  .ended_ms = now_ms,
                                  .step = reached };
    snprintf(a->failure.words, sizeof(a->failure.words), "%s", words);
    attempts_report.best_step = reached > attempts_report.best_step ? reached : attempts_report.best_step;
}

/* Let rank 1 fail with exit code `code` after one second, in an attempt that reached step `reached` (-1 = no step).
 * `why` is the reason why no attempt follows, or NO_RESTART_NONE if one follows. */
static void fail_once(int code, int reached, enum no_restart why)
{
    char words[32];
    attempts_step(AGENT_START, 0, 0, 0);
    attempts_step(AGENT_SPAWNED, 0, 0, 0);
    attempts_step(AGENT_SPAWNED, 0, 1, 0);
    attempts_step(AGENT_EXITED, 1000, 1, code);
    attempts_step(AGENT_EXITED, 0, 0, -SIGTERM);
    attempts_step(AGENT_ALONE, 0, 0, 0);
    snprintf(words, sizeof(words), "exit %d", code);
    note(code, reached, words);
    attempts_step(AGENT_DRAINED, 0, 0, 0);
    attempts_step(AGENT_VERDICT, 0, 0, why);
    if (agent_deadline(attempts_agent) != UINT64_MAX)
        attempts_step(AGENT_TICK, agent_deadline(attempts_agent) - now_ms, 0, 0);
}

static void attempts_expect(const char *golden)
{
    struct rows rows = { .out = &attempts_text, .limit = 40, .ok = true };
    attempts_text.len = 0;
    report_attempts(&attempts_report, &rows);
    cr_assert(rows.ok && buf_append(&attempts_text, "", 1));
    cr_assert_str_eq((char *)attempts_text.data, golden, "it says:\n%s", (char *)attempts_text.data);
}

TestSuite(report_attempts, .fini = attempts_tear_down);

Test(report_attempts, one_attempt_without_restarts_needs_no_word)
{
    make(0);
    fail_once(7, -1, NO_RESTART_USED_UP);
    attempts_expect("");
}

Test(report_attempts, the_attempts_before_the_last_one_are_listed)
{
    make(2);
    for (int i = 0; i < 3; i++)
        fail_once(7 + i, 100 * i, i < 2 ? NO_RESTART_NONE : NO_RESTART_USED_UP);
    attempts_expect("  before   attempt 0: rank 1: exit 7, 1.0 s after its start, at step 0\n"
                    "           attempt 1: rank 1: exit 8, 1.0 s after its start, at step 100\n"
                    "  restart  none: all restarts of --max_restarts=2 are used up\n");
}

/* When the next attempt begins, the kernel has no data about the processes of the previous attempt. So ddprun keeps the
 * text that describes each failure. */
Test(report_attempts, the_words_of_each_attempt_are_kept)
{
    const struct worker_evidence oom = { .oom = OOM_CGROUP };
    const struct agent_worker killed = { .verdict = WORKER_FAILED, .signal = SIGKILL };
    struct buf words = { 0 };
    make(1);
    for (int i = 0; i < 2; i++)
        fail_once(7, -1, i < 1 ? NO_RESTART_NONE : NO_RESTART_USED_UP);
    cr_assert(end_headline(&killed, &oom, &words) && buf_append(&words, "", 1));
    snprintf(failed[0].failure.words, sizeof(failed[0].failure.words), "%s", (const char *)words.data);
    attempts_expect("  before   attempt 0: rank 1: out of memory (SIGKILL), 1.0 s after its start\n"
                    "  restart  none: the restart of --max_restarts=1 is used up\n");
    buf_free(&words);
}

/* With several nodes the report names the host of a rank. A lost node has no rank to name. */
Test(report_attempts, attempts_that_failed_elsewhere_name_the_host)
{
    make(3);
    attempts_plan.nnodes = 2;
    fail_once(7, -1, NO_RESTART_NONE);
    fail_once(7, -1, NO_RESTART_NONE);
    fail_once(7, -1, NO_RESTART_TOO_FEW_NODES);
    attempts_plan.meeting.join_knob = "--timeout";
    snprintf(failed[0].failure.host, sizeof(failed[0].failure.host), "n2");
    failed[1].failure.rank = -1;
    snprintf(failed[1].failure.words, sizeof(failed[1].failure.words), "node 1 (n2) is lost: it is silent");
    attempts_expect(
        "  before   attempt 0: rank 1 on n2: exit 7, 1.0 s after its start\n"
        "           attempt 1: node 1 (n2) is lost: it is silent, 1.0 s after the start\n"
        "  restart  none: too few nodes are left, or too few joined again in time (--nnodes, --timeout)\n");
    attempts_plan.nnodes = 1;
}

Test(report_attempts, many_are_cut_from_the_front)
{
    make(9);
    for (int i = 0; i < 10; i++)
        fail_once(7, -1, i < 9 ? NO_RESTART_NONE : NO_RESTART_USED_UP);
    attempts_expect("  before   5 earlier attempts also failed\n"
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
        fail_once(7, 42, i < 2 ? NO_RESTART_NONE : NO_RESTART_NO_PROGRESS);
    attempts_expect("  before   attempt 0: rank 1: exit 7, 1.0 s after its start, at step 42\n"
                    "           attempt 1: rank 1: exit 7, 1.0 s after its start, at step 42\n"
                    "  restart  none: the last attempts did not get beyond step 42 (--max_no_progress)\n");
}

Test(report_attempts, a_usage_error_is_told_with_its_code)
{
    make(1);
    fail_once(2, -1, NO_RESTART_USAGE);
    attempts_expect("  restart  none: exit code 2 within 5 s of the start counts as a usage error, which a "
                    "restart would\n"
                    "           repeat\n");
}

Test(report_attempts, what_is_left_behind_is_named)
{
    const struct stuck stuck[] = {
        { .pid = 12, .rank = 1, .name = "python3", .state = 'D', .where = "nfs_wait" },
        { .pid = 13, .rank = -1, .name = "loader", .state = 'D' }
    };
    make(0);
    attempts_report.stuck = stuck;
    attempts_report.n_stuck = 2;
    attempts_report.left.sentence =
        "rank 0 (n1, pid 7) exited with code 0 while rank 1 waited for it at barrier 'b'";
    attempts_report.left.code = FINDING_RANK_EXITED_EARLY;
    attempts_expect(
        "  left     rank 0 (n1, pid 7) exited with code 0 while rank 1 waited for it at barrier 'b'\n"
        "           [RANK_EXITED_EARLY]\n"
        "  alive    pid 12 (rank 1, python3) cannot be killed: state D in nfs_wait\n"
        "           pid 13 (loader) cannot be killed: state D\n"
        "           the process ends when its system call returns; if the call never returns, reboot the "
        "host\n");
}

Test(report_attempts, a_process_that_gets_no_cpu_time_needs_no_reboot)
{
    const struct stuck stuck = { .pid = 12, .rank = 1, .name = "python3", .state = 'R' };
    make(0);
    attempts_report.stuck = &stuck;
    attempts_report.n_stuck = 1;
    attempts_expect("  alive    pid 12 (rank 1, python3) cannot be killed: state R\n"
                    "           SIGKILL ends the process as soon as the process gets CPU time; if its CPU "
                    "time grows and\n"
                    "           it still does not end, reboot the host\n");
}

Test(report_attempts, the_same_is_in_the_json)
{
    const struct stuck stuck = { .pid = 12, .rank = -1, .name = "loader", .state = 'D' };
    make(1);
    fail_once(7, 5, NO_RESTART_NONE);
    fail_once(8, -1, NO_RESTART_USED_UP);
    attempts_report.stuck = &stuck;
    attempts_report.n_stuck = 1;
    static const char *const names[] = { "failed_attempts", "unkillable",   "max_restarts",
                                         "not_restarted",   "left_waiting", "left_waiting_code" };
    cJSON *all = report_json(&attempts_report), *o = cJSON_CreateObject();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        cJSON_AddItemToObject(o, names[i], cJSON_DetachItemFromObjectCaseSensitive(all, names[i]));
    cJSON_Delete(all);
    char *printed = cJSON_PrintUnformatted(o);
    cr_expect_str_eq(
        printed,
        "{\"failed_attempts\":["
        "{\"attempt\":0,\"rank\":1,\"local_rank\":1,\"node_rank\":0,\"host\":\"n1\",\"verdict\":\"failed\","
        "\"ending\":\"exit "
        "7\",\"code\":null,\"exit_code\":7,"
        "\"started_s\":0,\"failed_s\":1,\"ended_s\":1,\"step\":5},"
        "{\"attempt\":1,\"rank\":1,\"local_rank\":1,\"node_rank\":0,\"host\":\"n1\",\"verdict\":\"failed\","
        "\"ending\":\"exit "
        "8\",\"code\":null,\"exit_code\":8,"
        "\"started_s\":1,\"failed_s\":2,\"ended_s\":2,\"step\":null}],"
        "\"unkillable\":[{\"pid\":12,\"rank\":null,\"name\":\"loader\",\"state\":\"D\",\"wchan\":null}],"
        "\"max_restarts\":1,\"not_restarted\":\"the restart of --max_restarts=1 is used "
        "up\",\"left_waiting\":null,\"left_waiting_code\":null}");
    cJSON_free(printed);
    cJSON_Delete(o);
}
