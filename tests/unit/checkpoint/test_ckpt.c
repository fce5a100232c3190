/* A checkpoint is read back whole or rejected. Writing a checkpoint never harms the previous checkpoint. */
#include "ddp/ckpt.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/ddp-ckpt-XXXXXX", path[64];
static struct ddp_err err;

static void make_dir(void)
{
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/model.ckpt", dir);
}

static void remove_dir(void)
{
    unlink(path);
    cr_expect_eq(rmdir(dir), 0, "something was left in %s", dir);
}

TestSuite(ckpt, .init = make_dir, .fini = remove_dir);

static char weights[40] = "weights weights weights weights weights", bias[7] = "bias 1";

static const ddp_ckpt_block model[2] = {
    { "weights", weights, sizeof(weights) },
    { "bias", bias, sizeof(bias) },
};

static void save_model(void)
{
    cr_assert_eq(ddp_ckpt_save(path, model, 2, &err), DDP_OK, "%s", err.msg);
}

/* Load into other memory. Expect either the whole model or no change. */
static ddp_status load_model(void)
{
    char w[sizeof(weights)] = "untouched", b[sizeof(bias)] = "same";
    const ddp_ckpt_block into[2] = { { "weights", w, sizeof(w) }, { "bias", b, sizeof(b) } };
    ddp_status status = ddp_ckpt_load(path, into, 2, &err);
    cr_expect_str_eq(w, status == DDP_OK ? weights : "untouched");
    cr_expect_str_eq(b, status == DDP_OK ? bias : "same");
    return status;
}

static size_t read_file(char *to, size_t room)
{
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f);
    size_t n = fread(to, 1, room, f);
    fclose(f);
    return n;
}

static void write_file(const char *from, size_t n)
{
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(from, 1, n, f), n);
    fclose(f);
}

Test(ckpt, what_was_saved_comes_back)
{
    save_model();
    cr_expect_eq(load_model(), DDP_OK, "%s", err.msg);
}

Test(ckpt, an_empty_block_is_a_block)
{
    const ddp_ckpt_block none = { "none", NULL, 0 };
    char unused;
    const ddp_ckpt_block into = { "none", &unused, 0 };
    cr_expect_eq(ddp_ckpt_save(path, &none, 1, &err), DDP_OK);
    cr_expect_eq(ddp_ckpt_load(path, &into, 1, &err), DDP_OK);
}

Test(ckpt, a_block_of_nothing_may_be_nowhere)
{
    const ddp_ckpt_block nothing = { "nothing", NULL, 0 };
    cr_assert_eq(ddp_ckpt_save(path, &nothing, 1, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_ckpt_load(path, &nothing, 1, &err), DDP_OK, "%s", err.msg);
}

Test(ckpt, what_is_no_file_is_refused_and_not_waited_for)
{
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(load_model(), DDP_ERR_CORRUPT);
    cr_expect_not_null(strstr(err.msg, "plain file"), "%s", err.msg);
}

Test(ckpt, every_truncation_is_refused_with_path_and_offset)
{
    char file[1024], at[64];
    save_model();
    size_t len = read_file(file, sizeof(file));
    for (size_t cut = 0; cut < len; cut++) {
        write_file(file, cut);
        cr_expect_eq(load_model(), DDP_ERR_CORRUPT, "cut at %zu", cut);
        snprintf(at, sizeof(at), "offset %zu: ", cut);
        cr_expect(strstr(err.msg, path) && strstr(err.msg, at) && strstr(err.msg, "ends here"),
                  "cut at %zu: %s", cut, err.msg);
    }
}

Test(ckpt, every_changed_byte_is_refused_with_path_and_offset)
{
    char file[1024];
    save_model();
    size_t len = read_file(file, sizeof(file));
    for (size_t i = 0; i < len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            file[i] ^= (char)(1 << bit);
            write_file(file, len);
            cr_expect_eq(load_model(), DDP_ERR_CORRUPT, "byte %zu bit %d", i, bit);
            cr_expect(strstr(err.msg, path) && strstr(err.msg, ": offset "), "%s", err.msg);
            file[i] ^= (char)(1 << bit);
        }
    }
}

Test(ckpt, bytes_behind_the_end_are_refused)
{
    char file[1024] = { 0 };
    save_model();
    size_t len = read_file(file, sizeof(file));
    write_file(file, len + 1);
    cr_expect_eq(load_model(), DDP_ERR_CORRUPT);
    cr_expect(strstr(err.msg, "is longer"), "%s", err.msg);
}

Test(ckpt, a_foreign_file_is_called_so)
{
    static const char archive[] = "PK\003\004 some archive or other that is long enough";
    write_file(archive, sizeof(archive));
    cr_expect_eq(load_model(), DDP_ERR_CORRUPT);
    cr_expect(strstr(err.msg, "offset 0: ") && strstr(err.msg, "DDPCKPT1"), "%s", err.msg);
}

