/* Log files on disk: a file is never overwritten. If a log is rotated, all its parts together contain the whole
 * output. */
#include "base/log.h"
#include "base/syscalls.h"
#include "cli/cli.h"
#include "job.h"

#include <errno.h>

/* true: the file system does not support RENAME_NOREPLACE, as on NFS */
static bool is_nfs;

static int test_renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    errno = EINVAL;
    return is_nfs ? -1 : sys_renameat2(from, old, to, new, flags);
}

#define sys_renameat2 test_renameat2
#include "output/log_files.c"
#undef sys_renameat2

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char *log_dir;
static char log_path[300];

static void set_up(void)
{
    log_dir = job_dir();
    snprintf(log_path, sizeof(log_path), "%s/a/b/out.log", log_dir);
}

static void tear_down(void)
{
    job_dir_remove(log_dir);
}

TestSuite(log_file, .init = set_up, .fini = tear_down, .timeout = 120);

static struct writer_target open_log(uint64_t bytes, int keep)
{
    struct ddp_err err;
    struct log_file *f = log_file_create(log_path, (struct log_rotate){ .bytes = bytes, .keep = keep }, &err);
    cr_assert_not_null(f, "%s", err.msg);
    return log_file_target(f);
}

static void put(struct writer_target t, const char *text)
{
    int error;
    cr_assert_eq(t.write(t.user, (const uint8_t *)text, strlen(text), &error), strlen(text));
    cr_assert_eq(error, 0);
}

/* Append all parts in order. Return their number. */
static int all_parts(struct buf *to)
{
    char name[64];
    int n = 1;
    for (;; n++) {
        snprintf(name, sizeof(name), "a/b/out.log.%d", n);
        char *part = job_file(log_dir, name);
        if (part == NULL)
            break;
        buf_append(to, part, strlen(part));
        free(part);
    }
    char *last = job_file(log_dir, "a/b/out.log");
    buf_append(to, last, strlen(last) + 1);
    free(last);
    return n;
}

Test(log_file, directories_are_made_and_an_existing_file_is_left_alone)
{
    struct ddp_err err;
    struct writer_target t = open_log(0, 0);
    put(t, "first\n");
    t.close(t.user);
    cr_assert_null(log_file_create(log_path, (struct log_rotate){ 0 }, &err));
    cr_expect_not_null(strstr(err.msg, log_path), "%s", err.msg);
    cr_expect_not_null(strstr(err.msg, "--log_file"), "it names the remedy: %s", err.msg);
    char *text = job_file(log_dir, "a/b/out.log");
    cr_expect_str_eq(text, "first\n");
    free(text);
}

Test(log_file, what_others_have_planted_is_refused)
{
    struct ddp_err err;
    char away[300];
    snprintf(away, sizeof(away), "%s/away", log_dir);
    snprintf(log_path, sizeof(log_path), "%s/link", log_dir);
    cr_assert_eq(symlink(away, log_path), 0);
    cr_expect_null(log_file_create(log_path, (struct log_rotate){ 0 }, &err));
    cr_expect_neq(access(away, F_OK), 0, "nothing was made at the other end of the link");
    snprintf(log_path, sizeof(log_path), "%s/fifo", log_dir);
    cr_assert_eq(mkfifo(log_path, 0600), 0);
    cr_expect_null(log_file_create(log_path, (struct log_rotate){ 0 }, &err));
}

/* The lines have all lengths, and arrive in pieces of all sizes. */
Test(log_file, parts_end_behind_lines_and_add_up)
{
    struct writer_target t = open_log(1000, 0);
    struct buf all = { 0 }, found = { 0 };
    for (int i = 0; i < 300; i++)
        buf_printf(&all, "%0*d line\n", 1 + i % 90, i);
    for (size_t at = 0, n = 1; at < all.len; at += n, n = n * 7 % 401 + 1) {
        int error;
        n = n < all.len - at ? n : all.len - at;
        cr_assert_eq(t.write(t.user, all.data + at, n, &error), n);
    }
    t.close(t.user);
    buf_append(&all, "", 1);
    cr_expect_gt(all_parts(&found), 10);
    cr_expect_str_eq((char *)found.data, (char *)all.data);
    char *part = job_file(log_dir, "a/b/out.log.3");
    cr_expect_leq(strlen(part), 1000);
    cr_expect_eq(part[strlen(part) - 1], '\n', "a part ends after a line");
    free(part);
    buf_free(&all);
    buf_free(&found);
}

