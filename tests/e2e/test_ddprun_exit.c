/* Tests of how a job ends: exit codes, the first failure, and programs that cannot be started. Workers are real
 * processes, because the order in which the kernel reports their ends decides which failure is the first. */
#include "ddp/context.h"
#include "documents.h"
#include "job.h"
#include "procstat.h"
#include "run.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(ddprun_exit, .timeout = 120);

Test(ddprun_exit, all_workers_end_with_0_and_nothing_is_said)
{
    struct run_result r = JOB("--nproc_per_node=4", WORKER);
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "");
    cr_expect_str_eq(r.err, "");
}

Test(ddprun_exit, the_code_of_a_failed_worker_is_passed_on)
{
    struct run_result r = JOB("--nproc_per_node=4", WORKER, "only:1", "exit:7", "all", "forever");
    EXPECT(r, 7);
    SAYS(r, "rank 1");
    SAYS(r, "exit 7");
}

/* Rank 1 fails when ddprun stops it because of rank 2. */
Test(ddprun_exit, the_first_of_two_failures_decides)
{
    struct run_result r = JOB("--nproc_per_node=4", WORKER, "only:2", "exit:9", "only:1", "catch:15", "pause",
                              "exit:7", "all", "forever");
    EXPECT(r, 9);
    SAYS(r, "rank 2");
}

Test(ddprun_exit, a_signal_is_128_and_its_number_and_has_a_name)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "only:1", "raise:11", "all", "forever");
    EXPECT(r, 139);
    SAYS(r, "SIGSEGV");
    r = JOB("--nproc_per_node=2", WORKER, "only:0", "raise:9", "all", "forever");
    EXPECT(r, 137);
    SAYS(r, "SIGKILL");
}

/* Kill rank 1 by SIGKILL, then rank 0 by SIGUSR1, so that the agent finds both ends at the same time. */
static struct run_result two_seen_together(const char *policy)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", policy, WORKER, "say:ready", "forever");
    cr_assert(run_until_output(p, "[0] ready\n", PATIENCE_MS) &&
              run_until_output(p, "[1] ready\n", PATIENCE_MS));
    pid_t agent = procstat_child(run_pid(p), 0), first = procstat_child(agent, 1),
          second = procstat_child(agent, 0);
    if (agent == 0)
        cr_skip_test("skipped, because this kernel has no /proc/PID/task/TID/children");
    kill(agent, SIGSTOP);
    cr_assert(job_until_state(agent, 'T'));
    kill(first, SIGKILL);
    cr_assert(job_until_state(first, 'Z'));
    kill(second, SIGUSR1);
    cr_assert(job_until_state(second, 'Z'));
    kill(agent, SIGCONT);
    return run_wait(p);
}

Test(ddprun_exit, the_first_to_fail_is_found_also_when_two_are_seen_together)
{
    struct run_result r = two_seen_together("--exit_code=first");
    EXPECT(r, 137);
    SAYS(r, "(local rank 1");
}

/* Rank 1 died first, and then rank 0. ddprun had not stopped any worker yet, so rank 0 also counts as failed by
 * itself. */
Test(ddprun_exit, the_second_of_two_that_are_seen_together_has_failed_by_itself)
{
    struct run_result r = two_seen_together("--exit_code=max");
    EXPECT(r, 128 + SIGUSR1);
    SAYS(r, "(local rank 1");
}

Test(ddprun_exit, without_descriptors_it_is_ddprun_that_failed)
{
    char script[512];
    snprintf(script, sizeof(script), "ulimit -n 4; exec %s --standalone /bin/true", bin("ddprun"));
    struct run_result r = run_command((const char *const[]){ "sh", "-c", script, NULL }, NULL);
    EXPECT(r, 125);
    SAYS(r, "Too many open files");
}

