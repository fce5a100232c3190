/* contain.c -- see contain.h.
 *
 * Which process performs each step:
 *
 *     main       contain_open: choose a layer; kill the processes of dead jobs
 *     guardian   contain_fork: create the PID namespace. While the agent starts, create the record and the first group
 *     agent      contain_enter: set up the namespace. contain_name_store: add the store to the record
 *     agent      contain_attempt: use the first group, and make the group of each later attempt
 *     agent      contain_leave: remove the group, because no process is left
 *     guardian   contain_kill, contain_remove; after the death of the guardian, the agent calls both
 *
 * The guardian knows the names of the group and the record, so the guardian can remove both after the death of the
 * agent. */
#include "contain/contain.h"

#include "base/log.h"
#include "base/syscalls.h"
#include "contain/cgroup.h"
#include "contain/descendants.h"
#include "contain/job_record.h"
#include "contain/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
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

/* Without root privileges, ddprun must create a user namespace together with the PID namespace. In this user namespace,
 * the ids of the user stay the same. A private /proc needs a mount namespace. The workers see later mounts of the host
 * (MS_SLAVE); the host never sees the mounts of ddprun.
 *
 * The lifeline is a pipe that becomes readable when the guardian has died. The agent arms the parent-death signal, then
 * checks the lifeline, because the guardian may have died before the signal was armed. getppid() cannot replace this
 * check, because it always returns 0 in the namespace. */

/* --- settings that forbid namespaces ---------------------------------------------------------------------- */

/* Settings that forbid namespaces to ordinary users: the file, the forbidding value, and the remedy. */
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

/* Return the command that allows namespaces again, or NULL if no known setting forbids namespaces. */
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

/* Write to `err` that `step` failed with the errno `error`. If a setting forbids the step, name this setting. */
static ddp_status explain(const char *step, int error, struct ddp_err *err)
{
    const char *remedy = find_remedy();
    if (remedy != NULL)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                        "--contain=pidns: cannot %s: %s; ask an administrator to run '%s'", step,
                        strerror(error), remedy);
    return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                    "--contain=pidns: cannot %s: %s; use --contain=auto, or give the container CAP_SYS_ADMIN "
                    "(or user namespaces) and an unmasked /proc",
                    step, strerror(error));
}

/* --- in the guardian ------------------------------------------------------------------------------------- */

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Map the ids of the user and of the group to themselves. Write "deny" to setgroups first, because the kernel
 * requires this from an unprivileged process. */
static bool map_ids(unsigned uid, unsigned gid)
{
    char uids[64], gids[64];
    snprintf(uids, sizeof(uids), "%u %u 1", uid, uid);
    snprintf(gids, sizeof(gids), "%u %u 1", gid, gid);
    return write_text("/proc/self/uid_map", uids) && write_text("/proc/self/setgroups", "deny") &&
           write_text("/proc/self/gid_map", gids);
}

/* Create a new PID namespace. The next child of the guardian becomes process 1 of the namespace. Call this function
 * before threads exist. */
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

/* Return true if the guardian has died, which closes its end of the lifeline. */
static bool is_over(int lifeline)
{
    struct pollfd fd = { .fd = lifeline, .events = POLLIN };
    return poll(&fd, 1, 0) == 1 && (fd.revents & POLLHUP) != 0;
}

/* Set up process 1 of the namespace: mount a private /proc, and arm the parent-death signal. Call this first in the
 * child. `lifeline` is readable if the guardian is gone. */
static ddp_status pidns_enter(int lifeline, struct ddp_err *err)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return explain("set the parent-death signal", errno, err);
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

/* Return the pid that the child has on the host, or 0 if it is unknown. `pid` is the child's pid in this namespace.
 * `host_proc` is the host's /proc, opened before pidns_enter. In this /proc, the fdinfo of a pidfd shows the pid on the
 * host. */
