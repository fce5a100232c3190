/* test_fallbacks.c -- ddprun without some features: old kernels, containers, unprivileged users, small limits.
 *
 * A job with daemons must end as usual, leave no process, and print the missing features with --verbose. */
#include "job.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ARGS_MAX = 40 };

TestSuite(fallbacks, .timeout = 120);

/* Run ddprun with two workers, each of which starts a daemon. The words of `before` precede ddprun in the command.
 * Expect that no process is left at the end. */
static struct run_result run_behind(const char *const before[], const char *contain)
{
    struct job_witness w;
    const char *argv[ARGS_MAX];
    int n = 0;
    job_witness_open(&w);
    chmod(w.dir, 0711); /* so that uid 65534 can enter */
    chmod(w.path, 0622);
    while (before[n] != NULL) {
        argv[n] = before[n];
        n++;
    }
    const char *const job[] = { bin("ddprun"),
                                "--standalone",
                                "-v",
                                contain,
                                "--nproc_per_node=2",
                                "--grace=0.2",
                                bin("tests/prog/worker"),
                                w.hold,
                                "child",
                                "daemon",
                                "say:hello",
                                NULL };
    for (int i = 0; job[i] != NULL; i++)
        argv[n++] = job[i];
    argv[n] = NULL;
    struct run_result r = run_command(argv, NULL);
    cr_expect(job_witness_alone(&w), "a process is left");
    cr_expect_eq(job_count(r.out, "[0] hello"), 1, "%s\n%s", r.out, r.err);
    cr_expect_eq(job_count(r.out, "[1] hello"), 1, "%s\n%s", r.out, r.err);
    job_witness_close(&w);
    return r;
}

static void need_no_sanitizer(void)
{
    if (bin_is_sanitized())
        cr_skip_test("skipped, because a sanitizer needs /proc, memory and a place for its report");
}

static void need_root(void)
{
    if (geteuid() != 0)
        cr_skip_test("skipped, because only root may make namespaces and change its user");
}

static void need_nobody(void)
{
    need_root();
    if (!bin_is_open_to_nobody())
        cr_skip_test("skipped, because uid 65534 cannot reach %s", bin("ddprun"));
}

/* Run ddprun as on a kernel without the system calls `calls` (tests/prog/without.c). Expect exit code 0, and the text
 * `says` in the error output. */
static void expect_fallback(const char *calls, const char *contain, const char *says)
{
    struct run_result r =
        run_behind((const char *const[]){ bin("tests/prog/without"), calls, "--", NULL }, contain);
    EXPECT(r, 0);
    cr_expect_not_null(strstr(r.err, says), "without %s: %s", calls, r.err);
}

Test(fallbacks, an_old_kernel_will_do_and_it_is_said)
{
    expect_fallback("pidfd_open,pidfd_send_signal", "--contain=auto", "pidfd_open is not");
    expect_fallback("clone3,close_range", "--contain=auto", "clone3 is not");
    expect_fallback("pidfd_open,pidfd_send_signal,clone3,close_range", "--contain=plain",
                    "close_range is not");
}

Test(fallbacks, a_pidfd_that_cannot_be_signalled_is_not_used)
{
    expect_fallback("pidfd_send_signal", "--contain=plain", "pidfd_open is not");
}

/* The error must name the option --make_secret and its file, and not only the secret. */
Test(fallbacks, a_secret_without_random_numbers_names_its_file)
{
    const char *argv[] = { bin("tests/prog/without"), "getrandom",    "--", bin("ddprun"),
                           "--make_secret",           "/nowhere/key", NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 125);
    SAYS(r, "--make_secret=/nowhere/key: ");
    SAYS(r, strerror(ENOSYS));
    SAYS(r, "; check ");
}

/* Some kernels are built without CONFIG_PROC_CHILDREN. ddprun then reads the parents in /proc/PID/stat instead of the
 * lists of children. */
Test(fallbacks, without_lists_of_children_nobody_is_left)
{
    need_no_sanitizer();
    need_root();
    struct run_result probe =
        run_command((const char *const[]){ bin("tests/prog/without"), "proc_children", "--", "/bin/sh", "-c",
                                           "cat /proc/self/stat && cat /proc/self/task/*/children", NULL },
                    NULL);
    cr_assert(probe.out[0] != '\0' && strstr(probe.err, "No such file or directory") != NULL,
              "the file is not taken away:\n%s%s", probe.out, probe.err);
    struct run_result r = run_behind(
        (const char *const[]){ bin("tests/prog/without"), "proc_children", "--", NULL }, "--contain=plain");
    EXPECT(r, 0);
}

