/* contain.c -- see contain.h.
 *
 * The process of each step:
 *
 *     main       contain_open: choose; kill the processes of dead jobs
 *     guardian   contain_fork: the PID namespace begins here, with its record
 *     agent      contain_enter, contain_name_store: record; then for each attempt contain_attempt: control group
 *     agent      contain_leave: no process is left, so the group can go
 *     guardian   contain_kill, contain_remove; when the guardian was killed the agent does it
 *
 * Both have the names of everything that the agent will create, so the guardian can remove it without asking. */
#include "contain/contain.h"

#include "base/log.h"
#include "base/syscalls.h"
#include "contain/cgroup.h"
#include "contain/descendants.h"
#include "contain/job_record.h"
#include "contain/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Without root, a user namespace gives the right to create namespaces; ids stay the same in it. The sweep reads a
 * private /proc, and mounting it needs a mount namespace. Later mounts of the host still reach the workers
 * (MS_SLAVE), ours never reach the host.
 *
 * If the guardian dies before the parent-death signal is armed, the signal never arrives, and the parent's pid is no
 * help (it is outside, hence 0): so the lifeline is checked once the signal is armed. */

/* --- reasons against it ---------------------------------------------------------------------------------- */

/* Settings that forbid namespaces to ordinary users: the file, its forbidding value, and the remedy. */
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

/* `step` failed with `error`. */
static ddp_status explain(const char *step, int error, struct ddp_err *err)
{
    const char *remedy = find_remedy();
    if (remedy != NULL)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                        "--contain=pidns: cannot %s: %s; an administrator can allow it with '%s'", step,
                        strerror(error), remedy);
    return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                    "--contain=pidns: cannot %s: %s; a container needs CAP_SYS_ADMIN or user namespaces and "
                    "an unmasked /proc; --contain=auto needs neither",
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

/* Map each id to itself. An unprivileged process may map itself once it gives up setgroups. */
static bool map_ids(unsigned uid, unsigned gid)
{
    char uids[64], gids[64];
    snprintf(uids, sizeof(uids), "%u %u 1", uid, uid);
    snprintf(gids, sizeof(gids), "%u %u 1", gid, gid);
    return put_text("/proc/self/uid_map", uids) && put_text("/proc/self/setgroups", "deny") &&
           put_text("/proc/self/gid_map", gids);
}

/* In the guardian: make its next child process 1 of a new namespace. Call it before threads exist. */
static ddp_status pidns_unshare(struct ddp_err *err)
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

/* In that child, before anything else: die with the guardian, see our own /proc. `lifeline` becomes readable when the
 * guardian is gone; it may be gone already. */
static ddp_status pidns_enter(int lifeline, struct ddp_err *err)
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
        return explain("mount a private /proc", errno, err);
    return DDP_OK;
}

/* Return the pid of our child `pid` as the host's users see it; 0 when unknown. `host_proc` is the host's /proc,
 * opened before pidns_enter, because the fdinfo of a pidfd there shows the host's pid. */
static pid_t pidns_host_pid(int host_proc, pid_t pid)
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

/* The end of a test process: its message, if any, goes to `pipe`. */
static void leave(int pipe, const struct ddp_err *err)
{
    size_t len = strlen(err->msg);
    _exit(len == 0 || write(pipe, err->msg, len) == (ssize_t)len ? 0 : 1);
}

/* In the first test child: do everything that a real start does. */
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

/* Check in a separate process that it works here, so that nothing changes. DDP_ERR_UNSUPPORTED: `err` names the
 * setting that forbids it. Silence means success. */
static ddp_status pidns_probe(struct ddp_err *err)
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

/* One row for each optional feature of the system.
 *
 * Old kernels lack a call, and containers forbid it by a filter; an attempt detects both. The replacement works, but
 * less well, and --verbose explains it. `grave`: processes may end without SIGTERM; that is always printed. */

/* Calls with invalid arguments fail differently if the call exists and if it is missing or a filter forbids it. */
static bool has_call(long result)
{
    return result >= 0 || (errno != ENOSYS && errno != EPERM);
}

