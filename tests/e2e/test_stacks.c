/* Tests of the stacks of a running job, and of the stacks of the survivors of a failure. Some tests use a script in
 * place of py-spy, some use no py-spy, and some use the real py-spy. The workers run a copy of tests/prog/worker that
 * is called python3. The script is beside this copy, because ddprun searches the folder of Python for py-spy. */
#include "job.h"
#include "procstat.h"
#include "run.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *dir;
static char python[256], port_option[32], addr[32];

/* Rank 1 fails at SIGUSR1. The other ranks ignore this signal. */
#define FAILS_AT_USR1 "catch:10", "say:ready", "only:1", "pause", "exit:3", "all", "forever"

static void write_script(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "we");
    cr_assert(file != NULL && fprintf(file, "#!/bin/sh\n%s\n", text) > 0 && fclose(file) == 0);
    cr_assert_eq(chmod(path, 0755), 0);
}

static void start(void)
{
    char command[600];
    dir = job_dir();
    snprintf(python, sizeof(python), "%s/python3", dir);
    snprintf(command, sizeof(command), "cp %s %s", bin("tests/prog/worker"), python);
    cr_assert_eq(system(command), 0);
    const int port = free_port();
    snprintf(port_option, sizeof(port_option), "--master_port=%d", port);
    snprintf(addr, sizeof(addr), "--addr=127.0.0.1:%d", port);
}

static void stop(void)
{
    job_dir_remove(dir);
}

TestSuite(stacks_e2e, .init = start, .fini = stop, .timeout = 120);

/* Print the frames of process `$4` as py-spy does: rank 1 computes, and the other ranks wait. */
#define PRINT_FRAMES                                                                                         \
    "test $RANK = 1 && "                                                                                     \
    "f='\"name\":\"load\",\"filename\":\"/home/u/data.py\",\"short_filename\":\"data.py\",\"line\":5' "      \
    "|| f='\"name\":\"all_reduce\",\"filename\":\"/v/lib/python3.12/site-packages/torch/d.py\",\"line\":9}," \
    "{\"name\":\"<module>\",\"filename\":\"/home/u/train.py\",\"short_filename\":\"train.py\",\"line\":8'\n" \
    "echo '[{\"thread_name\":\"MainThread\",\"os_thread_id\":'$4',\"frames\":[{'$f'}]}]'"

#define WAITING                      \
    "    all_reduce  torch/d.py:9\n" \
    "  > <module>  train.py:8\n"

static const char *const no_path[] = { "PATH=/usr/bin:/bin", NULL };

static struct run_process *start_job(int nproc)
{
    char number[40];
    snprintf(number, sizeof(number), "--nproc_per_node=%d", nproc);
    const char *args[] = { port_option, number, python, FAILS_AT_USR1, NULL };
    struct run_process *p = job_start(args, &(struct run_options){ .env = no_path });
    for (int i = 0; i < nproc; i++) {
        char ready[32];
        snprintf(ready, sizeof(ready), "[%d] ready", i);
        cr_assert(run_until_output(p, ready, PATIENCE_MS), "%s", run_output(p));
    }
    return p;
}

/* Start one worker through another program, such as env, so that the command of the job begins with this program. The
 * agent can then find py-spy only by the command line or the executable of the worker process. */
static struct run_process *start_by(const char *const *program, size_t n)
{
    const char *const worker[] = { python, FAILS_AT_USR1, NULL };
    const char *args[20] = { port_option, "--nproc_per_node=1" };
    memcpy(&args[2], program, n * sizeof(*program));
    memcpy(&args[2 + n], worker, sizeof(worker));
    struct run_process *p = job_start(args, &(struct run_options){ .env = no_path });
    cr_assert(run_until_output(p, "ready", PATIENCE_MS), "%s", run_output(p));
    return p;
}

static struct run_result ask(const char *option)
{
    const char *argv[] = { bin("ddpctl"), addr, "stacks", option, NULL };
    return run_command(argv, NULL);
}

