/* test_log_file.c -- log files on disk: never over another, parts of a rotated one add up to what was written. */
#include "output/log_files.h"

#include "job.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char *dir;
static char path[300];

static void set_up(void)
{
    dir = job_dir();
    snprintf(path, sizeof(path), "%s/a/b/out.log", dir);
}

static void tear_down(void)
{
    job_dir_remove(dir);
}

TestSuite(log_file, .init = set_up, .fini = tear_down, .timeout = 120);

static struct writer_target open_log(uint64_t bytes, int keep)
{
    struct ddp_err err;
    struct log_file *f = log_file_create(path, (struct log_rotate){ .bytes = bytes, .keep = keep }, &err);
    cr_assert_not_null(f, "%s", err.msg);
    return log_file_target(f);
}

static void put(struct writer_target t, const char *text)
{
    int error;
    cr_assert_eq(t.write(t.user, (const uint8_t *)text, strlen(text), &error), strlen(text));
    cr_assert_eq(error, 0);
}

/* All parts in order; their number comes back. */
static int all_parts(struct buf *to)
{
    char name[64];
    int n = 1;
    for (;; n++) {
        snprintf(name, sizeof(name), "a/b/out.log.%d", n);
        char *part = job_file(dir, name);
        if (part == NULL)
            break;
        buf_append(to, part, strlen(part));
        free(part);
    }
    char *last = job_file(dir, "a/b/out.log");
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
    cr_assert_null(log_file_create(path, (struct log_rotate){ 0 }, &err));
    cr_expect_not_null(strstr(err.msg, path), "%s", err.msg);
    cr_expect_not_null(strstr(err.msg, "--log_file"), "it names the remedy: %s", err.msg);
    char *text = job_file(dir, "a/b/out.log");
    cr_expect_str_eq(text, "first\n");
    free(text);
}

Test(log_file, what_others_have_planted_is_refused)
{
    struct ddp_err err;
    char away[300];
    snprintf(away, sizeof(away), "%s/away", dir);
    snprintf(path, sizeof(path), "%s/link", dir);
    cr_assert_eq(symlink(away, path), 0);
    cr_expect_null(log_file_create(path, (struct log_rotate){ 0 }, &err));
    cr_expect_neq(access(away, F_OK), 0, "nothing was made at the other end of the link");
    snprintf(path, sizeof(path), "%s/fifo", dir);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_null(log_file_create(path, (struct log_rotate){ 0 }, &err));
}

/* Lines of all lengths, put in pieces of all sizes. */
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
    char *part = job_file(dir, "a/b/out.log.3");
    cr_expect_leq(strlen(part), 1000);
    cr_expect_eq(part[strlen(part) - 1], '\n', "a part ends behind a line");
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
    char *gone = job_file(dir, "a/b/out.log.3"), *kept = job_file(dir, "a/b/out.log.4");
    cr_expect_null(gone);
    cr_expect_not_null(kept);
    free(kept);
}

/* Somebody's file is in the way of the next part: that number is left out, and the file is as it was. */
Test(log_file, a_part_never_takes_the_name_of_another_file)
{
    struct writer_target t = open_log(1024, 0);
    char other[320], line[1025];
    snprintf(other, sizeof(other), "%s.1", path);
    FILE *f = fopen(other, "w");
    fputs("mine\n", f);
    fclose(f);
    memset(line, 'x', 1023);
    strcpy(line + 1023, "\n");
    put(t, line);
    put(t, "next\n");
    t.close(t.user);
    char *theirs = job_file(dir, "a/b/out.log.1"), *ours = job_file(dir, "a/b/out.log.2");
    cr_expect_str_eq(theirs, "mine\n");
    cr_expect_str_eq(ours, line);
    free(theirs);
    free(ours);
}

Test(log_file, a_deleted_directory_is_made_again)
{
    struct ddp_err err;
    char gone[310];
    struct log_file *f = log_file_create(path, (struct log_rotate){ 0 }, &err);
    struct writer_target t = log_file_target(f);
    snprintf(gone, sizeof(gone), "%s/a/b", dir);
    unlink(path);
    rmdir(gone);
    put(t, "still there\n");
    cr_expect_eq(log_file_news(f), LOG_MADE_AGAIN);
    cr_expect_eq(log_file_news(f), LOG_NO_NEWS, "it is told once");
    t.close(t.user);
    char *text = job_file(dir, "a/b/out.log");
    cr_expect_str_eq(text, "still there\n");
    free(text);
}

/* ulimit -f */
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