static pid_t pidns_host_pid(int host_proc, pid_t pid)
{
    char path[64], text[512];
    int host_pid = 0, pidfd = pids_hold(pid);
    if (pidfd < 0)
        return 0;
    snprintf(path, sizeof(path), "self/fdinfo/%d", pidfd);
    (void)read_small_file(host_proc, path, text, sizeof(text));
    const char *line = strstr(text, "\nPid:");
    if (line == NULL || sscanf(line, "\nPid: %d", &host_pid) != 1 || host_pid < 0)
        host_pid = 0;
    close(pidfd);
    return host_pid;
}

/* --- the test of --contain=pidns -------------------------------------------------------------------------- */

/* Write the error message to `pipe`, and end this test process. */
static void leave(int pipe, const struct ddp_err *err)
{
    size_t len = strlen(err->msg);
    _exit(len == 0 || write(pipe, err->msg, len) == (ssize_t)len ? 0 : 1);
}

/* Create and enter a PID namespace in the test process, by the same steps as a real start. */
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
        explain("start process 1 of the namespace", ECHILD, &err);
    leave(pipe, &err);
}

/* Check in a separate process whether a PID namespace can be created. If a step fails, the test process writes an error
 * text with the step and the reason to a pipe. Return this text with DDP_ERR_UNSUPPORTED. */
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
    const int error = errno;
    if (child > 0)
        waitpid(child, NULL, 0);
    close(words[0]);
    close(lifeline[0]);
    close(lifeline[1]);
    if (n < 0)
        return explain(child > 0 ? "read the result of the test process" : "fork", error, err);
    text[n] = '\0';
    return n == 0 ? DDP_OK : ddp_fail(err, DDP_ERR_UNSUPPORTED, "%s", text);
}

/* Optional features of the system, one row for each. An old kernel or a container's seccomp filter may lack a feature.
 *
 * --verbose prints the missing features. Without --verbose, only a missing `grave` feature is printed, because
 * processes of any job may then end without SIGTERM or outlive the job. With --quiet and without --verbose, no feature
 * is printed. */

/* Return true if a system call exists. `result` is the return value of this system call for invalid arguments. errno is
 * ENOSYS if the system call is missing, and EPERM if it is forbidden. */
static bool has_call(long result)
{
    return result >= 0 || (errno != ENOSYS && errno != EPERM);
}

/* Test clone3 with an invalid descriptor of a control group, so that the kernel rejects the call before it creates a
 * process. A kernel whose clone3 does not support control groups fails with E2BIG. */
static bool has_clone3(void)
{
    const struct clone_args args = { .flags = CLONE_INTO_CGROUP, .cgroup = UINT64_MAX };
    return has_call(syscall(SYS_clone3, &args, sizeof(args))) && errno != E2BIG;
}

/* Test close_range with an empty range, so that no descriptor is closed. */
static bool has_close_range(void)
{
    return has_call(sys_close_range(~0U, ~0U, 0U));
}

/* Return true if /proc shows the processes of all users. With the mount option hidepid, /proc hides process 1 from an
 * ordinary user, because process 1 belongs to root. */
static bool shows_all(void)
{
    return !procfs_is_own() || access("/proc/1/stat", F_OK) == 0;
}

static const struct {
    bool (*has)(void);
    bool grave;
    const char *words;
} rows[] = {
    { procfs_is_own, true,
      "/proc is not mounted for this PID namespace: processes that workers started get no SIGTERM; "
      "ddprun kills these processes after the workers have ended; run 'mount -t proc proc /proc' (docker "
      "and podman mount /proc by default)" },
    { shows_all, false,
      "/proc hides the processes of other users (hidepid): if a worker changes its user, the children of "
      "this worker get no SIGTERM; ddprun kills the children after the worker has ended" },
    { descendants_adopt, true,
      "PR_SET_CHILD_SUBREAPER is not available (under qemu-user, or forbidden by seccomp): a process "
      "that a worker started may outlive the job" },
    { pids_can_hold, false,
      "pidfd_open is not available (before Linux 5.3, or forbidden by seccomp): ddprun identifies "
      "processes by their start time, may report the wrong worker as the first failure if two workers fail "
      "at the same time, and does not kill processes of dead jobs" },
    { has_clone3, false,
      "clone3 is not available (before Linux 5.7, or forbidden by seccomp): workers join their control "
      "group after they have started" },
    { has_close_range, false,
      "close_range is not available (before Linux 5.9, or forbidden by seccomp): ddprun closes file "
      "descriptors one by one when a worker starts" },
};

