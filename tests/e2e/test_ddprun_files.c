/* test_ddprun_files.c -- names of log files, full disks, and readers that do not read. */
#include "job.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *dir;

static void make_dir(void)
{
    dir = job_dir();
}

static void remove_dir(void)
{
    gate_gone();
    job_dir_remove(dir);
}

TestSuite(ddprun_files, .init = make_dir, .fini = remove_dir, .timeout = 120);

static void expect_file(const char *name, const char *text)
{
    char *found = job_file(dir, name);
    cr_assert_not_null(found, "there is no %s", name);
    cr_expect_str_eq(found, text, "%s holds '%s'", name, found);
    free(found);
}

/* A shell script with $DDPRUN, $WORKER and $D, the test's directory. */
static struct run_result shell(const char *script)
{
    char ddprun[600], worker[600], d[400];
    snprintf(ddprun, sizeof(ddprun), "DDPRUN=%s", bin("ddprun"));
    snprintf(worker, sizeof(worker), "WORKER=%s", bin("tests/prog/worker"));
    snprintf(d, sizeof(d), "D=%s", dir);
    const char *env[] = { ddprun, worker, d, NULL };
    const char *argv[] = { "sh", "-c", script, NULL };
    const struct run_options options = { .env = env };
    return run_command(argv, &options);
}

Test(ddprun_files, a_pattern_names_each_stream)
{
    struct run_result r = shell("$DDPRUN --standalone -q --rdzv_id=gpt --nproc_per_node=2 "
                                "--log_file=$D/%j/%n/%r-%l.%s $WORKER say:out err:err");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[1] out"), 1, "the console shows it, too: %s", r.out);
    expect_file("gpt/0/0-0.stdout", "out\n");
    expect_file("gpt/0/1-1.stderr", "err\n");
    run_free(&r);
}

Test(ddprun_files, one_worker_may_have_both_streams_in_one_file)
{
    struct run_result r = shell("$DDPRUN --standalone -q --log_file=$D/%r.log $WORKER say:out err:err");
    EXPECT(r, 0);
    char *text = job_file(dir, "0.log");
    cr_expect_eq(job_count(text, "out"), 1);
    cr_expect_eq(job_count(text, "err"), 1);
    free(text);
    run_free(&r);
}

Test(ddprun_files, workers_share_a_file_only_when_that_is_said)
{
    struct run_result r =
        shell("$DDPRUN --standalone -q --nproc_per_node=2 --log_file=$D/all.log $WORKER say:out");
    EXPECT(r, 2);
    cr_expect_not_null(strstr(r.err, "--log_merge"), "%s", r.err);
    run_free(&r);
    r = shell("$DDPRUN --standalone -q --nproc_per_node=2 --log_merge --log_file=$D/all.log $WORKER say:out");
    EXPECT(r, 0);
    char *text = job_file(dir, "all.log");
    cr_expect_eq(job_count(text, "[0] out") + job_count(text, "[1] out"), 2, "%s", text);
    free(text);
    run_free(&r);
}

Test(ddprun_files, no_run_writes_over_the_files_of_another)
{
    struct run_result r =
        shell("echo precious > $D/0.log; $DDPRUN --standalone --log_file=$D/%r.log $WORKER say:out");
    EXPECT(r, 125);
    cr_expect_str_eq(r.out, "", "nothing was started");
    cr_expect_not_null(strstr(r.err, "0.log is there already"), "%s", r.err);
    expect_file("0.log", "precious\n");
    run_free(&r);
}

Test(ddprun_files, each_attempt_has_files_of_its_own)
{
    struct run_result r =
        shell("$DDPRUN --standalone -q --max_restarts=1 --restart_backoff=0 --log_file=$D/%r.%s "
              "sh -c 'echo attempt $TORCHELASTIC_RESTART_COUNT; exit 7'");
    EXPECT(r, 7);
    expect_file("0.stdout", "attempt 0\n");
    expect_file("0.stdout.attempt_1", "attempt 1\n");
    cr_expect_not_null(strstr(r.err, "/0.stdout.attempt_1, "), "the report names them: %s", r.err);
    run_free(&r);
}

