/* test_ddprun_cause.c -- real faults, and what the report says about them: memory, shared memory, crashes,
 * programs that cannot be started, error files. Needs root for some: control groups and mounts. */
#include "job.h"
#include "documents.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAYS(r, words) cr_expect(strstr((r).err, words) != NULL, "'%s' is not in:\n%s", words, (r).err)

TestSuite(ddprun_cause, .timeout = 120);

/* A shell script in which $D is `ddprun --standalone` and $W the worker. */
static struct run_result script(const char *text)
{
    char ddprun[512], worker[512];
    snprintf(ddprun, sizeof(ddprun), "D=%s --standalone", bin("ddprun"));
    snprintf(worker, sizeof(worker), "W=%s", bin("tests/prog/worker"));
    const char *env[] = { ddprun, worker, "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES", NULL };
    const struct run_options options = { .env = env };
    return run_command((const char *const[]){ "sh", "-c", text, NULL }, &options);
}

/* --- memory --------------------------------------------------------------------------------------------- */

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
    SAYS(r, "rank 1 on ");
    SAYS(r, "failed first: out of memory (SIGKILL)");
    SAYS(r, "out of memory: limit 32 MiB of cgroup /ddprun-test-");
    SAYS(r, "peak 32 MiB");
    SAYS(r, "memory.limit_in_bytes");
    run_free(&r);
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
        run_free(&r);
        cr_skip_test("skipped, because there is no writable cgroup v2 with the memory controller");
    }
    EXPECT(r, 137);
    SAYS(r, "out of memory: limit 32 MiB of cgroup /");
    run_free(&r);
}

/* A file stands in for the kernel's log, in which this worker finds much before it writes of its own end. */
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
        run_free(&r);
        cr_skip_test(
            "skipped, because this user cannot mount, or the kernel's numbers of processes are others");
    }
    EXPECT(r, 137);
    SAYS(r, "out of memory");
    run_free(&r);
}

Test(ddprun_cause, a_sigkill_of_unknown_origin_is_not_called_out_of_memory)
{
    struct run_result r = JOB(WORKER, "raise:9");
    EXPECT(r, 137);
    SAYS(r, "killed by someone else");
    run_free(&r);
}

Test(ddprun_cause, a_full_dev_shm_is_told_with_its_size_and_a_cure)
{
    struct run_result r = script("unshare -m sh -c 'mount -t tmpfs -o size=4m tmpfs /dev/shm || exit 77; "
                                 "exec $D $W shm:8' || exit $?");
    if (r.exit_code == 77 || r.exit_code == 1) {
        run_free(&r);
        cr_skip_test("skipped, because this user cannot mount a small /dev/shm");
    }
    EXPECT(r, 135);
    SAYS(r, "/dev/shm is full (SIGBUS)");
    SAYS(r, "4 MiB, of which nothing is free");
    SAYS(r, "--shm-size");
    run_free(&r);
}

/* --- crashes -------------------------------------------------------------------------------------------- */

Test(ddprun_cause, a_crash_without_core_file_says_how_to_get_one)
{
    struct run_result r = script("ulimit -c 0; exec $D $W touch:0x10");
    EXPECT(r, 139);
    SAYS(r, "SIGSEGV");
    SAYS(r, "memory that is not its own");
    if (access("/dev/kmsg", R_OK) == 0 && getuid() == 0)
        SAYS(r, "address");
    run_free(&r);
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
    bool switched_off =
        strstr(r.err, "the limit for core files is 0") != NULL; /* AddressSanitizer does that */
    if (pattern[0] == '|' || r.exit_code == 77 || switched_off) {
        run_free(&r);
        cr_skip_test(
            "skipped, because core files do not go to the working directory here, or are not allowed");
    }
    EXPECT(r, 139);
    SAYS(r, "at address 0x10");
    SAYS(r, "gdb ");
    run_free(&r);
}

Test(ddprun_cause, a_reader_that_has_gone_is_no_fault_of_the_worker)
{
    struct run_result r = script("{ $D $W spam:100000; echo code $? >&2; } | head -1");
    SAYS(r, "the reader of stdout has gone (SIGPIPE)");
    SAYS(r, "no fault of the worker");
    SAYS(r, "code 141");
    run_free(&r);
}

/* --- programs that cannot be started -------------------------------------------------------------------- */

static char *dir;

static void make_dir(void)
{
    dir = job_dir();
}

static void remove_dir(void)
{
    job_dir_remove(dir);
}

static const char *put_file(const char *name, const void *bytes, size_t len)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    cr_assert(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    close(fd);
    return path;
}

Test(ddprun_cause, a_script_with_windows_line_ends_is_told_so, .init = make_dir, .fini = remove_dir)
{
    static const char text[] = "#!/bin/sh\r\necho\r\n";
    struct run_result r = JOB(put_file("script", text, sizeof(text) - 1));
    EXPECT(r, 126);
    SAYS(r, "ends in \\r\\n");
    SAYS(r, "sed -i");
    run_free(&r);
}

/* The worker itself, with another machine's number in its header. */
Test(ddprun_cause, a_program_for_another_machine_is_told_so, .init = make_dir, .fini = remove_dir)
{
    Elf64_Ehdr header;
    FILE *f = fopen("/proc/self/exe", "re");
    cr_assert(f != NULL && fread(&header, sizeof(header), 1, f) == 1);
    fclose(f);
    header.e_machine = header.e_machine == EM_S390 ? EM_PPC64 : EM_S390;
    struct run_result r = JOB(put_file("train", &header, sizeof(header)));
    EXPECT(r, 126);
    SAYS(r, "was built for ");
    SAYS(r, ", this machine is ");
    run_free(&r);
    r = JOB(put_file("empty", "", 0));
    EXPECT(r, 126);
    SAYS(r, "is an empty file");
    run_free(&r);
}

