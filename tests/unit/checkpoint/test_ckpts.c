/* A directory of checkpoints. A checkpoint is loaded as it was saved, old checkpoints are removed, and damaged ones are
 * skipped. No fault of a writer harms an earlier checkpoint. */
#include "checkpoint/manifest.h"
#include "core/crc32c.h"
#include "ddp/ckpt.h"
#include "procstat.h"
#include "run.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[] = "/tmp/ddp-ckpts-XXXXXX", dir[64];
static struct ddp_err err;
static char heard[4096]; /* all warnings, one after the other */
static int warnings;

static void hear(void *user, const char *words)
{
    (void)user;
    warnings++;
    snprintf(heard + strlen(heard), sizeof(heard) - strlen(heard), "%s\n", words);
}

static void make_dir(void)
{
    temp_dir_make(top);
    snprintf(dir, sizeof(dir), "%s/run", top);
}

static void remove_dir(void)
{
    temp_dir_remove(top);
}

TestSuite(ckpts, .init = make_dir, .fini = remove_dir);

/* The model: two blocks that contain the number of the step as text. */
static char weights[40], bias[7];
static uint64_t samples;

static const ddp_ckpt_block model[2] = { { "weights", weights, sizeof(weights) },
                                         { "bias", bias, sizeof(bias) } };

static void set_model(uint64_t step)
{
    snprintf(weights, sizeof(weights), "weights of step %llu", (unsigned long long)step);
    snprintf(bias, sizeof(bias), "%llu", (unsigned long long)step % 1000000);
    samples = step * 10;
}

static ddp_ckpts *open_with(ddp_ckpts_options options)
{
    ddp_ckpts *c;
    options.size = sizeof(options);
    options.dir = dir;
    options.warn = hear;
    cr_assert_eq(ddp_ckpts_open(&options, &c, &err), DDP_OK, "%s", err.msg);
    return c;
}

static ddp_ckpts *open_plain(void)
{
    return open_with((ddp_ckpts_options){ 0 });
}

static ddp_status save(ddp_ckpts *c, uint64_t step)
{
    set_model(step);
    const ddp_ckpt_point point = { step, 2, samples, 4 };
    return ddp_ckpts_save(c, &point, model, 2, &err);
}

static void save_all(ddp_ckpts *c, const uint64_t *steps, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(save(c, steps[i]), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_ckpts_wait(c, &err), DDP_OK, "%s", err.msg);
}

static void close_well(ddp_ckpts *c)
{
    cr_expect_eq(ddp_ckpts_close(c, &err), DDP_OK, "%s", err.msg);
}

/* Load a checkpoint. Expect the complete model of `step`, or the unchanged model if no checkpoint was found. */
static ddp_status load(ddp_ckpts *c, uint64_t step)
{
    char expected[40];
    int found;
    ddp_ckpt_point point = { 99, 99, 99, 99 };
    set_model(777);
    ddp_status status = ddp_ckpts_load(c, model, 2, &point, &found, &err);
    snprintf(expected, sizeof(expected), "weights of step %llu", (unsigned long long)(found ? step : 777));
    cr_expect_str_eq(weights, expected);
    cr_expect_eq(found ? point.step : 99, found ? step : 99);
    cr_expect_eq(point.samples, found ? step * 10 : 99);
    return status;
}

static const char *path_of(uint64_t step, const char *file)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/step-%08llu%s%s", dir, (unsigned long long)step, *file ? "/" : "", file);
    return path;
}

/* Return the entries of the directory, sorted: "step-00000001 step-00000002". */
static const char *list(void)
{
    static char text[512];
    struct dirent **entries;
    int n = scandir(dir, &entries, NULL, alphasort);
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (strcmp(entries[i]->d_name, ".") != 0 && strcmp(entries[i]->d_name, "..") != 0)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", *text ? " " : "",
                     entries[i]->d_name);
        free(entries[i]);
    }
    free(n >= 0 ? entries : NULL);
    return text;
}

