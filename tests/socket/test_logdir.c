/* test_logdir.c -- the directory of a job's logs, in a directory where anybody may have put something before. */
#include "output/log_files.h"

#include "cli/cli.h"
#include "job.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *dir;
static char root[300];
static struct cli cli;
static struct plan_facts facts = { .nonce = "k3x9" };
static struct plan plan;
static struct ddp_err err;

static void set_up(void)
{
    dir = job_dir();
    snprintf(root, sizeof(root), "%s/j_k3x9", dir);
    cli.log_dir = dir;
    plan = (struct plan){ .cli = &cli, .facts = &facts, .log_root = root };
    umask(0);
}

static void tear_down(void)
{
    job_dir_remove(dir);
}

TestSuite(logdir, .timeout = 60, .init = set_up, .fini = tear_down);

Test(logdir, is_for_its_owner_alone)
{
    struct stat st;
    cr_assert_eq(logdir_make(root, true, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(stat(root, &st), 0);
    cr_expect_eq(st.st_mode & 07777, 0700, "%o", st.st_mode);
}

static void expect_refused(void)
{
    cr_expect_eq(logdir_make(root, true, &err), DDP_ERR_IO);
    cr_expect_not_null(strstr(err.msg, root), "%s", err.msg);
    cr_expect_not_null(strstr(err.msg, "File exists"), "%s", err.msg);
}

/* Whoever made it may own it, and what lies in it. */
Test(logdir, one_that_is_there_is_refused)
{
    char latest[300];
    cr_assert_eq(mkdir(root, 0777), 0);
    expect_refused();
    snprintf(latest, sizeof(latest), "%s/latest", dir);
    cr_expect_neq(faccessat(AT_FDCWD, latest, F_OK, AT_SYMLINK_NOFOLLOW), 0,
                  "it leads into a foreign directory");
}

Test(logdir, a_link_to_another_directory_is_refused)
{
    char other[300];
    snprintf(other, sizeof(other), "%s/other", dir);
    cr_assert_eq(mkdir(other, 0700), 0);
    cr_assert_eq(symlink("other", root), 0);
    expect_refused();
    cr_expect_eq(rmdir(other), 0, "something was made in it");
}

/* Below the root all is ours: the directory of a rank is there again in the second attempt of a pattern. */
Test(logdir, that_of_a_rank_may_be_there)
{
    char rank[400];
    struct plan_worker worker = { .log_dir = rank };
    plan.workers = &worker;
    plan.nproc = 1;
    snprintf(rank, sizeof(rank), "%s/attempt_0/0", root);
    cr_assert_eq(logdir_make(root, true, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(logdir_attempt(&plan, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(logdir_attempt(&plan, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(rmdir(rank), 0);
    *strrchr(rank, '/') = '\0';
    cr_assert_eq(rmdir(rank), 0);
    const int file = open(rank, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); /* in its way */
    cr_assert_geq(file, 0);
    close(file);
    rank[strlen(rank)] = '/';
    cr_expect_eq(logdir_attempt(&plan, &err), DDP_ERR_IO);
    cr_expect_not_null(strstr(err.msg, rank), "%s", err.msg);
}

Test(logdir, a_file_is_never_written_over_nor_through_a_link)
{
    char file[300], link[300];
    snprintf(file, sizeof(file), "%s/file", dir);
    snprintf(link, sizeof(link), "%s/link", dir);
    cr_assert_eq(symlink("file", link), 0);
    cr_expect_lt(logdir_create(link, LOGDIR_OUTPUT, &err), 0, "the link was followed");
    const int fd = logdir_create(file, LOGDIR_PRIVATE, &err);
    cr_assert_geq(fd, 0, "%s", err.msg);
    close(fd);
    cr_expect_lt(logdir_create(file, LOGDIR_PRIVATE, &err), 0, "it was there");
}