static void expect_in(const char *text, const char *words)
{
    cr_expect_not_null(strstr(text, words), "'%s' is not in:\n%s", words, text);
}

static void expect_answer(const char *option, const char *words)
{
    struct run_result r = ask(option);
    EXPECT(r, 0);
    expect_in(r.out, words);
}

static struct run_result end_with(struct run_process *p, int signal, int exit_code)
{
    run_signal(p, signal);
    struct run_result r = run_wait(p);
    EXPECT(r, exit_code);
    return r;
}

static void end(struct run_process *p)
{
    end_with(p, SIGTERM, 143);
}

/* Return, as JSON, the row of a child of `rank` whose text contains `words`. Return "" if there is no such row. The
 * caller frees the text. */
static char *child_row(const char *json, int rank, const char *words)
{
    cJSON *answer = cJSON_Parse(json);
    const cJSON *row;
    char *found = NULL;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(answer, "stacks"))
    {
        const cJSON *thread = cJSON_GetArrayItem(cJSON_GetObjectItem(row, "threads"), 0);
        if (found != NULL || !cJSON_IsTrue(cJSON_GetObjectItem(thread, "child")))
            continue;
        cr_expect_eq(cJSON_GetNumberValue(cJSON_GetObjectItem(thread, "rank")), rank, "%s", json);
        found = cJSON_PrintUnformatted(row);
        if (found != NULL && strstr(found, words) == NULL) {
            free(found);
            found = NULL;
        }
    }
    cJSON_Delete(answer);
    return found != NULL ? found : strdup("");
}

/* Ask for the stacks until a child of `rank` has a row with these words. The child may not exist yet at the first
 * request. */
static void expect_child_of(int rank, const char *words)
{
    struct run_result r = ask("--json");
    char *row = child_row(r.out, rank, words);
    for (struct patience left = { 0 }; row[0] == '\0' && patience_left(&left);) {
        free(row);
        r = ask("--json");
        row = child_row(r.out, rank, words);
    }
    cr_expect(row[0] != '\0', "'%s' is not in: %s%s", words, r.out, r.err);
    free(row);
}

/* --- with py-spy ------------------------------------------------------------------------------------------ */

Test(stacks_e2e, ddpctl_folds_equal_stacks)
{
    write_script("py-spy", PRINT_FRAMES);
    struct run_process *p = start_job(4);
    struct run_result r = ask(NULL);
    EXPECT(r, 0);
    expect_in(r.out, "  > load  data.py:5\nranks 0,2-3:\n" WAITING);
    expect_in(r.out, "rank 1 (");
    r = ask("--rank=2-3");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "ranks 2-3:\n" WAITING);
    r = ask("--json");
    cJSON *json = cJSON_Parse(r.out);
    const cJSON *rows = cJSON_GetObjectItem(json, "stacks");
    cr_expect_eq(cJSON_GetArraySize(rows), 2, "%s", r.out);
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(json, "missing")), 0);
    cJSON_Delete(json);
    r = ask("--rank=4");
    EXPECT(r, 1);
    expect_in(r.err, "ranks from 0 to 3");
    end(p);
}

Test(stacks_e2e, native_frames_are_asked_for)
{
    write_script("py-spy", "echo \"arguments $*\" >&2; exit 1");
    struct run_process *p = start_job(2);
    expect_answer("--native", " --native");
    expect_answer(NULL, " --nonblocking");
    end(p);
}

Test(stacks_e2e, ctrl_backslash_shows_them)
{
    write_script("py-spy", PRINT_FRAMES);
    struct run_process *p = start_job(2);
    run_signal(p, SIGQUIT);
    cr_expect(run_until_error(p, "ddprun:   > load  data.py:5\n", PATIENCE_MS));
    cr_expect(run_until_error(p, "ddprun:     all_reduce  torch/d.py:9\n", PATIENCE_MS));
    end(p);
}