/* A NULL pointer of size 0 is rejected before anything is created. */
static bool has_clone3(void)
{
    return has_call(syscall(SYS_clone3, NULL, (size_t)0));
}

/* A range without descriptors: nothing is closed. */
static bool has_close_range(void)
{
    return has_call(sys_close_range(~0U, ~0U, 0U));
}

/* Only root owns process 1, but any visible process can be examined this far. */
static bool shows_all(void)
{
    return !procfs_is_ours() || access("/proc/1/stat", F_OK) == 0;
}

static const struct {
    bool (*has)(void);
    bool grave;
    const char *words;
} rows[] = {
    { procfs_is_ours, true,
      "/proc is not mounted for this PID namespace: processes that workers started get no SIGTERM and are "
      "killed when the workers are gone; mount it with 'mount -t proc proc /proc' (docker and podman do "
      "it)" },
    { shows_all, false,
      "/proc hides the processes of other users (hidepid): children of a worker that changed its user get no "
      "SIGTERM and are killed when their parents are gone" },
    { descendants_adopt, true,
      "PR_SET_CHILD_SUBREAPER is not available (qemu-user, or a filter): a process that a worker started may "
      "outlive the job" },
    { pids_can_hold, false,
      "pidfd_open is not available (Linux 5.3, or a filter): processes are identified by their start time; "
      "if workers fail at the same moment, the first one is unknown; processes of dead jobs are not "
      "removed" },
    { has_clone3, false,
      "clone3 is not available (Linux 5.7, or a filter): workers join their control group after they have "
      "started" },
    { has_close_range, false,
      "close_range is not available (Linux 5.9, or a filter): descriptors are closed one by one when a "
      "worker starts" },
};

/* Test it at each call: a job needs it only a few times, and a cache would have to stay correct. */
const char *lacks_words(size_t n, bool only_grave, bool *grave)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if ((only_grave && !rows[i].grave) || rows[i].has())
            continue;
        if (n-- > 0)
            continue;
        *grave = rows[i].grave;
        return rows[i].words;
    }
    return NULL;
}

enum {
    WORDS_MAX = 1024,
    EMPTY_LIMIT_MS =
        1000 /* time for the kernel to release killed processes; gigabytes of memory take that long */
};

struct contain {
    enum contain_kind kind; /* the chosen one, never CONTAIN_AUTO */
    bool may_fall_back;     /* the user did not request this layer */
    bool recorded;
    bool all_mounts;             /* `mounts` has all mounts, not only the usual ones */
    char *job, *cookie;          /* owned; cookie "" = none */
    struct buf mounts, groups;   /* see contain_mounts and contain_groups */
    char group[CGROUP_PATH_MAX]; /* below our own group; "" = none */
    int group_fd;                /* its directory during an attempt; -1 = none */
    int host_proc;               /* with pidns: the host's /proc */
    char words[WORDS_MAX];
};

/* --- choose ---------------------------------------------------------------------------------------------- */

#define STRONGER "--contain=pidns is stronger, but workers then see other process ids"

/* Plain is not weak, but a user who did not request it learns the obstacle and the stronger layer. */
static void choose_plain(struct contain *c, const char *why)
{
    c->kind = CONTAIN_PLAIN;
    c->group[0] = '\0';
    if (c->may_fall_back)
        snprintf(c->words, sizeof(c->words),
                 "plain, guardian and agent watch each other (no control group: %s; " STRONGER ")", why);
    else
        snprintf(c->words, sizeof(c->words), "plain, guardian and agent watch each other, as requested");
}

static void choose_cgroup(struct contain *c, const char *own)
{
    char name[CGROUP_NAME_MAX];
    cgroup_name(name, c->job, c->cookie);
    if ((size_t)snprintf(c->group, sizeof(c->group), "%s/%s", own, name) >= sizeof(c->group)) {
        choose_plain(c, "its path is too long");
        return;
    }
    c->kind = CONTAIN_CGROUP;
    snprintf(c->words, sizeof(c->words), "cgroup, %.500s (" STRONGER ")", c->group);
}

