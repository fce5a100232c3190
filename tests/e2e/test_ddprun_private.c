/* test_ddprun_private.c -- what a job writes is its user's alone: modes of files, and directories of other users that the
 * environment names. */
#include "job.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOBODY = 65534 };

static char *dir;

static void make_dir(void)
{
    dir = job_dir();
}

static void remove_dir(void)
{
    job_dir_remove(dir);
}

TestSuite(ddprun_private, .timeout = 120, .init = make_dir, .fini = remove_dir);

#define SAYS(r, words) cr_expect(strstr((r).err, words) != NULL, "'%s' is not in:\n%s", words, (r).err)

/* --- modes ---------------------------------------------------------------------------------------------- */

static void expect_mode(const char *name, unsigned mode)
{
    char path[512];
    struct stat st;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    cr_assert_eq(stat(path, &st), 0, "%s is not there", path);
    cr_expect_eq(st.st_mode & 07777, mode, "%s has mode %o, not %o", path, st.st_mode & 07777, mode);
}

/* A shell without umask, which takes nothing away from what ddprun asks for. */
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
    run_free(&r);
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
    run_free(&r);
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
    struct run_result r = run_wait(daemon);
    expect_mode("store.jsonl", 0600);
    run_free(&r);
}

/* --- directories of others ------------------------------------------------------------------------------ */

/* A directory in which another user may replace what we make: of that user, or, where this test is not root, open to all. */
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
    SAYS(r, "ddprun: XDG_RUNTIME_DIR is not used: ");
    SAYS(r, geteuid() == 0
                ? "/foreign belongs to uid 65534; runtime files are in /"
                : "/foreign is writable for other users and not sticky (mode 777); runtime files are in /");
    expect_empty(path);
    run_free(&r);
}

Test(ddprun_private, a_temporary_directory_of_another_user_is_not_used)
{
    const char *path = make_unsafe();
    struct run_result r =
        job_with("TMPDIR", path, "--redirects=3", "echo $TORCHELASTIC_ERROR_FILE >&2; exit 7");
    EXPECT(r, 7);
    cr_expect_null(strstr(r.err, "foreign/ddprun"), "%s", r.err);
    SAYS(r, "ddprun: TMPDIR is not used for log files: ");
    SAYS(r, "no --log_dir is given; log files are in /tmp/ddprun_");
    char *root = strstr(r.err, "/tmp/ddprun_");
    cr_assert_not_null(root);
    root[strcspn(root, "\n;, ")] = '\0';
    job_dir_remove(strdup(root));
    expect_empty(path);
    run_free(&r);
}

/* Its owner could exchange the directory in which ours lies. */
Test(ddprun_private, nor_is_a_directory_below_one)
{
    char below[400];
    snprintf(below, sizeof(below), "%s/mine", make_unsafe());
    cr_assert_eq(mkdir(below, 0700), 0);
    struct run_result r =
        job_with("XDG_RUNTIME_DIR", below, "--nproc_per_node=1", "echo $TORCHELASTIC_ERROR_FILE");
    EXPECT(r, 0);
    cr_expect_null(strstr(r.out, below), "%s", r.out);
    SAYS(r, "ddprun: XDG_RUNTIME_DIR is not used: ");
    expect_empty(below);
    run_free(&r);
}

/* As /tmp is: nobody else may rename what lies there. A link is resolved, because its owner may change it. */
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
    run_free(&r);
}