static size_t read_file(const char *path, char *to, size_t room)
{
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    size_t n = fread(to, 1, room, f);
    fclose(f);
    return n;
}

static void write_file(const char *path, const char *from, size_t n)
{
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f, "%s", path);
    cr_assert_eq(fwrite(from, 1, n, f), n);
    fclose(f);
}

/* --- normal course -------------------------------------------------------------------------------------- */

Test(ckpts, the_newest_comes_back_with_its_point)
{
    ddp_ckpts *c = open_plain();
    save_all(c, (uint64_t[]){ 1, 20, 3 }, 3);
    cr_expect_eq(load(c, 20), DDP_OK, "%s", err.msg);
    close_well(c);
    c = open_plain();
    cr_expect_eq(load(c, 20), DDP_OK, "%s", err.msg);
    close_well(c);
    cr_expect_eq(warnings, 0, "%s", heard);
}

Test(ckpts, blocks_may_be_asked_for_in_any_order)
{
    ddp_ckpts *c = open_plain();
    const ddp_ckpt_block turned[2] = { model[1], model[0] };
    ddp_ckpt_point point;
    int found;
    save_all(c, (uint64_t[]){ 5 }, 1);
    set_model(0);
    cr_expect_eq(ddp_ckpts_load(c, turned, 2, &point, &found, &err), DDP_OK, "%s", err.msg);
    cr_expect_str_eq(weights, "weights of step 5");
    cr_expect_str_eq(bias, "5");
    close_well(c);
}

Test(ckpts, an_empty_or_missing_directory_has_none)
{
    ddp_ckpts *c = open_plain();
    cr_expect_eq(load(c, 0), DDP_OK);
    mkdir(dir, 0777);
    mkdir(path_of(0, ""), 0777);
    /* the library never uses this name */
    rename(path_of(0, ""), strcat(strcpy((char[128]){ 0 }, dir), "/step-7"));
    cr_expect_eq(load(c, 0), DDP_OK);
    close_well(c);
    close_well(NULL);
}

/* save copies the caller's blocks, so later changes of the blocks are not written. */
Test(ckpts, training_goes_on_while_a_copy_is_written)
{
    ddp_ckpts *c = open_plain();
    for (uint64_t step = 1; step <= 20; step++) {
        cr_assert_eq(save(c, step), DDP_OK, "%s", err.msg);
        memset(weights, 'x', sizeof(weights) - 1);
    }
    cr_assert_eq(ddp_ckpts_wait(c, &err), DDP_OK);
    cr_expect_eq(load(c, 20), DDP_OK, "%s", err.msg);
    close_well(c);
}

Test(ckpts, above_the_limit_no_copy_is_made_but_all_is_written)
{
    ddp_ckpts *c = open_with((ddp_ckpts_options){ .max_bytes = 46 });
    cr_assert_eq(save(c, 4), DDP_OK, "%s", err.msg);
    cr_expect_str_eq(list(), "step-00000004"); /* save() has written the file itself, so do not wait */
    cr_expect_eq(load(c, 4), DDP_OK);
    close_well(c);
}

Test(ckpts, a_step_saved_again_replaces_the_first)
{
    ddp_ckpts *c = open_plain();
    char file[64];
    save_all(c, (uint64_t[]){ 6 }, 1);
    strcpy(weights, "other weights");
    const ddp_ckpt_point point = { 6, 0, 0, 1 };
    cr_assert_eq(ddp_ckpts_save(c, &point, model, 2, &err), DDP_OK);
    close_well(c);
    cr_expect_str_eq(list(), "step-00000006");
    read_file(path_of(6, "tensors.bin"), file, sizeof(file));
    cr_expect_str_eq(file, "other weights");
}

/* --- which checkpoints are kept ------------------------------------------------------------------------- */

Test(ckpts, the_last_few_and_every_nth_stay)
{
    ddp_ckpts *c = open_with((ddp_ckpts_options){ .keep_last = 2, .keep_every = 100 });
    save_all(c, (uint64_t[]){ 50, 100, 150, 200, 250, 260, 270 }, 7);
    cr_expect_str_eq(list(), "step-00000100 step-00000200 step-00000260 step-00000270");
    close_well(c);
}