Test(ddprun_files, latest_leads_to_the_job_that_was_started_last)
{
    struct run_result r =
        shell("for i in 1 2; do $DDPRUN --standalone -q --log_dir=$D $WORKER say:$i; done; ls -A $D");
    EXPECT(r, 0);
    cr_expect_null(strstr(r.out, ".latest"), "no temporary name is left: %s", r.out);
    expect_file("latest/attempt_0/0/stdout.log", "2\n");
    run_free(&r);
    r = shell("rm $D/latest; echo mine > $D/latest; $DDPRUN --standalone -q --log_dir=$D $WORKER say:3");
    EXPECT(r, 0);
    expect_file("latest", "mine\n");
    run_free(&r);
}

Test(ddprun_files, a_rotated_file_has_every_byte)
{
    struct run_result r = shell("$DDPRUN --standalone -q --redirects=1 --log_file=$D/%r.%s --log_rotate=10K "
                                "seq 1 20000 && seq 1 20000 > $D/all && "
                                "cat $(ls -v $D/0.stdout.*) $D/0.stdout | cmp - $D/all && ls $D | wc -l");
    EXPECT(r, 0);
    cr_expect_gt(atoi(r.out), 10, "%s", r.out);
    run_free(&r);
}

/* --- full disks ----------------------------------------------------------------------------------------- */

/* In a mount namespace of its own, with a disk of 8 MiB at $D/disk that has little room left. */
#define ON_A_FULL_DISK(script)                                                                   \
    "exec unshare -m sh -c 'mkdir $D/disk && mount -t tmpfs -o size=8m none $D/disk || exit 99;" \
    "head -c 8300000 /dev/zero > $D/disk/filler; " script "'"

static bool cannot_mount(const struct run_result *r)
{
    return r->exit_code == 99 || r->exit_code == 1 || r->exit_code == 127;
}

Test(ddprun_files, a_worker_waits_for_a_full_disk_and_nothing_is_lost)
{
    struct run_result r = shell(
        ON_A_FULL_DISK("$DDPRUN --standalone --redirects=1 --log_file=$D/disk/%r.%s seq 1 400000 2> $D/err & "
                       "until grep -q \"No space left\" $D/err; do sleep 0.05; done; sleep 0.5; rm "
                       "$D/disk/filler; wait $! || exit 98; "
                       "seq 1 400000 | cmp - $D/disk/0.stdout && cat $D/err"));
    if (cannot_mount(&r))
        cr_skip_test("skipped, because this user cannot mount a small disk");
    EXPECT(r, 0);
    cr_expect_not_null(strstr(r.out, "workers that write to it wait"), "%s", r.out);
    cr_expect_not_null(strstr(r.out, "can be written again"), "%s", r.out);
    cr_expect_null(strstr(r.out, "missing"), "%s", r.out);
    run_free(&r);
}

/* The sum of lost_output's bytes in the report of the job at the link `latest`. */
static double lost_bytes(const char *report)
{
    char *text = job_file(dir, report);
    cJSON *json = cJSON_Parse(text), *item;
    double sum = 0;
    cr_assert_not_null(json, "%s: %s", report, text);
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "lost_output"))
    {
        cr_expect_not_null(cJSON_GetObjectItem(item, "to")->valuestring);
        sum += cJSON_GetObjectItem(item, "bytes")->valuedouble;
    }
    cJSON_Delete(json);
    free(text);
    return sum;
}

Test(ddprun_files, what_a_full_disk_cannot_take_is_dropped_and_counted)
{
    struct run_result r = shell(ON_A_FULL_DISK(
        "$DDPRUN --standalone --redirects=1 --log_policy=drop --log_dir=$D/logs --log_file=$D/disk/%r.%s "
        "sh -c \"seq 1 25000; until [ -e $D/go ]; do sleep 0.05; done; echo end\" 2> $D/err & "
        "until grep -q \"No space left\" $D/err; do sleep 0.05; done; rm $D/disk/filler; touch $D/go; "
        "wait $! || exit 98; cp $D/disk/0.stdout $D/logs/latest/report.json $D; cat $D/err"));
    if (cannot_mount(&r))
        cr_skip_test("skipped, because this user cannot mount a small disk");
    EXPECT(r, 0);
    char *text = job_file(dir, "0.stdout"), *mark = strstr(text, "[ddprun: ");
    cr_assert_not_null(mark, "a line marks the hole");
    const char *end = strstr(mark + 1, "]\n");
    cr_assert_not_null(end);
    cr_expect_str_eq(text + strlen(text) - 5, "\nend\n");
    const size_t found = strlen(text) - (size_t)(end + 2 - mark) + (size_t)lost_bytes("report.json");
    const size_t produced = 138894 + 4;
    cr_expect(found == produced || found == produced + 1, "%zu: a newline is added where a line was cut",
              found);
    cr_expect_not_null(strstr(r.out, "0.stdout: No space left"), "%s", r.out);
    free(text);
    run_free(&r);
}