Test(fallbacks, it_may_be_process_1_of_a_container)
{
    need_root();
    struct run_result r =
        run_behind((const char *const[]){ "unshare", "-pf", "--mount-proc", NULL }, "--contain=auto");
    EXPECT(r, 0);
}

Test(fallbacks, a_foreign_proc_is_not_believed)
{
    need_root();
    bin_seek_no_leaks(); /* LeakSanitizer would look for its threads in /proc under the wrong process id */
    struct run_result r = run_behind((const char *const[]){ "unshare", "-pf", NULL }, "--contain=plain");
    EXPECT(r, 0);
    SAYS(r, "/proc is not");
}

Test(fallbacks, without_proc_it_works_and_says_so)
{
    need_no_sanitizer();
    need_root();
    struct run_result r = run_behind(
        (const char *const[]){ "unshare", "-m", "sh", "-c", "umount -l /proc && exec \"$@\"", "sh", NULL },
        "--contain=plain");
    EXPECT(r, 0);
    SAYS(r, "mount -t proc proc /proc");
}

Test(fallbacks, nobody_may_use_it_where_proc_hides_others)
{
    need_no_sanitizer();
    need_nobody();
    const char *hide = "mount -t proc -o hidepid=2 proc /proc && "
                       "exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";
    struct run_result r =
        run_behind((const char *const[]){ "unshare", "-m", "sh", "-c", hide, "sh", NULL }, "--contain=auto");
    EXPECT(r, 0);
    SAYS(r, "hidepid");
}

/* Run ddprun under the limits that the shell command `shell` sets. Expect the text `says` in the error output. */
static void expect_named(const char *shell, const char *says)
{
    char script[512];
    snprintf(script, sizeof(script), "%s; exec '%s' --standalone --nproc_per_node=16 '%s' sleep:100", shell,
             bin("ddprun"), bin("tests/prog/worker"));
    struct run_result r = run_command((const char *const[]){ "setpriv", "--reuid=64999", "--regid=65534",
                                                             "--clear-groups", "bash", "-c", script, NULL },
                                      NULL);
    cr_expect(r.exit_code == 125 || r.exit_code == 126, "%s: exit %d: %s", shell, r.exit_code, r.err);
    cr_expect_not_null(strstr(r.err, says), "%s: %s", shell, r.err);
}

Test(fallbacks, a_limit_that_is_too_small_is_named_with_the_remedy)
{
    need_no_sanitizer();
    need_nobody();
    expect_named("ulimit -n 16", "allows 16 ");
    expect_named("ulimit -n 40", "'ulimit -n 92'");
    expect_named("ulimit -u 1", "user 1 processes");
    expect_named("ulimit -u 3", "'ulimit -u 19'");
}

/* ddprun raises its own limit of open files. The workers keep their limit of 60, so the report must show 60. */
Test(fallbacks, a_report_that_mentions_a_limit_shows_its_value)
{
    char script[512];
    need_no_sanitizer();
    snprintf(
        script, sizeof(script),
        "ulimit -S -n 60; exec '%s' --standalone --nproc_per_node=2 '%s' 'err:OSError: [Errno 24] Too many "
        "open files' exit:1",
        bin("ddprun"), bin("tests/prog/worker"));
    struct run_result r = run_command((const char *const[]){ "bash", "-c", script, NULL }, NULL);
    EXPECT(r, 1);
    SAYS(r, "open files (60)");
}

Test(fallbacks, a_full_file_system_is_shown_with_its_room)
{
    char script[512];
    need_no_sanitizer();
    need_root();
    snprintf(
        script, sizeof(script),
        "mount -t tmpfs -o nr_inodes=1 none /mnt && exec '%s' --standalone --nproc_per_node=1 python3 -c "
        "'open(\"/mnt/x\", \"w\")'",
        bin("ddprun"));
    struct run_result r =
        run_command((const char *const[]){ "unshare", "-m", "bash", "-c", script, NULL }, NULL);
    EXPECT(r, 1);
    SAYS(r, "/dev/shm is full (/mnt/x: ");
    SAYS(r, "and 0 inodes free)");
}
