/* Tests of the names of log files, of full disks, and of readers that do not read. A full disk is a small file
 * system in a mount namespace, so that no test fills the disk of the machine. */
#include "job.h"
#include "procstat.h"
#include "run.h"
#include "store_peers.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
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

/* Run a shell script with $DDPRUN, $WORKER and $D, the test's directory. */
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
}

Test(ddprun_files, one_worker_may_have_both_streams_in_one_file)
{
    struct run_result r = shell("$DDPRUN --standalone -q --log_file=$D/%r.log $WORKER say:out err:err");
    EXPECT(r, 0);
    char *text = job_file(dir, "0.log");
    cr_expect_eq(job_count(text, "out"), 1);
    cr_expect_eq(job_count(text, "err"), 1);
    free(text);
}

Test(ddprun_files, workers_share_a_file_only_when_that_is_said)
{
    struct run_result r =
        shell("$DDPRUN --standalone -q --nproc_per_node=2 --log_file=$D/all.log $WORKER say:out");
    EXPECT(r, 2);
    SAYS(r, "--log_merge");
    r = shell("$DDPRUN --standalone -q --nproc_per_node=2 --log_merge --log_file=$D/all.log $WORKER say:out");
    EXPECT(r, 0);
    char *text = job_file(dir, "all.log");
    cr_expect_eq(job_count(text, "[0] out") + job_count(text, "[1] out"), 2, "%s", text);
    free(text);
}

Test(ddprun_files, no_run_writes_over_the_files_of_another)
{
    struct run_result r =
        shell("echo precious > $D/0.log; $DDPRUN --standalone --log_file=$D/%r.log $WORKER say:out");
    EXPECT(r, 125);
    cr_expect_str_eq(r.out, "", "nothing was started");
    SAYS(r, "/0.log: ");
    cr_expect_str_eq(strchr(r.err, '\n'), "\n", "one line: %s", r.err);
    expect_file("0.log", "precious\n");
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
}

Test(ddprun_files, latest_leads_to_the_job_that_was_started_last)
{
    struct run_result r =
        shell("for i in 1 2; do $DDPRUN --standalone -q --log_dir=$D $WORKER say:$i; done; ls -A $D");
    EXPECT(r, 0);
    cr_expect_null(strstr(r.out, ".latest"), "no temporary name is left: %s", r.out);
    expect_file("latest/attempt_0/0/stdout.log", "2\n");
    r = shell("rm $D/latest; echo mine > $D/latest; $DDPRUN --standalone -q --log_dir=$D $WORKER say:3");
    EXPECT(r, 0);
    expect_file("latest", "mine\n");
}

Test(ddprun_files, a_worker_that_changes_its_directory_still_finds_its_files)
{
    struct run_result r = shell("cd $D && $DDPRUN --standalone -q --log_dir=logs --flight_recorder sh -c "
                                "'cd /; ls -d ${TORCH_FR_DUMP_TEMP_FILE%/*} $DDP_FLIGHT_RECORDER && echo {} "
                                "> $TORCHELASTIC_ERROR_FILE'; "
                                "ls logs/latest/attempt_0/0");
    EXPECT(r, 0);
    cr_expect_not_null(strstr(r.out, "error.json"), "%s%s", r.out, r.err);
}

Test(ddprun_files, a_rotated_file_has_every_byte)
{
    struct run_result r = shell("$DDPRUN --standalone -q --redirects=1 --log_file=$D/%r.%s --log_rotate=10K "
                                "seq 1 20000 && seq 1 20000 > $D/all && "
                                "cat $(ls -v $D/0.stdout.*) $D/0.stdout | cmp - $D/all && ls $D | wc -l");
    EXPECT(r, 0);
    cr_expect_gt(atoi(r.out), 10, "%s", r.out);
}

/* Run `script` in a new mount namespace with a nearly full disk of 8 MiB at $D/disk. */
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
    PRINTS(r, "there wait");
    PRINTS(r, "written again");
    cr_expect_null(strstr(r.out, "missing"), "%s", r.out);
}

