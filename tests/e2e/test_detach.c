/* Tests of ddprun --detach, which starts a job without a terminal, and of the commands list, attach and stop. Each
 * test has its own runtime directory, so that it never sees or stops a job of the user. */
#include "job.h"
#include "procstat.h"
#include "run.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(detach, .timeout = 120);

static char *dir, runtime[300], shell[320];

/* Create the test's directory, which is also the runtime directory. */
static void set_up(void)
{
    char path[300];
    dir = job_dir();
    snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=%s", dir);
    snprintf(path, sizeof(path), "%s/shell", dir);
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL && fputs("#!/bin/sh\nshift\nexec sh -c \"$*\"\n", file) >= 0 &&
              fclose(file) == 0 && chmod(path, 0755) == 0);
    snprintf(shell, sizeof(shell), "--remote_shell=%s", path);
    gate_shut();
}

static void tear_down(void)
{
    gate_gone();
    job_dir_remove(dir);
}

#define DETACH_TEST(name) Test(detach, name, .init = set_up, .fini = tear_down)

static struct run_process *start_ddprun(const char *const args[])
{
    const char *argv[32] = { bin("ddprun") };
    for (int i = 0; args[i] != NULL; i++)
        argv[i + 1] = strcmp(args[i], WORKER) == 0 ? bin("tests/prog/worker") : args[i];
    const char *const env[] = { runtime, "OMP_NUM_THREADS=1", NULL };
    signal(SIGINT, SIG_DFL);
    return run_start(argv, &(struct run_options){ .env = env, .cwd = dir });
}
#define START(...)  start_ddprun((const char *const[]){ __VA_ARGS__, NULL })
#define DDPRUN(...) run_wait(START(__VA_ARGS__))

/* Return the id of the job that `ddprun --detach` has started. */
static const char *id_of(struct run_result *r)
{
    static char id[64];
    EXPECT(*r, 0);
    snprintf(id, sizeof(id), "%.*s", (int)strcspn(r->out, "\n"), r->out);
    cr_assert_eq(strlen(id), 8, "%s%s", r->out, r->err);
    cr_expect_not_null(strstr(r->err, id), "%s", r->err);
    return id;
}

/* Return the text of `ddprun list`, which the caller frees. */
static char *list(const char *option)
{
    struct run_result r = DDPRUN("list", option);
    EXPECT(r, 0);
    free(r.err);
    return r.out;
}

/* Wait until the list has no job. */
static void expect_no_job(void)
{
    char *rows = NULL;
    for (struct patience p = { 0 }; (rows == NULL || rows[0] != '\0') && patience_left(&p);) {
        free(rows);
        rows = list(NULL);
    }
    cr_expect_str_eq(rows, "");
    free(rows);
}

static void stop(const char *id)
{
    struct run_result r = DDPRUN("stop", id);
    EXPECT(r, 0);
}

/* --- jobs -------------------------------------------------------------------------------------------------------- */

DETACH_TEST(a_job_in_the_background_is_listed_watched_and_stopped)
{
    struct run_result r =
        DDPRUN("--detach", "--standalone", "--nproc_per_node=2", WORKER, "say:ready", "forever");
    const char *id = id_of(&r);
    char *rows = list(NULL), row[64];
    snprintf(row, sizeof(row), "\n%-10srunning   ", id);
    cr_expect_not_null(strstr(rows, row), "%s", rows);
    cr_expect_not_null(strstr(rows, "  ddprun --detach --standalone --nproc_per_node=2 "), "%s", rows);
    free(rows);
    struct run_process *viewer = START("attach", id);
    cr_expect(run_until_output(viewer, "[0] ready\n", PATIENCE_MS), "%s", run_output(viewer));
    stop(id);
    r = run_wait(viewer);
    EXPECT(r, 130);
    PRINTS(r, "exit code 130");
    expect_no_job();
    r = DDPRUN("attach", id);
    EXPECT(r, 2);
    SAYS(r, "no background");
}

/* Start a job in a directory that ddprun searches under two names, and expect that `ddprun list` shows the job only once.
 * The names are XDG_RUNTIME_DIR and /run/user/UID or, if /run/user/UID does not exist, TMPDIR and /tmp. The caller tests
 * the empty list, too: as two tests they could run at the same time, and the other test would find this job. */
