/* What the user reads at the end: golden texts. */
#include "report/cause.h"
#include "report_case.h"

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
    tail_feed(&err_tails[2], slice_str("loading\nTraceback:\n  boom at line 7\n"));
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
           "  logs     logs/k3x9, of this worker in logs/k3x9/attempt_0/2\n"
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

/* A row about the records of all ranks, whatever the user has called them. */
/* Its broken connection told it before the one that broke it had ended. */
Test(report, tells_how_long_before_the_first_failure_a_victim_ended, .fini = tear_down)
{
    start(3, NULL);
    run_all(3);
    step(AGENT_EXITED, 3000, 0, 75);
    step(AGENT_EXITED, 3400, 1, 7);
    step(AGENT_EXITED, 3500, 2, -SIGTERM);
    cr_assert(report_text(&report, &text) && buf_append(&text, "", 1));
    cr_assert(strstr((char *)text.data,
                     "  then     rank 0 ended 400 ms before with exit 75, gave up because another "
                     "rank was lost\n") != NULL,
              "%s", (char *)text.data);
}

static void expect_calls(const char *flights, const char *row)
{
    report.flights = flights;
    text.len = 0;
    cr_assert(report_text(&report, &text) && buf_append(&text, "", 1));
    cr_assert_not_null(strstr((char *)text.data, row), "%s", (char *)text.data);
}

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
                                 .core_kind = CORE_FILE,
                                 .core = "/tmp/core.4000",
                                 .core_size = 12 << 20 };
    start(1, NULL);
    report.evidence = &e;
    run_all(1);
    tail_feed(&out_tails[0], slice_str("step 1\rstep 2\r\nlast"));
    step(AGENT_EXITED, 1100, 0, -SIGSEGV);
    expect("ddprun: rank 0 on n1 failed: killed by SIGSEGV (signal 11), 100 ms after its start\n"
           "  why      it accessed memory that is not its own, at address 0x10, in libnccl.so.2+0x4a1b0\n"
           "  core     /tmp/core.4000 (12 MiB); gdb ./train /tmp/core.4000 shows where it happened\n"
           "  worker   rank 0 (local rank 0), pid 4000, host n1\n"
           "  times    started 2023-11-14 22:13:21.000, ended 22:13:21.100\n"
           "  stdout   | step 2\n"
           "           | last\n"
           "           (it wrote nothing to stderr)\n"
           "  exit     139 = 128 + 11 (SIGSEGV), because of rank 0 on n1\n");
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
           "  output   it wrote nothing\n"
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
        "ddprun: rank 0 on n1 failed first: killed by someone else (SIGKILL), 1.0 s after its start\n"
        "  why      killed by someone else: ddprun did not send this signal, and no memory limit was hit;\n"
        "           Linux does not tell who did\n"
        "  try      look for a kill -9 by hand or in a script, a time limit of the scheduler, a container\n"
        "           that was stopped\n"
        "  worker   rank 0 (local rank 0), pid 4000, host n1\n"
        "  times    started 2023-11-14 22:13:21.000, ended 22:13:22.000\n"
        "  output   it wrote nothing\n"
        "  then     rank 1 was stopped by ddprun as a consequence (SIGTERM)\n"
        "  exit     137 = 128 + 9 (SIGKILL), because of rank 0 on n1\n");
}

Test(report, says_that_dev_shm_is_full, .fini = tear_down)
{
    struct worker_evidence e = { .shm_size = 64 << 20, .shm_free = 0, .core_kind = CORE_NO_LIMIT };
    start(1, NULL);
    report.evidence = &e;
    run_all(1);
    step(AGENT_EXITED, 2000, 0, -SIGBUS);
    expect(
        "ddprun: rank 0 on n1 failed: /dev/shm is full (SIGBUS), 1.0 s after its start\n"
        "  why      /dev/shm is full: 64 MiB, of which nothing is free; touching shared memory that has no\n"
        "           room behind it is SIGBUS\n"
        "  try      docker run --shm-size=8g (or --ipc=host), or mount -o remount,size=8g /dev/shm; ls -l\n"
        "           /dev/shm shows what earlier jobs left\n"
        "  core     none, because the limit for core files is 0; get one with ulimit -c unlimited before\n"
        "           ddprun\n"
        "  worker   rank 0 (local rank 0), pid 4000, host n1\n"
        "  times    started 2023-11-14 22:13:21.000, ended 22:13:22.000\n"
        "  output   it wrote nothing\n"
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
        "  hint     the worker chose a GPU that does not exist: its index must be LOCAL_RANK, and no higher\n"
        "           than the GPUs in CUDA_VISIBLE_DEVICES\n"
        "  output   it wrote nothing\n"
        "  exit     1, because of rank 0 on n1\n");
}