Test(stacks_e2e, the_report_shows_where_the_survivors_were)
{
    char logs[300];
    write_script("py-spy", PRINT_FRAMES);
    snprintf(logs, sizeof(logs), "--log_dir=%s/logs", dir);
    const char *args[] = { logs, "--nproc_per_node=3", python, FAILS_AT_USR1, NULL };
    struct run_process *p = job_start(args, &(struct run_options){ .env = no_path });
    for (int i = 0; i < 3; i++)
        cr_assert(
            run_until_output(p, (const char *[]){ "[0] ready", "[1] ready", "[2] ready" }[i], PATIENCE_MS));
    struct run_result r = end_with(p, SIGUSR1, 3);
    expect_in(r.err, "\n  stacks   ranks 0,2:\n"
                     "               all_reduce  torch/d.py:9\n"
                     "             > <module>  train.py:8\n");
    char *text = job_file(dir, "logs/latest/report.json");
    cJSON *report = cJSON_Parse(text);
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(report, "stacks"), 0);
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(row, "frames")), 2, "%s", text);
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(row, "threads")), 2, "%s", text);
    cJSON_Delete(report);
    free(text);
}

/* The worker is a shell that runs Python, and only this Python has a py-spy. */
Test(stacks_e2e, a_py_spy_beside_the_python_of_a_child_is_found)
{
    char logs[300], go[300], script[700];
    write_script("py-spy", PRINT_FRAMES);
    snprintf(logs, sizeof(logs), "--log_dir=%s/logs", dir);
    snprintf(go, sizeof(go), "%s/go", dir);
    snprintf(script, sizeof(script),
             "test $RANK = 0 || { until [ -e %s ]; do sleep 0.05; done; exit 3; }; %s say:ready forever; "
             "exit 1",
             go, python);
    const char *args[] = { logs, "--nproc_per_node=2", "--node_timeout=3s", "sh", "-c", script, NULL };
    struct run_process *p = job_start(args, &(struct run_options){ .env = no_path });
    cr_assert(run_until_output(p, "ready", PATIENCE_MS), "%s", run_output(p));
    write_script("go", "");
    run_wait(p);
    char *text = job_file(dir, "logs/latest/report.json");
    expect_in(text, "\"all_reduce\"");
    free(text);
}

/* --- with a py-spy that does not work --------------------------------------------------------------------- */

struct trouble {
    char script[128], note[128];
};

ParameterizedTestParameters(stacks_e2e, a_py_spy_that_fails_is_named_and_costs_nothing_else)
{
    static struct trouble list[] = {
        { "exec sleep 1000", "within 1 s" },
        { "kill -SEGV $$", "by signal 11" },
        { "echo hello", "no stacks" },
        { "echo '[{\"frames\":[{'", "no stacks" },
        /* this note continues with "more than ... MiB" or with "no stacks" */
        { "head -c 100000000 /dev/zero | tr '\\0' a", "py-spy printed" },
        { "echo 'Error: no such thing' >&2; exit 4", "exit code 4: Error: no such thing" },
        { "echo 'Permission denied' >&2; exit 1", "cannot read" },
    };
    return cr_make_param_array(struct trouble, list, sizeof(list) / sizeof(list[0]));
}

ParameterizedTest(struct trouble *t, stacks_e2e, a_py_spy_that_fails_is_named_and_costs_nothing_else)
{
    struct job_witness w;
    char script[600];
    job_witness_open(&w);
    snprintf(script, sizeof(script), "exec 9>%s\n%s", w.path, t->script);
    write_script("py-spy", script);
    struct run_process *p = start_job(2);
    struct run_result r = end_with(p, SIGUSR1, 3);
    expect_in(r.err, "\n  stacks   rank 0 (");
    expect_in(r.err, t->note);
    cr_expect(job_witness_alone(&w), "py-spy is left");
    job_witness_close(&w);
}

Test(stacks_e2e, a_worker_that_dies_meanwhile_has_no_stack)
{
    write_script("py-spy",
                 "test $RANK = 0 && kill -9 $4 && while kill -0 $4; do sleep 0.01; done\n" PRINT_FRAMES
                 "\ntest $RANK = 1");
    struct run_process *p = start_job(2);
    struct run_result r = ask(NULL);
    EXPECT(r, 0);
    cr_expect_null(strstr(r.out, "rank 0"), "%s", r.out);
    r = run_wait(p);
    EXPECT(r, 137);
}