/* Test the features again at each call, which happens only a few times. */
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
    WHY_MAX = 301,      /* bytes of the reason in struct prepared, with the NUL */
    PREPARED_MS = 5000, /* milliseconds that the agent waits for the guardian's struct prepared */
    /* milliseconds that the kernel needs to release killed processes with gigabytes of memory */
    EMPTY_LIMIT_MS = 1000
};

/* What the guardian has done while the agent started. The guardian writes this struct to a pipe, because the agent must
 * not start a worker before, and because the agent prints why there is no record. */
struct prepared {
    bool has_group;    /* the guardian may have created a group, which no attempt has used yet */
    bool has_record;   /* the record was written, and lines can be added */
    char why[WHY_MAX]; /* why the record was not written; "" if it was written */
};

struct contain {
    enum contain_kind kind; /* the chosen layer, never CONTAIN_AUTO */
    bool may_fall_back;     /* CONTAIN_AUTO was requested, so another layer may replace a layer that fails */
    bool all_mounts;        /* `mounts` has all mounts, not only mounts at the usual places */
    char *job, *cookie;     /* owned; `cookie` is "" if there is no cookie */
    struct buf mounts, groups;   /* texts that contain_mounts() and contain_groups() return */
    char group[CGROUP_PATH_MAX]; /* directory of the job's group, below ddprun's group; "" without a group */
    int group_fd;                /* descriptor of `group` during an attempt; -1 without a group */
    int host_proc;               /* descriptor of the host's /proc, for the layer pidns */
    int from_guardian;           /* pipe from which the agent reads `prepared`; -1 if it is not open */
    struct prepared prepared;    /* all zero until the agent has read it */
    char words[WORDS_MAX];       /* the text that contain_words() returns */
};

/* --- choose ---------------------------------------------------------------------------------------------- */

#define STRONGER "--contain=pidns is stronger, but changes the pids that workers see"

/* Use the plain layer. `why` is the reason why no control group is used. With CONTAIN_AUTO, add this reason to the text
 * for the user. */
static void choose_plain(struct contain *c, const char *why)
{
    c->kind = CONTAIN_PLAIN;
    c->group[0] = '\0';
    if (c->may_fall_back)
        snprintf(
            c->words, sizeof(c->words),
            "plain: ddprun and its agent process watch each other; ddprun cannot use a control group: %s "
            "(" STRONGER ")",
            why);
    else
        snprintf(c->words, sizeof(c->words),
                 "plain: ddprun and its agent process watch each other (set by --contain=plain)");
}

/* Use a control group below ddprun's own group `own`. The group is created later, by contain_fork. */
static void choose_cgroup(struct contain *c, const char *own)
{
    char name[CGROUP_NAME_MAX];
    cgroup_name(name, c->job, c->cookie);
    if ((size_t)snprintf(c->group, sizeof(c->group), "%s/%s", own, name) >= sizeof(c->group)) {
        choose_plain(c, "the path of the group is too long");
        return;
    }
    c->kind = CONTAIN_CGROUP;
    snprintf(c->words, sizeof(c->words), "cgroup, %.500s (" STRONGER ")", c->group);
}