static void expect_one_job_in_a_directory_with_two_names(void)
{
    char name[64], job[320], unique[64];
    snprintf(name, sizeof(name), "XDG_RUNTIME_DIR=/run/user/%u", (unsigned)geteuid());
    snprintf(unique, sizeof(unique), "found-once-%d", (int)getpid());
    snprintf(job, sizeof(job), "--rdzv_id=%s", unique);
    snprintf(runtime, sizeof(runtime), "%s", name);
    setenv("TMPDIR", "/tmp", 1);
    struct run_result r = DDPRUN("--detach", "--standalone", job, WORKER, "say:ready", "forever");
    const char *id = id_of(&r);
    char *rows = list(NULL), *json = list("--json");
    cr_expect(strstr(rows, id) != NULL && strstr(strstr(rows, id) + 1, id) == NULL, "%s", rows);
    snprintf(name, sizeof(name), "\"id\":\"%s\"", id);
    cr_expect(strstr(json, name) != NULL && strstr(strstr(json, name) + 1, name) == NULL, "%s", json);
    free(rows);
    free(json);
    r = DDPRUN("stop", unique);
    EXPECT(r, 0);
    if (r.exit_code != 0)
        stop(id); /* otherwise other tests would list this job, too */
    for (struct patience p = { 0 }; patience_left(&p);) {
        rows = list(NULL);
        const bool is_gone = strstr(rows, id) == NULL;
        free(rows);
        if (is_gone)
            return;
    }
    cr_assert_fail("job %s has not ended", id);
}

DETACH_TEST(a_viewer_gets_the_exit_code_and_only_the_last_lines_before_it)
{
    struct run_result r = DDPRUN("--detach", "--standalone", "--no_prefix", "sh", "-c",
                                 "seq 1000\n" AT_GATE "; echo after; exit 7");
    const char *id = id_of(&r);
    char name[64];
    snprintf(name, sizeof(name), "ddprun-%s.out", id);
    char *text = NULL;
    for (struct patience p = { 0 };
         (text == NULL || strstr(text, "\n1000\n") == NULL) && patience_left(&p);) {
        free(text);
        text = job_file(dir, name);
    }
    free(text);
    char *rows = list(NULL);
    cr_expect_not_null(strstr(rows, "'seq 1000\\n"), "%s", rows);
    free(rows);
    struct run_process *viewer = START("attach", id);
    cr_expect(run_until_output(viewer, "1000\n", PATIENCE_MS));
    gate_open();
    r = run_wait(viewer);
    EXPECT(r, 7);
    PRINTS(r, "after\n");
    cr_expect_eq(strncmp(r.out, "991\n992\n", 8), 0, "%s", r.out);
}

DETACH_TEST(ctrl_c_ends_the_viewer_and_not_the_job)
{
    struct run_result r = DDPRUN("--detach", "--standalone", WORKER, "say:ready", "forever");
    const char *id = id_of(&r);
    struct run_process *viewer = START("attach", id);
    cr_assert(run_until_output(viewer, "ready\n", PATIENCE_MS));
    run_signal(viewer, SIGINT);
    r = run_wait(viewer);
    EXPECT(r, 130);
    SAYS(r, "'ddprun stop ");
    char *rows = list("--json");
    cr_expect_not_null(strstr(rows, "\"state\":\"running\""), "%s", rows);
    free(rows);
    stop(id);
    expect_no_job();
}

/* The worker ignores SIGINT, and the grace period is longer than the test. */
DETACH_TEST(a_second_stop_ends_the_job_at_once)
{
    struct run_result r = DDPRUN("--detach", "--standalone", "--grace=1000", WORKER, "ignore:2", "ignore:15",
                                 "say:ready", "forever");
    const char *id = id_of(&r);
    struct run_process *viewer = START("attach", id);
    cr_assert(run_until_output(viewer, "ready\n", PATIENCE_MS));
    stop(id);
    cr_expect(run_until_output(viewer, "stopping", PATIENCE_MS), "%s", run_output(viewer));
    char *rows = list(NULL);
    cr_expect_not_null(strstr(rows, "stopping"), "%s", rows);
    free(rows);
    stop(id);
    r = run_wait(viewer);
    EXPECT(r, 130);
}

DETACH_TEST(hosts_run_in_the_background)
{
    struct run_result r = DDPRUN("--hosts=a,b", "--detach", shell, WORKER, "say:ready", "forever");
    const char *id = id_of(&r);
    struct run_process *viewer = START("attach", id);
    cr_expect(run_until_output(viewer, "[a:0] ready\n", PATIENCE_MS), "%s", run_output(viewer));
    cr_expect(run_until_output(viewer, "[b:1] ready\n", PATIENCE_MS), "%s", run_output(viewer));
    stop(id);
    r = run_wait(viewer);
    EXPECT(r, 130);
    expect_no_job();
}