Test(ckpt, other_names_sizes_or_counts_are_a_mismatch_that_names_both)
{
    char w[64];
    const ddp_ckpt_block other_size[2] = { { "weights", w, 41 }, { "bias", w, 7 } };
    const ddp_ckpt_block other_name[2] = { { "weight", w, 40 }, { "bias", w, 7 } };
    save_model();
    cr_expect_eq(ddp_ckpt_load(path, other_size, 2, &err), DDP_ERR_MISMATCH);
    cr_expect(strstr(err.msg, "'weights' (40") && strstr(err.msg, "'weights' (41"), "%s", err.msg);
    cr_expect_eq(ddp_ckpt_load(path, other_name, 2, &err), DDP_ERR_MISMATCH);
    cr_expect(strstr(err.msg, "'weights'") && strstr(err.msg, "'weight' (40"), "%s", err.msg);
    cr_expect_eq(ddp_ckpt_load(path, model, 1, &err), DDP_ERR_MISMATCH);
    cr_expect(strstr(err.msg, "2 blocks, but"), "%s", err.msg);
}

Test(ckpt, a_missing_file_is_an_io_error_with_its_path)
{
    cr_expect_eq(load_model(), DDP_ERR_IO);
    cr_expect(strstr(err.msg, path) && strstr(err.msg, "No such file or directory"), "%s", err.msg);
    cr_expect_not_null(strstr(err.msg, "; "), "no remedy: %s", err.msg);
}

Test(ckpt, unusable_names_are_refused_before_anything_is_written)
{
    const ddp_ckpt_block twice[2] = { { "a", weights, 1 }, { "a", weights, 1 } };
    const ddp_ckpt_block empty = { "", weights, 1 };
    char longest[65];
    memset(longest, 'x', 64);
    longest[64] = '\0';
    const ddp_ckpt_block too_long = { longest, weights, 1 }, just_fits = { longest + 1, weights, 1 };
    cr_expect_eq(ddp_ckpt_save(path, twice, 2, &err), DDP_ERR_ARG);
    cr_expect_eq(ddp_ckpt_save(path, &empty, 1, &err), DDP_ERR_ARG);
    cr_expect_eq(ddp_ckpt_save(path, &too_long, 1, &err), DDP_ERR_ARG);
    cr_expect_eq(ddp_ckpt_save(path, model, 0, &err), DDP_ERR_ARG);
    cr_expect_neq(access(path, F_OK), 0);
    cr_expect_eq(ddp_ckpt_save(path, &just_fits, 1, &err), DDP_OK);
}

/* A limit of 100 bytes per file acts as a full disk, because the code handles EFBIG like ENOSPC. */
Test(ckpt, a_full_disk_leaves_the_old_file_and_nothing_else)
{
    struct rlimit old, small;
    save_model();
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 100;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    strcpy(bias, "bias 2");
    ddp_status status = ddp_ckpt_save(path, model, 2, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    strcpy(bias, "bias 1");
    cr_expect_eq(status, DDP_ERR_IO);
    cr_expect(strstr(err.msg, path) && strstr(err.msg, "write: File too large"), "%s", err.msg);
    cr_expect_eq(load_model(), DDP_OK, "%s", err.msg);
}

/* Write a checkpoint to `name` while stdout is the file `path`. Return the state of `path` before the write. */
static struct stat save_beside_stdout(const char *name)
{
    struct stat before;
    const int kept = dup(STDOUT_FILENO), fd = open(path, O_WRONLY);
    cr_assert_eq(fstat(fd, &before), 0);
    cr_assert_eq(lseek(fd, 0, SEEK_END), before.st_size);
    fflush(stdout);
    cr_assert_eq(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
    const ddp_status status = ddp_ckpt_save(name, model, 2, &err);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(fd);
    cr_assert_eq(status, DDP_OK, "%s", err.msg);
    return before;
}

Test(ckpt, the_file_of_stdout_is_extended_and_not_replaced)
{
    char whole[1024];
    struct stat before, after;
    write_file("earlier", 7);
    before = save_beside_stdout("/dev/stdout");
    cr_assert_eq(stat(path, &after), 0);
    cr_expect_eq(before.st_ino, after.st_ino);
    const size_t n = read_file(whole, sizeof(whole));
    cr_assert_gt(n, 7);
    cr_expect_eq(memcmp(whole, "earlier", 7), 0);
    write_file(whole + 7, n - 7);
    cr_expect_eq(load_model(), DDP_OK, "%s", err.msg);
}

Test(ckpt, any_other_file_is_replaced)
{
    struct stat before, after;
    save_model();
    const int fd = open(path, O_RDONLY); /* keeps the old file's inode number in use */
    cr_assert_eq(fstat(fd, &before), 0);
    save_model();
    cr_assert_eq(stat(path, &after), 0);
    cr_expect_neq(before.st_ino, after.st_ino);
    cr_expect_eq(load_model(), DDP_OK, "%s", err.msg);
    close(fd);
}

Test(ckpt, a_leftover_of_a_killed_run_is_replaced_and_never_followed)
{
    char leftover[80], victim[80];
    snprintf(leftover, sizeof(leftover), "%s.tmp", path);
    snprintf(victim, sizeof(victim), "%s/precious", dir);
    cr_assert_eq(symlink(victim, leftover), 0);
    save_model();
    cr_expect_neq(access(victim, F_OK), 0, "wrote through a link");
    cr_expect_eq(load_model(), DDP_OK);
}

Test(ckpt, a_directory_that_is_not_there_is_an_io_error)
{
    cr_expect_eq(ddp_ckpt_save("/proc/nonexistent/model.ckpt", model, 2, &err), DDP_ERR_IO);
    cr_expect(
        strstr(err.msg,
               "/proc/nonexistent/model.ckpt: cannot open /proc/nonexistent/model.ckpt.tmp: No such file"),
        "%s", err.msg);
}