Test(stacks_e2e, a_job_that_stops_before_py_spy_answers_blames_the_stop)
{
    write_script("py-spy", "kill -TERM $PPID; exec sleep 1000");
    struct run_process *p = start_job(2);
    struct run_result r = end_with(p, SIGQUIT, 143);
    expect_in(r.err, "job stopped");
}

/* If ddprun used the py-spy beside the program of this worker, root would start a program that another user has
 * chosen. */
Test(stacks_e2e, a_worker_of_another_user_does_not_choose_py_spy)
{
    const char *const same[] = { "env" }, *const other[] = { "setpriv", "--reuid=65534", "--clear-groups" };
    if (geteuid() != 0)
        cr_skip_test("skipped, because it needs root to start a worker as another user");
    write_script("py-spy", "echo chosen >&2; exit 4");
    cr_assert_eq(chmod(dir, 0755), 0);
    struct run_process *p = start_by(same, 1);
    expect_answer(NULL, "exit code 4: chosen");
    end(p);
    p = start_by(other, 3);
    struct run_result r = ask(NULL);
    EXPECT(r, 0);
    expect_in(r.out, "rank 0");
    cr_expect_null(strstr(r.out, "chosen"), "%s", r.out);
    end(p);
}

/* py-spy or its directory belongs to another user, or all users may write to it. */
Test(stacks_e2e, a_py_spy_that_another_user_can_change_does_not_run)
{
    static const struct {
        const char *command, *name;
    } changes[] = {
        { "chown 65534", "/py-spy" }, { "chmod 777", "/py-spy" }, { "chmod 777", "" }, { "chown 65534", "" }
    };
    if (geteuid() != 0)
        cr_skip_test("skipped, because it needs root to give a file to another user");
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        char command[300];
        write_script("py-spy", "echo chosen >&2; exit 4");
        snprintf(command, sizeof(command), "%s %s%s", changes[i].command, dir, changes[i].name);
        cr_assert_eq(system(command), 0);
        struct run_process *p = start_job(2);
        struct run_result r = ask(NULL);
        EXPECT(r, 0);
        expect_in(r.out, "another user");
        cr_expect_null(strstr(r.out, "chosen"), "%s: %s", command, r.out);
        end(p);
        snprintf(command, sizeof(command), "chown -R 0 %s; chmod 700 %s; rm %s/py-spy", dir, dir, dir);
        cr_assert_eq(system(command), 0);
    }
}

Test(stacks_e2e, the_report_names_a_py_spy_that_another_user_can_change)
{
    char path[300];
    if (geteuid() != 0)
        cr_skip_test("skipped, because only root does not run such a py-spy");
    write_script("py-spy", PRINT_FRAMES);
    snprintf(path, sizeof(path), "%s/py-spy", dir);
    cr_assert_eq(chmod(path, 0777), 0);
    struct run_result r = end_with(start_job(2), SIGUSR1, 3);
    expect_in(r.err, "another user");
}

/* As in a virtual environment, python3 is a link to a file in another folder. py-spy is in the folder of the link. The
 * path of the link is relative to the working directory of the worker, so ddprun must search there. */
Test(stacks_e2e, a_relative_python_is_looked_for_where_the_worker_is)
{
    const char *const there[] = { "env", "-C", dir };
    char command[800];
    snprintf(command, sizeof(command), "mkdir %s/real && mv %s %s/real/python3 && ln -s real/python3 %s", dir,
             python, dir, python);
    cr_assert_eq(system(command), 0);
    write_script("py-spy", PRINT_FRAMES);
    snprintf(python, sizeof(python), "./python3");
    struct run_process *p = start_by(there, 3);
    expect_answer(NULL, WAITING);
    end(p);
}