Test(ddprun_exit, the_report_has_the_last_words_of_the_failed_worker)
{
    struct run_result r =
        JOB("--nproc_per_node=2", WORKER, "only:1", "err:no data here", "exit:3", "all", "forever");
    EXPECT(r, 3);
    cr_expect_geq(job_count(r.err, "[1] no data here"), 1, "%s", r.err);
    const char *report = strstr(r.err, "exit 3");
    cr_assert_not_null(report, "%s", r.err);
    cr_expect_not_null(strstr(report, "no data here"), "%s", r.err);
}

Test(ddprun_exit, what_we_stopped_is_a_consequence)
{
    struct run_result r = JOB("--nproc_per_node=3", WORKER, "only:2", "exit:5", "all", "forever");
    EXPECT(r, 5);
    SAYS(r, "onsequence");
}

Test(ddprun_exit, a_worker_that_ignores_sigterm_is_killed_after_the_grace_time)
{
    struct run_result r = JOB("--nproc_per_node=2", "--grace=0.3", WORKER, "only:1", "ignore:15", "say:deaf",
                              "forever", "only:0", "sleep:500", "exit:4");
    EXPECT(r, 4);
    cr_expect_not(r.timed_out);
}

Test(ddprun_exit, a_program_that_does_not_exist_is_127)
{
    struct run_result r = JOB("--nproc_per_node=4", "no-such-program");
    EXPECT(r, 127);
    SAYS(r, "no-such-program");
    SAYS(r, "PATH");
    r = JOB("./no/such/program");
    EXPECT(r, 127);
    SAYS(r, "./no/such/program");
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "we");
    cr_assert_not_null(f);
    fputs(text, f);
    fclose(f);
    chmod(path, mode);
}

/* Expect exit code 127. The node does not wait for other nodes, although its timeout for other nodes is ten minutes. */
static void expect_missing_on_node(const char *rank, const char *nnodes)
{
    const char *argv[] = {
        bin("ddprun"), nnodes, "--master_addr=127.0.0.1", free_port_option("--master_port="), rank,
        "./not/there", NULL
    };
    struct run_result r = run_command(argv, NULL);
    cr_expect_not(r.timed_out);
    EXPECT(r, 127);
    SAYS(r, "ddprun: error: ./not/there: ");
}

Test(ddprun_exit, a_missing_program_does_not_wait_for_other_nodes)
{
    expect_missing_on_node("--node_rank=0", "--nnodes=2");
    expect_missing_on_node("--node_rank=1", "--nnodes=2");
}

/* An elastic job can begin without the node that lacks the program. So this node must exit at once and not join. */
Test(ddprun_exit, a_missing_program_does_not_join_an_elastic_job)
{
    const char *argv[] = { bin("ddprun"),
                           "--nnodes=1:2",
                           free_port_option("--rdzv_endpoint=127.0.0.1:"),
                           "--max-restarts=3",
                           "-v",
                           "./not/there",
                           NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 127);
    SAYS(r, "ddprun: error: ./not/there: ");
    SILENT(r, "joined");
}

/* The PATH of --env decides, not the PATH of ddprun. The python3 in the PATH of --env prints a line when it starts, and
 * the test expects no output. */
Test(ddprun_exit, a_missing_script_is_found_before_python_starts)
{
    char *dir = job_dir(), python[256], script[256], path[300];
    snprintf(python, sizeof(python), "%s/python3", dir);
    snprintf(script, sizeof(script), "%s/light.py", dir);
    snprintf(path, sizeof(path), "--env=PATH=%s", dir);
    write_file(python, "#!/bin/sh\necho python has started\n", 0755);
    write_file(script, "", 0644);
    const struct run_options here = { .cwd = dir };
    struct run_result r = job_run((const char *const[]){ path, "ligth.py", NULL }, &here);
    EXPECT(r, 127);
    cr_expect_str_eq(r.out, "");
    SAYS(r, "started: ligth.py: ");
    SAYS(r, " light.py?\n");
    r = job_run((const char *const[]){ path, "light.py", NULL }, &here);
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "python has started\n");
    r = job_run((const char *const[]){ path, "-m", "ligth.py", NULL },
                &here); /* -m names a module, which only Python can find */
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "python has started\n");
    r = job_run((const char *const[]){ path, "--run_path", "ligth.py", NULL }, &here);
    EXPECT(r, 127);
    job_dir_remove(dir);
}

