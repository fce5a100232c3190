/* pidns.c -- see pidns.h.
 *
 * Without root the right to make namespaces comes from a user namespace, in which we keep the ids that we have. Our
 * own /proc is needed because the sweep reads it; mounting it needs a mount namespace. Mounts that the host makes later
 * still reach the workers (MS_SLAVE), ours never reach the host.
 *
 * The parent-death signal would come too late for a guardian that has died before it was armed, and the parent's pid
 * tells nothing here (it is 0, outside): so the lifeline is looked at once the signal is armed. */
#include "contain/pidns.h"

#include "contain/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- why not --------------------------------------------------------------------------------------------- */

/* Settings that forbid namespaces to ordinary users: the file, what it says then, and what would help. */
static const struct obstacle {
    const char *file, *value, *remedy;
} obstacles[] = {
    { "/proc/sys/kernel/unprivileged_userns_clone", "0\n", "sysctl kernel.unprivileged_userns_clone=1" },
    { "/proc/sys/user/max_user_namespaces", "0\n", "sysctl user.max_user_namespaces=10000" },
    { "/proc/sys/user/max_pid_namespaces", "0\n", "sysctl user.max_pid_namespaces=10000" },
    { "/proc/sys/user/max_mnt_namespaces", "0\n", "sysctl user.max_mnt_namespaces=10000" },
    { "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n",
      "sysctl kernel.apparmor_restrict_unprivileged_userns=0" },
};

static const char *find_remedy(void)
{
    const char *remedy = NULL;
    for (size_t i = 0; remedy == NULL && i < sizeof(obstacles) / sizeof(obstacles[0]); i++) {
        struct buf text = { 0 };
        if (procfs_read(obstacles[i].file, &text) && strcmp((char *)text.data, obstacles[i].value) == 0)
            remedy = obstacles[i].remedy;
        buf_free(&text);
    }
    return remedy;
}

/* `step` is what failed with `error`. */
static ddp_status explain(const char *step, int error, struct ddp_err *err)
{
    const char *remedy = find_remedy();
    if (remedy != NULL)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                        "--contain=pidns: cannot %s: %s; an administrator can allow it with '%s'", step,
                        strerror(error), remedy);
    return ddp_fail(
        err, DDP_ERR_UNSUPPORTED,
        "--contain=pidns: cannot %s: %s; a container needs CAP_SYS_ADMIN or user namespaces and an "
        "unmasked /proc for it, --contain=auto needs nothing",
        step, strerror(error));
}

/* --- in the guardian ------------------------------------------------------------------------------------- */

static bool put_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Everybody keeps his own ids. A process without rights may map itself, once it gives up setgroups. */
static bool map_ids(unsigned uid, unsigned gid)
{
    char uids[64], gids[64];
    snprintf(uids, sizeof(uids), "%u %u 1", uid, uid);
    snprintf(gids, sizeof(gids), "%u %u 1", gid, gid);
    return put_text("/proc/self/uid_map", uids) && put_text("/proc/self/setgroups", "deny") &&
           put_text("/proc/self/gid_map", gids);
}

ddp_status pidns_unshare(struct ddp_err *err)
{
    const unsigned uid = geteuid(), gid = getegid();
    if (unshare(CLONE_NEWPID) == 0)
        return DDP_OK;
    if (errno != EPERM)
        return explain("make a PID namespace", errno, err);
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
        return explain("make a user namespace", errno, err);
    if (!map_ids(uid, gid))
        return explain("map the user into a user namespace", errno, err);
    return DDP_OK;
}

/* --- in process 1 ---------------------------------------------------------------------------------------- */

static bool is_over(int lifeline)
{
    struct pollfd fd = { .fd = lifeline, .events = POLLIN };
    return poll(&fd, 1, 0) == 1 && (fd.revents & POLLHUP) != 0;
}

ddp_status pidns_enter(int lifeline, struct ddp_err *err)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return explain("arm the parent-death signal", errno, err);
    if (is_over(lifeline))
        return ddp_fail(err, DDP_ERR_ABORTED, "the guardian is gone");
    if (unshare(CLONE_NEWNS) != 0)
        return explain("make a mount namespace", errno, err);
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
        return explain("separate the mounts", errno, err);
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0)
        return explain("mount a /proc of its own", errno, err);
    return DDP_OK;
}

/* The host's /proc has its own idea of what a pidfd's pid is. */
pid_t pidns_host_pid(int host_proc, pid_t pid)
{
    char path[64], text[512] = "";
    int host_pid = 0, pidfd = pids_hold(pid);
    if (pidfd < 0)
        return 0;
    snprintf(path, sizeof(path), "self/fdinfo/%d", pidfd);
    int fd = openat(host_proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, "\nPid:");
    if (line == NULL || sscanf(line, "\nPid: %d", &host_pid) != 1 || host_pid < 0)
        host_pid = 0;
    if (fd >= 0)
        close(fd);
    close(pidfd);
    return host_pid;
}

/* --- a try ----------------------------------------------------------------------------------------------- */

/* The end of a throw-away process: its words, when it has any, go to `pipe`. */
static void leave(int pipe, const struct ddp_err *err)
{
    size_t len = strlen(err->msg);
    _exit(len == 0 || write(pipe, err->msg, len) == (ssize_t)len ? 0 : 1);
}

/* In the first throw-away child: all that a real start does. */
static void try_all(int pipe, int lifeline)
{
    struct ddp_err err = { 0 };
    int status = 0;
    if (pidns_unshare(&err) != DDP_OK)
        leave(pipe, &err);
    pid_t init = fork();
    if (init == 0) {
        pidns_enter(lifeline, &err);
        leave(pipe, &err);
    }
    if (init < 0)
        explain("fork", errno, &err);
    else if (waitpid(init, &status, 0) != init || status != 0)
        explain("keep a first process alive", ECHILD, &err);
    leave(pipe, &err);
}

/* Silence means success. */
ddp_status pidns_probe(struct ddp_err *err)
{
    int words[2], lifeline[2];
    char text[1024];
    if (pipe2(words, O_CLOEXEC) != 0)
        return explain("open a pipe", errno, err);
    if (pipe2(lifeline, O_CLOEXEC) != 0) {
        int error = errno;
        close(words[0]);
        close(words[1]);
        return explain("open a pipe", error, err);
    }
    pid_t child = fork();
    if (child == 0)
        try_all(words[1], lifeline[0]);
    close(words[1]);
    ssize_t n = child > 0 ? read(words[0], text, sizeof(text) - 1) : -1;
    if (child > 0)
        waitpid(child, NULL, 0);
    close(words[0]);
    close(lifeline[0]);
    close(lifeline[1]);
    if (n < 0)
        return explain("fork", errno, err);
    text[n] = '\0';
    return n == 0 ? DDP_OK : ddp_fail(err, DDP_ERR_UNSUPPORTED, "%s", text);
}