/* A program that runs argv[1:] in the shell of a new terminal and copies the terminal's output to stdout. The kernel
 * closes the terminal when this program ends. */
static const char terminal[] =
    "import os, pty, sys\n"
    "pid, fd = pty.fork()\n"
    "if pid == 0:\n"
    "    shell = 'trap \"echo closed >hangup; exit\" HUP; \"$@\"; while :; do sleep 0.1; done'\n"
    "    os.execvp('sh', ['sh', '-c', shell, 'sh'] + sys.argv[1:])\n"
    "while True:\n"
    "    os.write(1, os.read(fd, 4096))\n";

/* The shell and all processes that still belong to the terminal receive SIGHUP. */
DETACH_TEST(a_job_survives_the_terminal_of_its_start)
{
    const char *const env[] = { runtime, "OMP_NUM_THREADS=1", NULL };
    const char *const argv[] = {
        "python3",   "-c",      terminal, bin("ddprun"), "--detach", "--standalone", bin("tests/prog/worker"),
        "say:ready", "forever", NULL
    };
    struct run_process *window = run_start(argv, &(struct run_options){ .env = env, .cwd = dir });
    char id[16], *text = NULL;
    cr_assert(run_until_output(window, "'ddprun stop ", PATIENCE_MS), "%s", run_output(window));
    const char *advice = strstr(run_output(window), "'ddprun attach ");
    cr_assert_eq(sscanf(advice, "'ddprun attach %8[0-9a-z]", id), 1, "%s", advice);
    struct run_process *viewer = START("attach", id);
    cr_assert(run_until_output(viewer, "ready\n", PATIENCE_MS), "%s", run_output(viewer));
    run_signal(window, SIGKILL);
    run_wait(window);
    for (struct patience p = { 0 }; text == NULL && patience_left(&p);)
        text = job_file(dir, "hangup");
    cr_expect_not_null(text, "the shell has received no SIGHUP");
    free(text);
    text = list("--json");
    cr_expect_not_null(strstr(text, id), "%s", text);
    cr_expect_not_null(strstr(text, "\"state\":\"running\""), "%s", text);
    free(text);
    stop(id);
    struct run_result r = run_wait(viewer);
    EXPECT(r, 130);
    expect_no_job();
}

/* --- faults ------------------------------------------------------------------------------------------------------ */

/* Return the number of sockets in the runtime directory. */
static int sockets(void)
{
    char path[300];
    int n = 0;
    snprintf(path, sizeof(path), "%s/ddprun", dir);
    DIR *d = opendir(path);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        n += strncmp(e->d_name, "detached-", 9) == 0;
    if (d != NULL)
        closedir(d);
    return n;
}

/* Return the parent of a process. */
static pid_t parent_of(pid_t pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    cr_assert(file != NULL && fgets(text, sizeof(text), file) != NULL);
    fclose(file);
    const char *name_end = strrchr(text, ')');
    cr_assert_not_null(name_end);
    return (pid_t)atoi(name_end + 4);
}

static pid_t only_supervisor(void)
{
    char *row = list("--json"), *pid = strstr(row, "\"pid\":");
    cr_assert_not_null(pid, "%s", row);
    const pid_t supervisor = parent_of(atoi(pid + 6));
    free(row);
    return supervisor;
}

DETACH_TEST(a_killed_supervisor_leaves_nothing)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_result r =
        DDPRUN("--detach", "--standalone", "--nproc_per_node=2", WORKER, w.hold, "say:ready", "forever");
    const char *id = id_of(&r);
    struct run_process *viewer = START("attach", id);
    cr_assert(run_until_output(viewer, "[0] ready\n", PATIENCE_MS), "%s", run_output(viewer));
    cr_assert(run_until_output(viewer, "[1] ready\n", PATIENCE_MS), "%s", run_output(viewer));
    const pid_t supervisor = only_supervisor();
    cr_expect_eq(sockets(), 1);
    kill(supervisor, SIGKILL);
    cr_expect(job_witness_alone(&w));
    r = run_wait(viewer);
    EXPECT(r, 125);
    SAYS(r, "the supervisor");
    expect_no_job();
    cr_expect_eq(sockets(), 0, "list keeps a stale entry");
    job_witness_close(&w);
}