/* Return the sum of `bytes` of all entries of lost_output in a report. */
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
    PRINTS(r, "0.stdout: ");
    PRINTS(r, "No space left on device (");
    PRINTS(r, " inodes free);");
    free(text);
}

Test(ddprun_files, a_report_that_the_disk_cannot_take_is_not_left_there_in_half)
{
    struct run_result r =
        shell(ON_A_FULL_DISK("$DDPRUN --standalone --redirects=1 --log_policy=drop --log_dir=$D/disk "
                             "seq 1 400000; echo code $?; ls $D/disk/latest"));
    if (cannot_mount(&r))
        cr_skip_test("skipped, because this user cannot mount a small disk");
    PRINTS(r, "code 0");
    cr_expect_null(strstr(r.out, "report.json"), "%s", r.out);
    SAYS(r, "/report.json: ");
    SAYS(r, " inodes free)");
}

/* The only worker of the job writes directly to ddprun's stdout, which is a file on the full disk. The error of the
 * worker does not name this file. So ddprun must name the file of its stdout, and no other file. */
Test(ddprun_files, the_full_disk_of_stdout_is_named_and_no_other)
{
    struct run_result r =
        shell(ON_A_FULL_DISK("$DDPRUN --standalone --no-python cat /dev/zero > $D/disk/out; echo code $?"));
    if (cannot_mount(&r))
        cr_skip_test("skipped, because this user cannot mount a small disk");
    PRINTS(r, "code 1");
    SAYS(r, "(stdout ");
    SAYS(r, "/disk/out: 0 bytes and ");
    cr_expect_null(strstr(r.err, "free;"), "only one disk: %s", r.err);
}

/* Each row has a command that writes a file on the full disk. It also has the part of the error that names this file.
 * ddprun keeps its records of jobs in XDG_RUNTIME_DIR. $D/begin is the event log of an earlier job. */
Test(ddprun_files, every_error_of_a_full_disk_has_its_free_space)
{
    static const struct {
        const char *command, *object;
    } cases[] = {
        { "$DDPRUN --make_secret $D/disk/key", "/disk/key: " },
        { "${DDPRUN%/*}/ddpctl timeline -o $D/disk/t.html $D/begin", "/disk/t.html: " },
        { "$DDPRUN --standalone --events=$D/disk/events true", "/disk/events: " },
        { "XDG_RUNTIME_DIR=$D/disk $DDPRUN --standalone -v true", "/disk/ddprun: " },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char script[1000];
        snprintf(
            script, sizeof(script),
            "exec unshare -m sh -c 'mkdir -p $D/disk && mount -t tmpfs -o size=64k none $D/disk || exit 99;"
            "cat /dev/zero > $D/disk/filler 2>&-; $DDPRUN --standalone -q --events=$D/begin true; %s'",
            cases[i].command);
        struct run_result r = shell(script);
        if (cannot_mount(&r) && strstr(r.err, cases[i].object) == NULL)
            cr_skip_test("skipped, because this user cannot mount a small disk");
        const char *at = strstr(r.err, cases[i].object);
        cr_assert_not_null(at, "%s: %s", cases[i].command, r.err);
        cr_expect_not_null(strstr(at, "No space left on device (0 bytes and "), "%s", r.err);
        cr_expect_not_null(strstr(at, " inodes free)"), "%s", r.err);
    }
}

/* The supervisor cannot create its socket in this runtime directory. No file of the job may remain. */
Test(ddprun_files, a_job_in_the_background_needs_a_runtime_directory_that_can_be_written)
{
    static const char *const cases[][2] = {
        { "mount -o remount,ro", "Read-only file system" },
        { "mount -o remount,nr_inodes=2", "No space left on device (" },
    };
    for (int i = 0; i < 2; i++) {
        char script[500];
        snprintf(
            script, sizeof(script),
            "exec unshare -m sh -c 'mkdir -p $D/run && cd $D && mount -t tmpfs none run && mkdir -m 700 "
            "run/ddprun && %s run || exit 99; XDG_RUNTIME_DIR=$D/run $DDPRUN --detach --standalone true; "
            "code=$?; ls; ls -A run/ddprun; exit $code'",
            cases[i][0]);
        struct run_result r = shell(script);
        if (cannot_mount(&r))
            cr_skip_test("skipped, because this user cannot mount a small disk");
        EXPECT(r, 125);
        SAYS(r, "/run/ddprun: ");
        SAYS(r, cases[i][1]);
        cr_expect_str_eq(r.out, "run\n");
    }
}

