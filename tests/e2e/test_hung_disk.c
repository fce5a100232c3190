/* A log directory on a file system that stops answering: the job goes on, and its user can end it. */
#include "job.h"
#include "run.h"
#include "store_peers.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* a file system that stops answering, as an NFS server does that is gone: FUSE without a library. Needs root.
 *
 * It holds names and sizes and no bytes. Once it hangs, a call that is under way sleeps in the kernel, where SIGKILL does not
 * end it. Mount it in a mount namespace of the test's own (rude_own_mounts). */

enum { NODES = 64, NAME = 128, REQUEST = 256 * 1024 };

static struct disk_state {
    atomic_bool hangs;
    atomic_int unanswered;
} * shared;

static pid_t server;

/* Node numbers are the kernel's: index + 1, the first is the root. */
static struct file {
    uint64_t parent; /* 0 = free */
    mode_t mode;
    uint64_t size;
    char name[NAME];
} files[NODES];

static struct fuse_attr attr_of(uint64_t ino)
{
    const struct file *f = &files[ino - 1];
    return (struct fuse_attr){ .ino = ino, .size = f->size, .mode = f->mode, .nlink = 1, .blksize = 4096 };
}

static uint64_t find(uint64_t parent, const char *name)
{
    for (uint64_t i = 1; i < NODES; i++)
        if (files[i].parent == parent && strcmp(files[i].name, name) == 0)
            return i + 1;
    return 0;
}

static uint64_t make(uint64_t parent, const char *name, mode_t mode)
{
    for (uint64_t i = 1; i < NODES; i++)
        if (files[i].parent == 0) {
            files[i] = (struct file){ .parent = parent, .mode = mode };
            snprintf(files[i].name, NAME, "%s", name);
            return i + 1;
        }
    return 0;
}

struct answer {
    int error;
    size_t len;
    union {
        struct fuse_init_out init;
        struct fuse_attr_out attr;
        struct fuse_entry_out entry;
        struct {
            struct fuse_entry_out entry;
            struct fuse_open_out open;
        } create;
        struct fuse_open_out open;
        struct fuse_write_out write;
        struct fuse_statfs_out statfs;
    } u;
};

static struct answer entry(uint64_t ino, int error)
{
    struct answer a = { .error = ino == 0 ? error : 0, .len = sizeof(a.u.entry) };
    if (ino != 0)
        a.u.entry = (struct fuse_entry_out){ .nodeid = ino, .attr = attr_of(ino) };
    return a;
}

static struct answer answer_create(uint64_t parent, const void *arg)
{
    const struct fuse_create_in *in = arg;
    const struct answer made =
        entry(make(parent, (const char *)(in + 1), S_IFREG | (in->mode & 07777)), ENOSPC);
    struct answer a = { .error = made.error, .len = sizeof(a.u.create) };
    a.u.create.entry = made.u.entry;
    return a;
}

static struct answer answer_rename(uint64_t parent, uint64_t to, const char *name)
{
    const uint64_t ino = find(parent, name);
    const char *new_name = name + strlen(name) + 1;
    const uint64_t old = find(to, new_name);
    if (old != 0)
        files[old - 1].parent = 0;
    if (ino != 0) {
        files[ino - 1].parent = to;
        snprintf(files[ino - 1].name, NAME, "%s", new_name);
    }
    return (struct answer){ .error = ino != 0 ? 0 : ENOENT };
}

static struct answer answer_write(uint64_t ino, const struct fuse_write_in *in)
{
    struct answer a = { .len = sizeof(a.u.write), .u.write = { .size = in->size } };
    if (in->offset + in->size > files[ino - 1].size)
        files[ino - 1].size = in->offset + in->size;
    return a;
}