/* A checkpoint of a later step belongs to an abandoned run, or is damaged. keep_last must not count such a checkpoint.
 * Otherwise the new checkpoint would be removed. */
Test(ckpts, a_later_one_neither_goes_nor_counts)
{
    ddp_ckpts *c = open_with((ddp_ckpts_options){ .keep_last = 1 });
    save_all(c, (uint64_t[]){ 90, 10, 11 }, 3);
    cr_expect_str_eq(list(), "step-00000011 step-00000090");
    close_well(c);
}

Test(ckpts, what_interrupted_work_has_left_is_removed)
{
    ddp_ckpts *c = open_plain();
    char path[128];
    save_all(c, (uint64_t[]){ 1 }, 1);
    snprintf(path, sizeof(path), "%s/.tmp-step-00000009", dir);
    mkdir(path, 0777);
    write_file(strcat(path, "/tensors.bin"), "half", 4);
    snprintf(path, sizeof(path), "%s/.old-step-00000008", dir);
    mkdir(path, 0777);
    snprintf(path, sizeof(path), "%s/.tmp-mine", dir);
    mkdir(path, 0777);
    save_all(c, (uint64_t[]){ 2 }, 1);
    cr_expect_str_eq(list(), ".tmp-mine step-00000001 step-00000002");
    close_well(c);
}

Test(ckpts, what_cannot_be_removed_is_a_warning)
{
    ddp_ckpts *c = open_with((ddp_ckpts_options){ .keep_last = 1 });
    save_all(c, (uint64_t[]){ 1 }, 1);
    mkdir(path_of(1, "notes"), 0777);
    save_all(c, (uint64_t[]){ 2 }, 1);
    cr_expect(warnings > 0 && strstr(heard, "step-00000001"), "%s", heard);
    cr_expect_eq(load(c, 2), DDP_OK);
    close_well(c);
}

/* --- damage --------------------------------------------------------------------------------------------- */

/* Expect step 1 in place of the damaged step 2, and a warning that names the damage. */
static void expect_passed_over(ddp_ckpts *c, const char *what, size_t at)
{
    int before = warnings;
    heard[0] = '\0';
    cr_expect_eq(load(c, 1), DDP_OK, "%s, byte %zu: %s", what, at, err.msg);
    cr_expect_eq(warnings, before + 1, "%s, byte %zu", what, at);
    cr_expect(strstr(heard, "step 2 skipped") && strstr(heard, what), "%s, byte %zu: %s", what, at, heard);
}

static const char *const files[2] = { "manifest.json", "tensors.bin" };

Test(ckpts, every_flipped_bit_is_noticed)
{
    char file[1024];
    ddp_ckpts *c = open_plain();
    save_all(c, (uint64_t[]){ 1, 2 }, 2);
    for (int f = 0; f < 2; f++) {
        size_t len = read_file(path_of(2, files[f]), file, sizeof(file));
        for (size_t i = 0; i < len; i++) {
            for (int bit = 0; bit < 8; bit++) {
                file[i] ^= (char)(1 << bit);
                write_file(path_of(2, files[f]), file, len);
                expect_passed_over(c, files[f], i);
                file[i] ^= (char)(1 << bit);
            }
        }
        write_file(path_of(2, files[f]), file, len);
    }
    cr_expect_eq(load(c, 2), DDP_OK, "%s", err.msg);
    close_well(c);
}

Test(ckpts, every_truncation_and_every_longer_file_is_noticed)
{
    char file[1024] = { 0 };
    ddp_ckpts *c = open_plain();
    save_all(c, (uint64_t[]){ 1, 2 }, 2);
    for (int f = 0; f < 2; f++) {
        size_t len = read_file(path_of(2, files[f]), file, sizeof(file) - 1);
        for (size_t cut = 0; cut < len; cut++) {
            write_file(path_of(2, files[f]), file, cut);
            expect_passed_over(c, files[f], cut);
        }
        file[len] = ' ';
        write_file(path_of(2, files[f]), file, len + 1);
        expect_passed_over(c, files[f], len);
        write_file(path_of(2, files[f]), file, len);
    }
    close_well(c);
}