Test(ddprun_files, a_report_that_the_disk_cannot_take_is_not_left_there_in_half)
{
    struct run_result r =
        shell(ON_A_FULL_DISK("$DDPRUN --standalone --redirects=1 --log_policy=drop --log_dir=$D/disk "
                             "seq 1 400000; echo code $?; ls $D/disk/latest"));
    if (cannot_mount(&r))
        cr_skip_test("skipped, because this user cannot mount a small disk");
    cr_expect_not_null(strstr(r.out, "code 0"), "%s", r.out);
    cr_expect_null(strstr(r.out, "report.json"), "%s", r.out);
    cr_expect_not_null(strstr(r.err, "/report.json: No space left on device"), "%s", r.err);
    run_free(&r);
}

Test(ddprun_files, a_file_at_its_limit_costs_bytes_and_not_the_job)
{
    struct run_result r = shell("ulimit -f 8; $DDPRUN --standalone --log_file=$D/%r.%s --redirects=1 sh -c "
                                "'seq 1 25000; echo fine >&2'");
    EXPECT(r, 0);
    cr_expect_not_null(strstr(r.err, "File too large"), "%s", r.err);
    cr_expect_not_null(strstr(r.err, "fine"), "%s", r.err);
    run_free(&r);
}

/* --- readers that do not read --------------------------------------------------------------------------- */

/* ddprun with a full pipe as its stdout; stderr goes to $D/err. */
static pid_t start_unread(int *reader, const char *script)
{
    int ends[2];
    char err[400];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    snprintf(err, sizeof(err), "%s/err", dir);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(err, O_WRONLY | O_CREAT, 0600);
        dup2(ends[1], STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        execl(bin("ddprun"), "ddprun", "--standalone", "-q", "--nproc_per_node=2", "sh", "-c", script,
              (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *reader = ends[0];
    return pid;
}

static int end_of(pid_t pid)
{
    int status = 0;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Test(ddprun_files, a_stdout_that_nobody_reads_does_not_hold_the_end_of_a_failed_job)
{
    int reader;
    gate_shut();
    pid_t pid = start_unread(&reader, "if [ $RANK = 1 ]; then " AT_GATE "; exit 3; fi; exec yes");
    cr_assert(job_until_full(reader));
    gate_open();
    cr_expect_eq(end_of(pid), 3);
    char *err = job_file(dir, "err");
    cr_expect_not_null(strstr(err, "missing in stdout: they were not read in time"), "%s", err);
    cr_expect_not_null(strstr(err, "failed first: exit 3"), "the report is there: %s", err);
    free(err);
    close(reader);
}

Test(ddprun_files, a_stdout_that_nobody_reads_does_not_hold_signals)
{
    int reader;
    pid_t pid = start_unread(&reader, "exec yes");
    cr_assert(job_until_full(reader));
    kill(pid, SIGTERM);
    cr_expect_eq(end_of(pid), 128 + SIGTERM);
    close(reader);
}

/* The reader is only slow: nothing may be missing. */
Test(ddprun_files, a_slow_reader_gets_all_in_the_end)
{
    int reader;
    size_t n = 0;
    char some[4096];
    pid_t pid = start_unread(&reader, "yes | head -c 1000000");
    usleep(1500000); /* all workers have ended */
    for (ssize_t got; (got = read(reader, some, sizeof(some))) > 0;)
        n += (size_t)got;
    cr_expect_eq(end_of(pid), 0);
    cr_expect_eq(n, 2 * 500000 * strlen("[0] y\n"));
    close(reader);
}

/* --- last words ----------------------------------------------------------------------------------------- */

Test(ddprun_files, what_a_worker_wrote_before_its_sigkill_is_in_the_report)
{
    for (int i = 0; i < 20; i++) {
        struct run_result r =
            shell("$DDPRUN --standalone --nproc_per_node=2 --redirects=3 --log_dir=$D/logs sh -c "
                  "'[ $RANK = 0 ] && exec sleep 1000; echo last words >&2; kill -9 $$'");
        EXPECT(r, 137);
        cr_assert_not_null(strstr(r.err, "last words"), "%s", r.err);
        run_free(&r);
    }
}