Test(ddprun_exit, a_missing_program_is_reported_with_the_searched_path)
{
    struct run_result r = JOB("--env=PATH=/nowhere", "no-such-program");
    EXPECT(r, 127);
    SAYS(r, "(/nowhere)");
}

Test(ddprun_exit, a_directory_is_126)
{
    struct run_result r = JOB("/tmp");
    EXPECT(r, 126);
    SAYS(r, "directory");
}

Test(ddprun_exit, a_file_without_x_permission_is_126_and_the_cure_is_named)
{
    char *dir = job_dir(), path[256];
    snprintf(path, sizeof(path), "%s/program", dir);
    write_file(path, "#!/bin/sh\n", 0644);
    struct run_result r = JOB(path);
    EXPECT(r, 126);
    SAYS(r, "chmod +x");
    job_dir_remove(dir);
}

Test(ddprun_exit, a_missing_interpreter_is_named)
{
    char *dir = job_dir(), path[256];
    snprintf(path, sizeof(path), "%s/script", dir);
    write_file(path, "#!/no/such/interpreter\n", 0755);
    struct run_result r = JOB(path);
    EXPECT(r, 126);
    SAYS(r, "/no/such/interpreter");
    job_dir_remove(dir);
}

Test(ddprun_exit, a_script_without_interpreter_line_is_not_run_by_a_shell)
{
    char *dir = job_dir(), path[256];
    snprintf(path, sizeof(path), "%s/script", dir);
    write_file(path, "echo never\n", 0755);
    struct run_result r = JOB(path);
    EXPECT(r, 126);
    cr_expect_str_eq(r.out, "");
    SAYS(r, "#!");
    job_dir_remove(dir);
}

Test(ddprun_exit, a_program_is_found_along_PATH_past_files_that_cannot_run)
{
    char *dir = job_dir(), path[512], search[1024];
    snprintf(path, sizeof(path), "%s/a", dir);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/a/tool", dir);
    write_file(path, "not executable", 0644);
    snprintf(path, sizeof(path), "%s/tool", dir);
    write_file(path, "#!/bin/sh\necho found\n", 0755);
    snprintf(search, sizeof(search), "PATH=/no/such/dir:%s/a:%s", dir, dir);
    const struct run_options options = { .env = (const char *const[]){ search, NULL } };
    struct run_result r = job_run((const char *const[]){ "tool", NULL }, &options);
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "found\n");
    job_dir_remove(dir);
}

Test(ddprun_exit, a_wrong_option_is_2_and_starts_nothing)
{
    struct run_result r = JOB("--nproc_per_node=-1", WORKER, "say:never");
    EXPECT(r, 2);
    cr_expect_str_eq(r.out, "");
    SAYS(r, "--help");
}

Test(ddprun_exit, a_missing_program_is_2_and_says_once_where_the_help_is)
{
    const char *const argv[] = { bin("ddprun"), "--nproc_per_node=2", NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 2);
    SAYS(r, "usage: ddprun ");
    SAYS(r, "\nTry 'ddprun --help'.\n");
}

Test(ddprun_exit, what_is_quoted_in_an_error_cannot_command_the_terminal)
{
    struct run_result r = JOB("--grace=\033[2J\nddprun: \302\233x", WORKER);
    EXPECT(r, 2);
    SAYS(r, "--grace=?[2J?ddprun: ??x: ");
}

Test(ddprun_exit, version_and_help_are_on_stdout)
{
    static const char text[] = "ddprun " DDP_VERSION " (commit ";
    static const char json[] = "{\"name\":\"ddprun\",\"version\":\"" DDP_VERSION "\",\"commit\":\"";
    struct run_result r = JOB("--version");
    EXPECT(r, 0);
    cr_expect_eq(strncmp(r.out, text, strlen(text)), 0, "%s", r.out);
    r = JOB("--version", "--json");
    EXPECT(r, 0);
    cr_expect_eq(strncmp(r.out, json, strlen(json)), 0, "%s", r.out);
    r = JOB("--help");
    EXPECT(r, 0);
    cr_expect_not_null(strstr(r.out, "--nproc_per_node"));
}