/* Only for users who requested a group; otherwise plain is used. */
static ddp_status no_cgroup(const char *why, struct ddp_err *err)
{
    return ddp_fail(
        err, DDP_ERR_UNSUPPORTED,
        "--contain=cgroup: %s; it needs a cgroup v2 that this user may write to, as made by 'systemd-run "
        "--user --scope -p Delegate=yes', and Linux 5.14",
        why);
}

/* False if it has been done already. */
static bool read_all_mounts(struct contain *c)
{
    if (c->all_mounts)
        return false;
    c->all_mounts = true;
    c->mounts.len = 0;
    return procfs_read("/proc/self/mountinfo", &c->mounts);
}

/* Use the usual mounts, or else all of them. */
static bool find_group(struct contain *c, char own[CGROUP_PATH_MAX], char why[CGROUP_WHY_MAX])
{
    return cgroup_find(contain_groups(c), contain_mounts(c), own, why) ||
           (read_all_mounts(c) && cgroup_find(contain_groups(c), contain_mounts(c), own, why));
}

/* The control group needs the cookie for its name. */
static ddp_status contain_choose(struct contain *c, enum contain_kind kind, struct ddp_err *err)
{
    char own[CGROUP_PATH_MAX], why[CGROUP_WHY_MAX] = "no random numbers for its name";
    c->may_fall_back = kind == CONTAIN_AUTO;
    if (kind == CONTAIN_PIDNS) {
        c->kind = kind;
        snprintf(c->words, sizeof(c->words), "pidns, a PID namespace (nothing is stronger)");
        return pidns_probe(err);
    }
    if (kind != CONTAIN_PLAIN && c->cookie[0] != '\0' && find_group(c, own, why))
        choose_cgroup(c, own);
    else
        choose_plain(c, why);
    return kind == CONTAIN_CGROUP && c->kind != kind ? no_cgroup(why, err) : DDP_OK;
}

/* Groups of jobs without a record. They are next to ours. */
static void sweep_groups(const struct contain *c)
{
    char parent[CGROUP_PATH_MAX];
    if (c->kind != CONTAIN_CGROUP)
        return;
    memcpy(parent, c->group, strlen(c->group) + 1);
    *strrchr(parent, '/') = '\0';
    cgroup_sweep(parent);
}

/* Kill the processes of dead jobs before this job creates anything, because they may hold the memory, the GPUs and
 * the port that it needs. A dry run changes nothing. */
