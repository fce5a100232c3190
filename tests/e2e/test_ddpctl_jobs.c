/* ddpctl without --addr finds the jobs of its user. A user id of the test's own has no other jobs on this machine. */
#include "run.h"
#include "job.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char uid_option[32], runtime_dir[64], *dir;

/* The programs are copied, because the tree may lie in a home that others cannot enter. */
static void set_up(void)
{
    char command[1024];
    if (geteuid() != 0)
        cr_skip_test("skipped, because only root can become a user who has no jobs");
    const int uid = 200000 + (int)getpid();
    snprintf(uid_option, sizeof(uid_option), "--reuid=%d", uid);
    snprintf(runtime_dir, sizeof(runtime_dir), "/tmp/ddprun-%d", uid);
    dir = job_dir();
    snprintf(command, sizeof(command), "chmod 755 %s; cp '%s' '%s' %s", dir, bin("ddprun"), bin("ddpctl"),
             dir);
    cr_assert_eq(system(command), 0);
}

static void tear_down(void)
{
    if (dir == NULL)
        return;
    job_dir_remove(dir);
    job_dir_remove(strdup(runtime_dir));
}

TestSuite(ddpctl_jobs, .init = set_up, .fini = tear_down, .timeout = 120);

static const char *const bare[] = { "DDPRUN_STORE_ADDR", "MASTER_ADDR", "MASTER_PORT", "XDG_RUNTIME_DIR",
                                    NULL };

/* `program` of the copies, as the user, with words up to the first NULL. */
static const char *const *as_user(const char *program, const char *const words[])
{
    static const char *argv[16];
    static char path[512];
    size_t n = 0;
    snprintf(path, sizeof(path), "%s/%s", dir, program);
    argv[n++] = "setpriv";
    argv[n++] = uid_option;
    argv[n++] = "--regid=65534";
    argv[n++] = "--clear-groups";
    argv[n++] = path;
    for (size_t i = 0; words[i] != NULL; i++)
        argv[n++] = words[i];
    argv[n] = NULL;
    return argv;
}

#define CTL(...) ctl((const char *const[]){ __VA_ARGS__, NULL })

static struct run_result ctl(const char *const words[])
{
    return run_command(as_user("ddpctl", words), &(struct run_options){ .env = bare, .cwd = "/" });
}

static struct run_process *start_job(const char *id)
{
    const char *const words[] = { "--standalone", "--nproc_per_node=1",          id,  "sh",
                                  "-c",           "echo ready; exec sleep 1000", NULL };
    struct run_process *p =
        run_start(as_user("ddprun", words), &(struct run_options){ .env = bare, .cwd = "/" });
    cr_assert(run_until_output(p, "ready", PATIENCE_MS), "no job: %s", run_wait(p).err);
    return p;
}

static void end_job(struct run_process *p)
{
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
    run_free(&r);
}

static void expect(struct run_result r, int code, const char *out, const char *error)
{
    EXPECT(r, code);
    cr_expect_not_null(strstr(r.out, out), "'%s' is not in:\n%s", out, r.out);
    cr_expect_not_null(strstr(r.err, error), "'%s' is not in:\n%s", error, r.err);
    run_free(&r);
}

/* The port of the job's store, from the table. */
static int port_of(const char *table, const char *job)
{
    char line_end[64];
    snprintf(line_end, sizeof(line_end), "  %s\n", job);
    const char *end = strstr(table, line_end), *at = end;
    cr_assert_not_null(end, "%s", table);
    while (at > table && at[-1] != '\n')
        at--;
    return atoi(strchr(at, ':') + 1);
}

Test(ddpctl_jobs, one_is_used_several_are_listed)
{
    char port[16];
    expect(CTL("status"), 2, "", "no job of yours runs on this machine");
    struct run_process *alpha = start_job("--rdzv_id=alpha");
    expect(CTL("status"), 0, "alpha", "");
    struct run_process *beta = start_job("--rdzv_id=beta");
    struct run_result several = CTL("status");
    snprintf(port, sizeof(port), "%d", port_of(several.err, "beta"));
    expect(several, 2, "", "choose one with --addr or --job\nADDRESS ");
    expect(CTL("--job", "beta", "status"), 0, "beta", "");
    expect(CTL("--addr", port, "status"), 0, "beta", "");
    snprintf(port, sizeof(port), ":%.10d", atoi(port));
    expect(CTL("--addr", port, "status"), 0, "beta", "");
    end_job(alpha);
    expect(CTL("status"), 0, "beta", "");
    end_job(beta);
    expect(CTL("status"), 2, "", "no job of yours runs on this machine");
}

/* Root may ask the default address, whoever has the job there; what changes a store is not sent there. */
Test(ddpctl_jobs, the_default_address_is_tried_when_no_job_is_known)
{
    struct run_result r = CTL("status");
    cr_expect_not_null(strstr(r.err, "default 127.0.0.1:29500"), "%s", r.err);
    run_free(&r);
    r = CTL("cancel", "name");
    EXPECT(r, 2);
    cr_expect_null(strstr(r.err, "127.0.0.1:29500"), "%s", r.err);
    cr_expect_not_null(strstr(r.err, "give --addr HOST:PORT"), "%s", r.err);
    run_free(&r);
}

/* A job that waits for its other node is the one that is asked about. */
Test(ddpctl_jobs, a_job_that_waits_is_found)
{
    const char *const words[] = {
        "--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", free_port_option("--master_port="), "true",
        NULL
    };
    struct run_process *p =
        run_start(as_user("ddprun", words), &(struct run_options){ .env = bare, .cwd = "/" });
    struct run_result r = CTL("status");
    for (struct patience left = { 0 }; r.exit_code != 0 && patience_left(&left); r = CTL("status"))
        run_free(&r);
    expect(r, 0, "job       none", "");
    run_signal(p, SIGTERM);
    r = run_wait(p);
    run_free(&r);
}

/* A copy of the record under another cookie, which the user cannot have written: two stores would be a question. */
Test(ddpctl_jobs, a_record_of_another_user_is_ignored)
{
    char command[1024];
    struct run_process *p = start_job("--rdzv_id=alpha");
    snprintf(
        command, sizeof(command),
        "cd %s && f=$(ls | grep -x '[0-9a-f]\\{32\\}') && c=0123456789abcdef0123456789abcdef && "
        "sed \"s/$f/$c/; s,^cgroup .*,cgroup ,\" $f >$c && echo 127.0.0.1:1 | tr -d '\\n' >01234567.store",
        runtime_dir);
    cr_assert_eq(system(command), 0);
    expect(CTL("status"), 0, "alpha", "");
    snprintf(command, sizeof(command), "chown %s %s/0123*", uid_option + strlen("--reuid="), runtime_dir);
    cr_assert_eq(system(command), 0);
    expect(CTL("status"), 2, "", "several jobs of yours");
    end_job(p);
}