/* If stdout is closed, the program must not open a socket or file as descriptor 1, because the output of the program
 * would go there. */
Test(ddprun_files, a_closed_stdout_is_dev_null)
{
    struct run_result r =
        shell("for each in ddprun ddpctl ddp-rendezvous; do ${DDPRUN%/*}/$each --version >&- || "
              "exit; done");
    EXPECT(r, 0);
    cr_expect_str_eq(r.err, "");
}

Test(ddprun_files, a_full_stdout_is_an_error_with_its_reason)
{
    static const struct {
        const char *command;
        int exit_code;
    } cases[] = {
        { "full $DDPRUN --help", 125 },
        { "full $DDPRUN --version", 125 },
        { "full $DDPRUN explain WORKER_FAILED", 125 },
        { "full $DDPRUN --detach --standalone true; code=$?; while $DDPRUN list | grep -q .; do sleep 0.05; "
          "done; exit $code",
          125 },
        { "full ${DDPRUN%/*}/ddpctl --help", 1 },
        { "full ${DDPRUN%/*}/ddpctl --version", 1 },
        { "full ${DDPRUN%/*}/ddpctl explain WORKER_FAILED", 1 },
        { "full ${DDPRUN%/*}/ddp-bench --help", 1 },
        { "full ${DDPRUN%/*}/ddp-bench --version", 1 },
        { "full ${DDPRUN%/*}/ddp-bench -e 4 --backend cpu", 1 },
        { "full ${DDPRUN%/*}/ddp-bench -e 4 --backend cpu --json", 1 },
        { "full ${DDPRUN%/*}/ddp-rendezvous --help", 1 },
        { "full ${DDPRUN%/*}/ddp-rendezvous --version", 1 },
        { "full ${DDPRUN%/*}/ddp-rendezvous --listen=127.0.0.1:0", 1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char script[400];
        snprintf(script, sizeof(script),
                 "cd $D; XDG_RUNTIME_DIR=$D; export XDG_RUNTIME_DIR; full() { \"$@\" >/dev/full; }; %s",
                 cases[i].command);
        struct run_result r = shell(script);
        cr_expect_eq(r.exit_code, cases[i].exit_code, "%s: %d", cases[i].command, r.exit_code);
        cr_expect(has_parts(r.err, "error: |output: write: No space left on device\n"), "%s", r.err);
    }
}

Test(ddprun_files, a_file_at_its_limit_costs_bytes_and_not_the_job)
{
    struct run_result r = shell("ulimit -f 8; $DDPRUN --standalone --log_file=$D/%r.%s --redirects=1 sh -c "
                                "'seq 1 25000; echo fine >&2'");
    EXPECT(r, 0);
    SAYS(r, "File too large");
    SAYS(r, "fine");
}

/* Start ddprun with a full pipe as its stdout. Its stderr goes to $D/err. */
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
    cr_expect_not_null(strstr(err, "are missing: the reader"), "%s", err);
    cr_expect_not_null(strstr(err, "first: exit 3"), "the report is there: %s", err);
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

Test(ddprun_files, a_slow_reader_gets_all_in_the_end)
{
    int reader;
    size_t n = 0;
    char some[4096];
    pid_t pid = start_unread(&reader, "yes | head -c 1000000");
    usleep(1500000); /* wait until all workers have ended */
    for (ssize_t got; (got = read(reader, some, sizeof(some))) > 0;)
        n += (size_t)got;
    cr_expect_eq(end_of(pid), 0);
    cr_expect_eq(n, 2 * 500000 * strlen("[0] y\n"));
    close(reader);
}

Test(ddprun_files, what_a_worker_wrote_before_its_sigkill_is_in_the_report)
{
    for (int i = 0; i < 20; i++) {
        struct run_result r =
            shell("$DDPRUN --standalone --nproc_per_node=2 --redirects=3 --log_dir=$D/logs sh -c "
                  "'[ $RANK = 0 ] && exec sleep 1000; echo last lines >&2; kill -9 $$'");
        EXPECT(r, 137);
        cr_assert_not_null(strstr(r.err, "last lines"), "%s", r.err);
    }
}

/* No other user may read a job's files. The tests check the modes of files, and set directories of other users in the
 * environment. */

enum { NOBODY = 65534 };

static void remove_private_dir(void)
{
    job_dir_remove(dir);
}

TestSuite(ddprun_private, .timeout = 120, .init = make_dir, .fini = remove_private_dir);

static void expect_mode(const char *name, unsigned mode)
{
    char path[512];
    struct stat st;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    cr_assert_eq(stat(path, &st), 0, "%s is not there", path);
    cr_expect_eq(st.st_mode & 07777, mode, "%s has mode %o, not %o", path, st.st_mode & 07777, mode);
}

/* Run ddprun from a shell with umask 0, so that files get the modes that ddprun requests. */
static struct run_result run_without_umask(const char *options)
{
    char command[2048];
    snprintf(command, sizeof(command), "umask 0; cd %s && %s --standalone %s", dir, bin("ddprun"), options);
    const char *argv[] = { "sh", "-c", command, NULL };
    return run_command(argv, NULL);
}

Test(ddprun_private, what_ddprun_writes_is_for_its_user_alone)
{
    char options[1024];
    snprintf(options, sizeof(options), "--log_dir=logs --rdzv_id=j --events=events.jsonl %s exit:7",
             bin("tests/prog/worker"));
    struct run_result r = run_without_umask(options);
    EXPECT(r, 7);
    expect_mode("events.jsonl", 0600);
    expect_mode("logs/latest", 0700);
    expect_mode("logs/latest/report.json", 0600);
    expect_mode("logs/latest/attempt_0/0/stdout.log", 0666);
}

Test(ddprun_private, an_error_that_is_handed_on_is_for_its_user_alone)
{
    char command[2048];
    snprintf(command, sizeof(command),
             "umask 0; cd %s; TORCHELASTIC_ERROR_FILE=$PWD/outer.json %s --standalone sh -c "
             "'echo \"{\\\"message\\\":\\\"m\\\"}\" >$TORCHELASTIC_ERROR_FILE; exit 7'",
             dir, bin("ddprun"));
    const char *argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 7);
    expect_mode("outer.json", 0600);
}