Test(ddprun_exit, quiet_keeps_the_failure_and_verbose_tells_of_success)
{
    struct run_result r = JOB("--quiet", "--nproc_per_node=2", WORKER, "only:1", "exit:6", "all", "forever");
    EXPECT(r, 6);
    SAYS(r, "exit 6");
    r = JOB("--verbose", "--nproc_per_node=2", WORKER);
    EXPECT(r, 0);
    SAYS(r, ", store at 127.0.0.1:");
    SAYS(r, "rank 1 started");
    SAYS(r, "rank 1: exit 0");
}

/* Tests of real faults and their reports: memory, shared memory, crashes, programs that cannot be started, and error
 * files. Some tests need root, for control groups and mounts. */

#define CAUSE_SAYS(r, words) cr_expect(strstr((r).err, words) != NULL, "'%s' is not in:\n%s", words, (r).err)

TestSuite(ddprun_cause, .timeout = 120);

/* Run a shell script in which $D is `ddprun --standalone` and $W is the worker. */
static struct run_result script(const char *text)
{
    char ddprun[512], worker[512];
    snprintf(ddprun, sizeof(ddprun), "D=%s --standalone", bin("ddprun"));
    snprintf(worker, sizeof(worker), "W=%s", bin("tests/prog/worker"));
    const char *env[] = { ddprun, worker, "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES", NULL };
    const struct run_options options = { .env = env };
    return run_command((const char *const[]){ "sh", "-c", text, NULL }, &options);
}

#define V1 "/sys/fs/cgroup/memory"

Test(ddprun_cause, out_of_memory_is_told_with_group_limit_and_peak)
{
    if (access(V1 "/memory.limit_in_bytes", W_OK) != 0)
        cr_skip_test(
            "skipped, because the memory controller of cgroup v1 is not there, or not ours to write");
    if (bin_is_sanitized())
        cr_skip_test("skipped, because a sanitizer needs more memory than the group has");
    struct run_result r =
        script("G=" V1 "/ddprun-test-$$; mkdir $G && echo 32M > $G/memory.limit_in_bytes || exit 99\n"
               "sh -c \"echo \\$\\$ > $G/cgroup.procs; exec $D --contain=plain --nproc_per_node=2 $W "
               "only:1 err:eating eat:100 all forever\"\n"
               "code=$?; rmdir $G; exit $code");
    EXPECT(r, 137);
    CAUSE_SAYS(r, "rank 1 on ");
    CAUSE_SAYS(r, "memory (SIGKILL)");
    CAUSE_SAYS(r, "limit 32 MiB of cgroup /ddprun-test-");
    CAUSE_SAYS(r, "peak 32 MiB");
    CAUSE_SAYS(r, "memory.limit_in_bytes");
}

Test(ddprun_cause, out_of_memory_is_told_in_a_group_of_version_2_too)
{
    struct run_result r =
        script("P=$(awk '$3 == \"cgroup2\" {print $2; exit}' /proc/mounts); G=$P/ddprun-test-$$\n"
               "grep -qw memory $P/cgroup.subtree_control 2>/dev/null && mkdir $G 2>/dev/null || exit 77\n"
               "echo 33554432 > $G/memory.max; echo 0 > $G/memory.swap.max 2>/dev/null\n"
               "sh -c \"echo \\$\\$ > $G/cgroup.procs; exec $D --contain=plain $W eat:100\"\n"
               "code=$?; rmdir $G; exit $code");
    if (r.exit_code == 77) {
        cr_skip_test("skipped, because there is no writable cgroup v2 with the memory controller");
    }
    EXPECT(r, 137);
    CAUSE_SAYS(r, "limit 32 MiB of cgroup /");
}

