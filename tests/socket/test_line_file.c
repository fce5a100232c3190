/* Lines into a file by a thread of their own: whole, in order, and what happens when the file takes none. */
#include "base/log.h"
#include "job.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
        line_file_put(f, slice_str("one\n"));
        line_file_put(f, slice_str("two\nthree\n"));
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
    line_file_put(f, slice_str("one\n"));
    line_file_put(f, slice_str("two\n"));
    const struct line_file_state state = line_file_close(f, 10000);
    cr_expect_eq(state.error, ENOSPC);
    cr_expect_eq(state.lost, 2);
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

/* Who reads nothing costs lines, not time: all that fits is queued, the rest is counted, and the end does not hang. */
/* A file whose thread hangs is that thread's, and ends with the process. What can be reached from here is no leak. */
struct line_file *left_to_its_thread;

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
        line_file_put(f, slice_of(line, sizeof(line)));
    cr_expect_eq(line_file_state(f).error, ENOBUFS);
    cr_expect_gt(line_file_close(f, 50).lost, 0);
    left_to_its_thread = f;
    close(reader);
    job_dir_remove(dir);
}