Test(ddprun_private, events_of_a_rendezvous_are_for_its_user_alone)
{
    char command[1024];
    snprintf(command, sizeof(command), "umask 0; exec %s --listen 127.0.0.1:0 --events %s/store.jsonl",
             bin("ddp-rendezvous"), dir);
    const char *argv[] = { "sh", "-c", command, NULL };
    struct run_process *daemon = run_start(argv, NULL);
    cr_assert(run_until_output(daemon, "listening on", 30000));
    run_signal(daemon, 15);
    run_wait(daemon);
    expect_mode("store.jsonl", 0600);
}

/* Create a directory in which another user may replace our files. If this test is root, another user owns the
 * directory. Otherwise every user may write to it. */
static const char *make_unsafe(void)
{
    static char path[300];
    snprintf(path, sizeof(path), "%s/foreign", dir);
    cr_assert_eq(mkdir(path, 0700), 0);
    if (geteuid() == 0)
        cr_assert_eq(chown(path, NOBODY, NOBODY), 0);
    else
        cr_assert_eq(chmod(path, 0777), 0);
    return path;
}

static void expect_empty(const char *path)
{
    cr_expect_eq(rmdir(path), 0, "something was made in %s", path);
}

static struct run_result job_with(const char *variable, const char *value, const char *option,
                                  const char *script)
{
    char env[400];
    snprintf(env, sizeof(env), "%s=%s", variable, value);
    const struct run_options options = { .env = (const char *const[]){ env, NULL } };
    return job_run((const char *const[]){ option, "sh", "-c", script, NULL }, &options);
}

