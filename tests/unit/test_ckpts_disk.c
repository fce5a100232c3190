/* A directory of checkpoints on a disk that fails, or cannot do everything. The linker sends the library's calls here, where
 * a test says what comes of them. */
#include "ddp/ckpt.h"
#include "temp_dir.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int __real_renameat(int from, const char *old, int to, const char *new);
int __real_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __real_fsync(int fd);
ssize_t __real_pread(int fd, void *into, size_t len, off_t at);
int __wrap_renameat(int from, const char *old, int to, const char *new);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_fsync(int fd);
ssize_t __wrap_pread(int fd, void *into, size_t len, off_t at);
struct dirent *__real_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir);

static bool no_exchange;     /* as on NFS */
static int renames_until_io; /* this many more succeed, then one fails; 0 = all succeed */
static bool unreadable;
static bool no_names;       /* of the directory */
static struct stat watched; /* a directory ... */
static int flushed;         /* ... and how often it was flushed */

int __wrap_renameat(int from, const char *old, int to, const char *new)
{
    if (renames_until_io > 0 && --renames_until_io == 0) {
        errno = EIO;
        return -1;
    }
    return __real_renameat(from, old, to, new);
}

int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    if (!no_exchange)
        return __real_renameat2(from, old, to, new, flags);
    errno = EINVAL;
    return -1;
}

int __wrap_fsync(int fd)
{
    struct stat st;
    flushed += fstat(fd, &st) == 0 && st.st_dev == watched.st_dev && st.st_ino == watched.st_ino;
    return __real_fsync(fd);
}

ssize_t __wrap_pread(int fd, void *into, size_t len, off_t at)
{
    if (!unreadable)
        return __real_pread(fd, into, len, at);
    errno = EIO;
    return -1;
}

struct dirent *__wrap_readdir(DIR *dir)
{
    if (!no_names)
        return __real_readdir(dir);
    errno = EIO;
    return NULL;
}

/* --- a run -------------------------------------------------------------------------------------------------------- */

static char top[] = "/tmp/ddp-ckpts-disk-XXXXXX", dir[64], heard[2048];
static struct ddp_err err;
static char model_bytes[16];
static const ddp_ckpt_block model = { "model", model_bytes, sizeof(model_bytes) };
static ddp_ckpts *ckpts;

static void hear(void *user, const char *words)
{
    (void)user;
    snprintf(heard + strlen(heard), sizeof(heard) - strlen(heard), "%s\n", words);
}

static void begin(void)
{
    ddp_ckpts_options options = DDP_CKPTS_OPTIONS_INIT;
    temp_dir_make(top);
    snprintf(dir, sizeof(dir), "%s/run", top);
    options.dir = dir;
    options.warn = hear;
    cr_assert_eq(ddp_ckpts_open(&options, &ckpts, &err), DDP_OK, "%s", err.msg);
}

static void end(void)
{
    cr_expect_eq(ddp_ckpts_close(ckpts, &err), DDP_OK, "%s", err.msg);
    temp_dir_remove(top);
}

TestSuite(ckpts_disk, .init = begin, .fini = end);

static ddp_status save(uint64_t step, const char *text)
{
    const ddp_ckpt_point point = { step, 0, 0, 1 };
    snprintf(model_bytes, sizeof(model_bytes), "%s", text);
    ddp_status status = ddp_ckpts_save(ckpts, &point, &model, 1, &err);
    return status == DDP_OK ? ddp_ckpts_wait(ckpts, &err) : status;
}