Test(ckpts, a_missing_file_a_huge_manifest_and_another_steps_are_noticed)
{
    ddp_ckpts *c = open_plain();
    char other[128];
    save_all(c, (uint64_t[]){ 1, 2 }, 2);
    strcpy(other, path_of(3, ""));
    rename(path_of(2, ""), other);
    cr_expect_eq(load(c, 1), DDP_OK, "%s", err.msg);
    cr_expect(strstr(heard, "contains step 2"), "%s", heard);
    rename(other, path_of(2, ""));
    unlink(path_of(2, "tensors.bin"));
    expect_passed_over(c, "tensors.bin", 0);
    cr_assert_eq(truncate(path_of(2, "manifest.json"), 5 << 20), 0);
    expect_passed_over(c, "5242880 bytes", 0);
    unlink(path_of(2, "manifest.json"));
    expect_passed_over(c, "manifest.json", 0);
    close_well(c);
}

/* The text's own checksum is valid, so only the check of a block's digits can reject the text. */
Test(ckpts, a_block_s_checksum_has_digits_only)
{
    static const char *const sums[] = {
        "0000abcd", "+000abcd", "-000abcd", " 000abcd", "0x00abcd", "0000ABCD"
    };
    struct manifest_block block = { .name = "b", .bytes = 8, .crc = 0xabcd };
    const struct manifest whole = { .bytes = 8, .n = 1, .blocks = &block };
    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
        struct manifest m;
        char *text = manifest_write(&whole), own[9], *at = strstr(text, "0000abcd"),
             *sum = strchr(text, ':') + 2;
        memcpy(at, sums[i], 8);
        memcpy(sum, "00000000", 8);
        snprintf(own, sizeof(own), "%08x", crc32c(0, text, strlen(text)));
        memcpy(sum, own, 8);
        const ddp_status status = manifest_read(&m, "m", text, strlen(text), &err);
        cr_expect_eq(status, i == 0 ? DDP_OK : DDP_ERR_CORRUPT, "%s: %s", sums[i], err.msg);
        if (status == DDP_OK)
            manifest_free(&m);
        free(text);
    }
}

Test(ckpts, when_none_is_whole_nobody_starts_anew_unasked)
{
    ddp_ckpts *c = open_plain();
    save_all(c, (uint64_t[]){ 1, 2 }, 2);
    cr_assert_eq(truncate(path_of(1, "tensors.bin"), 3), 0);
    cr_assert_eq(truncate(path_of(2, "tensors.bin"), 5), 0);
    cr_expect_eq(load(c, 0), DDP_ERR_CORRUPT);
    cr_expect(strstr(err.msg, "all 2 checkpoints are damaged") && strstr(err.msg, "step 2") &&
                  strstr(err.msg, "offset 5"),
              "%s", err.msg);
    close_well(c);
}

Test(ckpts, the_error_about_one_damaged_checkpoint_names_its_step)
{
    ddp_ckpts *c = open_plain();
    save_all(c, (uint64_t[]){ 4 }, 1);
    cr_assert_eq(truncate(path_of(4, "tensors.bin"), 3), 0);
    cr_expect_eq(load(c, 0), DDP_ERR_CORRUPT);
    cr_expect(strstr(err.msg, "the only checkpoint") && strstr(err.msg, "step 4") &&
                  strstr(err.msg, "offset 3"),
              "%s", err.msg);
    close_well(c);
}