/* A file replaces the kernel's log. This file has many other lines before the line about the end of this worker. */
Test(ddprun_cause, what_the_kernel_says_is_found_behind_all_that_it_said_before)
{
    char *dir = job_dir(), text[1024];
    snprintf(
        text, sizeof(text),
        "[ \"$(readlink /proc/self/ns/pid)\" = 'pid:[4026531836]' ] || exit 77\n"
        "export L=%s/kmsg; echo '6,1,1,-;up' >$L\n"
        "unshare -m sh -c 'mount --bind $L /dev/kmsg || exit 77; exec $D sh -c \"yes 6,2,2,-\\;chatter | "
        "head "
        "-n 30000 >>\\$L; echo \\\"3,3,3,-;Out of memory: Killed process \\$\\$ (sh)\\\" >>\\$L; kill -9 "
        "\\$\\$\"' || exit $?",
        dir);
    struct run_result r = script(text);
    job_dir_remove(dir);
    if (r.exit_code == 77 || r.exit_code == 1) {
        cr_skip_test(
            "skipped, because this user cannot mount, or the kernel's numbers of processes are others");
    }
    EXPECT(r, 137);
    CAUSE_SAYS(r, "of memory");
}

Test(ddprun_cause, a_sigkill_of_unknown_origin_is_not_called_out_of_memory)
{
    struct run_result r = JOB(WORKER, "raise:9");
    EXPECT(r, 137);
    CAUSE_SAYS(r, "the sender");
}

Test(ddprun_cause, a_full_dev_shm_is_told_with_its_size_and_a_cure)
{
    struct run_result r = script("unshare -m sh -c 'mount -t tmpfs -o size=4m tmpfs /dev/shm || exit 77; "
                                 "exec $D $W shm:8' || exit $?");
    if (r.exit_code == 77 || r.exit_code == 1) {
        cr_skip_test("skipped, because this user cannot mount a small /dev/shm");
    }
    EXPECT(r, 135);
    CAUSE_SAYS(r, "full (SIGBUS)");
    CAUSE_SAYS(r, "4 MiB, nothing free");
    CAUSE_SAYS(r, "--shm-size");
}

Test(ddprun_cause, a_crash_without_core_file_says_how_to_get_one)
{
    struct run_result r = script("ulimit -c 0; exec $D $W touch:0x10");
    EXPECT(r, 139);
    CAUSE_SAYS(r, "SIGSEGV");
    CAUSE_SAYS(r, "not mapped");
    if (access("/dev/kmsg", R_OK) == 0 && getuid() == 0)
        CAUSE_SAYS(r, "address");
}

Test(ddprun_cause, a_core_file_is_found_and_read)
{
    char pattern[256] = "|", *dir = job_dir(), text[1024];
    FILE *f = fopen("/proc/sys/kernel/core_pattern", "re");
    if (f == NULL || fgets(pattern, sizeof(pattern), f) == NULL || strpbrk(pattern, "|/") != NULL)
        snprintf(pattern, sizeof(pattern), "|");
    if (f != NULL)
        fclose(f);
    snprintf(text, sizeof(text), "cd %s; ulimit -c unlimited 2>/dev/null || exit 77; exec $D $W touch:0x10",
             dir);
    struct run_result r = script(text);
    job_dir_remove(dir);
    bool switched_off = strstr(r.err, "files is 0") != NULL; /* AddressSanitizer forbids core files */
    if (pattern[0] == '|' || r.exit_code == 77 || switched_off) {
        cr_skip_test(
            "skipped, because core files do not go to the working directory here, or are not allowed");
    }
    EXPECT(r, 139);
    CAUSE_SAYS(r, "address 0x10");
    CAUSE_SAYS(r, "gdb ");
}

Test(ddprun_cause, a_reader_that_has_gone_is_no_fault_of_the_worker)
{
    struct run_result r = script("{ $D $W spam:100000; echo code $? >&2; } | head -1");
    CAUSE_SAYS(r, "exited (SIGPIPE)");
    CAUSE_SAYS(r, "not a");
    CAUSE_SAYS(r, "ddprun's stdout");
    CAUSE_SAYS(r, "code 141");
}