Test(ddprun_private, a_runtime_directory_of_another_user_is_not_used)
{
    const char *path = make_unsafe();
    struct run_result r = job_with("XDG_RUNTIME_DIR", path, "--nproc_per_node=1",
                                   "echo x >$TORCHELASTIC_ERROR_FILE && echo $TORCHELASTIC_ERROR_FILE");
    EXPECT(r, 0);
    cr_expect_eq(r.out[0], '/', "there is another place: %s", r.out);
    cr_expect_null(strstr(r.out, path), "%s", r.out);
    SAYS(r, "ddprun: XDG_RUNTIME_DIR ");
    SAYS(r, geteuid() == 0 ? "/foreign belongs" : "(mode 777); ");
    expect_empty(path);
}

Test(ddprun_private, a_temporary_directory_of_another_user_is_not_used)
{
    const char *path = make_unsafe();
    struct run_result r =
        job_with("TMPDIR", path, "--redirects=3", "echo $TORCHELASTIC_ERROR_FILE >&2; exit 7");
    EXPECT(r, 7);
    SILENT(r, "foreign/ddprun");
    SAYS(r, "ddprun: TMPDIR ");
    SAYS(r, "are in /tmp/ddprun_");
    char *root = strstr(r.err, "/tmp/ddprun_");
    cr_assert_not_null(root);
    root[strcspn(root, "\n;, ")] = '\0';
    job_dir_remove(strdup(root));
    expect_empty(path);
}

/* Another user owns the parent directory or may write to it. So this user could replace the directory that contains our
 * files. */
Test(ddprun_private, nor_is_a_directory_below_one)
{
    char below[400];
    snprintf(below, sizeof(below), "%s/mine", make_unsafe());
    cr_assert_eq(mkdir(below, 0700), 0);
    struct run_result r =
        job_with("XDG_RUNTIME_DIR", below, "--nproc_per_node=1", "echo $TORCHELASTIC_ERROR_FILE");
    EXPECT(r, 0);
    cr_expect_null(strstr(r.out, below), "%s", r.out);
    SAYS(r, "ddprun: XDG_RUNTIME_DIR ");
    expect_empty(below);
}

/* In a sticky directory such as /tmp, other users cannot rename entries. A link to such a directory is resolved,
 * because the owner of the link could change the link. */
Test(ddprun_private, a_sticky_directory_is_used_by_its_real_name)
{
    char sticky[300], link[300], real[400];
    snprintf(sticky, sizeof(sticky), "%s/sticky", dir);
    snprintf(link, sizeof(link), "%s/link", dir);
    snprintf(real, sizeof(real), "%s/ddprun/", sticky);
    cr_assert_eq(mkdir(sticky, 0700), 0);
    cr_assert_eq(chmod(sticky, 01777), 0);
    cr_assert_eq(symlink("sticky", link), 0);
    struct run_result r =
        job_with("XDG_RUNTIME_DIR", link, "--nproc_per_node=1", "echo $TORCHELASTIC_ERROR_FILE");
    EXPECT(r, 0);
    cr_expect_eq(strncmp(r.out, real, strlen(real)), 0, "%s", r.out);
    cr_expect_str_eq(r.err, "");
}

/* Tests of a log directory whose file system stops answering. */

/* A FUSE file system that can stop answering, like the file system of a dead NFS server. It needs root, but no FUSE
 * library.
 *
 * It stores names and sizes, but no bytes. While it hangs, SIGKILL does not end its callers. Mount it in a separate
 * mount namespace (rude_own_mounts). */

enum { NODES = 64, NAME = 128, REQUEST = 256 * 1024 };

static struct disk_state {
    atomic_bool hangs;
    atomic_int unanswered;
} * shared;

static pid_t server;

/* The kernel has a number for each file: the index of the file in this array plus 1. The first file is the root
 * directory. */
static struct file {
    uint64_t parent; /* 0 if this entry is free */
    mode_t mode;
    uint64_t size;
    char name[NAME];
} files[NODES];

static struct fuse_attr attr_of(uint64_t ino)
{
    const struct file *f = &files[ino - 1];
    return (struct fuse_attr){ .ino = ino, .size = f->size, .mode = f->mode, .nlink = 1, .blksize = 4096 };
}