Test(log_file, without_newlines_parts_are_cut_where_they_are_full)
{
    struct writer_target t = open_log(1024, 0);
    struct buf found = { 0 };
    char text[5001];
    memset(text, 'x', 5000);
    text[5000] = '\0';
    put(t, text);
    t.close(t.user);
    cr_expect_eq(all_parts(&found), 5);
    cr_expect_str_eq((char *)found.data, text);
    buf_free(&found);
}

Test(log_file, the_newest_parts_are_kept)
{
    struct writer_target t = open_log(1024, 2);
    char line[1024];
    memset(line, 'x', sizeof(line));
    line[1022] = '\n';
    line[1023] = '\0';
    for (int i = 0; i < 6; i++)
        put(t, line);
    t.close(t.user);
    char *gone = job_file(log_dir, "a/b/out.log.3"), *kept = job_file(log_dir, "a/b/out.log.4");
    cr_expect_null(gone);
    cr_expect_not_null(kept);
    free(kept);
}

/* A foreign file has the name of the next part. The log skips the number of this part, and the file is unchanged. */
Test(log_file, a_part_never_takes_the_name_of_another_file)
{
    struct writer_target t = open_log(1024, 0);
    char other[320], line[1025];
    snprintf(other, sizeof(other), "%s.1", log_path);
    FILE *f = fopen(other, "w");
    fputs("mine\n", f);
    fclose(f);
    memset(line, 'x', 1023);
    strcpy(line + 1023, "\n");
    put(t, line);
    put(t, "next\n");
    t.close(t.user);
    char *theirs = job_file(log_dir, "a/b/out.log.1"), *ours = job_file(log_dir, "a/b/out.log.2");
    cr_expect_str_eq(theirs, "mine\n");
    cr_expect_str_eq(ours, line);
    free(theirs);
    free(ours);
}

/* An earlier job with the same log file has left the parts 1, 2 and 4. This job writes the parts 3, 5 and 6. */
Test(log_file, parts_of_an_earlier_job_are_not_removed)
{
    struct writer_target t = open_log(1024, 1);
    char old[320], line[1025];
    for (int i = 1; i <= 4; i += i) {
        snprintf(old, sizeof(old), "%s.%d", log_path, i);
        FILE *f = fopen(old, "w");
        fputs("mine\n", f);
        fclose(f);
    }
    memset(line, 'x', 1023);
    strcpy(line + 1023, "\n");
    for (int i = 0; i < 4; i++)
        put(t, line);
    t.close(t.user);
    char *first = job_file(log_dir, "a/b/out.log.1"), *second = job_file(log_dir, "a/b/out.log.2");
    char *fourth = job_file(log_dir, "a/b/out.log.4");
    char *gone = job_file(log_dir, "a/b/out.log.5"), *kept = job_file(log_dir, "a/b/out.log.6");
    cr_expect_str_eq(first, "mine\n");
    cr_expect_str_eq(second, "mine\n");
    cr_expect_str_eq(fourth, "mine\n");
    cr_expect_null(gone);
    cr_expect_str_eq(kept, line);
    free(first);
    free(second);
    free(fourth);
    free(kept);
}

static struct rlimit old_limit;

/* Return the lowest free descriptor, and forbid new descriptors (ulimit -n) until lift_limit is called. */
static int forbid_descriptors(void)
{
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    cr_assert(next >= 0 && getrlimit(RLIMIT_NOFILE, &old_limit) == 0);
    close(next);
    const struct rlimit none = { (rlim_t)next, old_limit.rlim_max };
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    return next;
}

static void lift_limit(void)
{
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &old_limit), 0);
}

Test(log_file, a_failed_rotation_leaves_the_log_under_its_name)
{
    char line[1025], expected[1100];
    memset(line, 'x', 1023);
    strcpy(line + 1023, "\n");
    snprintf(expected, sizeof(expected), "%snext\n", line);
    for (int nfs = 0; nfs < 2; nfs++) {
        snprintf(log_path, sizeof(log_path), "%s/%d/out.log", log_dir, nfs);
        struct writer_target t = open_log(1024, 0);
        is_nfs = nfs == 1;
        put(t, line);
        forbid_descriptors();
        put(t, "next\n");
        lift_limit();
        t.close(t.user);
        char *log = job_file(log_dir, nfs ? "1/out.log" : "0/out.log");
        char *part = job_file(log_dir, nfs ? "1/out.log.1" : "0/out.log.1");
        cr_expect(log != NULL && strcmp(log, expected) == 0, "%d", nfs);
        cr_expect_null(part);
        free(log);
        free(part);
    }
}

