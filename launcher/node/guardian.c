/* guardian.c -- see guardian.h. The guardian must survive the agent, so it has no thread, no event loop and no
 * allocation while it waits. Each of its events is a signal, except that an agent in a PID namespace uses shared
 * memory. */
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
    /* limit for killing processes that the agent could not kill */
    STUCK_LIMIT_MS = 100,
    /* After this time without a signal, code pages that only the start has used are released. If the agent cannot
     * signal the guardian, the guardian checks at this interval whether the agent has left. */
    SETTLED_S = 1,
    /* how long to wait for a hanging disk after the user's second request to stop */
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

/* Return true if the signal must be watched. While SIGCHLD is ignored, the kernel drops the exit status of children, so
 * always watch it. */
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

/* Continue a stopped agent. An unneeded SIGCONT could block a debugger that attaches. */
static void wake_if_stopped(pid_t agent)
{
    siginfo_t stopped = { 0 };
    if (waitid(P_PID, (id_t)agent, &stopped, WSTOPPED | WNOHANG | WNOWAIT) == 0 && stopped.si_pid == agent)
        kill(agent, SIGCONT);
}

/* Return true if the agent must not stay stopped: it should end, or it has an unread message. Check this after every
 * signal, because the agent may be stopped after the message. */
static bool may_not_stand(const struct guardian *g)
{
    int unread = 0;
    return g->ends || (ioctl(g->lifeline[1], FIONREAD, &unread) == 0 && unread > 0);
}

/* Send a received signal to the agent as a message, which has the original sender and is never merged. Ignore a full
 * pipe, which holds a thousand messages, and a closed pipe, because the agent is ending. */
static void guardian_forward(const struct guardian *g, const struct received_signal *received)
{
    if (write(g->lifeline[1], received, sizeof(*received)) < 0 && errno != EAGAIN && errno != EPIPE)
        log_warn("cannot forward a signal to the agent process: %s", strerror(errno));
    wake_if_stopped(g->agent);
}

/* Handle Ctrl-Z: stop the job, then this process, so that the shell prints its prompt last. The first process of a
 * container cannot be stopped, and goes on. */
static void rest(const struct guardian *g, const struct received_signal *received)
{
    guardian_forward(g, received);
    raise(SIGSTOP);
}

/* Handle a signal. Count the signals that stop the job, because the agent may not respond. */
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

/* Drop the code pages of one loaded object. The kernel reads them again when needed. */
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

/* Wait for a signal, and release code pages after SETTLED_S. While has_hung() checks the disk, wait at most
 * HUNG_CHECK_MS. Also return if the agent has left, but cannot send a signal. */
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

/* Return true if SIGKILL cannot end the agent, for example because a file system hangs. Check this only after the
 * second request to stop, or if the agent has left (disk_watch_leave). Without a hanging disk, wait for SWEEP_LIMIT_MS,
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

/* Wait until the agent has ended, set *status to its wait status and return true. Return false if the agent hangs.
 * Check the agent after every signal, because two SIGCHLD may be merged. */
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

/* Kill all remaining descendants, then remove the control group and the record. If `named`, the agent has already
 * reported the processes that cannot be killed. */
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

/* Run the agent in the child. In its own session, it gets a Ctrl-C only once, from the guardian.
 *
 * When the guardian dies, a SIGCONT wakes a stopped agent. The agent reads the end of the lifeline and kills all
 * processes. SIGKILL would let the workers' children survive. If the guardian dies before prctl(), no SIGCONT arrives.
 * So the agent closes its writing end of the lifeline, which then ends. */
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
    descendants_spare(); /* the pids of the guardian's list may be wrong in this PID namespace */
    const int code = body(arg, g->lifeline[0]);
    /* A thread that hangs in the kernel keeps exit() from ending this process. So let the guardian limit its wait. */
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
    record_sweep(false); /* with --hosts, these agents were killed by sweep() */
    return EXIT_CODE_SIGNAL + WTERMSIG(status);
}

int guardian_run(guardian_body body, void *arg, signal_set stop, struct contain *contain)
{
    struct guardian g = { .self = getpid(), .stop = stop, .is_hidden = contain_hides_guardian(contain) };
    signal_watch_block(&g.watched);
    disk_watch_share();
    descendants_spare();
    descendants_adopt(); /* contain.c reports a failure as a missing feature */
    if (pipe2(g.lifeline, O_CLOEXEC | O_NONBLOCK) != 0 || (g.agent = contain_fork(contain)) < 0) {
        char why[FORK_ERROR_MAX];
        log_error("cannot start the agent process: %s", fork_error_text(errno, why));
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