Test(stacks_e2e, a_py_spy_that_cannot_be_started_is_not_missing)
{
    char path[300];
    write_script("py-spy", "exit 4");
    snprintf(path, sizeof(path), "%s/py-spy", dir);
    FILE *file = fopen(path, "we");
    cr_assert_not_null(file);
    cr_assert(fputs("#!/nonexistent/sh\n", file) >= 0 && fclose(file) == 0);
    struct run_process *p = start_job(2);
    expect_answer(NULL, "is installed");
    end(p);
}

/* ddpctl waits 2 s for py-spy. The report of a failure waits only 1 s. */
Test(stacks_e2e, a_py_spy_that_does_not_answer_ddpctl_is_named)
{
    write_script("py-spy", "exec sleep 1000");
    struct run_process *p = start_job(2);
    struct run_result r = ask(NULL);
    EXPECT(r, 0);
    expect_in(r.out, "within 2 s");
    expect_in(r.out, "sleeping in ");
    end(p);
}

/* ddprun is in a folder with a py-spy. Python is in another folder, which has no py-spy. */
Test(stacks_e2e, a_py_spy_beside_ddprun_is_found)
{
    char command[1400], ddprun[300];
    snprintf(ddprun, sizeof(ddprun), "%s/ddprun", dir);
    snprintf(command, sizeof(command), "mkdir %s/own && mv %s %s/own/python3 && cp %s %s", dir, python, dir,
             bin("ddprun"), ddprun);
    cr_assert_eq(system(command), 0);
    write_script("py-spy", PRINT_FRAMES);
    snprintf(python, sizeof(python), "%s/own/python3", dir);
    const char *argv[] = { ddprun, port_option, "--nproc_per_node=1", python, FAILS_AT_USR1, NULL };
    struct run_process *p = run_start(argv, &(struct run_options){ .env = no_path });
    cr_assert(run_until_output(p, "ready", PATIENCE_MS), "%s", run_output(p));
    expect_answer(NULL, WAITING);
    end(p);
}

/* The parent-death signal ends the helper. The guardian ends the processes that the helper has started. */
Test(stacks_e2e, nothing_of_py_spy_outlives_a_killed_agent)
{
    struct job_witness w;
    char script[800], up[300];
    job_witness_open(&w);
    snprintf(up, sizeof(up), "%s/up", dir);
    snprintf(script, sizeof(script), "exec 9>%s\nsleep 1000 &\n>%s\nsleep 1000", w.path, up);
    write_script("py-spy", script);
    struct run_process *p = start_job(2);
    const pid_t agent = procstat_child(run_pid(p), 0);
    if (agent == 0)
        cr_skip_test("skipped, because this kernel has no /proc/PID/task/TID/children");
    const char *argv[] = { bin("ddpctl"), addr, "stacks", NULL };
    struct run_process *ctl = run_start(argv, NULL);
    for (struct patience left = { 0 }; access(up, F_OK) != 0 && patience_left(&left);)
        continue;
    kill(agent, SIGKILL);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 137, "%s", r.err);
    cr_expect(job_witness_alone(&w), "py-spy is left");
    job_witness_close(&w);
    r = run_wait(ctl);
}

/* --- without py-spy --------------------------------------------------------------------------------------- */

static void skip_if_installed(void)
{
    if (access("/usr/bin/py-spy", X_OK) == 0 || access("/bin/py-spy", X_OK) == 0 ||
        access(bin("py-spy"), X_OK) == 0)
        cr_skip_test("skipped, because py-spy is installed here");
}

Test(stacks_e2e, without_py_spy_the_kernel_is_asked_and_the_remedy_named)
{
    char folder[256];
    skip_if_installed();
    snprintf(folder, sizeof(folder), "%s/py-spy", dir);
    cr_assert_eq(mkdir(folder, 0755), 0); /* a directory called py-spy is not a program */
    struct run_process *p = start_job(2);
    struct run_result r = ask(NULL);
    EXPECT(r, 0);
    expect_in(r.out, "sleeping in ");
    expect_in(r.out, "ranks 0-1: no Python");
    expect_in(r.out, "pip install");
    end(p);
}