Test(ckpts, other_names_sizes_and_counts_are_a_mismatch_and_not_damage)
{
    ddp_ckpts *c = open_plain();
    char room[64];
    const ddp_ckpt_block name[2] = { { "weight", room, 40 }, model[1] },
                         size[2] = { { "weights", room, 41 }, model[1] };
    ddp_ckpt_point point;
    int found;
    save_all(c, (uint64_t[]){ 1 }, 1);
    cr_expect_eq(ddp_ckpts_load(c, name, 2, &point, &found, &err), DDP_ERR_MISMATCH);
    cr_expect(strstr(err.msg, "no block 'weight'"), "%s", err.msg);
    cr_expect_eq(ddp_ckpts_load(c, size, 2, &point, &found, &err), DDP_ERR_MISMATCH);
    cr_expect(strstr(err.msg, "40 bytes") && strstr(err.msg, "expects 41"), "%s", err.msg);
    cr_expect_eq(ddp_ckpts_load(c, model, 1, &point, &found, &err), DDP_ERR_MISMATCH);
    cr_expect(strstr(err.msg, "has 2 blocks, but the program expects 1"), "%s", err.msg);
    cr_expect_eq(warnings, 0);
    close_well(c);
}

/* --- a writer in trouble -------------------------------------------------------------------------------- */

Test(ckpts, a_failure_in_the_background_is_told_by_the_next_call_once)
{
    ddp_ckpts *c = open_plain();
    save_all(c, (uint64_t[]){ 1 }, 1);
    limits_cut_files(20);
    cr_assert_eq(save(c, 2), DDP_OK);
    cr_expect_eq(save(c, 3), DDP_ERR_IO);
    cr_expect(strstr(err.msg, "step 2 not written") &&
                  strstr(err.msg, "tensors.bin: cannot write: File too large"),
              "%s", err.msg);
    cr_expect_eq(ddp_ckpts_wait(c, &err), DDP_OK);
    cr_expect_str_eq(list(), "step-00000001");
    cr_assert_eq(save(c, 4), DDP_OK);
    cr_expect_eq(ddp_ckpts_close(c, &err), DDP_ERR_IO);
    limits_cut_files(RLIM_INFINITY);
    c = open_plain();
    cr_expect_eq(load(c, 1), DDP_OK, "%s", err.msg);
    close_well(c);
}

/* The test has a separate disk of 64 KiB, which is full after two checkpoints. */
Test(ckpts, a_full_disk_leaves_what_was_there)
{
    static char big[24 << 10];
    const ddp_ckpt_block block = { "big", big, sizeof(big) };
    ddp_ckpt_point point = { 1, 0, 0, 1 };
    int found;
    mkdir(dir, 0777);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", dir, "tmpfs", 0, "size=64k") != 0)
        cr_skip_test("skipped, because mounting a small disk needs root");
    ddp_ckpts *c = open_plain();
    ddp_status status = DDP_OK;
    for (; point.step < 9 && status == DDP_OK; point.step++) {
        status = ddp_ckpts_save(c, &point, &block, 1, &err);
        status = status == DDP_OK ? ddp_ckpts_wait(c, &err) : status;
    }
    cr_expect_eq(status, DDP_ERR_IO);
    cr_expect(strstr(err.msg, "No space left on device (") && strstr(err.msg, " inodes free)"), "%s",
              err.msg);
    cr_expect_eq(ddp_ckpts_load(c, &block, 1, &point, &found, &err), DDP_OK, "%s", err.msg);
    cr_expect(found && point.step >= 1);
    cr_expect(strstr(list(), ".tmp") == NULL, "%s", list());
    close_well(c);
    umount(dir);
}

/* Save as fast as possible until killed. */
static void save_for_ever(void)
{
    ddp_ckpts *c = open_with((ddp_ckpts_options){ .keep_last = 2 });
    for (uint64_t step = 1;; step++) {
        if (save(c, step) != DDP_OK)
            _exit(1);
    }
}