/* A rank that lost or missed another one is a witness, and says so. */
Test(report, tells_a_witness_of_another_ranks_trouble)
{
    static const struct {
        const char *says, *means;
    } cases[] = {
        { "RuntimeError: [pair.cc:598] Connection closed by peer [127.0.0.1]:2",
          "at the other end has ended" },
        { "Timed out waiting 8000ms for recv operation to complete", "did not come to this collective" },
        { "Watchdog caught collective operation timeout: WorkNCCL(", "did not come to this collective" },
        { "[enforce fail at context.cc:23] rank < size. 3 vs 3", "world_size that is smaller" },
        { "Connection closed by peer\nDataLoader worker (pid 7) is killed by signal: Killed.",
          "DataLoader worker" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct buf hint = { 0 };
        cr_assert(hint_for(slice_str(cases[i].says), &(struct hint_facts){ 0 }, &hint) &&
                  buf_append(&hint, "", 1));
        cr_expect_not_null(strstr((char *)hint.data, cases[i].means), "%s", cases[i].says);
        buf_free(&hint);
    }
}

Test(report, an_unusable_error_file_hides_nothing, .fini = tear_down)
{
    start(1, NULL);
    report.error_trouble = "/tmp/e/error.json: it is no JSON (byte 3 of 9)";
    run_all(1);
    tail_feed(&err_tails[0], slice_str("boom\n"));
    step(AGENT_EXITED, 2000, 0, 1);
    expect(
        "ddprun: rank 0 on n1 failed: exit 1, 1.0 s after its start\n"
        "  worker   rank 0 (local rank 0), pid 4000, host n1\n"
        "  times    started 2023-11-14 22:13:21.000, ended 22:13:22.000\n"
        "  error    the worker's error file cannot be used: /tmp/e/error.json: it is no JSON (byte 3 of 9)\n"
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
           "           rank 1 ended with 0\n"
           "           rank 2 cannot be killed, stuck in the kernel\n"
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
    expect("ddprun: all workers ended with 0 after 8.5 s\n");
}

Test(report, of_a_program_that_cannot_be_started_names_path_reason_and_cure, .fini = tear_down)
{
    static const struct program_look look = { .path = "./train", .kind = PATH_NO_X };
    start(2, "logs");
    report.look = &look;
    step(AGENT_SPAWN_FAILED, 1000, 0, EACCES);
    expect("ddprun: rank 0 on n1 could not be started: ./train is not executable\n"
           "  try      chmod +x ./train; a Python script runs without that as python3 -u ./train\n"
           "  worker   rank 0 (local rank 0), host n1\n"
           "  times    tried 2023-11-14 22:13:21.000\n"
           "  then     rank 1 was never started\n"
           "  logs     logs/k3x9, of this worker in logs/k3x9/attempt_0/0\n"
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
    tail_feed(&err_tails[0], slice_of("\033[2Jgone\0\a\xc2\x9b\xff\ttab\n", 18));
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

/* Everything at its longest at once. */
Test(report, never_has_more_than_forty_lines, .fini = tear_down)
{
    enum { N = NPROC_MOST };
    static char essay[4000];
    memset(essay, 'w', sizeof(essay) - 1);
    for (size_t i = 7; i < sizeof(essay) - 1; i += 8)
        essay[i] = i % 3 == 0 ? '\n' : ' ';
    struct error_text error = { .message = essay, .callstack = "" };
    struct worker_evidence e = { .oom = OOM_CGROUP, .kills = 1, .core_kind = CORE_LOST };
    memset(e.cgroup, 'c', sizeof(e.cgroup) - 1);
    memset(e.core, 'c', sizeof(e.core) - 1);
    start(N, "logs");
    report.error = &error;
    report.evidence = &e;
    run_all(N);
    for (int i = 0; i < 1000; i++)
        tail_feed(&err_tails[1], slice_str("No space left on device\n"));
    step(AGENT_EXITED, 2000, 1, 1);
    for (int r = 0; r < N; r++)
        step(AGENT_EXITED, 2100, r, 2 + r);
    cr_assert(report_text(&report, &text));
    cr_assert(buf_append(&text, "", 1));
    cr_assert_leq(lines_of_text(), REPORT_LINES_MAX, "%s", (char *)text.data);
    cr_assert_not_null(strstr((char *)text.data, "still other ways"), "%s", (char *)text.data);
    cr_assert_not_null(strstr((char *)text.data, "\n  exit     1, because of rank 1 on n1\n"), "%s",
                       (char *)text.data);
}

Test(report, folds_many_ranks_and_cuts_long_lines, .fini = tear_down)
{
    static char long_line[1000];
    start(NPROC_MOST, NULL);
    run_all(NPROC_MOST);
    memset(long_line, 'x', sizeof(long_line));
    tail_feed(&err_tails[63], slice_of(long_line, sizeof(long_line)));
    step(AGENT_EXITED, 2000, 63, 1);
    for (int r = 0; r < 63; r++)
        step(AGENT_EXITED, 2100, r, r % 2 == 0 ? -SIGTERM : 1);
    cr_assert(report_text(&report, &text));
    cr_assert(buf_append(&text, "", 1));
    cr_assert_not_null(strstr((char *)text.data, "xxx ...\n"));
    cr_assert_not_null(strstr((char *)text.data, "ranks 0,2,4,6,8,10,"));
    cr_assert_not_null(strstr((char *)text.data, ",... were stopped by"));
}
