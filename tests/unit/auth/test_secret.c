/* Tests of a secret's file: its owner, its permissions and its content. Other tests seal and unseal a secret with
 * MUNGE. */
#include "auth/secret.h"
#include "run.h"
#include "store_peers.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char digits[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eFF";

static char dir[64];

static void begin(void)
{
    snprintf(dir, sizeof(dir), "/tmp/test_secret.XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    cr_assert_eq(chdir(dir), 0);
    umask(0);
}

static void end(void)
{
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(secret, .init = begin, .fini = end);

static void make_file(const char *name, const char *text, size_t n, mode_t mode)
{
    const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, mode);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, n), (ssize_t)n);
    close(fd);
}

static void expect_rejected(const char *name, const char *words)
{
    struct secret *secret;
    struct ddp_err err = { 0 };
    cr_assert_eq(secret_read(name, &secret, &err), DDP_ERR_ARG, "%s", name);
    cr_assert_null(secret);
    cr_assert_not_null(strstr(err.msg, words), "%s: %s", words, err.msg);
    cr_assert_null(strstr(err.msg, "0001020304"), "the error shows the secret: %s", err.msg);
}

Test(secret, a_written_file_is_read_again)
{
    struct secret *one, *two;
    struct ddp_err err = { 0 };
    struct stat st;
    char first[SECRET_TEXT], second[SECRET_TEXT];
    cr_assert_eq(secret_write("a", &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(stat("a", &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0600);
    cr_assert_eq(st.st_size, SECRET_TEXT);
    cr_assert_eq(secret_write("b", &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(secret_read("a", &one, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(secret_read("b", &two, &err), DDP_OK, "%s", err.msg);
    secret_format(one, first);
    secret_format(two, second);
    cr_assert_str_neq(first, second);
    secret_free(one);
    secret_free(two);
}

Test(secret, an_existing_file_is_never_replaced)
{
    struct ddp_err err = { 0 };
    make_file("a", "mine", 4, 0600);
    cr_assert_eq(secret_write("a", &err), DDP_ERR_IO);
    cr_assert_eq(symlink("nowhere", "b"), 0);
    cr_assert_eq(secret_write("b", &err), DDP_ERR_IO);
}

Test(secret, digits_are_bytes_in_order)
{
    struct secret *secret;
    struct ddp_err err = { 0 };
    char text[SECRET_TEXT];
    for (size_t n = 64; n <= 65; n++) { /* without and with a newline at the end */
        char line[66];
        snprintf(line, sizeof(line), "%s\n", digits);
        make_file("a", line, n, 0400);
        cr_assert_eq(secret_read("a", &secret, &err), DDP_OK, "%s", err.msg);
        for (int i = 0; i < 31; i++)
            cr_assert_eq(secret->key[i], i);
        cr_assert_eq(secret->key[31], 0xff);
        secret_format(secret, text);
        cr_assert_eq(strcasecmp(text, digits), 0);
        secret_free(secret);
        unlink("a");
    }
}

Test(secret, no_other_content_is_accepted)
{
    static const struct {
        const char *before;
        int digits;
        const char *after;
    } wrong[] = { { "", 63, "g" },    { "", 63, "" },  { "", 64, "0" },  { "", 64, "\n\n" },
                  { "", 64, "\r\n" }, { " ", 64, "" }, { "0x", 62, "" }, { "", 63, "\n" } };
    char line[80];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(line, sizeof(line), "%s%.*s%s", wrong[i].before, wrong[i].digits, digits, wrong[i].after);
        make_file("a", line, strlen(line), 0600);
        expect_rejected("a", "64 hexadecimal digits");
    }
    make_file("a", "", 0, 0600);
    expect_rejected("a", "64 hexadecimal digits");
    make_file("a", "a pass phrase", 13, 0600);
    expect_rejected("a", "64 hexadecimal digits");
    snprintf(line, sizeof(line), "%s\n", digits);
    line[10] = '\0';
    make_file("a", line, 65, 0600);
    expect_rejected("a", "64 hexadecimal digits");
}

Test(secret, no_other_user_may_read_or_write_it)
{
    static const mode_t modes[] = { 0640, 0604, 0620, 0602, 0644, 0666, 0610, 0601 };
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        unlink("a");
        make_file("a", digits, 64, modes[i]);
        expect_rejected("a", "chmod 600 a");
    }
}

Test(secret, belongs_to_this_user_or_root)
{
    struct secret *secret;
    struct ddp_err err = { 0 };
    if (geteuid() != 0)
        cr_skip_test("skipped, because only root can give a file to another user");
    make_file("theirs", digits, 64, 0600);
    cr_assert_eq(chown("theirs", 4321, 0), 0);
    make_file("roots", digits, 64, 0440);
    cr_assert_eq(chown("roots", 0, 4322), 0);
    cr_assert_eq(chmod(dir, 0777), 0);
    expect_rejected("theirs", "uid 4321");
    expect_rejected("roots", "chmod 600");
    /* In Kubernetes, the secret is a file of root that the group of the pod can read. Two symlinks lead to this
     * file. */
    cr_assert_eq(symlink("roots", "..data"), 0);
    cr_assert_eq(symlink("..data", "key"), 0);
    cr_assert_eq(setegid(4322), 0);
    cr_assert_eq(seteuid(4323), 0);
    cr_assert_eq(secret_read("key", &secret, &err), DDP_OK, "%s", err.msg);
    secret_free(secret);
    cr_assert_eq(seteuid(0), 0);
}

Test(secret, is_a_file)
{
    struct secret *secret;
    struct ddp_err err = { 0 };
    cr_assert_eq(mkfifo("fifo", 0600), 0);
    expect_rejected("fifo", "regular file");
    expect_rejected("/dev/null", "regular file");
    expect_rejected("missing", "No such file");
    cr_assert_eq(secret_read(".", &secret, &err), DDP_ERR_ARG);
}

/* --- tenants ------------------------------------------------------------------------------------------------ */

Test(secret, each_line_is_a_tenant)
{
    struct secret *list;
    struct ddp_err err = { 0 };
    char text[512];
    snprintf(text, sizeof(text), "# of this cluster\n\nteam-a %s\r\n  %.62s11\nteam-ab\t\t%.62s22", digits,
             digits, digits);
    make_file("a", text, strlen(text), 0600);
    cr_assert_eq(secret_read_tenants("a", &list, &err), DDP_OK, "%s", err.msg);
    cr_assert_str_eq(list->jobs, "team-a");
    cr_assert_eq(list->key[31], 0xff);
    cr_assert_str_eq(list->next->jobs, "");
    cr_assert_eq(list->next->key[30], 30);
    cr_assert_str_eq(list->next->next->jobs, "team-ab");
    cr_assert_eq(list->next->next->key[31], 0x22);
    cr_assert_null(list->next->next->next);
    secret_free(list);
    cr_assert_eq(secret_write("b", &err), DDP_OK);
    cr_assert_eq(secret_read_tenants("b", &list, &err), DDP_OK, "%s", err.msg);
    cr_assert(list->jobs[0] == '\0' && list->next == NULL);
    secret_free(list);
}

static void expect_bad_tenants(const char *name, const char *words)
{
    struct secret *list;
    struct ddp_err err = { 0 };
    cr_assert_eq(secret_read_tenants(name, &list, &err), DDP_ERR_ARG, "%s", words);
    cr_assert_null(list);
    cr_assert_not_null(strstr(err.msg, words), "%s: %s", words, err.msg);
    cr_assert_null(strstr(err.msg, "0001020304"), "the error shows the secret: %s", err.msg);
}

Test(secret, a_wrong_line_of_a_tenant_is_named)
{
    static const struct {
        const char *before;
        int digits;
        const char *after, *words;
    } wrong[] = {
        { "\nteam-a ", 63, "", "a: line 2: expected" },
        { "team a ", 64, "", "line 1: expected" },
        { "team-a", 64, "", "line 1: expected" },
        { "team-a pass phrase ", 10, "", "line 1: expected" },
        { "team-a ", 63, "g", "line 1: expected" },
        { "# only comments\n#", 64, "\n", "no line has a secret" },
    };
    char line[600];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(line, sizeof(line), "%s%.*s%s", wrong[i].before, wrong[i].digits, digits, wrong[i].after);
        make_file("a", line, strlen(line), 0600);
        expect_bad_tenants("a", wrong[i].words);
    }
    snprintf(line, sizeof(line), "x %s\nx %s\n", digits, digits);
    make_file("a", line, strlen(line), 0600);
    expect_bad_tenants("a", "line 2: two lines have a secret for job ids that begin with 'x'");
    snprintf(line, sizeof(line), "x %s\ny %.62s11\nz %s\n", digits, digits, digits);
    make_file("a", line, strlen(line), 0600);
    expect_bad_tenants("a", "line 3: the job-id prefixes 'x' and 'z' have");
    snprintf(line, sizeof(line), "%256s %s\n", "x", digits);
    memset(line, 'x', 256);
    make_file("a", line, strlen(line), 0600);
    expect_bad_tenants("a", "line 1: expected");
    make_file("a", "", 0, 0600);
    expect_bad_tenants("a", "no line has a secret");
    expect_bad_tenants("missing", "No such file");
    expect_bad_tenants("-", "not stdin");
    unlink("a");
    make_file("a", digits, 64, 0644);
    expect_bad_tenants("a", "chmod 600 a");
}

Test(secret, a_file_of_tenants_has_a_largest_size)
{
    enum { BYTES = 1024 * (LIMIT_TEXT + SECRET_TEXT) };
    static char text[BYTES];
    memset(text, '#', sizeof(text));
    make_file("a", text, sizeof(text), 0600);
    expect_bad_tenants("a", "larger than ");
}

Test(secret, stdin_keeps_the_bytes_after_the_line)
{
    struct secret *secret;
    struct ddp_err err = { 0 };
    int ends[2];
    char rest[8] = "";
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(dprintf(ends[1], "%s\nrest", digits), 69);
    cr_assert_eq(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    cr_assert_eq(secret_read("-", &secret, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(secret->key[1], 1);
    secret_free(secret);
    cr_assert_eq(read(STDIN_FILENO, rest, sizeof(rest)), 4);
    cr_assert_str_eq(rest, "rest");
    cr_assert_eq(dprintf(ends[1], "short\nrest"), 10);
    expect_rejected("-", "64 hexadecimal digits");
    close(ends[1]);
}

/* --- MUNGE ---------------------------------------------------------------------------------------------------- */

/* Load tests/fake/fake_munge.c, which fails as `what` says. */
static void begin_munge(const char *what)
{
    setenv("DDP_MUNGE_LIBRARY", bin("tests/fake/libfake_gpu.so"), 1);
    setenv("FAKE_MUNGE", what, 1);
}

static ddp_status unseal(const char *credential, struct secret **out, struct ddp_err *err)
{
    struct secret_call *call = secret_unseal_begin(credential, strlen(credential));
    cr_assert_not_null(call);
    for (struct patience p = { 0 }; !secret_call_is_over(call) && patience_left(&p);)
        continue;
    return secret_unseal_end(call, out, err);
}

static void seal_one(char credential[static SECRET_CREDENTIAL_MAX], struct secret **secret)
{
    struct ddp_err err = { 0 };
    begin_munge("");
    cr_assert_eq(secret_make(secret, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(peer_seal(*secret, credential, &err), DDP_OK, "%s", err.msg);
}

Test(secret, a_sealed_secret_is_the_same_on_another_node)
{
    static const char *const harmless[] = { "", "replayed" };
    char credential[SECRET_CREDENTIAL_MAX];
    struct secret *secret, *there;
    struct ddp_err err = { 0 };
    seal_one(credential, &secret);
    for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++) {
        begin_munge(harmless[i]);
        cr_assert_eq(unseal(credential, &there, &err), DDP_OK, "%s", err.msg);
        cr_assert_arr_eq(there->key, secret->key, SECRET_BYTES);
        secret_free(there);
    }
    secret_free(secret);
}

Test(secret, what_munge_lacks_is_named_on_both_sides)
{
    static const struct {
        const char *what, *seals, *unseals;
    } cases[] = { { "down", "MUNGE: Failed to access", "MUNGE: Failed to access" },
                  { "namespace", "munged reports a user id other than", "is for another user" },
                  { "foreign", "MUNGE: the credential belongs to user id",
                    "MUNGE: the credential belongs to user id" },
                  { "empty", "contains no secret", "MUNGE: the credential contains no secret" },
                  { "hang", "MUNGE: munged has not answered within 3 s", NULL } };
    char credential[SECRET_CREDENTIAL_MAX], unused[SECRET_CREDENTIAL_MAX];
    struct secret *secret, *there;
    struct ddp_err err = { 0 };
    seal_one(credential, &secret);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin_munge(cases[i].what);
        cr_assert_neq(peer_seal(secret, unused, &err), DDP_OK, "%s", cases[i].what);
        cr_assert_not_null(strstr(err.msg, cases[i].seals), "%s", err.msg);
        if (cases[i].unseals == NULL) /* tests/socket/test_store_link.c tests this case */
            continue;
        cr_assert_neq(unseal(credential, &there, &err), DDP_OK, "%s", cases[i].what);
        cr_assert_not_null(strstr(err.msg, cases[i].unseals), "%s", err.msg);
        cr_assert_null(there);
    }
    begin_munge("long");
    cr_assert_eq(peer_seal(secret, unused, &err), DDP_ERR_LIMIT);
    secret_free(secret);
}

Test(secret, a_credential_of_a_stranger_is_refused)
{
    static const char *const texts[] = { "", "MUNGE:", "MUNGE:1:2:", "x", "MUNGE:4242:4242:6464" };
    struct secret *there;
    struct ddp_err err = { 0 };
    begin_munge("");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        cr_assert_neq(unseal(texts[i], &there, &err), DDP_OK, "%s", texts[i]);
        cr_assert_null(there);
    }
    char longest[SECRET_CREDENTIAL_MAX + 1];
    memset(longest, 'x', sizeof(longest));
    cr_assert_null(secret_unseal_begin(longest, sizeof(longest) - 1));
    cr_assert_neq(secret_unseal_end(NULL, &there, &err), DDP_OK);
}

Test(secret, a_missing_libmunge_is_named)
{
    char credential[SECRET_CREDENTIAL_MAX];
    struct secret *secret;
    struct ddp_err err = { 0 };
    setenv("DDP_MUNGE_LIBRARY", "/there/is/no/libmunge.so.2", 1);
    cr_assert_eq(secret_make(&secret, &err), DDP_OK);
    cr_assert_eq(peer_seal(secret, credential, &err), DDP_ERR_UNSUPPORTED);
    cr_assert_not_null(strstr(err.msg, "MUNGE: /there/is/no/libmunge.so.2"), "%s", err.msg);
    setenv("DDP_MUNGE_LIBRARY", "libc.so.6", 1);
    cr_assert_eq(peer_seal(secret, credential, &err), DDP_ERR_UNSUPPORTED);
    cr_expect_not_null(strstr(err.msg, "MUNGE: libc.so.6 lacks a function of libmunge"), "%s", err.msg);
    secret_free(secret);
}

Test(secret, a_call_that_nobody_waits_for_ends_alone)
{
    char credential[SECRET_CREDENTIAL_MAX];
    struct secret *secret;
    seal_one(credential, &secret);
    for (int i = 0; i < 50; i++)
        secret_unseal_end(secret_unseal_begin(credential, strlen(credential)), NULL, NULL);
    secret_free(secret);
}