Test(ckpts, kill_minus_9_at_any_moment_leaves_a_whole_one)
{
    for (int trial = 0; trial < 40; trial++) {
        int ended;
        pid_t pid = fork();
        if (pid == 0)
            save_for_ever();
        for (struct patience p = { 0 }; strstr(list(), " step-") == NULL && patience_left(&p);)
            continue; /* until there are two checkpoints */
        /* In each trial, kill at another moment of a save. No condition marks such a moment, so sleep. */
        usleep((useconds_t)(trial * 173 % 4000));
        kill(pid, SIGKILL);
        waitpid(pid, &ended, 0);
        cr_assert(WIFSIGNALED(ended), "the writer has ended by itself");
        char newest[64];
        snprintf(newest, sizeof(newest), "%s", strrchr(list(), '-') + 1);
        ddp_ckpts *c = open_plain();
        cr_expect_eq(load(c, strtoull(newest, NULL, 10)), DDP_OK, "trial %d: %s", trial, err.msg);
        cr_expect_eq(warnings, 0, "trial %d: %s", trial, heard);
        close_well(c);
    }
}

Test(ckpts, a_place_that_cannot_be_is_an_error_with_its_path)
{
    ddp_ckpts *c;
    ddp_ckpts_options options = DDP_CKPTS_OPTIONS_INIT;
    cr_expect_eq(ddp_ckpts_open(&options, &c, &err), DDP_ERR_ARG);
    options.dir = "/proc/nonexistent/run";
    cr_assert_eq(ddp_ckpts_open(&options, &c, &err), DDP_OK);
    cr_assert_eq(save(c, 1), DDP_OK);
    cr_expect_eq(ddp_ckpts_close(c, &err), DDP_ERR_IO);
    cr_expect(strstr(err.msg, "/proc/nonexistent/run: cannot create the directory: No such file") &&
                  strstr(err.msg, "; create the parent directory"),
              "%s", err.msg);
}

Test(ckpts, numbers_up_to_the_limit_come_back_and_larger_ones_are_refused)
{
    ddp_ckpts *c = open_plain();
    ddp_ckpt_point point = { UINT64_C(1000000000000001), 0, 0, 1 };
    int found;
    cr_expect_eq(ddp_ckpts_save(c, &point, model, 2, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "step is 1000000000000001"), "%s", err.msg);
    point.step--;
    cr_assert_eq(ddp_ckpts_save(c, &point, model, 2, &err), DDP_OK, "%s", err.msg);
    point.step = 0;
    cr_expect_eq(ddp_ckpts_load(c, model, 2, &point, &found, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(point.step, UINT64_C(1000000000000000));
    close_well(c);
}

/* --- a disk that fails ----------------------------------------------------------------------------------- */

/* Tests with a disk that fails, and with a file system that does not support some calls. The linker replaces these
 * calls by the functions below whose names begin with __wrap_. */

int __real_renameat(int from, const char *old, int to, const char *new);
int __real_sys_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __real_fsync(int fd);
int __real_openat(int dir, const char *name, int flags, ...);
ssize_t __real_pread(int fd, void *into, size_t len, off_t at);
int __wrap_renameat(int from, const char *old, int to, const char *new);
int __wrap_sys_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_fsync(int fd);
int __wrap_openat(int dir, const char *name, int flags, mode_t mode);
ssize_t __wrap_pread(int fd, void *into, size_t len, off_t at);
struct dirent *__real_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir);

static bool no_exchange;     /* the exchange of two names fails, as on NFS */
static int renames_until_io; /* number of the rename that fails with EIO, counted from 1; 0 = none fails */
static bool no_descriptors;  /* an existing directory cannot be opened, because another thread has the last
                              * descriptor */
static bool unreadable;
static bool no_names;       /* the directory cannot be listed */
static struct stat watched; /* a directory whose flushes are counted */
static int flushed;         /* number of flushes of `watched` */
static bool flush_fails;    /* every flush of `watched` fails */

int __wrap_renameat(int from, const char *old, int to, const char *new)
{
    if (renames_until_io > 0 && --renames_until_io == 0) {
        errno = EIO;
        return -1;
    }
    return __real_renameat(from, old, to, new);
}

int __wrap_sys_renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    if (!no_exchange)
        return __real_sys_renameat2(from, old, to, new, flags);
    errno = EINVAL;
    return -1;
}

