/* guardian.c -- see guardian.h. The guardian must survive the agent. So the guardian waits without a thread, an event
 * loop or an allocation, because each of these could fail. The guardian sleeps in sigtimedwait or sigwaitinfo until a
 * signal arrives or a time limit is over. */
#include "node/guardian.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "base/timed_call.h"
#include "contain/descendants.h"
#include "contain/job_record.h"
#include "contain/procfs.h"
#include "output/disk_watch.h"
#include "base/exit_codes.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* Time limit in ms for killing processes that the agent could not kill. The limit is short, because the agent has
     * already waited for these processes. */
    STUCK_LIMIT_MS = 100,
    /* After this time without a signal, the guardian releases the code pages that only the start has used. An agent in
     * a PID namespace cannot signal the guardian. In this case, the guardian also checks at this interval whether the
     * agent has called disk_watch_leave(). */
    SETTLED_S = 1,
    /* How long to wait for a hanging disk after the user's second request to stop. With this limit, ddprun exits
     * within 2 s after this request. */
    HUNG_LIMIT_MS = 1500,
    HUNG_CHECK_MS = 100 /* time between two checks of the disk after the second request to stop */
};

struct guardian {
    pid_t self, agent;
    bool is_hidden;  /* the agent cannot signal the guardian */
    int lifeline[2]; /* the agent reads, the guardian writes */
    sigset_t watched;
    signal_set stop; /* signals that end the job in addition to SIGTERM, SIGINT and SIGHUP */
    bool ends;       /* a signal that stops the job was received */
    /* recognizes the second copy of a signal that was sent to both guardian and agent */
    struct stop_memory stop_memory;
    int stops;        /* number of the user's requests to stop */
    uint64_t hung_ms; /* when has_hung() first checked the disk, in ms; 0 before the first check */
    /* when has_hung() first saw that the agent may be stuck, in ms; 0 before that */
    uint64_t stuck_ms;
};

/* Return true if the signal must be watched. Watch SIGCHLD and SIGCONT even if both were ignored at the start: while
 * SIGCHLD is ignored, the kernel drops the exit status of children. */
static bool is_wanted(const struct signal_row *row)
{
    struct sigaction now;
    if (row->act == SIGNAL_NONE)
        return false;
    if (row->act == SIGNAL_CHILD || row->act == SIGNAL_RESUME)
        return true;
    return sigaction(row->number, NULL, &now) == 0 && now.sa_handler != SIG_IGN;
}

void signal_watch_block(sigset_t *watched)
{
    sigemptyset(watched);
    for (int i = 0; i < SIGNAL_ROWS; i++) {
        if (is_wanted(&signal_rows[i]))
            sigaddset(watched, signal_rows[i].number);
        if (signal_rows[i].act == SIGNAL_NONE)
            signal(signal_rows[i].number, SIG_IGN);
    }
    signal(SIGCHLD, SIG_DFL);
    signal(SIGCONT, SIG_DFL);
    sigprocmask(SIG_BLOCK, watched, NULL);
}

/* Continue the agent, but only if the agent is stopped. An unneeded SIGCONT could stay pending while a debugger
 * attaches, and the debugger would then wait forever. */
static void wake_if_stopped(pid_t agent)
{
    siginfo_t stopped = { 0 };
    if (waitid(P_PID, (id_t)agent, &stopped, WSTOPPED | WNOHANG | WNOWAIT) == 0 && stopped.si_pid == agent)
        kill(agent, SIGCONT);
}

/* Return true if the agent must not stay stopped: it should end, or it has an unread message. The guardian checks this
 * after every signal, because the agent may be stopped after the guardian has sent the message. */
static bool may_not_stand(const struct guardian *g)
{
    int unread = 0;
    return g->ends || (ioctl(g->lifeline[1], FIONREAD, &unread) == 0 && unread > 0);
}

/* Send a received signal to the agent as a message in the lifeline, and continue the agent if it is stopped. Unlike a
 * signal, a message is never merged with another message, and it contains the original sender. Ignore a full pipe,
 * because it already holds a thousand messages, more than the agent needs. Ignore a closed pipe, because the agent is
 * ending. */
static void guardian_forward(const struct guardian *g, const struct received_signal *received)
{
    if (write(g->lifeline[1], received, sizeof(*received)) < 0 && errno != EAGAIN && errno != EPIPE)
        log_warn("agent process: cannot forward a signal: %s", strerror(errno));
    wake_if_stopped(g->agent);
}