static uint64_t find(uint64_t parent, const char *name)
{
    for (uint64_t i = 1; i < NODES; i++)
        if (files[i].parent == parent && strcmp(files[i].name, name) == 0)
            return i + 1;
    return 0;
}

static uint64_t make(uint64_t parent, const char *name, mode_t mode)
{
    for (uint64_t i = 1; i < NODES; i++)
        if (files[i].parent == 0) {
            files[i] = (struct file){ .parent = parent, .mode = mode };
            snprintf(files[i].name, NAME, "%s", name);
            return i + 1;
        }
    return 0;
}

struct answer {
    int error;
    size_t len;
    union {
        struct fuse_init_out init;
        struct fuse_attr_out attr;
        struct fuse_entry_out entry;
        struct {
            struct fuse_entry_out entry;
            struct fuse_open_out open;
        } create;
        struct fuse_open_out open;
        struct fuse_write_out write;
        struct fuse_statfs_out statfs;
    } u;
};

static struct answer entry(uint64_t ino, int error)
{
    struct answer a = { .error = ino == 0 ? error : 0, .len = sizeof(a.u.entry) };
    if (ino != 0)
        a.u.entry = (struct fuse_entry_out){ .nodeid = ino, .attr = attr_of(ino) };
    return a;
}

static struct answer answer_create(uint64_t parent, const void *arg)
{
    const struct fuse_create_in *in = arg;
    const struct answer made =
        entry(make(parent, (const char *)(in + 1), S_IFREG | (in->mode & 07777)), ENOSPC);
    struct answer a = { .error = made.error, .len = sizeof(a.u.create) };
    a.u.create.entry = made.u.entry;
    return a;
}

static struct answer answer_rename(uint64_t parent, uint64_t to, const char *name)
{
    const uint64_t ino = find(parent, name);
    const char *new_name = name + strlen(name) + 1;
    const uint64_t old = find(to, new_name);
    if (old != 0)
        files[old - 1].parent = 0;
    if (ino != 0) {
        files[ino - 1].parent = to;
        snprintf(files[ino - 1].name, NAME, "%s", new_name);
    }
    return (struct answer){ .error = ino != 0 ? 0 : ENOENT };
}

static struct answer answer_write(uint64_t ino, const struct fuse_write_in *in)
{
    struct answer a = { .len = sizeof(a.u.write), .u.write = { .size = in->size } };
    if (in->offset + in->size > files[ino - 1].size)
        files[ino - 1].size = in->offset + in->size;
    return a;
}

static struct answer answer_to(const struct fuse_in_header *h, const void *arg)
{
    struct answer a = { 0 };
    switch (h->opcode) {
    case FUSE_INIT:
        a.len = sizeof(a.u.init);
        a.u.init = (struct fuse_init_out){ .major = FUSE_KERNEL_VERSION,
                                           .minor = FUSE_KERNEL_MINOR_VERSION,
                                           .max_write = REQUEST / 2 };
        return a;
    case FUSE_GETATTR:
    case FUSE_SETATTR:
        a.len = sizeof(a.u.attr);
        a.u.attr.attr = attr_of(h->nodeid);
        return a;
    case FUSE_LOOKUP:
        return entry(find(h->nodeid, arg), ENOENT);
    case FUSE_MKDIR:
        return entry(make(h->nodeid, (const char *)((const struct fuse_mkdir_in *)arg + 1), S_IFDIR | 0700),
                     ENOSPC);
    case FUSE_SYMLINK:
        return entry(make(h->nodeid, arg, S_IFLNK | 0777), ENOSPC);
    case FUSE_CREATE:
        return answer_create(h->nodeid, arg);
    case FUSE_RENAME:
        return answer_rename(h->nodeid, ((const struct fuse_rename_in *)arg)->newdir,
                             (const char *)((const struct fuse_rename_in *)arg + 1));
    case FUSE_WRITE:
        return answer_write(h->nodeid, arg);
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        a.len = sizeof(a.u.open);
        return a;
    case FUSE_STATFS:
        a.len = sizeof(a.u.statfs);
        return a;
    case FUSE_READDIR:
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
        return a;
    default:
        a.error = ENOSYS;
        return a;
    }
}