int __wrap_fsync(int fd)
{
    struct stat st;
    const bool is_watched = fstat(fd, &st) == 0 && st.st_dev == watched.st_dev && st.st_ino == watched.st_ino;
    flushed += is_watched;
    if (!is_watched || !flush_fails)
        return __real_fsync(fd);
    errno = EIO;
    return -1;
}

int __wrap_openat(int at, const char *name, int flags, mode_t mode)
{
    if (!no_descriptors || faccessat(at, name, F_OK, 0) != 0)
        return __real_openat(at, name, flags, mode);
    errno = EMFILE;
    return -1;
}

ssize_t __wrap_pread(int fd, void *into, size_t len, off_t at)
{
    if (!unreadable)
        return __real_pread(fd, into, len, at);
    errno = EIO;
    return -1;
}

struct dirent *__wrap_readdir(DIR *there)
{
    if (!no_names)
        return __real_readdir(there);
    errno = EIO;
    return NULL;
}

/* --- a run -------------------------------------------------------------------------------------------------------- */

static char text_bytes[16];
static const ddp_ckpt_block text_block = { "model", text_bytes, sizeof(text_bytes) };
static ddp_ckpts *opened;

static void begin(void)
{
    make_dir();
    opened = open_plain();
}

static void end(void)
{
    close_well(opened);
    remove_dir();
}

TestSuite(ckpts_disk, .init = begin, .fini = end);

static ddp_status save_text(uint64_t step, const char *text)
{
    const ddp_ckpt_point point = { step, 0, 0, 1 };
    snprintf(text_bytes, sizeof(text_bytes), "%s", text);
    ddp_status status = ddp_ckpts_save(opened, &point, &text_block, 1, &err);
    return status == DDP_OK ? ddp_ckpts_wait(opened, &err) : status;
}