/* Write to `err` that no control group is available, for the reason `why`. */
static ddp_status no_cgroup(const char *why, struct ddp_err *err)
{
    return ddp_fail(
        err, DDP_ERR_UNSUPPORTED,
        "--contain=cgroup: %s; this value requires Linux 5.14 and a cgroup v2 that this user may write "
        "to; 'systemd-run --user --scope -p Delegate=yes' creates such a group",
        why);
}

/* Read all mounts instead of only the usual mounts. Return false if all mounts were read before. */
static bool read_all_mounts(struct contain *c)
{
    if (c->all_mounts)
        return false;
    c->all_mounts = true;
    c->mounts.len = 0;
    return procfs_read("/proc/self/mountinfo", &c->mounts);
}

/* Find ddprun's own group in the usual mounts, or else in all mounts. */
static bool find_group(struct contain *c, char own[CGROUP_PATH_MAX], char why[CGROUP_WHY_MAX])
{
    return cgroup_find(contain_groups(c), contain_mounts(c), own, why) ||
           (read_all_mounts(c) && cgroup_find(contain_groups(c), contain_mounts(c), own, why));
}

/* Choose the layer: pidns, cgroup or plain (see contain.h). The group's name contains the random cookie of the job. If
 * no cookie exists, no group can be used. */
static ddp_status contain_choose(struct contain *c, enum contain_kind kind, struct ddp_err *err)
{
    char own[CGROUP_PATH_MAX],
        why[CGROUP_WHY_MAX] = "the system provides no random numbers for the group's name";
    c->may_fall_back = kind == CONTAIN_AUTO;
    if (kind == CONTAIN_PIDNS) {
        c->kind = kind;
        snprintf(c->words, sizeof(c->words), "pidns, a PID namespace (the strongest value of --contain)");
        return pidns_probe(err);
    }
    if (kind != CONTAIN_PLAIN && c->cookie[0] != '\0' && find_group(c, own, why))
        choose_cgroup(c, own);
    else
        choose_plain(c, why);
    return kind == CONTAIN_CGROUP && c->kind != kind ? no_cgroup(why, err) : DDP_OK;
}

/* Remove the empty control groups of dead jobs, because record_sweep finds only jobs that have left a record. The
 * groups have the same parent as the group of this job. */
static void sweep_groups(const struct contain *c)
{
    char parent[CGROUP_PATH_MAX];
    if (c->kind != CONTAIN_CGROUP)
        return;
    memcpy(parent, c->group, strlen(c->group) + 1);
    *strrchr(parent, '/') = '\0';
    cgroup_sweep(parent);
}

/* Choose a layer for the processes of this job. Then kill the remaining processes of dead jobs, because they may hold
 * GPUs, memory or a port that this job needs. */