Test(ddprun_cause, a_program_on_a_noexec_mount_is_told_so, .init = make_dir, .fini = remove_dir)
{
    char text[1024];
    snprintf(text, sizeof(text),
             "unshare -m sh -c 'mount -t tmpfs -o noexec tmpfs %s || exit 77; cp /bin/true %s/; exec $D "
             "%s/true' || exit $?",
             dir, dir, dir);
    struct run_result r = script(text);
    if (r.exit_code == 77 || r.exit_code == 1) {
        run_free(&r);
        cr_skip_test("skipped, because this user cannot mount");
    }
    EXPECT(r, 126);
    SAYS(r, "mounted noexec");
    run_free(&r);
}

Test(ddprun_cause, a_program_that_is_being_written_is_told_so, .init = make_dir, .fini = remove_dir)
{
    char text[1024];
    snprintf(text, sizeof(text), "cp /bin/true %s/t; exec 9>>%s/t; $D %s/t 9>&-", dir, dir, dir);
    struct run_result r = script(text);
    EXPECT(r, 126);
    SAYS(r, "is open for writing");
    run_free(&r);
}

/* --- error files ---------------------------------------------------------------------------------------- */

#define RECORDED                                                                                       \
    "{\"message\": {\"message\": \"ValueError: seven\", \"extraInfo\": {\"py_callstack\": \"Trace\", " \
    "\"timestamp\": \"1700000000\"}}}"

Test(ddprun_cause, an_error_file_is_shown_in_both_shapes_and_then_removed)
{
    struct run_result r =
        JOB("--nproc_per_node=2", WORKER, "only:1", "record:" RECORDED, "exit:3", "all", "forever");
    EXPECT(r, 3);
    SAYS(r, "  error    ValueError: seven\n");
    run_free(&r);
    r = JOB(WORKER, "record:{\"message\": \"flat\"}", "exit:4");
    EXPECT(r, 4);
    SAYS(r, "  error    flat\n");
    run_free(&r);
    r = script("T=$(mktemp -d); TMPDIR=$T $D $W 'record:{\"message\": \"flat\"}' exit:4 2>/dev/null; ls -A "
               "$T; rmdir $T");
    cr_expect_str_eq(r.out, "", "left behind: %s", r.out);
    run_free(&r);
}

Test(ddprun_cause, whatever_lies_in_place_of_an_error_file_hides_nothing)
{
    static const struct {
        const char *make, *says;
    } cases[] = {
        { "mkfifo $E", "not a regular file" },
        { "mkdir $E", "not a regular file" },
        { "ln -s /etc/passwd $E", "symbolic link" },
        { "head -c 300000 /dev/zero > $E", "more than 256 KiB" },
        { "echo oops > $E", "no JSON" },
        { ": > $E", "is empty" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "exec $D sh -c 'E=$TORCHELASTIC_ERROR_FILE; %s; echo last words >&2; exit 5'",
                 cases[i].make);
        struct run_result r = script(text);
        EXPECT(r, 5);
        SAYS(r, cases[i].says);
        SAYS(r, "| last words");
        run_free(&r);
    }
}

Test(ddprun_cause, quiet_is_quiet_about_what_only_might_matter)
{
#define SCARCE(option) "ulimit -n 59; exec $D " option " --nproc_per_node=8 $W"
    struct run_result r = script(SCARCE("--quiet"));
    EXPECT(r, 0);
    cr_expect_str_eq(r.err, "");
    run_free(&r);
    r = script(SCARCE(""));
    EXPECT(r, 0);
    SAYS(r, "allows 59 open files");
    run_free(&r);
}

/* --- report.json ---------------------------------------------------------------------------------------- */

static void expect_fits(const char *what)
{
    char path[512], why[256] = "";
    snprintf(path, sizeof(path), "%s/latest", dir);
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

Test(ddprun_cause, report_json_fits_its_schema_whatever_happened, .init = make_dir, .fini = remove_dir)
{
    if (access("launcher/report.schema.json", R_OK) != 0)
        cr_skip_test("skipped, because this test does not run in the source directory");
    char option[300];
    snprintf(option, sizeof(option), "--log_dir=%s", dir);
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
        run_free(&r);
    }
}

/* --- hints ---------------------------------------------------------------------------------------------- */

/* A Python of the test's own that only PATH leads to, and what it says when a module is missing. */
Test(ddprun_cause, a_failed_import_names_the_python_that_ran)
{
    char *bin_dir = job_dir(), text[1024], path[256];
    snprintf(text, sizeof(text),
             "cd %s && printf '#!/bin/sh\\necho \"ModuleNotFoundError: No module named x\" "
             ">&2\\nexit 1\\n' "
             ">python3 && chmod +x python3 && touch t.py && unset PYTHON_EXEC && "
             "PATH=%s:$PATH exec $D --nproc_per_node=1 t.py",
             bin_dir, bin_dir);
    struct run_result r = script(text);
    EXPECT(r, 1);
    snprintf(path, sizeof(path), "hint     %s/python3, which", bin_dir);
    SAYS(r, path);
    run_free(&r);
    job_dir_remove(bin_dir);
}

/* Its --torch_store is the hint of another, whose user has not set it. */
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
        run_free(&r);
    }
}