static const char *path_in_run(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void expect_loaded(const char *text)
{
    ddp_ckpt_point point;
    int found = 0;
    text_bytes[0] = '\0';
    cr_expect_eq(ddp_ckpts_load(opened, &text_block, 1, &point, &found, &err), DDP_OK, "%s", err.msg);
    cr_expect(found && strcmp(text_bytes, text) == 0, "\"%s\", expected \"%s\"", text_bytes, text);
}

Test(ckpts_disk, a_failed_flush_after_the_rename_is_no_failed_rename)
{
    cr_assert_eq(save_text(1, "one"), DDP_OK, "%s", err.msg);
    cr_assert_eq(stat(dir, &watched), 0);
    flush_fails = true;
    cr_expect_eq(save_text(2, "two"), DDP_ERR_IO);
    flush_fails = false;
    cr_expect_not_null(strstr(err.msg, "cannot flush the directory after the rename"), "%s", err.msg);
}

/* --- a new checkpoint in place of an old one ------------------------------------------------------------------ */

Test(ckpts_disk, without_an_exchange_the_old_one_moves_away_first)
{
    no_exchange = true;
    cr_assert_eq(save_text(6, "old"), DDP_OK, "%s", err.msg);
    cr_expect_eq(save_text(6, "new"), DDP_OK, "%s", err.msg);
    expect_loaded("new");
    cr_expect(access(path_in_run(".old-step-00000006"), F_OK) != 0);
}

/* The first rename fails, because the old checkpoint exists. The second rename moves the old checkpoint away. The third
 * rename fails with EIO. */
Test(ckpts_disk, the_old_one_comes_back_when_the_new_one_cannot_follow)
{
    no_exchange = true;
    cr_assert_eq(save_text(6, "old"), DDP_OK, "%s", err.msg);
    renames_until_io = 3;
    cr_expect_eq(save_text(6, "new"), DDP_ERR_IO);
    cr_expect(strstr(err.msg, "step-00000006: cannot rename: Input/output error"), "%s", err.msg);
    cr_expect_str_eq(list(), "step-00000006");
    expect_loaded("old");
}

Test(ckpts_disk, a_directory_that_cannot_be_opened_is_removed)
{
    cr_assert_eq(save_text(1, "one"), DDP_OK, "%s", err.msg);
    no_descriptors = true;
    cr_expect_eq(save_text(2, "two"), DDP_ERR_IO);
    no_descriptors = false;
    cr_expect(strstr(err.msg, strerror(EMFILE)), "%s", err.msg);
    cr_expect_str_eq(list(), "step-00000001");
    expect_loaded("one");
}

/* A directory inside the old checkpoint stops the removal, but not the save. */
Test(ckpts_disk, an_old_one_that_cannot_be_removed_is_a_warning)
{
    for (int step = 6; step <= 7; step++) {
        char name[64];
        cr_assert_eq(save_text((uint64_t)step, "old"), DDP_OK, "%s", err.msg);
        snprintf(name, sizeof(name), "step-%08d/notes", step);
        cr_assert_eq(mkdir(path_in_run(name), 0777), 0);
        heard[0] = '\0';
        cr_expect_eq(save_text((uint64_t)step, "new"), DDP_OK, "%s", err.msg);
        cr_expect(strstr(heard, "cannot remove this directory"), "%s", heard);
        expect_loaded("new");
        no_exchange = true;
    }
}

/* --- flushing and reading ------------------------------------------------------------------------------------- */

Test(ckpts_disk, a_directory_that_was_made_is_flushed_with_its_parent_once)
{
    cr_assert_eq(stat(top, &watched), 0);
    cr_assert_eq(save_text(1, "one"), DDP_OK, "%s", err.msg);
    cr_expect_eq(flushed, 1);
    cr_assert_eq(save_text(2, "two"), DDP_OK, "%s", err.msg);
    cr_expect_eq(flushed, 1);
}

/* A checkpoint that cannot be read at the moment may be intact. Loading an older one instead would lose work. If all
 * checkpoints were reported as damaged, the error would advise the user to remove the checkpoints. */
Test(ckpts_disk, what_cannot_be_read_is_not_taken_for_damaged)
{
    ddp_ckpt_point point;
    int found = 1;
    cr_assert_eq(save_text(1, "one"), DDP_OK, "%s", err.msg);
    cr_assert_eq(save_text(2, "two"), DDP_OK, "%s", err.msg);
    unreadable = true;
    cr_expect_eq(ddp_ckpts_load(opened, &text_block, 1, &point, &found, &err), DDP_ERR_IO);
    cr_expect(strstr(err.msg, "step-00000002/manifest.json: cannot read from offset 0: Input/output error"),
              "%s", err.msg);
    cr_expect(found == 0 && heard[0] == '\0', "%s", heard);
    unreadable = false;
    expect_loaded("two");
}

/* A pipe is in the place of tensors.bin. A usual open of this pipe would wait for a writer, so the load must detect the
 * pipe without waiting. */
Test(ckpts_disk, a_pipe_in_place_of_a_file_is_damage_and_not_waited_for, .timeout = 30)
{
    cr_assert_eq(save_text(1, "one"), DDP_OK, "%s", err.msg);
    cr_assert_eq(save_text(2, "two"), DDP_OK, "%s", err.msg);
    cr_assert_eq(unlink(path_in_run("step-00000002/tensors.bin")), 0);
    cr_assert_eq(mkfifo(path_in_run("step-00000002/tensors.bin"), 0600), 0);
    expect_loaded("one");
    cr_expect(strstr(heard, "tensors.bin: not a plain file"), "%s", heard);
}

/* The directory of checkpoints cannot be read. ddp_ckpts_load must return an error. Without the error, the run would
 * find no checkpoint and start from the beginning. */
Test(ckpts_disk, a_directory_that_cannot_be_read_is_not_an_empty_one)
{
    ddp_ckpt_point point;
    int found = 0;
    cr_assert_eq(save_text(1, "one"), DDP_OK, "%s", err.msg);
    no_names = true;
    cr_expect_eq(ddp_ckpts_load(opened, &text_block, 1, &point, &found, &err), DDP_ERR_IO);
    cr_expect_not_null(strstr(err.msg, "run: cannot read: Input/output error"), "%s", err.msg);
    no_names = false;
    expect_loaded("one");
}
