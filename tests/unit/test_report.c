/* What the user reads at the end: golden texts, and the same facts as JSON. */
#include "event_json.h"
#include "report.h"

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

static void step(enum agent_event_type type, uint64_t now_ms, int r, int code)
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

/* A job of `nproc` workers that all run since 1000 ms. */
static void start(int nproc, const char *log_dir)
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
    agent = agent_new(&(struct agent_options){ .nproc = nproc, .grace_ms = 30000 });
    report = (struct report){ .plan = &plan,
                              .agent = agent,
                              .stdout_tails = out_tails,
                              .stderr_tails = err_tails,
                              .started_ms = 500,
                              .ended_ms = 9000,
                              .path = "/usr/bin:/bin" };
    step(AGENT_START, 1000, 0, 0);
}

static void run_all(int nproc)
{
    for (int r = 0; r < nproc; r++)
        step(AGENT_SPAWNED, 1000, r, 0);
}

static void tear_down(void)
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
    step(AGENT_EXITED, 3600, 0, -SIGTERM);
    step(AGENT_EXITED, 3600, 1, -SIGTERM);
    step(AGENT_EXITED, 3700, 3, 1);
    expect("ddprun: rank 2 (local rank 2, pid 4002, host n1) failed first: exit 7, 2.5 s after its start\n"
           "  Its last lines on stderr:\n"
           "    | loading\n"
           "    | Traceback:\n"
           "    |   boom at line 7\n"
           "  Stopped by ddprun as a consequence: ranks 0-1 (killed by SIGTERM (signal 15))\n"
           "  Stopped by ddprun as a consequence: rank 3 (exit 1)\n"
           "  Logs: logs/k3x9\n"
           "  ddprun exits with 7.\n");
}

Test(report, names_signals, .fini = tear_down)
{
    start(1, NULL);
    run_all(1);
    tail_feed(&out_tails[0], slice_str("step 1\rstep 2\r\nlast"));
    step(AGENT_EXITED, 1100, 0, -SIGSEGV);
    expect("ddprun: rank 0 (local rank 0, pid 4000, host n1) failed: killed by SIGSEGV (signal 11), 100 ms "
           "after its "
           "start\n"
           "  Its last lines on stdout (nothing on stderr):\n"
           "    | step 2\n"
           "    | last\n"
           "  ddprun exits with 139.\n");
}

Test(report, says_that_a_sigkill_was_not_ours, .fini = tear_down)
{
    start(2, NULL);
    run_all(2);
    step(AGENT_EXITED, 2000, 0, -SIGKILL);
    step(AGENT_EXITED, 2000, 1, -SIGTERM);
    expect("ddprun: rank 0 (local rank 0, pid 4000, host n1) failed first: killed by SIGKILL (signal 9), 1.0 "
           "s after "
           "its start\n"
           "  ddprun did not send this signal: someone else did, or the kernel when memory ran out.\n"
           "  It wrote nothing.\n"
           "  Stopped by ddprun as a consequence: rank 1 (killed by SIGTERM (signal 15))\n"
           "  ddprun exits with 137.\n");
}