/* Rank 0 waits for a child that blocks on a FIFO. The report shows both processes without waiting for a heartbeat. */
Test(stacks_e2e, a_program_without_python_shows_its_calls)
{
    char script[600], logs[300], object[300];
    snprintf(object, sizeof(object), "%s/fifo", dir);
    cr_assert_eq(mkfifo(object, 0600), 0);
    snprintf(
        script, sizeof(script),
        "[ $RANK = 1 ] && exec %s catch:10 say:ready pause exit:3; trap '' USR1; echo ready; cat %s; true",
        bin("tests/prog/worker"), object);
    snprintf(logs, sizeof(logs), "--log_dir=%s/logs", dir);
    const char *args[] = { port_option, logs, "--nproc_per_node=2", "sh", "-c", script, NULL };
    struct run_process *p = job_start(args, &(struct run_options){ .env = no_path });
    cr_assert(run_until_output(p, "[0] ready", PATIENCE_MS) && run_until_output(p, "[1] ready", PATIENCE_MS));
    expect_child_of(0, object);
    struct run_result r = end_with(p, SIGUSR1, 3);
    expect_in(r.err, "\n  stacks   rank 0");
    expect_in(r.err, " sleeping in wait4");
    SILENT(r, "py-spy");
    char *report = job_file(dir, "logs/latest/report.json");
    char *row = child_row(report, 0, object);
    cr_expect(row[0] != '\0', "%s", report);
    free(row);
    free(report);
}

/* Without CAP_SYS_PTRACE, root cannot trace a worker of another user. */
Test(stacks_e2e, a_program_that_may_not_be_traced_has_the_reason)
{
    char command[1400], program[300];
    snprintf(program, sizeof(program), "%s/program", dir);
    snprintf(command, sizeof(command), "chmod 755 %s && mv %s %s && setpriv --reuid=65534 --clear-groups %s",
             dir, python, program, program);
    if (geteuid() != 0 || system(command) != 0 ||
        system("setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace true") != 0)
        cr_skip_test("skipped, because it needs root to start a worker as another user");
    const char *argv[] = { "setpriv",
                           "--bounding-set=-sys_ptrace",
                           "--inh-caps=-sys_ptrace",
                           bin("ddprun"),
                           port_option,
                           "--nproc_per_node=1",
                           "setpriv",
                           "--reuid=65534",
                           "--clear-groups",
                           program,
                           FAILS_AT_USR1,
                           NULL };
    struct run_process *p = run_start(argv, &(struct run_options){ .env = no_path });
    cr_assert(run_until_output(p, "ready", PATIENCE_MS), "%s", run_output(p));
    struct run_result r = ask(NULL);
    EXPECT(r, 0);
    expect_in(r.out, "rank 0: no system calls: ");
    cr_expect(strstr(r.out, "ptrace_scope is ") || strstr(r.out, "CAP_SYS_PTRACE"), "%s", r.out);
    end(p);
}

/* Start a node with two workers. Its reports are below `logs`. */
static struct run_process *start_node(int node_rank, const char *logs)
{
    char rank[32], log_dir[300];
    snprintf(rank, sizeof(rank), "--node_rank=%d", node_rank);
    snprintf(log_dir, sizeof(log_dir), "--log_dir=%s/%s", dir, logs);
    const char *argv[] = { bin("ddprun"), "--nnodes=2",
                           rank,          "--master_addr=127.0.0.1",
                           port_option,   "--nproc_per_node=2",
                           log_dir,       bin("tests/prog/worker"),
                           FAILS_AT_USR1, NULL };
    return run_start(argv, &(struct run_options){ .env = no_path });
}

/* Check that the report has the stacks of ranks 0, 2 and 3, and of no other rank. */
static void expect_survivors(const char *report)
{
    const cJSON *row, *thread;
    unsigned ranks = 0;
    char *text = job_file(dir, report);
    cJSON *json = cJSON_Parse(text);
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json, "stacks"))
    {
        cJSON_ArrayForEach(thread, cJSON_GetObjectItem(row, "threads"))
        {
            ranks |= 1u << cJSON_GetObjectItem(thread, "rank")->valueint;
        }
    }
    cr_expect_eq(ranks, 1u << 0 | 1u << 2 | 1u << 3, "%s", text);
    cJSON_Delete(json);
    free(text);
}