static const char *put_file(const char *name, const void *bytes, size_t len)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", test_dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    cr_assert(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    close(fd);
    return path;
}

Test(ddprun_cause, a_script_with_windows_line_ends_is_told_so, .init = test_dir_open, .fini = test_dir_close)
{
    static const char text[] = "#!/bin/sh\r\necho\r\n";
    struct run_result r = JOB(put_file("script", text, sizeof(text) - 1));
    EXPECT(r, 126);
    CAUSE_SAYS(r, "ends in \\r\\n");
    CAUSE_SAYS(r, "sed -i");
}

/* The first program is only the ELF header of this test, changed to another architecture. */
Test(ddprun_cause, a_program_for_another_machine_is_told_so, .init = test_dir_open, .fini = test_dir_close)
{
    Elf64_Ehdr header;
    FILE *f = fopen("/proc/self/exe", "re");
    cr_assert(f != NULL && fread(&header, sizeof(header), 1, f) == 1);
    fclose(f);
    header.e_machine = header.e_machine == EM_S390 ? EM_PPC64 : EM_S390;
    struct run_result r = JOB(put_file("train", &header, sizeof(header)));
    EXPECT(r, 126);
    CAUSE_SAYS(r, "built for ");
    CAUSE_SAYS(r, "but this");
    r = JOB(put_file("empty", "", 0));
    EXPECT(r, 126);
    CAUSE_SAYS(r, "empty file");
}

Test(ddprun_cause, a_program_on_a_noexec_mount_is_told_so, .init = test_dir_open, .fini = test_dir_close)
{
    char text[1024];
    snprintf(text, sizeof(text),
             "unshare -m sh -c 'mount -t tmpfs -o noexec tmpfs %s || exit 77; cp /bin/true %s/; exec $D "
             "%s/true' || exit $?",
             test_dir, test_dir, test_dir);
    struct run_result r = script(text);
    if (r.exit_code == 77 || r.exit_code == 1) {
        cr_skip_test("skipped, because this user cannot mount");
    }
    EXPECT(r, 126);
    CAUSE_SAYS(r, "mounted noexec");
}

Test(ddprun_cause, a_program_that_is_being_written_is_told_so, .init = test_dir_open, .fini = test_dir_close)
{
    char text[1024];
    snprintf(text, sizeof(text), "cp /bin/true %s/t; exec 9>>%s/t; $D %s/t 9>&-", test_dir, test_dir,
             test_dir);
    struct run_result r = script(text);
    EXPECT(r, 126);
    CAUSE_SAYS(r, "for writing");
}

#define RECORDED                                                                                       \
    "{\"message\": {\"message\": \"ValueError: seven\", \"extraInfo\": {\"py_callstack\": \"Trace\", " \
    "\"timestamp\": \"1700000000\"}}}"

Test(ddprun_cause, an_error_file_is_shown_in_both_shapes_and_then_removed)
{
    struct run_result r =
        JOB("--nproc_per_node=2", WORKER, "only:1", "record:" RECORDED, "exit:3", "all", "forever");
    EXPECT(r, 3);
    CAUSE_SAYS(r, "  error    ValueError: seven\n");
    r = JOB(WORKER, "record:{\"message\": \"flat\"}", "exit:4");
    EXPECT(r, 4);
    CAUSE_SAYS(r, "  error    flat\n");
    r = script("T=$(mktemp -d); TMPDIR=$T $D $W 'record:{\"message\": \"flat\"}' exit:4 2>/dev/null; ls -A "
               "$T; rmdir $T");
    cr_expect_str_eq(r.out, "", "left behind: %s", r.out);
}