Test(report, of_a_user_stop_blames_nobody, .fini = tear_down)
{
    start(3, NULL);
    run_all(3);
    step(AGENT_EXITED, 1500, 1, 0);
    step(AGENT_STOP, 2000, 0, SIGINT);
    step(AGENT_EXITED, 2100, 0, -SIGINT);
    expect("ddprun: stopped by SIGINT after 8.5 s\n"
           "  Stopped by ddprun as a consequence: rank 0 (killed by SIGINT (signal 2))\n"
           "  Ended with 0: rank 1\n"
           "  Could not be killed, stuck in the kernel: rank 2\n"
           "  ddprun exits with 130.\n");
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

Test(report, says_why_a_program_cannot_be_started)
{
    static const struct {
        int error;
        enum program_look look;
        const char *interpreter, *says;
        int exit_code;
    } cases[] = {
        { ENOENT, LOOK_MISSING, NULL, "./train: no such file", 127 },
        { ENOENT, LOOK_FILE, "/no/sh",
          "./train is there, but its interpreter '/no/sh' (its first line) is not", 127 },
        { ENOENT, LOOK_FILE, NULL,
          "./train is there, but the loader that it needs is not: it was built for another system", 127 },
        { EACCES, LOOK_DIRECTORY, NULL, "./train is a directory, not a program", 126 },
        { EACCES, LOOK_NOT_EXECUTABLE, NULL, "./train is not executable; chmod +x ./train", 126 },
        { EACCES, LOOK_FILE, "/etc", "./train: its interpreter '/etc' (its first line) cannot be executed",
          126 },
        { EACCES, LOOK_UNKNOWN, NULL,
          "./train: permission denied; its directory may be mounted noexec, or one above it may not be "
          "entered",
          126 },
        { ENOEXEC, LOOK_FILE, NULL,
          "./train is nothing that this machine can execute: a script needs a first line like #!/bin/sh, a "
          "program must be "
          "built for this kind of machine",
          126 },
        { EAGAIN, LOOK_FILE, NULL,
          "./train: the system has no room for another process (Resource temporarily unavailable); see "
          "ulimit -u and free "
          "memory",
          126 },
        { ELOOP, LOOK_UNKNOWN, NULL, "./train: Too many levels of symbolic links", 126 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char golden[1024];
        start(2, NULL);
        report.look = cases[i].look;
        report.interpreter = cases[i].interpreter;
        step(AGENT_SPAWN_FAILED, 1000, 0, cases[i].error);
        snprintf(golden, sizeof(golden),
                 "ddprun: rank 0 could not be started: %s\n"
                 "  Never started: rank 1\n"
                 "  ddprun exits with %d.\n",
                 cases[i].says, cases[i].exit_code);
        expect(golden);
        tear_down();
    }
}

Test(report, a_program_in_this_directory_is_not_in_path)
{
    const enum program_look looks[] = { LOOK_MISSING, LOOK_FILE };
    for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
        start(1, NULL);
        plan.workers[0].argv[0] = "train";
        report.look = looks[i];
        step(AGENT_SPAWN_FAILED, 1000, 0, ENOENT);
        expect("ddprun: rank 0 could not be started: train: not found in PATH (/usr/bin:/bin); a program in "
               "this directory is written ./train\n"
               "  ddprun exits with 127.\n");
        tear_down();
    }
}

Test(report, never_has_more_than_forty_lines, .fini = tear_down)
{
    enum { N = NPROC_MOST };
    start(N, "logs");
    run_all(N);
    for (int i = 0; i < 1000; i++)
        tail_feed(&err_tails[1], slice_str("a line of an endless trace\n"));
    step(AGENT_EXITED, 2000, 1, 1);
    for (int r = 0; r < N; r++)
        step(AGENT_EXITED, 2100, r, 2 + r);
    cr_assert(report_text(&report, &text));
    int lines = 0;
    for (size_t i = 0; i < text.len; i++)
        lines += text.data[i] == '\n';
    cr_assert_leq(lines, REPORT_LINES_MAX);
    cr_assert(buf_append(&text, "", 1));
    cr_assert_not_null(strstr((char *)text.data, "still other ways"));
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
    cr_assert_not_null(strstr((char *)text.data, ",... (killed by SIGTERM"));
}

/* --- JSON ----------------------------------------------------------------------------------------------- */

static const char *member(const cJSON *o, const char *name)
{
    const cJSON *m = cJSON_GetObjectItem(o, name);
    cr_assert(cJSON_IsString(m), "%s", name);
    return m->valuestring;
}

static double number(const cJSON *o, const char *name)
{
    const cJSON *m = cJSON_GetObjectItem(o, name);
    cr_assert(cJSON_IsNumber(m), "%s", name);
    return m->valuedouble;
}

Test(report, as_json_has_the_same_facts, .fini = tear_down)
{
    start(2, "logs");
    run_all(2);
    tail_feed(&err_tails[1], slice_str("bad \xff byte\n"));
    step(AGENT_EXITED, 3500, 1, -SIGABRT);
    step(AGENT_EXITED, 3600, 0, -SIGTERM);
    cJSON *o = report_json(&report);
    cr_assert_not_null(o);
    cr_assert_str_eq(member(o, "outcome"), "failed");
    cr_assert_eq(number(o, "exit_code"), 134);
    cr_assert_eq(number(o, "duration_s"), 8.5);
    cr_assert_str_eq(member(o, "log_dir"), "logs/k3x9");
    const cJSON *first = cJSON_GetObjectItem(o, "first_failure");
    cr_assert_eq(number(first, "rank"), 1);
    cr_assert_eq(number(first, "ended_s"), 3.0);
    cr_assert_str_eq(member(first, "signal_name"), "SIGABRT");
    cr_assert_str_eq(member(first, "last_lines"), "bad \xef\xbf\xbd byte\n");
    const cJSON *other = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "workers"), 0);
    cr_assert_str_eq(member(other, "verdict"), "consequence");
    cJSON_Delete(o);
}