DETACH_TEST(a_killed_supervisor_of_hosts_leaves_nothing)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_result r =
        DDPRUN("--hosts=a,b", "--detach", shell, WORKER, w.hold, "child", "say:ready", "forever");
    const char *id = id_of(&r);
    struct run_process *viewer = START("attach", id);
    cr_assert(run_until_output(viewer, "[a:0] ready\n", PATIENCE_MS), "%s", run_output(viewer));
    cr_assert(run_until_output(viewer, "[b:1] ready\n", PATIENCE_MS), "%s", run_output(viewer));
    kill(only_supervisor(), SIGKILL);
    cr_expect(job_witness_alone(&w));
    r = run_wait(viewer);
    EXPECT(r, 125);
    SAYS(r, "the supervisor");
    expect_no_job();
    cr_expect_eq(sockets(), 0, "list keeps a stale entry");
    job_witness_close(&w);
}

DETACH_TEST(stop_names_the_pid_of_a_supervisor_that_does_not_answer)
{
    char advice[32];
    struct run_result r = DDPRUN("--detach", "--standalone", WORKER, "say:ready", "forever");
    const char *id = id_of(&r);
    struct run_process *viewer = START("attach", id);
    cr_assert(run_until_output(viewer, "ready\n", PATIENCE_MS), "%s", run_output(viewer));
    const pid_t supervisor = only_supervisor();
    kill(supervisor, SIGSTOP);
    r = DDPRUN("stop", id);
    kill(supervisor, SIGCONT);
    EXPECT(r, 125);
    snprintf(advice, sizeof(advice), "-9 %d", (int)supervisor); /* the supervisor ignores SIGTERM */
    SAYS(r, advice);
    r = run_wait(viewer); /* after SIGCONT the supervisor stops the job, as requested */
    EXPECT(r, 130);
    expect_no_job();
}

/* The supervisor has 32 entries for connections. The test starts 32 viewers. The supervisor rejects the last viewer,
 * because it keeps the last entry for a connection that stops the job. */
DETACH_TEST(a_job_with_many_viewers_can_be_stopped)
{
    char command[600];
    struct run_result r =
        DDPRUN("--detach", "--standalone", "--nproc_per_node=1", WORKER, "say:ready", "forever");
    const char *id = id_of(&r);
    snprintf(command, sizeof(command),
             "until grep -q ready ddprun-%s.out; do sleep 0.1; done; "
             "for i in $(seq 32); do %s attach %s >v$i 2>&1 & done; "
             "until [ $(cat v* | grep -c -e ready -e attach:) -ge 32 ]; do sleep 0.1; done; %s stop %s; wait",
             id, bin("ddprun"), id, bin("ddprun"), id);
    const char *const argv[] = { "sh", "-c", command, NULL };
    const char *const env[] = { runtime, NULL };
    r = run_command(argv, &(struct run_options){ .env = env, .cwd = dir });
    SAYS(r, "received SIGINT");
    expect_no_job();
}

/* The viewer is stopped while the job prints 400 kB of Chinese text. Then the viewer reads this text in pieces that
 * fill its buffer, so that the reads cut characters. */
DETACH_TEST(a_read_that_cuts_a_character_escapes_nothing)
{
    char name[64], *file = NULL;
    struct run_result r =
        DDPRUN("--detach", "--standalone", "--nproc_per_node=1", "sh", "-c",
               "echo ready; " AT_GATE "; yes \xE4\xB8\xAD\xE4\xB8\xAD\xE4\xB8\xAD | head -n 40000; echo all");
    const char *id = id_of(&r);
    const char *const argv[] = { bin("ddprun"), "attach", id, NULL }, *const env[] = { runtime, NULL };
    struct run_process *viewer =
        run_start(argv, &(struct run_options){ .env = env, .cwd = dir, .terminal = true });
    cr_assert(run_until_output(viewer, "ready\n", PATIENCE_MS), "%s", run_output(viewer));
    snprintf(name, sizeof(name), "ddprun-%s.out", id);
    run_signal(viewer, SIGSTOP);
    gate_open();
    for (struct patience p = { 0 }; (file == NULL || strstr(file, "all\n") == NULL) && patience_left(&p);) {
        free(file);
        file = job_file(dir, name);
    }
    free(file);
    run_signal(viewer, SIGCONT);
    r = run_wait(viewer);
    EXPECT(r, 0);
    cr_expect_not_null(strstr(r.out, "all\n"));
    cr_expect_null(strstr(r.out, "\\x"), "%.200s", strstr(r.out, "\\x"));
    expect_no_job();
}

