/* The record of a running job is written and read again. All other texts are rejected. ddprun kills the processes
 * that such a record names, so a damaged record must never be accepted. */
#include "contain/job_record.c"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COOKIE "6ab2745628734b15bf11998535d9b413"

static const struct record full = { .boot = "0f1c8a6e-6a51-4c0b-9d53-1f6f4f4f2b55",
                                    .pid_namespace = 4026531836,
                                    .guardian = { 812, 4711 },
                                    .agent = { 813, 18446744073709551 },
                                    .cookie = COOKIE,
                                    .job = "lr 3e-4",
                                    .cgroup = "/sys/fs/cgroup/a b/ddprun-lr_3e-4-6ab27456" };

/* Return the text of `r`. The caller frees the text. */
static char *text_of(const struct record *r)
{
    struct buf out = { 0 };
    cr_assert(record_print(&out, r));
    cr_assert(buf_append(&out, "", 1));
    return (char *)out.data;
}

static void comes_back(const struct record *r)
{
    struct record back;
    char *text = text_of(r);
    cr_assert(record_parse(text, &back), "%s", text);
    cr_expect_str_eq(back.boot, r->boot);
    cr_expect_eq(back.pid_namespace, r->pid_namespace);
    cr_expect_eq(back.guardian.pid, r->guardian.pid);
    cr_expect_eq(back.guardian.start_ticks, r->guardian.start_ticks);
    cr_expect_eq(back.agent.pid, r->agent.pid);
    cr_expect_eq(back.agent.start_ticks, r->agent.start_ticks);
    cr_expect_str_eq(back.cookie, r->cookie);
    cr_expect_str_eq(back.job, r->job);
    cr_expect_str_eq(back.cgroup, r->cgroup);
    cr_expect_str_eq(back.store, "");
    free(text);
}

/* Expect that the text of `full` is rejected after `from` in it was replaced by `to`. */
static void refused(const char *from, const char *to)
{
    struct record back;
    char *text = text_of(&full), changed[2 * RECORD_MAX];
    char *at = strstr(text, from);
    cr_assert_not_null(at, "%s", from);
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    cr_expect_not(record_parse(changed, &back), "taken: %s", changed);
    free(text);
}

Test(record_text, what_is_written_is_read)
{
    struct record plain = full;
    comes_back(&full);
    plain.cgroup[0] = '\0';
    comes_back(&plain);
}

Test(record_text, a_line_too_many_or_too_few)
{
    refused("ddprun-record 1", "ddprun-record 2");
    refused("ddprun-record 1\n", "");
    refused("agent 813 18446744073709551\n", "");
    refused("job lr 3e-4\n", "job lr 3e-4\nmore 1\n");
    refused("job lr 3e-4\n", "job lr 3e-4");
    refused("job lr 3e-4\n", "store [fd00::2]:29500\n");
    refused("job lr 3e-4\n", "job lr 3e-4\nstore [fd00::2]:29500\nmore 1\n");
    refused("job lr 3e-4\n", "job lr 3e-4\nstores [fd00::2]:29500\n");
    refused("boot ", "boot");
}

Test(record_text, numbers_that_are_none)
{
    refused("guardian 812 4711", "guardian -1 4711");
    refused("guardian 812 4711", "guardian 0 4711");
    refused("guardian 812 4711", "guardian 812");
    refused("guardian 812 4711", "guardian 812 4711 1");
    refused("guardian 812 4711", "guardian 812 +4711");
    refused("guardian 812 4711", "guardian 99999999999 4711");
    refused("guardian 812 4711", "guardian 812 99999999999999999999999");
    refused("pid_namespace 4026531836", "pid_namespace 0x10");
}

/* Every process that has the cookie of the job in its environment is killed. A short cookie could occur in the
 * environment of any process, so only cookies of the full length are accepted. */
Test(record_text, a_cookie_that_is_none)
{
    refused("cookie " COOKIE, "cookie ");
    refused("cookie " COOKIE, "cookie 6ab27456");
    refused("cookie " COOKIE, "cookie 6AB2745628734B15BF11998535D9B413");
    refused("cookie " COOKIE, "cookie " COOKIE "00");
}

/* All processes in the group are killed, so the group must be one that ddprun has made for this job. */
Test(record_text, a_group_that_is_not_this_jobs)
{
    refused("/sys/fs/cgroup/a b/ddprun-lr_3e-4-6ab27456", "/");
    refused("/sys/fs/cgroup/a b/ddprun-lr_3e-4-6ab27456", "/sys/fs/cgroup");
    refused("/sys/fs/cgroup/a b/ddprun-lr_3e-4-6ab27456", "/sys/fs/cgroup/ddprun-x-00000000");
    refused("/sys/fs/cgroup/a b/ddprun-lr_3e-4-6ab27456", "ddprun-x-6ab27456");
    refused("/sys/fs/cgroup/a b/ddprun-lr_3e-4-6ab27456", "/sys/../ddprun-x-6ab27456");
    refused("/sys/fs/cgroup/a b/ddprun-lr_3e-4-6ab27456", "/x-6ab27456");
}