static struct answer answer_to(const struct fuse_in_header *h, const void *arg)
{
    struct answer a = { 0 };
    switch (h->opcode) {
    case FUSE_INIT:
        a.len = sizeof(a.u.init);
        a.u.init = (struct fuse_init_out){ .major = FUSE_KERNEL_VERSION,
                                           .minor = FUSE_KERNEL_MINOR_VERSION,
                                           .max_write = REQUEST / 2 };
        return a;
    case FUSE_GETATTR:
    case FUSE_SETATTR:
        a.len = sizeof(a.u.attr);
        a.u.attr.attr = attr_of(h->nodeid);
        return a;
    case FUSE_LOOKUP:
        return entry(find(h->nodeid, arg), ENOENT);
    case FUSE_MKDIR:
        return entry(make(h->nodeid, (const char *)((const struct fuse_mkdir_in *)arg + 1), S_IFDIR | 0700),
                     ENOSPC);
    case FUSE_SYMLINK:
        return entry(make(h->nodeid, arg, S_IFLNK | 0777), ENOSPC);
    case FUSE_CREATE:
        return answer_create(h->nodeid, arg);
    case FUSE_RENAME:
        return answer_rename(h->nodeid, ((const struct fuse_rename_in *)arg)->newdir,
                             (const char *)((const struct fuse_rename_in *)arg + 1));
    case FUSE_WRITE:
        return answer_write(h->nodeid, arg);
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        a.len = sizeof(a.u.open);
        return a;
    case FUSE_STATFS:
        a.len = sizeof(a.u.statfs);
        return a;
    case FUSE_READDIR:
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
        return a;
    default:
        a.error = ENOSYS;
        return a;
    }
}

/* Requests that hang are read, for those that nobody has read can still be taken back by a signal. */
static void serve_disk(int fd)
{
    static char request[REQUEST + 4096];
    files[0] = (struct file){ .parent = 1, .mode = S_IFDIR | 0755 };
    for (;;) {
        const ssize_t n = read(fd, request, sizeof(request));
        const struct fuse_in_header *h = (const struct fuse_in_header *)request;
        if (n < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
            continue;
        if (n < 0)
            _exit(0);
        if (h->opcode == FUSE_FORGET || h->opcode == FUSE_BATCH_FORGET || h->opcode == FUSE_INTERRUPT)
            continue;
        if (shared->hangs) {
            shared->unanswered++;
            continue;
        }
        struct answer a = answer_to(h, h + 1);
        const size_t len = a.error == 0 ? a.len : 0;
        struct fuse_out_header out = { .len = (uint32_t)(sizeof(out) + len),
                                       .error = -a.error,
                                       .unique = h->unique };
        const struct iovec parts[] = { { &out, sizeof(out) }, { &a.u, len } };
        (void)!writev(fd, parts, 2);
    }
}

static void hung_disk_mount(const char *where)
{
    char options[128];
    const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        cr_skip_test("skipped, because /dev/fuse cannot be opened: %s", strerror(errno));
    snprintf(options, sizeof(options), "fd=%d,rootmode=40755,user_id=0,group_id=0", fd);
    if (mount("hung_disk", where, "fuse", 0, options) != 0)
        cr_skip_test("skipped, because FUSE cannot be mounted: %s", strerror(errno));
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(shared != MAP_FAILED);
    server = fork();
    cr_assert_geq(server, 0);
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve_disk(fd);
    }
    close(fd);
    struct stat root; /* waits until FUSE_INIT is answered: before that, a signal takes every request back */
    cr_assert_eq(stat(where, &root), 0, "%s: %s", where, strerror(errno));
}

static void hung_disk_hang(void)
{
    shared->hangs = true;
}

static int hung_disk_requests(void)
{
    return shared->unanswered;
}