ddp_status contain_open(const struct contain_options *options, struct contain **out, struct ddp_err *err)
{
    struct contain *c = calloc(1, sizeof(*c));
    *out = c;
    if (c == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    c->group_fd = c->host_proc = -1;
    procfs_read("/proc/self/cgroup", &c->groups);
    if (!cgroup_usual_mounts(&c->mounts))
        read_all_mounts(c);
    c->job = strdup(options->job);
    c->cookie = strdup(options->cookie != NULL ? options->cookie : "");
    ddp_status status = c->job != NULL && c->cookie != NULL ? contain_choose(c, options->kind, err)
                                                            : ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    if (status != DDP_OK) {
        contain_close(c);
        *out = NULL;
        return status;
    }
    if (!options->dry_run) {
        record_sweep(options->quiet);
        sweep_groups(c);
    }
    return DDP_OK;
}

void contain_close(struct contain *c)
{
    if (c->group_fd >= 0)
        close(c->group_fd);
    if (c->host_proc >= 0)
        close(c->host_proc);
    buf_free(&c->mounts);
    buf_free(&c->groups);
    free(c->job);
    free(c->cookie);
    free(c);
}

const char *contain_words(const struct contain *c)
{
    return c->words;
}

static const char *text_of(const struct buf *text)
{
    return text->data != NULL ? (const char *)text->data : "";
}

const char *contain_mounts(const struct contain *c)
{
    return text_of(&c->mounts);
}

const char *contain_groups(const struct contain *c)
{
    return text_of(&c->groups);
}

/* --- begin ----------------------------------------------------------------------------------------------- */

/* Only the child of a process that has called unshare is in the new namespace. It does not know its pid outside, so
 * the record is written here. It leads to no process, but to the files that workers have left. */
static pid_t fork_into_namespace(struct contain *c)
{
    struct ddp_err err;
    c->host_proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (pidns_unshare(&err) != DDP_OK) {
        log_error("%s", err.msg);
        return -1;
    }
    const pid_t agent = fork();
    if (agent > 0 && c->cookie[0] != '\0')
        record_write(c->job, c->cookie, "", getpid(), agent, &err);
    return agent;
}

pid_t contain_fork(struct contain *c)
{
    return c->kind == CONTAIN_PIDNS ? fork_into_namespace(c) : fork();
}

ddp_status contain_enter(struct contain *c, int lifeline, struct ddp_err *err)
{
    return c->kind == CONTAIN_PIDNS ? pidns_enter(lifeline, err) : DDP_OK;
}

/* With a PID namespace the guardian has done it. */
static void write_record(struct contain *c)
{
    struct ddp_err err;
    size_t len = strlen(c->words);
    if (c->recorded || c->kind == CONTAIN_PIDNS || c->cookie[0] == '\0')
        return;
    c->recorded = true;
    if (record_write(c->job, c->cookie, c->group, getppid(), getpid(), &err) != DDP_OK)
        snprintf(c->words + len, sizeof(c->words) - len,
                 "; if both are killed at once, the next start cannot find this job's processes: %.300s",
                 err.msg);
}

void contain_name_store(struct contain *c, const char *host, int port)
{
    char address[ENDPOINT_TEXT_MAX];
    write_record(c);
    if (c->cookie[0] != '\0')
        record_write_store(c->cookie, endpoint_print(host, port, address));
}

/* Remove the group of the previous attempt: the next one has the same name, by which the guardian finds it, but is a
 * new group. An unkillable process would keep it, but then no attempt follows. */
static void leave_group(struct contain *c)
{
    if (c->group_fd < 0)
        return;
    close(c->group_fd);
    c->group_fd = -1;
    cgroup_remove(c->group, EMPTY_LIMIT_MS);
}

/* A group for each attempt, so that killing an attempt cannot hit the next one. If it cannot be created and the user
 * did not request groups, the plain layer is used. */
ddp_status contain_attempt(struct contain *c, struct ddp_err *err)
{
    char why[CGROUP_WHY_MAX];
    write_record(c);
    if (c->kind != CONTAIN_CGROUP)
        return DDP_OK;
    leave_group(c);
    c->group_fd = cgroup_make(c->group);
    if (c->group_fd >= 0)
        return DDP_OK;
    snprintf(why, sizeof(why), "cannot make %.80s: %s", c->group, strerror(errno));
    cgroup_remove(c->group, 0);
    if (!c->may_fall_back)
        return no_cgroup(why, err);
    choose_plain(c, why);
    return DDP_OK;
}

int contain_cgroup_fd(const struct contain *c)
{
    return c->group_fd;
}

/* Inside a PID namespace workers have other pids, which mean nothing to ps and gdb outside. */
pid_t contain_shown_pid(const struct contain *c, pid_t pid)
{
    pid_t shown = c->host_proc >= 0 ? pidns_host_pid(c->host_proc, pid) : 0;
    return shown != 0 ? shown : pid;
}

/* --- end ------------------------------------------------------------------------------------------------- */

bool contain_kill(struct contain *c)
{
    return c->kind == CONTAIN_CGROUP && cgroup_kill(c->group);
}

/* Usually the last process has left by now, and the guardian need not wait. */
void contain_leave(struct contain *c)
{
    if (c->group_fd >= 0)
        cgroup_remove(c->group, 0);
}

/* A group that is not empty stays, and so does the record, so that the next start tries again. */
void contain_remove(struct contain *c)
{
    if (c->cookie[0] == '\0')
        return;
    if (c->kind != CONTAIN_CGROUP || cgroup_remove(c->group, EMPTY_LIMIT_MS))
        record_remove(c->cookie);
}