/* Serve the file system. While it hangs, read each request but do not answer. If a request stayed unread, a signal
 * could end the process that waits for the answer. */
static void serve_disk(int fd)
{
    static char request[REQUEST + 4096];
    files[0] = (struct file){ .parent = 1, .mode = S_IFDIR | 0755 };
    for (;;) {
        const ssize_t n = read(fd, request, sizeof(request));
        const struct fuse_in_header *h = (const struct fuse_in_header *)request;
        if (n < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
            continue;
        if (n < 0)
            _exit(0);
        if (h->opcode == FUSE_FORGET || h->opcode == FUSE_BATCH_FORGET || h->opcode == FUSE_INTERRUPT)
            continue;
        if (shared->hangs) {
            shared->unanswered++;
            continue;
        }
        struct answer a = answer_to(h, h + 1);
        const size_t len = a.error == 0 ? a.len : 0;
        struct fuse_out_header out = { .len = (uint32_t)(sizeof(out) + len),
                                       .error = -a.error,
                                       .unique = h->unique };
        const struct iovec parts[] = { { &out, sizeof(out) }, { &a.u, len } };
        (void)!writev(fd, parts, 2);
    }
}

static void hung_disk_mount(const char *where)
{
    char options[128];
    const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        cr_skip_test("skipped, because /dev/fuse cannot be opened: %s", strerror(errno));
    snprintf(options, sizeof(options), "fd=%d,rootmode=40755,user_id=0,group_id=0", fd);
    if (mount("hung_disk", where, "fuse", 0, options) != 0)
        cr_skip_test("skipped, because FUSE cannot be mounted: %s", strerror(errno));
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(shared != MAP_FAILED);
    server = fork();
    cr_assert_geq(server, 0);
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve_disk(fd);
    }
    close(fd);
    struct stat root; /* wait until FUSE_INIT is answered: before that, a signal cancels every request */
    cr_assert_eq(stat(where, &root), 0, "%s: %s", where, strerror(errno));
}

static void hung_disk_hang(void)
{
    shared->hangs = true;
}

static int hung_disk_requests(void)
{
    return shared->unanswered;
}