DETACH_TEST(a_job_is_found_by_its_rdzv_id)
{
    struct run_result a =
        DDPRUN("--detach", "--standalone", "--rdzv_id=night", WORKER, "say:ready", "forever");
    char first[64];
    snprintf(first, sizeof(first), "%s received SIGINT", id_of(&a));
    struct run_process *viewer = START("attach", "night");
    cr_expect(run_until_output(viewer, "ready\n", PATIENCE_MS), "%s", run_output(viewer));
    struct run_result b = DDPRUN("--detach", "--standalone", "--rdzv_id=night", WORKER, "forever");
    const char *id = id_of(&b);
    struct run_result r = DDPRUN("stop", "night");
    EXPECT(r, 2);
    SAYS(r, "have --rdzv_id=night");
    stop(id);
    for (struct patience p = { 0 }; sockets() > 1 && patience_left(&p);)
        ;
    r = DDPRUN("stop", "night");
    EXPECT(r, 0);
    SAYS(r, first);
    cr_expect_null(strstr(r.err, "night"), "a job has one name: %s", r.err);
    r = run_wait(viewer);
    EXPECT(r, 130);
    expect_no_job();
    r = DDPRUN("list");
    EXPECT(r, 0);
    SAYS(r, "no jobs");
    r = DDPRUN("list", "--json");
    EXPECT(r, 0);
    cr_expect(r.out[0] == '\0' && r.err[0] == '\0', "%s%s", r.out, r.err);
    expect_one_job_in_a_directory_with_two_names();
}

/* The command line of this job has more than 100,000 bytes. The answer of the supervisor has room for only a part of
 * this command line. */
DETACH_TEST(a_job_with_a_long_argument_is_listed_and_stopped)
{
    static char word[100001];
    for (size_t i = 0; i + 2 < sizeof(word); i += 2)
        memcpy(word + i, "\"\xC3", 2); /* JSON escapes the quote, and replaces \xC3, which is not UTF-8 */
    struct run_result r = DDPRUN("--detach", "--standalone", WORKER, "forever", word);
    const char *id = id_of(&r);
    r = DDPRUN("list", "--json");
    EXPECT(r, 0);
    cr_expect_not_null(strstr(r.out, id), "%s%s", r.out, r.err);
    cr_expect_not_null(strstr(r.out, "...\""), "%s", r.out);
    stop(id);
    expect_no_job();
}

/* The lengths of the commands differ by one byte, so a cut at a fixed byte splits a character in one command. */
DETACH_TEST(a_command_line_is_cut_between_two_characters)
{
    char word[2][160];
    struct run_result r[2];
    int cut = 0;
    for (int i = 0; i < 2; i++) {
        int n = snprintf(word[i], sizeof(word[i]), "exec sleep 1000 #%s", i == 0 ? "" : "x");
        for (; n < 150; n += 2)
            memcpy(word[i] + n, "\xC3\xA9", 3);
        r[i] = DDPRUN("--detach", "--standalone", "--no_python", "sh", "-c", word[i]);
        EXPECT(r[i], 0);
    }
    const struct run_result rows = DDPRUN("list");
    for (const char *at = rows.out; (at = strstr(at, "...\n")) != NULL; at += 4, cut++)
        cr_expect_eq((uint8_t)at[-1], 0xA9, "%s", rows.out);
    cr_expect_eq(cut, 2, "%s", rows.out);
    for (int i = 0; i < 2; i++)
        stop(id_of(&r[i]));
    expect_no_job();
}

DETACH_TEST(errors_are_reported_before_the_job_leaves_the_terminal)
{
    struct run_result r = DDPRUN("--detach", "--nproc_per_node=0", "true");
    EXPECT(r, 2);
    r = DDPRUN("--detach", "--hosts=a,a:x", "true");
    EXPECT(r, 2);
    r = DDPRUN("stop", "../x");
    EXPECT(r, 2);
    cr_expect_eq(sockets(), 0);
}

DETACH_TEST(a_script_called_list_starts_as_a_path)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/list", dir);
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL && fputs("#!/bin/sh\necho my list\n", file) >= 0 && fclose(file) == 0 &&
              chmod(path, 0755) == 0);
    struct run_result r = DDPRUN("./list");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "my list\n");
    expect_no_job();
}