/* Handle Ctrl-Z: stop the job, then this process, so that the shell prints its prompt after the job is stopped. If the
 * guardian is the first process of a container, it cannot be stopped. It then continues, while the job stays stopped
 * until a SIGCONT arrives. */
static void rest(const struct guardian *g, const struct received_signal *received)
{
    guardian_forward(g, received);
    raise(SIGSTOP);
}

/* Handle a signal that the guardian received. Count the signals that stop the job, so that a second Ctrl-C works even
 * if the agent does not respond. */
static void hand_on(struct guardian *g, const siginfo_t *info)
{
    const struct received_signal received = {
        .signal = info->si_signo,
        .by_guardian = true,
        .by_parent = info->si_code <= 0 && info->si_pid == getppid(),
        .sender = procfs_sender(info->si_code, info->si_pid, info->si_uid),
    };
    const bool stop = signals_act(g->stop, received.signal) == SIGNAL_STOP;
    g->ends = g->ends || stop;
    g->stops += stop && signals_is_new_stop(&g->stop_memory, &received, clock_ms());
    if (received.signal == SIGTSTP)
        rest(g, &received);
    else
        guardian_forward(g, &received);
}

/* Drop the pages of code and constants of one loaded object. The kernel reads these pages again when needed. */
static int forget_code(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = object->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && (part->p_flags & PF_W) == 0)
            madvise((void *)(from & ~(page - 1)), part->p_memsz + (from & (page - 1)), MADV_DONTNEED);
    }
    return 0;
}

/* Wait for a signal. After SETTLED_S without a signal, release about 2 MB of code pages that only the start has used.
 * After has_hung() has begun to check the disk, wait at most HUNG_CHECK_MS, so that the check is repeated. If the agent
 * cannot signal the guardian (is_hidden), also return when the agent has called disk_watch_leave(). */
static int wait_for_signal(const struct guardian *g, siginfo_t *info)
{
    const struct timespec settled = { .tv_sec = SETTLED_S };
    bool is_stuck;
    if (g->hung_ms != 0)
        return sigtimedwait(&g->watched, info, &(struct timespec){ .tv_nsec = HUNG_CHECK_MS * 1000000L });
    int sig = sigtimedwait(&g->watched, info, &settled);
    if (sig > 0 || errno != EAGAIN)
        return sig;
    dl_iterate_phdr(forget_code, NULL);
    if (!g->is_hidden)
        return sigwaitinfo(&g->watched, info);
    while (!disk_watch_left(&is_stuck) && (sig = sigtimedwait(&g->watched, info, &settled)) < 0 &&
           errno == EAGAIN)
        continue;
    return sig;
}

/* Return true if SIGKILL cannot end the agent. Possible reasons: a file system or a driver does not answer, or the
 * agent is process 1 of a PID namespace and waits for processes that cannot be killed. Check this only after the user's
 * second request to stop, or after the agent has called disk_watch_leave(). If no disk hangs, wait for SWEEP_LIMIT_MS,
 * because the agent may only be slow to exit. */
static bool has_hung(struct guardian *g)
{
    char path[DISK_PATH_MAX];
    bool is_stuck;
    if (!disk_watch_left(&is_stuck) && g->stops < 2)
        return false;
    if (g->hung_ms == 0)
        g->hung_ms = clock_ms();
    if (is_stuck && g->stuck_ms == 0)
        g->stuck_ms = clock_ms();
    if (clock_ms() < g->hung_ms + HUNG_LIMIT_MS)
        return false;
    const bool is_disk = disk_hangs(DISK_HUNG_MS, path);
    if (!is_disk && (!is_stuck || clock_ms() < g->stuck_ms + SWEEP_LIMIT_MS))
        return false;
    kill(g->agent, SIGKILL);
    if (!is_disk) {
        log_error(
            "the agent process (pid %d) cannot be killed: a process of the job, or a driver that the agent "
            "called, hangs in the kernel; restart this host if the agent process does not end",
            (int)g->agent);
        return true;
    }
    log_error(
        "%s: the file system does not answer; the agent process (pid %d) hangs there and cannot be killed; "
        "check the file system",
        path, (int)g->agent);
    return true;
}

/* Wait for signals until the agent has ended. Then set *status to the agent's wait status and return true. Return false
 * if the agent hangs. The agent is checked after every signal, because two SIGCHLD may be merged into one. */
static bool watch_agent(struct guardian *g, int *status)
{
    do {
        siginfo_t info;
        const int sig = wait_for_signal(g, &info);
        if (waitpid(g->agent, status, WNOHANG) == g->agent)
            return true;
        if (sig > 0 && sig != SIGCHLD)
            hand_on(g, &info);
        if (may_not_stand(g))
            wake_if_stopped(g->agent);
    } while (!has_hung(g));
    return false;
}