Test(record_text, a_text_that_is_cut_anywhere)
{
    struct record back;
    char *text = text_of(&full);
    for (size_t i = 0; i < strlen(text); i++) {
        char *cut = strndup(text, i);
        cr_expect_not(record_parse(cut, &back), "taken: %s", cut);
        free(cut);
    }
    free(text);
}

/* The agent appends the line of the store while other processes may read the record. So a reader may see no line or
 * half a line. */
Test(record_text, the_last_whole_line_of_the_store_counts)
{
    static const char line[] = "store [fd00::2]:29500\n", next[] = "store 127.0.0.1:29501\n";
    struct record back;
    char *text = text_of(&full), longer[RECORD_MAX];
    for (size_t i = 0; i < strlen(line); i++) {
        snprintf(longer, sizeof(longer), "%s%.*s", text, (int)i, line);
        cr_assert(record_parse(longer, &back), "%s", longer);
        cr_expect_str_eq(back.store, "", "%s", longer);
    }
    for (size_t i = 0; i <= strlen(next); i++) {
        snprintf(longer, sizeof(longer), "%s%s%.*s", text, line, (int)i, next);
        cr_assert(record_parse(longer, &back), "%s", longer);
        cr_expect_str_eq(back.store, i == strlen(next) ? "127.0.0.1:29501" : "[fd00::2]:29500", "%s", longer);
    }
    free(text);
}

Test(record_text, values_without_end)
{
    static char text[3 * RECORD_MAX];
    struct record back;
    memset(text, 'x', sizeof(text) - 1);
    cr_expect_not(record_parse(text, &back));
    memcpy(text, "ddprun-record 1\nboot ", 21);
    cr_expect_not(record_parse(text, &back));
    text[sizeof(text) - 2] = '\n';
    cr_expect_not(record_parse(text, &back));
}

/* A newline in a value would split the line of this value. */
Test(record_text, newlines_are_not_written)
{
    struct buf out = { 0 };
    struct record odd = full;
    strcpy(odd.cgroup, "/a\nb/ddprun-x-6ab27456");
    cr_expect_not(record_print(&out, &odd));
    buf_free(&out);
}

/* The pid INT_MAX is above the kernel's limit, so /proc has no such process. */
Test(record_text, a_failure_names_the_reason)
{
    struct ddp_err err;
    cr_assert_eq(record_write("j", COOKIE, "", INT_MAX, getpid(), &err), DDP_ERR_IO);
    cr_expect_not_null(strstr(err.msg, strerror(ENOENT)), "%s", err.msg);
    cr_assert_eq(record_write("j\nk", COOKIE, "", getpid(), getpid(), &err), DDP_ERR_IO);
    cr_expect_not_null(strstr(err.msg, "newline"), "%s", err.msg);
}

Test(record_text, an_unsafe_directory_is_a_lack_of_permission)
{
    char dir[] = "/tmp/ddprun-record-XXXXXX", out[PATH_MAX], why[SAFE_DIR_WHY_MAX];
    cr_assert_not_null(mkdtemp(dir));
    cr_assert_eq(chmod(dir, 0777), 0);
    errno = 0;
    cr_expect_not(safe_dir(dir, out, why));
    cr_expect_eq(errno, EACCES, "%s", strerror(errno));
    rmdir(dir);
}

/* A guardian that is killed while it writes the record leaves a draft. */
Test(record_text, all_files_of_the_job_are_removed_and_no_others)
{
    static const char *const files[] = { "." COOKIE, "6ab27456.attempt_0_rank_0.json", "6ab2745", "x" };
    char dir[] = "/tmp/ddprun-record-XXXXXX", path[PATH_MAX];
    struct ddp_err err;
    struct record r;
    cr_assert_not_null(mkdtemp(dir));
    cr_assert_eq(setenv("XDG_RUNTIME_DIR", dir, 1), 0);
    cr_assert_eq(record_write("j", COOKIE, "", getpid(), getpid(), &err), DDP_OK, "%s", err.msg);
    cr_expect(record_name_store(COOKIE, "127.0.0.1:29500"));
    cr_expect_not(record_name_store(COOKIE, "127.0.0.1\n:29500"));
    const int fd = runtime_dir_make(path);
    cr_assert_geq(fd, 0);
    cr_assert(read_record(fd, COOKIE, &r));
    cr_expect_str_eq(r.store, "127.0.0.1:29500");
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        close(openat(fd, files[i], O_WRONLY | O_CREAT, 0600));
    record_remove(COOKIE);
    cr_expect_neq(faccessat(fd, COOKIE, F_OK, 0), 0);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        cr_expect_eq(faccessat(fd, files[i], F_OK, 0) == 0, i >= 2, "%s", files[i]);
    cr_expect_eq(unlinkat(fd, "6ab2745", 0) + unlinkat(fd, "x", 0), 0);
    close(fd);
    cr_expect_eq(rmdir(path) + rmdir(dir), 0);
}
