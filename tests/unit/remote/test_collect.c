/* Tests of a host's log files: which names the starter accepts, and which entries a relay sends. The names come from
 * another host, so no name may lead out of the directory. */
#include "remote/collect.c"
#include "run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Test(collect, names_lead_below_the_folder)
{
    static const char *const good[] = { "a", "attempt_0/0/stdout.log", ".a", "a..b", "..a/b c" };
    static const char *const bad[] = { "",  "/a",  "..",   "../a", "a/../b", "a/..",
                                       ".", "./a", "a//b", "a/",   "a\nb",   "a\033b" };
    char deep[64] = "a";
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        cr_expect(collect_name_is_safe(slice_str(good[i])), "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_expect_not(collect_name_is_safe(slice_str(bad[i])), "%s", bad[i]);
    cr_expect_not(collect_name_is_safe(slice_of("a\0b", 3)));
    for (int i = 0; i < 17; i++)
        strcat(deep, "/a");
    cr_expect_not(collect_name_is_safe(slice_str(deep)));
}

Test(collect, folders_of_hosts_differ_and_are_plain_names)
{
    char a[COLLECT_FOLDER_MAX], b[COLLECT_FOLDER_MAX];
    collect_folder(0, &(struct host_spec){ .name = "ann@../x" }, a);
    collect_folder(10, &(struct host_spec){ .name = "n0" }, b);
    cr_expect_str_eq(a, "node0_.._x");
    cr_expect_str_eq(b, "node10_n0");
}

/* --- the starter -------------------------------------------------------------------------------------------------- */

static char dir[] = "/tmp/ddp-collect-XXXXXX";

/* Receive one message for each text: "f" and a file's name, "d" and data, or "e" for the end. Return c->why. */
static const char *receive(struct collected *c, const char *const texts[])
{
    struct buf wire = { 0 };
    for (; *texts != NULL; texts++) {
        const enum remote_message kind = **texts == 'f'   ? REMOTE_FILE
                                         : **texts == 'd' ? REMOTE_DATA
                                         : **texts == 'e' ? REMOTE_FILES_END
                                                          : REMOTE_JOB;
        cr_assert(remote_encode(&wire, kind, slice_str(*texts + 1)));
    }
    for (size_t i = 0; i < wire.len; i++) /* feed byte by byte */
        collect_store(c, slice_of(wire.data + i, 1));
    buf_free(&wire);
    return c->why;
}

static const char *received(const char *const texts[])
{
    static char why[1280];
    struct collected c = { .dir = strdup(dir) };
    snprintf(why, sizeof(why), "%s", receive(&c, texts));
    collect_close(&c);
    return why;
}
#define RECEIVED(...) received((const char *const[]){ __VA_ARGS__, NULL })

static void expect_file(const char *name, const char *text)
{
    char path[300], bytes[64] = "";
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s is missing", name);
    bytes[fread(bytes, 1, sizeof(bytes) - 1, file)] = '\0';
    fclose(file);
    cr_expect_str_eq(bytes, text, "%s", name);
}

Test(collect, bytes_that_a_host_must_not_send_end_its_transfer)
{
    temp_dir_make(dir);
    cr_expect_str_eq(RECEIVED("f3 a/b", "dab", "dc", "f0 empty", "e"), "");
    cr_expect_not_null(strstr(RECEIVED("f3 ../b"), "invalid name"));
    cr_expect_not_null(strstr(RECEIVED("f3 /b"), "invalid name"));
    cr_expect_not_null(strstr(RECEIVED("fx b"), "invalid name"));
    cr_expect_not_null(strstr(RECEIVED("f-1 c"), "64 GiB"));
    cr_expect_not_null(strstr(RECEIVED("f99999999999999 c"), "64 GiB"));
    cr_expect_not_null(strstr(RECEIVED("f3 a/b"), "exists already"));
    cr_expect_not_null(strstr(RECEIVED("f1 a/b/c"), "Not a directory"));
    cr_expect_not_null(strstr(RECEIVED("f1 d", "dxy"), "more bytes"));
    cr_expect_not_null(strstr(RECEIVED("dxy"), "more bytes"));
    cr_expect_not_null(strstr(RECEIVED("f2 e", "dx", "e"), "shorter"));
    cr_expect_not_null(
        strstr(RECEIVED("f2 g", "dx", "f1 h", "dy", "f2 i", "dzz", "e1 entry"), "g: the file"));
    expect_file("h", "y");
    expect_file("i", "zz");
    cr_expect_not_null(strstr(RECEIVED("j{}"), "a message"));
    cr_expect_str_eq(RECEIVED("e2 entries\033"), "left out: 2 entries?");
    temp_dir_remove(dir);
}

/* A link in the folder leads to a directory that a host must not change. */
Test(collect, a_file_is_never_created_through_a_link)
{
    char path[300];
    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/link", dir);
    cr_assert_eq(symlink("target", path), 0);
    cr_expect_not_null(strstr(RECEIVED("f1 link", "dx"), "exists already"));
    snprintf(path, sizeof(path), "%s/target", dir);
    cr_expect_neq(access(path, F_OK), 0);
    temp_dir_remove(dir);
}

/* --- the relay ---------------------------------------------------------------------------------------------------- */

Test(collect, plain_files_are_sent_and_links_and_pipes_are_not)
{
    char command[800], path[300];
    struct collected c = { 0 };
    int ends[2];
    uint8_t bytes[4096];
    temp_dir_make(dir);
    snprintf(command, sizeof(command),
             "cd %s && mkdir -p from/x/y && echo one >from/one && echo two >from/x/y/two && ln -s "
             "/etc/passwd from/link && "
             "ln -s / from/x/root && mkfifo from/pipe",
             dir);
    cr_assert_eq(system(command), 0);
    snprintf(path, sizeof(path), "%s/from", dir);
    cr_assert_eq(pipe(ends), 0);
    cr_expect(collect_send(path, ends[1]));
    close(ends[1]);
    snprintf(path, sizeof(path), "%s/to", dir);
    c.dir = strdup(path);
    for (ssize_t n; (n = read(ends[0], bytes, sizeof(bytes))) > 0;)
        collect_store(&c, slice_of(bytes, (size_t)n));
    close(ends[0]);
    cr_expect(c.ended);
    cr_expect_eq(c.total_files, 2);
    cr_expect_eq(c.total_bytes, 8);
    cr_expect_eq(strncmp(c.why, "left out: 3 entries ", 20), 0, "%s", c.why);
    collect_close(&c);
    snprintf(command, sizeof(command),
             "cd %s && [ \"$(cd to && find . -type f | sort | xargs cat)\" = \"$(printf 'one\\ntwo')\" ] && "
             "[ \"$(find to | wc -l)\" = 5 ]",
             dir);
    cr_expect_eq(system(command), 0);
    temp_dir_remove(dir);
}

/* A directory that cannot be read is reported. A missing directory is not reported, because the job has not started on
 * that host. */
Test(collect, an_unreadable_directory_is_reported)
{
    static const struct {
        const char *name;
        bool is_reported;
    } rows[] = { { "file", true }, { "missing", false } };
    char path[300];
    temp_dir_make(dir);
    snprintf(path, sizeof(path), "%s/file", dir);
    FILE *f = fopen(path, "w");
    cr_assert(f != NULL && fclose(f) == 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct collected c = { .dir = strdup(dir) };
        int ends[2];
        uint8_t bytes[4096];
        cr_assert_eq(pipe(ends), 0);
        snprintf(path, sizeof(path), "%s/%s", dir, rows[i].name);
        cr_expect(collect_send(path, ends[1]));
        close(ends[1]);
        for (ssize_t n; (n = read(ends[0], bytes, sizeof(bytes))) > 0;)
            collect_store(&c, slice_of(bytes, (size_t)n));
        close(ends[0]);
        cr_expect(c.ended);
        cr_expect_eq(c.why[0] != '\0', rows[i].is_reported, "%s: %s", rows[i].name, c.why);
        collect_close(&c);
    }
    temp_dir_remove(dir);
}