/* The last line of `text` as an object. */
static cJSON *event(bool complete, const char *name)
{
    cr_assert(complete);
    cr_assert_eq(text.data[text.len - 1], '\n');
    cr_assert_eq(memchr(text.data, '\n', text.len), text.data + text.len - 1, "one line");
    cJSON *o = cJSON_ParseWithLength((char *)text.data, text.len);
    cr_assert_not_null(o);
    cr_assert_str_eq(member(o, "event"), name);
    text.len = 0;
    return o;
}

Test(event_json, each_event_is_one_line, .fini = tear_down)
{
    start(2, NULL);
    run_all(2);
    step(AGENT_EXITED, 2000, 1, 3);
    step(AGENT_EXITED, 2000, 0, -SIGTERM);
    const struct plan_worker *w = &plan.workers[1];
    cJSON *o = event(event_started(&text, 0, &plan), "started");
    cr_assert_eq(number(o, "world_size"), 2);
    cJSON_Delete(o);
    o = event(event_worker_started(&text, 250, w, 77), "worker_started");
    cr_assert_eq(number(o, "t"), 0.25);
    cr_assert_eq(number(o, "pid"), 77);
    cJSON_Delete(o);
    o = event(event_output(&text, 0, w, STD_ERR, slice_of("a\0b\"\n\xc3", 6), LINE_UPDATE), "output");
    cr_assert_str_eq(member(o, "text"), "a\xef\xbf\xbd"
                                        "b\"\n\xef\xbf\xbd");
    cr_assert_str_eq(member(o, "stream"), "stderr");
    cr_assert_str_eq(member(o, "kind"), "update");
    cJSON_Delete(o);
    o = event(event_worker_ended(&text, 0, w, agent_worker(agent, 1)), "worker_ended");
    cr_assert_str_eq(member(o, "ending"), "exit 3");
    cr_assert_str_eq(member(o, "verdict"), "failed");
    cJSON_Delete(o);
    const struct signal_heard heard = { .signal = SIGINT,
                                        .sender = { .pid = 9, .uid = 1000, .name = "bash" } };
    o = event(event_stop(&text, 0, &heard), "stop_requested");
    cr_assert_str_eq(member(o, "signal_name"), "SIGINT");
    cr_assert_str_eq(member(o, "sender_name"), "bash");
    cr_assert_eq(number(o, "sender_pid"), 9);
    cr_assert_eq(number(o, "sender_uid"), 1000);
    cJSON_Delete(o);
    const struct signal_heard key = { .signal = SIGWINCH, .sender = { .kernel = true } };
    o = event(event_signal_passed(&text, 0, &key, 2), "signal_passed");
    cr_assert_eq(number(o, "workers"), 2);
    cr_assert(cJSON_IsNull(cJSON_GetObjectItem(o, "sender_pid")));
    cr_assert(cJSON_IsNull(cJSON_GetObjectItem(o, "sender_uid")));
    cJSON_Delete(o);
    o = event(event_worker_stopped(&text, 0, w, 77, SIGSTOP), "worker_stopped");
    cr_assert_str_eq(member(o, "signal_name"), "SIGSTOP");
    cr_assert_eq(number(o, "pid"), 77);
    cJSON_Delete(o);
    o = event(event_note(&text, 0, "a \"note\""), "note");
    cr_assert_str_eq(member(o, "text"), "a \"note\"");
    cJSON_Delete(o);
    o = event(event_finished(&text, &report), "finished");
    cr_assert_eq(number(cJSON_GetObjectItem(o, "report"), "exit_code"), 3);
    cJSON_Delete(o);
}