Test(log_file, a_deleted_directory_is_made_again)
{
    struct ddp_err err;
    char gone[310];
    struct log_file *f = log_file_create(log_path, (struct log_rotate){ 0 }, &err);
    struct writer_target t = log_file_target(f);
    snprintf(gone, sizeof(gone), "%s/a/b", log_dir);
    unlink(log_path);
    rmdir(gone);
    put(t, "still there\n");
    cr_expect_eq(log_file_news(f), LOG_MADE_AGAIN);
    cr_expect_eq(log_file_news(f), LOG_NO_NEWS, "it is reported once");
    t.close(t.user);
    char *text = job_file(log_dir, "a/b/out.log");
    cr_expect_str_eq(text, "still there\n");
    free(text);
}

Test(log_file, a_file_at_its_limit_is_an_error_and_no_signal)
{
    const struct rlimit limit = { .rlim_cur = 10, .rlim_max = RLIM_INFINITY };
    struct writer_target t = open_log(0, 0);
    int error;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    cr_expect_eq(t.write(t.user, (const uint8_t *)"0123456789abc", 13, &error), 10);
    cr_expect_eq(error, EFBIG);
    t.close(t.user);
}

/* The log directory of a job. Its parent directory may already contain files of other users. */

static char root[300];
static struct cli cli;
static struct plan_facts facts = { .nonce = "k3x9" };
static struct plan plan;
static struct ddp_err err;

static void logdir_begin(void)
{
    log_dir = job_dir();
    snprintf(root, sizeof(root), "%s/j_k3x9", log_dir);
    cli.log_dir = log_dir;
    plan = (struct plan){ .cli = &cli, .facts = &facts, .log_root = root };
    umask(0);
}

TestSuite(logdir, .timeout = 60, .init = logdir_begin, .fini = tear_down);

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

/* An existing root is rejected, because another user may have created it and may own files in it. */
Test(logdir, one_that_is_there_is_refused)
{
    char latest[300];
    cr_assert_eq(mkdir(root, 0777), 0);
    expect_refused();
    snprintf(latest, sizeof(latest), "%s/latest", log_dir);
    cr_expect_neq(faccessat(AT_FDCWD, latest, F_OK, AT_SYMLINK_NOFOLLOW), 0,
                  "it leads into a foreign directory");
}

Test(logdir, a_link_to_another_directory_is_refused)
{
    char other[300];
    snprintf(other, sizeof(other), "%s/other", log_dir);
    cr_assert_eq(mkdir(other, 0700), 0);
    cr_assert_eq(symlink("other", root), 0);
    expect_refused();
    cr_expect_eq(rmdir(other), 0, "something was made in it");
}

/* ddprun has created all directories below the root. So ddprun accepts an existing directory of a rank, for example in
 * a second attempt. */