static void print_agent_died(pid_t agent, int sig)
{
    const char *name = signal_abbrev(sig);
    log_error("the agent process (pid %d) was killed by signal %d (SIG%s); all processes that it had started "
              "were killed",
              (int)agent, sig, name != NULL ? name : "?");
}

/* Kill all remaining descendants, then remove the control group and the record. If `named` is true, do not list
 * processes that cannot be killed, because the agent has already reported these processes. */
static void sweep(struct contain *contain, bool named)
{
    struct buf names = { 0 };
    contain_kill(contain);
    if (descendants_kill_all(named ? STUCK_LIMIT_MS : SWEEP_LIMIT_MS)) {
        contain_remove(contain);
        return;
    }
    if (named)
        return;
    descendants_names(&names);
    log_error(
        "cannot kill processes that hang in the kernel: %.*s; check the disks, file servers and drivers of "
        "this host",
        (int)names.len, (const char *)names.data);
    buf_free(&names);
}

/* Run the agent in the child. The agent has its own session, so a Ctrl-C reaches only the guardian, which passes the
 * signal on once.
 *
 * prctl() requests a SIGCONT when the guardian dies, because SIGCONT wakes a stopped agent. The agent then reads the
 * end of the lifeline and kills all processes. If this signal were SIGKILL, the workers' children would survive. If the
 * guardian dies before the call of prctl(), no SIGCONT arrives. So the agent also closes its writing end of the
 * lifeline, and reads end-of-file when the guardian is dead. */
static int become_agent(struct guardian *g, guardian_body body, void *arg, struct contain *contain)
{
    struct ddp_err err;
    close(g->lifeline[1]);
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    if (contain_enter(contain, g->lifeline[0], &err) != DDP_OK) {
        log_error("%s", err.msg);
        return EXIT_CODE_DDPRUN;
    }
    setsid();
    descendants_adopt(); /* a child does not inherit PR_SET_CHILD_SUBREAPER */
    /* Replace the inherited list of the guardian's children. In this PID namespace, the pids in the inherited list may
     * name other processes. */
    descendants_spare();
    const int code = body(arg, g->lifeline[0]);
    /* If a thread hangs in the kernel, exit() cannot end this process. With --contain=pidns, a process that cannot be
     * killed has the same effect. So wake the guardian, which then waits for this process only for a limited time. */
    const bool is_stuck = code == EXIT_CODE_UNKILLABLE || timed_call_has_left();
    if (is_stuck || disk_hangs(0, NULL)) {
        disk_watch_leave(is_stuck);
        if (getppid() == g->self) /* true while the guardian runs; always false with --contain=pidns */
            kill(g->self, SIGCHLD);
    }
    return code;
}

/* Wait for the agent, kill all remaining descendants, and return ddprun's exit code. */
static int watch_over(struct guardian *g, struct contain *contain)
{
    close(g->lifeline[0]);
    int status;
    if (!watch_agent(g, &status)) {
        sweep(contain, true);
        return EXIT_CODE_UNKILLABLE;
    }
    if (WIFEXITED(status)) {
        sweep(contain, WEXITSTATUS(status) == EXIT_CODE_UNKILLABLE);
        return WEXITSTATUS(status);
    }
    sweep(contain, false);
    print_agent_died(g->agent, WTERMSIG(status));
    record_sweep(false); /* with --hosts, remove the records of the agents that sweep() has killed */
    return EXIT_CODE_SIGNAL + WTERMSIG(status);
}

int guardian_run(guardian_body body, void *arg, signal_set stop, struct contain *contain)
{
    struct guardian g = { .self = getpid(), .stop = stop, .is_hidden = contain_hides_guardian(contain) };
    signal_watch_block(&g.watched);
    disk_watch_share();
    descendants_spare();
    descendants_adopt(); /* a failure is ignored here; contain.c reports it as a missing feature */
    if (pipe2(g.lifeline, O_CLOEXEC | O_NONBLOCK) != 0 || (g.agent = contain_fork(contain)) < 0) {
        char why[FORK_ERROR_MAX];
        log_error("agent process: cannot start: %s", fork_error_text(errno, why));
        return EXIT_CODE_DDPRUN;
    }
    if (g.agent == 0)
        return become_agent(&g, body, arg, contain);
    return watch_over(&g, contain);
}

int guardian_is_gone(struct contain *contain)
{
    sweep(contain, false);
    record_sweep(false);
    return EXIT_CODE_SIGNAL + SIGKILL;
}