static void hung_disk_end(void)
{
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

static char hung_dir[64], log_dir[80];

static void set_up(void)
{
    rude_own_mounts();
    snprintf(hung_dir, sizeof(hung_dir), "/tmp/hung-disk-XXXXXX");
    cr_assert_not_null(mkdtemp(hung_dir));
    hung_disk_mount(hung_dir);
    snprintf(log_dir, sizeof(log_dir), "--log_dir=%s", hung_dir);
}

static void tear_down(void)
{
    umount2(hung_dir, MNT_DETACH);
    rmdir(hung_dir);
}

TestSuite(hung_disk, .init = set_up, .fini = tear_down, .timeout = 120);

/* Start the job. If `is_process_1` is true, use `unshare` to make ddprun process 1 of a PID namespace, as in a
 * container. */
static struct run_process *start_as(bool is_process_1)
{
    const char *argv[] = { "unshare",
                           "--pid",
                           "--fork",
                           "--kill-child",
                           "--mount-proc",
                           bin("ddprun"),
                           "--standalone",
                           log_dir,
                           "--tee=3",
                           "--no_python",
                           "--",
                           "/bin/sh",
                           "-c",
                           "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.02; done",
                           NULL };
    struct run_process *process = run_start(is_process_1 ? argv : argv + 5, NULL);
    cr_assert_not_null(process);
    return process;
}

static struct run_process *start(void)
{
    return start_as(false);
}

static void until(bool condition, struct run_process *process, const char *what)
{
    if (condition)
        return;
    run_signal(process, SIGKILL);
    hung_disk_end();
    struct run_result r = run_wait(process);
    cr_assert(false, "%s is missing:\n%s", what, r.err);
}

static void until_hung(struct run_process *process)
{
    hung_disk_hang();
    for (struct patience p = { 0 }; hung_disk_requests() == 0;)
        until(patience_left(&p), process, "a request");
}

static bool has_ended(struct run_process *process)
{
    siginfo_t end = { 0 };
    return waitid(P_PID, (id_t)run_pid(process), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != 0;
}

/* Wait until the guardian has ended. The agent that remains still holds the output pipes. So end the hung file system
 * before run_wait, which reads the pipes to their end. */
static struct run_result finish(struct run_process *process)
{
    for (struct patience p = { 0 }; !has_ended(process);)
        until(patience_left(&p), process, "the guardian's end");
    hung_disk_end();
    return run_wait(process);
}

static void expect_named(const struct run_result *r)
{
    char words[200];
    cr_expect_eq(r->exit_code, 124, "exit %d, signal %d\n%s", r->exit_code, r->signal, r->err);
    snprintf(words, sizeof(words), "error: %s|agent process|(pid ", hung_dir);
    cr_expect(has_parts(r->err, words), "'%s' is not in:\n%s", words, r->err);
}

Test(hung_disk, the_console_lives_and_two_ctrl_c_end_the_job)
{
    char next[32];
    struct run_process *process = start();
    until(run_until_output(process, "tick 3\n", PATIENCE_MS), process, "output");
    until_hung(process);
    until(run_until_error(process, "not answered", PATIENCE_MS), process, "the report of the hang");
    const char *last = strrchr(run_output(process), 'k');
    snprintf(next, sizeof(next), "tick %d\n", last != NULL ? atoi(last + 1) + 20 : 100);
    until(run_until_output(process, next, PATIENCE_MS), process, "output after the hang");
    run_signal(process, SIGINT);
    until(run_until_error(process, "another SIGINT", PATIENCE_MS), process, "the first answer");
    run_signal(process, SIGINT);
    struct run_result r = finish(process);
    expect_named(&r);
    cr_expect_not_null(strstr(r.err, "stopped by SIGINT"), "the report is printed:\n%s", r.err);
}

Test(hung_disk, one_request_is_enough_when_the_workers_end_in_time)
{
    struct run_process *process = start();
    until(run_until_output(process, "tick 3\n", PATIENCE_MS), process, "output");
    until_hung(process);
    run_signal(process, SIGTERM);
    struct run_result r = finish(process);
    expect_named(&r);
}

/* The guardian, as process 1, cannot disappear before the agent, and the agent waits for the disk. So end the hung file
 * system before run_wait. */
Test(hung_disk, a_guardian_that_is_process_1_does_not_wait_for_the_disk)
{
    char children[64];
    snprintf(children, sizeof(children), "/proc/self/task/%d/children", (int)getpid());
    if (access(children, R_OK) != 0 || system("unshare --pid --fork --mount-proc true") != 0)
        cr_skip_test("skipped, because /proc/PID/task/TID/children or new PID namespaces are missing");
    struct run_process *process = start_as(true);
    until(run_until_output(process, "tick 3\n", PATIENCE_MS), process, "output");
    const pid_t guardian = procstat_child(run_pid(process), 0);
    cr_assert_neq(guardian, 0);
    until_hung(process);
    kill(guardian, SIGTERM);
    until(run_until_error(process, ") hangs there", PATIENCE_MS), process, "the guardian's report");
    hung_disk_end();
    struct run_result r = run_wait(process);
    expect_named(&r);
}

Test(hung_disk, a_log_directory_that_hangs_from_the_start_is_reported)
{
    hung_disk_hang();
    struct run_process *process = start();
    struct run_result r = finish(process);
    expect_named(&r);
    SAYS(r, "log directory");
}

Test(hung_disk, a_log_directory_that_hangs_from_the_start_does_not_outlast_two_ctrl_c)
{
    hung_disk_hang();
    struct run_process *process = start();
    until_hung(process);
    for (struct patience p = { 0 }; !has_ended(process); run_signal(process, SIGINT))
        until(patience_left(&p), process, "the guardian's end");
    struct run_result r = finish(process);
    expect_named(&r);
    cr_expect_null(strstr(r.err, "log directory"), "it is not waited for:\n%s", r.err);
}