ddp_status contain_open(const struct contain_options *options, struct contain **out, struct ddp_err *err)
{
    struct contain *c = calloc(1, sizeof(*c));
    *out = c;
    if (c == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    c->group_fd = c->host_proc = c->from_guardian = -1;
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
    if (c->from_guardian >= 0)
        close(c->from_guardian);
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

/* Create the PID namespace of the agent. When the agent dies, the kernel kills all processes of the namespace. So a
 * later ddprun has no process to kill, and only removes the files of the dead job. */
static bool create_namespace(struct contain *c)
{
    struct ddp_err err;
    c->host_proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool ok = pidns_unshare(&err) == DDP_OK;
    if (!ok)
        log_error("%s", err.msg);
    return ok;
}

/* Write the record while the agent starts on another CPU, then create the first group. Without a record, a later start
 * might not find the group. The guardian knows the pid that
 * the agent has on the host; an agent in a PID namespace does not know it. */
static void prepare(struct contain *c, pid_t agent, int to_agent)
{
    struct prepared p = { 0 };
    struct ddp_err err;
    p.has_record =
        c->cookie[0] != '\0' && record_write(c->job, c->cookie, c->group, getpid(), agent, &err) == DDP_OK;
    if (c->cookie[0] != '\0' && !p.has_record)
        snprintf(p.why, sizeof(p.why), "%.300s", err.msg);
    p.has_group = c->kind == CONTAIN_CGROUP && cgroup_create(c->group);
    if (write(to_agent, &p, sizeof(p)) < 0)
        log_warn("agent process: cannot report that the record was written: %s", strerror(errno));
}

pid_t contain_fork(struct contain *c)
{
    int ends[2];
    if ((c->kind == CONTAIN_PIDNS && !create_namespace(c)) || pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    const pid_t agent = fork();
    if (agent > 0)
        prepare(c, agent, ends[1]);
    if (agent == 0)
        c->from_guardian = ends[0];
    else
        close(ends[0]);
    close(ends[1]);
    return agent;
}

bool contain_hides_guardian(const struct contain *c)
{
    return c->kind == CONTAIN_PIDNS;
}

ddp_status contain_enter(struct contain *c, int lifeline, struct ddp_err *err)
{
    return c->kind == CONTAIN_PIDNS ? pidns_enter(lifeline, err) : DDP_OK;
}

/* Read once what the guardian has prepared. Wait for the guardian at most PREPARED_MS, because a worker should only
 * start after the record was written. A guardian that is late may still create the group. */
static void read_prepared(struct contain *c)
{
    struct pollfd end = { .fd = c->from_guardian, .events = POLLIN };
    const size_t len = strlen(c->words);
    if (c->from_guardian < 0)
        return;
    if (poll(&end, 1, PREPARED_MS) <= 0 || read(end.fd, &c->prepared, sizeof(c->prepared)) <= 0)
        c->prepared =
            (struct prepared){ .has_group = true, .why = "the outer ddprun process has not answered" };
    close(c->from_guardian);
    c->from_guardian = -1;
    if (c->prepared.why[0] != '\0')
        snprintf(
            c->words + len, sizeof(c->words) - len, "; ddprun cannot write the record of this job: %s%s",
            c->prepared.why,
            c->kind == CONTAIN_PIDNS
                ? ""
                : "; if ddprun and its agent process are killed at the same time, the next start of ddprun "
                  "cannot find and kill the workers");
}

void contain_name_store(struct contain *c, const char *host, int port)
{
    char store[ENDPOINT_TEXT_MAX];
    endpoint_print(host, port, store);
    read_prepared(c);
    c->prepared.has_record = c->prepared.has_record && record_name_store(c->cookie, store);
}

/* Remove the group of the previous attempt. All attempts use the same name, by which the guardian finds the group. The
 * removal fails only if a process is unkillable, and then no attempt follows. */
static void leave_group(struct contain *c)
{
    if (c->group_fd < 0)
        return;
    close(c->group_fd);
    c->group_fd = -1;
    cgroup_remove(c->group, EMPTY_LIMIT_MS);
}

/* Create a group for each attempt, so that a kill of one attempt never hits the next attempt. If no group can be
 * created, use the plain layer. If the user has requested the layer cgroup, fail instead. */
ddp_status contain_attempt(struct contain *c, struct ddp_err *err)
{
    char why[CGROUP_WHY_MAX];
    read_prepared(c);
    if (c->kind != CONTAIN_CGROUP)
        return DDP_OK;
    leave_group(c);
    c->group_fd = cgroup_make(c->group, c->prepared.has_group);
    c->prepared.has_group = false;
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

/* Return the pid outside the PID namespace of the workers, because users need this pid for ps and gdb. */
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

/* Remove the group if it is already empty, so that the guardian does not have to remove it later. */
void contain_leave(struct contain *c)
{
    if (c->group_fd >= 0)
        cgroup_remove(c->group, 0);
}

/* Remove the group and the record. Keep the record if the group is not empty, so that the next start tries again. */
void contain_remove(struct contain *c)
{
    if (c->cookie[0] == '\0')
        return;
    if (c->kind != CONTAIN_CGROUP || cgroup_remove(c->group, EMPTY_LIMIT_MS))
        record_remove(c->cookie);
}