static void expect_loaded(const char *text)
{
    ddp_ckpt_point point;
    int found = 0;
    model_bytes[0] = '\0';
    cr_expect_eq(ddp_ckpts_load(ckpts, &model, 1, &point, &found, &err), DDP_OK, "%s", err.msg);
    cr_expect(found && strcmp(model_bytes, text) == 0, "\"%s\", expected \"%s\"", model_bytes, text);
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

/* --- the new in place of the old ------------------------------------------------------------------------------------ */

Test(ckpts_disk, without_an_exchange_the_old_one_moves_away_first)
{
    no_exchange = true;
    cr_assert_eq(save(6, "old"), DDP_OK, "%s", err.msg);
    cr_expect_eq(save(6, "new"), DDP_OK, "%s", err.msg);
    expect_loaded("new");
    cr_expect(access(path_of(".old-step-00000006"), F_OK) != 0);
}

/* The first rename finds the old one in its place, the second moves that away, the third fails. */
Test(ckpts_disk, the_old_one_comes_back_when_the_new_one_cannot_follow)
{
    no_exchange = true;
    cr_assert_eq(save(6, "old"), DDP_OK, "%s", err.msg);
    renames_until_io = 3;
    cr_expect_eq(save(6, "new"), DDP_ERR_IO);
    cr_expect(strstr(err.msg, "step-00000006: rename: Input/output error"), "%s", err.msg);
    expect_loaded("old");
}

/* A directory in it stops the removal, not the save. */
Test(ckpts_disk, an_old_one_that_cannot_be_removed_is_a_warning)
{
    for (int step = 6; step <= 7; step++) {
        char name[64];
        cr_assert_eq(save((uint64_t)step, "old"), DDP_OK, "%s", err.msg);
        snprintf(name, sizeof(name), "step-%08d/notes", step);
        cr_assert_eq(mkdir(path_of(name), 0777), 0);
        heard[0] = '\0';
        cr_expect_eq(save((uint64_t)step, "new"), DDP_OK, "%s", err.msg);
        cr_expect(strstr(heard, "cannot be removed"), "%s", heard);
        expect_loaded("new");
        no_exchange = true;
    }
}

/* --- flushing and reading ------------------------------------------------------------------------------------------- */

Test(ckpts_disk, a_directory_that_was_made_is_flushed_with_its_parent_once)
{
    cr_assert_eq(stat(top, &watched), 0);
    cr_assert_eq(save(1, "one"), DDP_OK, "%s", err.msg);
    cr_expect_eq(flushed, 1);
    cr_assert_eq(save(2, "two"), DDP_OK, "%s", err.msg);
    cr_expect_eq(flushed, 1);
}

/* The newest is good: an older one in its place would throw work away, and "remove them" would throw away all. */
Test(ckpts_disk, what_cannot_be_read_is_not_taken_for_damaged)
{
    ddp_ckpt_point point;
    int found = 1;
    cr_assert_eq(save(1, "one"), DDP_OK, "%s", err.msg);
    cr_assert_eq(save(2, "two"), DDP_OK, "%s", err.msg);
    unreadable = true;
    cr_expect_eq(ddp_ckpts_load(ckpts, &model, 1, &point, &found, &err), DDP_ERR_IO);
    cr_expect(strstr(err.msg, "step-00000002/manifest.json: read from offset 0: Input/output error"), "%s",
              err.msg);
    cr_expect(found == 0 && heard[0] == '\0', "%s", heard);
    unreadable = false;
    expect_loaded("two");
}

/* Opening it would wait for somebody who writes. */
Test(ckpts_disk, a_pipe_in_place_of_a_file_is_damage_and_not_waited_for, .timeout = 30)
{
    cr_assert_eq(save(1, "one"), DDP_OK, "%s", err.msg);
    cr_assert_eq(save(2, "two"), DDP_OK, "%s", err.msg);
    cr_assert_eq(unlink(path_of("step-00000002/tensors.bin")), 0);
    cr_assert_eq(mkfifo(path_of("step-00000002/tensors.bin"), 0600), 0);
    expect_loaded("one");
    cr_expect(strstr(heard, "tensors.bin: not a plain file"), "%s", heard);
}

/* Else the run would begin anew, and look well. */
Test(ckpts_disk, a_directory_that_cannot_be_read_is_not_an_empty_one)
{
    ddp_ckpt_point point;
    int found = 0;
    cr_assert_eq(save(1, "one"), DDP_OK, "%s", err.msg);
    no_names = true;
    cr_expect_eq(ddp_ckpts_load(ckpts, &model, 1, &point, &found, &err), DDP_ERR_IO);
    cr_expect_not_null(strstr(err.msg, "run: read: Input/output error"), "%s", err.msg);
    no_names = false;
    expect_loaded("one");
}