static void hung_disk_end(void)
{
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

static char dir[64], log_dir[80];

static void set_up(void)
{
    rude_own_mounts();
    snprintf(dir, sizeof(dir), "/tmp/hung-disk-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    hung_disk_mount(dir);
    snprintf(log_dir, sizeof(log_dir), "--log_dir=%s", dir);
}

static void tear_down(void)
{
    umount2(dir, MNT_DETACH);
    rmdir(dir);
}

TestSuite(hung_disk, .init = set_up, .fini = tear_down, .timeout = 120);

static struct run_process *start(void)
{
    const char *argv[] = {
        bin("ddprun"), "--standalone", log_dir,
        "--tee=3",     "--no_python",  "--",
        "/bin/sh",     "-c",           "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.02; done",
        NULL
    };
    struct run_process *process = run_start(argv, NULL);
    cr_assert_not_null(process);
    return process;
}

static void until(bool condition, struct run_process *process, const char *what)
{
    if (condition)
        return;
    run_signal(process, SIGKILL);
    hung_disk_end();
    struct run_result r = run_wait(process);
    cr_assert(false, "%s has not come:\n%s", what, r.err);
}

static void until_hung(struct run_process *process)
{
    hung_disk_hang();
    for (struct patience p = { 0 }; hung_disk_requests() == 0;)
        until(patience_left(&p), process, "a request");
}

static bool has_ended(struct run_process *process)
{
    siginfo_t end = { 0 };
    return waitid(P_PID, (id_t)run_pid(process), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != 0;
}

/* The agent that is left behind holds the pipes, so the file system ends before the output is read to its end. */
static struct run_result finish(struct run_process *process)
{
    for (struct patience p = { 0 }; !has_ended(process);)
        until(patience_left(&p), process, "the guardian's end");
    hung_disk_end();
    return run_wait(process);
}

static void expect_named(const struct run_result *r)
{
    char words[200];
    cr_expect_eq(r->exit_code, 124, "exit %d, signal %d\n%s", r->exit_code, r->signal, r->err);
    snprintf(words, sizeof(words), "error: %s", dir);
    cr_expect_not_null(strstr(r->err, words), "%s is not named:\n%s", dir, r->err);
    cr_expect_not_null(strstr(r->err, ": the file system does not answer; the agent process (pid "), "%s",
                       r->err);
}

Test(hung_disk, the_console_lives_and_two_ctrl_c_end_the_job)
{
    char next[32];
    struct run_process *process = start();
    until(run_until_output(process, "tick 3\n", PATIENCE_MS), process, "output");
    until_hung(process);
    until(run_until_error(process, ": the file system has not answered for ", PATIENCE_MS), process,
          "the report of the hang");
    const char *last = strrchr(run_output(process), 'k');
    snprintf(next, sizeof(next), "tick %d\n", last != NULL ? atoi(last + 1) + 20 : 100);
    until(run_until_output(process, next, PATIENCE_MS), process, "output behind the hang");
    run_signal(process, SIGINT);
    until(run_until_error(process, "once more kills them at once", PATIENCE_MS), process, "the first answer");
    run_signal(process, SIGINT);
    struct run_result r = finish(process);
    expect_named(&r);
    cr_expect_not_null(strstr(r.err, "stopped by SIGINT"), "the report is printed:\n%s", r.err);
    run_free(&r);
}

Test(hung_disk, one_request_is_enough_when_the_workers_end_in_time)
{
    struct run_process *process = start();
    until(run_until_output(process, "tick 3\n", PATIENCE_MS), process, "output");
    until_hung(process);
    run_signal(process, SIGTERM);
    struct run_result r = finish(process);
    expect_named(&r);
    run_free(&r);
}

Test(hung_disk, a_log_directory_that_hangs_from_the_start_is_reported)
{
    hung_disk_hang();
    struct run_process *process = start();
    struct run_result r = finish(process);
    expect_named(&r);
    cr_expect_not_null(strstr(r.err, "cannot make the log directory"), "%s", r.err);
    run_free(&r);
}

Test(hung_disk, a_log_directory_that_hangs_from_the_start_does_not_outlast_two_ctrl_c)
{
    hung_disk_hang();
    struct run_process *process = start();
    until_hung(process);
    for (struct patience p = { 0 }; !has_ended(process); run_signal(process, SIGINT))
        until(patience_left(&p), process, "the guardian's end");
    struct run_result r = finish(process);
    expect_named(&r);
    cr_expect_null(strstr(r.err, "cannot make the log directory"), "it is not waited for:\n%s", r.err);
    run_free(&r);
}