Test(ddprun_cause, whatever_lies_in_place_of_an_error_file_hides_nothing)
{
    static const struct {
        const char *make, *says;
    } cases[] = {
        { "mkfifo $E", "regular file" },
        { "mkdir $E", "regular file" },
        { "ln -s /etc/passwd $E", "symbolic link" },
        { "head -c 300000 /dev/zero > $E", "than 256 KiB" },
        { "echo oops > $E", "not JSON" },
        { ": > $E", "is empty" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "exec $D sh -c 'E=$TORCHELASTIC_ERROR_FILE; %s; echo last lines >&2; exit 5'",
                 cases[i].make);
        struct run_result r = script(text);
        EXPECT(r, 5);
        CAUSE_SAYS(r, cases[i].says);
        CAUSE_SAYS(r, "| last lines");
    }
}

Test(ddprun_cause, quiet_is_quiet_about_what_only_might_matter)
{
#define SCARCE(option) "ulimit -n 59; exec $D " option " --nproc_per_node=8 $W"
    struct run_result r = script(SCARCE("--quiet"));
    EXPECT(r, 0);
    cr_expect_str_eq(r.err, "");
    r = script(SCARCE(""));
    EXPECT(r, 0);
    CAUSE_SAYS(r, "allows 59 ");
}

static void expect_fits(const char *what)
{
    char path[512], why[256] = "";
    snprintf(path, sizeof(path), "%s/latest", test_dir);
    char *text = job_file(path, "report.json"), *rules = job_file("launcher", "report.schema.json");
    cJSON *value = text != NULL ? cJSON_Parse(text) : NULL,
          *schema = rules != NULL ? cJSON_Parse(rules) : NULL;
    cr_assert_not_null(value, "%s: %s", what, text != NULL ? text : "no report.json");
    cr_assert_not_null(schema, "launcher/report.schema.json is no JSON");
    cr_expect(schema_fits(schema, value, why, sizeof(why)), "%s: %s\n%s", what, why, text);
    cJSON_Delete(value);
    cJSON_Delete(schema);
    free(text);
    free(rules);
}

Test(ddprun_cause, report_json_fits_its_schema_whatever_happened, .init = test_dir_open,
     .fini = test_dir_close)
{
    if (access("launcher/report.schema.json", R_OK) != 0)
        cr_skip_test("skipped, because this test does not run in the source directory");
    char option[300];
    snprintf(option, sizeof(option), "--log_dir=%s", test_dir);
    const char *const jobs[][9] = {
        { option, WORKER, NULL },
        { option, WORKER, "record:" RECORDED, "err:No space left on device", "exit:3", NULL },
        { option, "--nproc_per_node=3", WORKER, "only:1", "touch:0x10", "all", "forever", NULL },
        { option, WORKER, "raise:9", NULL },
        { option, "--max_restarts=1", "--restart_backoff=0s", WORKER, "exit:3", NULL },
        { option, "/no/such/program", NULL },
    };
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        struct run_result r = job_run(jobs[i], NULL);
        expect_fits(r.err);
    }
}

/* A fake python3 in PATH prints that a module is missing. The hint must show the path of this python3. */
Test(ddprun_cause, a_failed_import_names_the_python_that_ran)
{
    char *bin_dir = job_dir(), text[1024], path[256];
    snprintf(text, sizeof(text),
             "cd %s && printf '#!/bin/sh\\necho \"ModuleNotFoundError: No module named x\" >&2\\nexit "
             "1\\n' >python3 && chmod +x python3 && touch t.py && unset PYTHON_EXEC && PATH=%s:$PATH exec $D "
             "--nproc_per_node=1 t.py",
             bin_dir, bin_dir);
    struct run_result r = script(text);
    EXPECT(r, 1);
    snprintf(path, sizeof(path), "hint     %s/python3, which", bin_dir);
    CAUSE_SAYS(r, path);
    job_dir_remove(bin_dir);
}

Test(ddprun_cause, a_hint_does_not_repeat_an_option)
{
    static const char *const options[] = { "launcher", "rank0" };
    for (int i = 0; i < 2; i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "exec $D --nproc_per_node=1 --torch_store=%s sh -c 'echo built without libuv support >&2; "
                 "exit 1'",
                 options[i]);
        struct run_result r = script(text);
        EXPECT(r, 1);
        cr_expect_eq(strstr(r.err, "hint  ") != NULL, i == 0, "%s", r.err);
    }
}