/* The failure is on node 0. */
Test(stacks_e2e, the_reports_of_all_nodes_show_the_survivors_of_all_nodes)
{
    struct run_process *p[] = { start_node(0, "n0"), start_node(1, "n1") };
    for (int rank = 0; rank < 4; rank++) {
        char ready[32];
        snprintf(ready, sizeof(ready), "[%d] ready", rank);
        cr_assert(run_until_output(p[rank / 2], ready, PATIENCE_MS), "%s", run_output(p[rank / 2]));
    }
    run_signal(p[0], SIGUSR1);
    for (int i = 0; i < 2; i++) {
        struct run_result r = run_wait(p[i]);
        EXPECT(r, 3);
        expect_in(r.err, "\n  stacks   rank");
    }
    expect_survivors("n0/latest/report.json");
    expect_survivors("n1/latest/report.json");
}

/* --- processes that a worker has started --------------------------------------------------------------------- */

Test(stacks_e2e, the_child_of_a_worker_is_listed_with_its_state)
{
    const char *args[] = { port_option,
                           "--hang_timeout=off",
                           "--nproc_per_node=2",
                           WORKER,
                           "only:1",
                           "child",
                           "all",
                           "say:ready",
                           "forever",
                           NULL };
    struct run_process *p = job_start(args, &(struct run_options){ .env = no_path });
    cr_assert(run_until_output(p, "[0] ready", PATIENCE_MS) && run_until_output(p, "[1] ready", PATIENCE_MS));
    expect_child_of(1, "sleeping in ");
    expect_answer("--rank=1", ", a child ");
    end(p);
}

/* --- with the real py-spy --------------------------------------------------------------------------------- */

/* Start two workers that run the Python program `text`, with the real py-spy in PATH. */
static struct run_process *start_python(const char *text)
{
    char script[300];
    const char *env[] = { py_spy_path(), NULL };
    if (system("command -v python3 >/dev/null") != 0)
        cr_skip_test("skipped, because there is no python3 in PATH");
    snprintf(script, sizeof(script), "%s/train.py", dir);
    FILE *file = fopen(script, "we");
    cr_assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    const char *args[] = { port_option, "--hang_timeout=off", "--nproc_per_node=2", script, NULL };
    struct run_process *p = job_start(args, &(struct run_options){ .env = env });
    cr_assert(run_until_output(p, "[0] ready", PATIENCE_MS) && run_until_output(p, "[1] ready", PATIENCE_MS));
    return p;
}

Test(stacks_e2e, the_real_py_spy_names_file_line_and_function)
{
    struct run_process *p = start_python("import sys, time\n"
                                         "def load_batch():\n"
                                         "    print('ready', flush=True)\n"
                                         "    time.sleep(1000)\n"
                                         "load_batch()\n");
    expect_answer(NULL, "ranks 0-1:\n  > load_batch  train.py:4\n  > <module>  train.py:5\n");
    end(p);
}

/* Rank 1 forks a child, as a data loader does. The row of the child must not show the frames inherited from rank 1. */
Test(stacks_e2e, the_real_py_spy_names_the_line_of_a_child)
{
    struct run_process *p = start_python("import multiprocessing, os, time\n"
                                         "def load_part():\n"
                                         "    time.sleep(1000)\n"
                                         "if os.environ['RANK'] == '1':\n"
                                         "    fork = multiprocessing.get_context('fork')\n"
                                         "    fork.Process(target=load_part, daemon=True).start()\n"
                                         "print('ready', flush=True)\n"
                                         "time.sleep(1000)\n");
    expect_child_of(1, "\"file\":\"train.py\",\"line\":3");
    expect_answer("--rank=1", "\n  > load_part  train.py:3\n");
    expect_answer(NULL, "ranks 0-1:\n  > <module>  train.py:8\nrank 1 (");
    end(p);
}