Test(logdir, that_of_a_rank_may_be_there)
{
    char rank[400], attempt[400];
    struct plan_worker worker = { .log_dir = rank };
    const struct cli records = { .flight_recorder = true };
    const struct plan_facts here = { .host = "n1", .nonce = "k3x9" };
    plan =
        (struct plan){ .workers = &worker, .nproc = 1, .cli = &records, .facts = &here, .flight = attempt };
    snprintf(attempt, sizeof(attempt), "%s/attempt_0", root);
    snprintf(rank, sizeof(rank), "%s/attempt_0/0", root);
    cr_assert_eq(logdir_make(root, true, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(logdir_attempt(&plan, &err), DDP_OK, "%s", err.msg);
    cr_expect(plan.can_fifo);
    /* The first call of logdir_attempt has created and removed a FIFO with this name, so mkfifo succeeds. */
    cr_assert_eq(mkfifo(strcat(attempt, "/.fifo.n1.k3x9"), 0600), 0);
    *strrchr(attempt, '/') = '\0';
    cr_expect_eq(logdir_attempt(&plan, &err), DDP_OK, "%s", err.msg);
    cr_expect(!plan.can_fifo);
    unlink(strcat(attempt, "/.fifo.n1.k3x9"));
    cr_assert_eq(rmdir(rank), 0);
    *strrchr(rank, '/') = '\0';
    cr_assert_eq(rmdir(rank), 0);
    const int file =
        open(rank, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); /* a file with the name of the directory */
    cr_assert_geq(file, 0);
    close(file);
    rank[strlen(rank)] = '/';
    cr_expect_eq(logdir_attempt(&plan, &err), DDP_ERR_IO);
    cr_expect_not_null(strstr(err.msg, rank), "%s", err.msg);
}

Test(logdir, a_file_is_never_written_over_nor_through_a_link)
{
    char file[300], link[300];
    snprintf(file, sizeof(file), "%s/file", log_dir);
    snprintf(link, sizeof(link), "%s/link", log_dir);
    cr_assert_eq(symlink("file", link), 0);
    cr_expect_lt(logdir_create(link, LOGDIR_OUTPUT, &err), 0, "the link was followed");
    const int fd = logdir_create(file, LOGDIR_PRIVATE, &err);
    cr_assert_geq(fd, 0, "%s", err.msg);
    close(fd);
    cr_expect_lt(logdir_create(file, LOGDIR_PRIVATE, &err), 0, "it was there");
}

Test(logdir, without_a_descriptor_the_limit_is_named)
{
    char file[300], value[48];
    snprintf(file, sizeof(file), "%s/file", log_dir);
    const int next = forbid_descriptors();
    const int fd = logdir_create(file, LOGDIR_PRIVATE, &err);
    lift_limit();
    cr_expect_lt(fd, 0);
    snprintf(value, sizeof(value), " of %d open", next);
    cr_expect_not_null(strstr(err.msg, value), "%s", err.msg);
    cr_expect_null(strstr(err.msg, "--log_file"), "%s", err.msg);
}

/* A separate thread writes lines into a file, whole and in order. The caller never waits, even if the file accepts no
 * bytes. */

TestSuite(line_file, .timeout = 120);

static struct line_file *open_at(const char *dir, const char *name)
{
    char path[256];
    int error = 0;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    struct line_file *f = line_file_open(path, &error);
    cr_assert_not_null(f, "%s: %s", path, strerror(error));
    return f;
}

Test(line_file, holds_what_was_put_in_order_behind_what_was_there)
{
    char *dir = job_dir();
    for (int run = 0; run < 2; run++) {
        struct line_file *f = open_at(dir, "log");
        line_file_append(f, slice_str("one\n"));
        line_file_append(f, slice_str("two\nthree\n"));
        cr_expect_eq(line_file_close(f, 10000).lost, 0);
    }
    char *text = job_file(dir, "log");
    cr_expect_str_eq(text, "one\ntwo\nthree\none\ntwo\nthree\n");
    free(text);
    job_dir_remove(dir);
}

Test(line_file, a_full_disk_costs_lines_and_keeps_the_first_error)
{
    int error = 0;
    struct line_file *f = line_file_open("/dev/full", &error);
    cr_assert_not_null(f);
    line_file_append(f, slice_str("one\n"));
    line_file_append(f, slice_str("two\n"));
    const struct line_file_state state = line_file_close(f, 10000);
    cr_expect_eq(state.error, ENOSPC);
    cr_expect_eq(state.lost, 2);
    cr_expect_eq(strncmp(state.why, strerror(ENOSPC), strlen(strerror(ENOSPC))), 0, "%s", state.why);
    cr_expect_not_null(strstr(state.why, "; "), "a remedy: %s", state.why);
    cr_expect_null(strchr(state.why, '('), "a device has no values: %s", state.why);
}

Test(line_file, says_why_it_cannot_be_opened)
{
    int error = 0;
    cr_expect_null(line_file_open("/nowhere/at/all", &error));
    cr_expect_eq(error, ENOENT);
    cr_expect_null(line_file_open("/", &error));
    cr_expect_eq(error, EISDIR);
    line_file_close(NULL, 0);
}

Test(line_file, does_not_wait_for_the_reader_of_a_pipe)
{
    char *dir = job_dir(), path[256];
    int error = 0;
    snprintf(path, sizeof(path), "%s/pipe", dir);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_null(line_file_open(path, &error));
    cr_expect_eq(error, ENXIO);
    job_dir_remove(dir);
}

/* A file whose thread hangs. The thread owns this file until the process ends. Without this pointer, the leak checker
 * would report the file. */
struct line_file *left_to_its_thread;

/* If a reader never reads, lines are lost, but no call waits for the reader. The queue holds what fits, the lost bytes
 * are counted, and line_file_close() returns. */
Test(line_file, a_reader_that_reads_nothing_holds_nobody_up)
{
    static char line[65536];
    char *dir = job_dir(), path[256];
    int error = 0;
    snprintf(path, sizeof(path), "%s/pipe", dir);
    cr_assert_eq(mkfifo(path, 0600), 0);
    const int reader = open(path, O_RDONLY | O_NONBLOCK);
    struct line_file *f = line_file_open(path, &error);
    cr_assert_not_null(f);
    memset(line, 'x', sizeof(line));
    line[sizeof(line) - 1] = '\n';
    for (int i = 0; i < 200; i++)
        line_file_append(f, slice_of(line, sizeof(line)));
    cr_expect_eq(line_file_state(f).error, ENOBUFS);
    cr_expect_gt(line_file_close(f, 50).lost, 0);
    left_to_its_thread = f;
    close(reader);
    job_dir_remove(dir);
}
