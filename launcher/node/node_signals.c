/* node_signals.c -- see node_core.h.
 *
 * Signals come by two ways: what was sent to the guardian arrives as messages in the lifeline, what was sent to
 * this process by a signalfd. libuv's own signal handles would not say who sent it. All are blocked in every thread
 * of ours for the whole life of the process, so none ever acts by its default.
 *
 * signals.h says what each does; here it is done. The death of the guardian shows as the end of the lifeline. */
#include "node/node_core.h"

#include "contain/descendants.h"
#include "node/guardian.h"
#include "node/signal_watch.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- what signals do ------------------------------------------------------------------------------------ */

static void go_on(struct node *n)
{
    n->resting = false;
    descendants_signal(SIGCONT);
}

/* Workers, or what they have left behind. */
static bool attempt_runs(const struct agent *agent)
{
    const enum agent_state state = agent_state(agent);
    return state >= AGENT_RUNNING && state <= AGENT_SWEEPING;
}

/* The first request is graceful, the second means now: the core counts them. */
static void stop_asked(struct node *n, const struct signal_heard *heard)
{
    const bool first = agent_stop_signal(n->agent) == 0;
    if (!signals_is_new_stop(&n->stop_memory, heard, clock_ms()))
        return;
    if (agent_state(n->agent) == AGENT_DONE) {
        node_leave_output(n);
        return;
    }
    if (first)
        n->stop_heard = *heard;
    if (n->resting) /* who is to end must go on, and so must those it waits for */
        go_on(n);
    announce_stop(&n->announce, heard, first, attempt_runs(n->agent));
    node_feed(n, (struct agent_event){ .type = AGENT_STOP, .signal = heard->signal });
}

/* The worker alone: a helper that it has started, a data loader, knows nothing of this signal and would die. */
static void pass_on(struct node *n, const struct signal_heard *heard)
{
    int passed = 0;
    if (!signals_is_new_stop(&n->pass_memory, heard, clock_ms()))
        return;
    for (int i = 0; i < n->plan->nproc; i++)
        passed += n->pids[i] != 0 && kill(n->pids[i], heard->signal) == 0;
    announce_passed(&n->announce, heard, passed);
}

/* SIGSTOP and not SIGTSTP: a worker may ignore that, and would go on alone. A second round reaches those who were
 * born while the first went through the tree; behind it nobody runs who could make more. This process goes on: the
 * store and the output live here. */
static void rest(struct node *n)
{
    n->resting = true;
    descendants_signal(SIGSTOP);
    descendants_signal(SIGSTOP);
}

/* A worker that somebody has stopped keeps all the others waiting, so it is said; not when we have stopped it. */
static void say_who_stopped(struct node *n)
{
    siginfo_t info = { 0 };
    while (waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid != 0) {
        for (int i = 0; i < n->plan->nproc; i++)
            if (n->pids[i] == info.si_pid && !n->resting)
                announce_worker_stopped(&n->announce, i, agent_worker(n->agent, i)->pid, info.si_status);
        info.si_pid = 0;
    }
}

static void hear(struct node *n, const struct signal_heard *heard)
{
    switch (signals_act(n->plan->cli->stop_signals, heard->signal)) {
    case SIGNAL_STOP:
        stop_asked(n, heard);
        break;
    case SIGNAL_STATUS:
        node_status(n, heard);
        break;
    case SIGNAL_PASS:
        pass_on(n, heard);
        break;
    case SIGNAL_REST:
        rest(n);
        break;
    case SIGNAL_RESUME:
        go_on(n);
        break;
    case SIGNAL_CHILD:
        n->reap = true; /* in the loop's next turn, once for all who have ended by then */
        say_who_stopped(n);
        break;
    case SIGNAL_NONE:
        break;
    }
}

/* --- how they come -------------------------------------------------------------------------------------- */

/* The guardian wakes us where we stood, and the kernel when the guardian dies: that is no word to the job. */
static bool is_wake(const struct node *n, const struct signalfd_siginfo *info)
{
    return info->ssi_signo == SIGCONT && (pid_t)info->ssi_pid == n->guardian;
}

static void on_signal(uv_poll_t *poll, int status, int events)
{
    struct node *n = poll->data;
    struct signalfd_siginfo info;
    (void)status, (void)events;
    while (!n->ended && read(n->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        const struct signal_heard heard = {
            .signal = (int)info.ssi_signo,
            .sender = signal_watch_sender(info.ssi_code, (int)info.ssi_pid, info.ssi_uid),
        };
        if (!is_wake(n, &info))
            hear(n, &heard);
    }
    node_pump(n);
}

/* The store goes before our own connection to it: nodes that it told of our loss would end otherwise than those that
 * only see the loss of the store. */
static void finish_without_guardian(struct node *n)
{
    const int code = guardian_is_gone(n->contain);
    store_server_stop(n->store);
    n->store = NULL;
    node_finish(n, code);
}

/* Messages of the guardian. At their end it is dead, killed most likely: there is nobody to report to; what matters
 * is that nothing stays behind. */
static void on_lifeline(uv_poll_t *poll, int status, int events)
{
    struct node *n = poll->data;
    struct signal_heard heard;
    ssize_t got = 0;
    (void)status, (void)events;
    while (!n->ended && (got = read(n->lifeline_fd, &heard, sizeof(heard))) == (ssize_t)sizeof(heard))
        hear(n, &heard);
    if (!n->ended && (got == 0 || errno != EAGAIN))
        finish_without_guardian(n);
    node_pump(n);
}

static void poll_fd(struct node *n, uv_poll_t *poll, int fd, uv_poll_cb cb)
{
    uv_poll_init(&n->loop, poll, fd);
    poll->data = n;
    uv_poll_start(poll, UV_READABLE | UV_DISCONNECT, cb);
}

bool node_watch_signals(struct node *n, int lifeline)
{
    sigset_t watched;
    signal_watch_block(&watched);
    n->guardian = getppid();
    n->lifeline_fd = lifeline;
    n->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (n->signal_fd < 0)
        return false;
    poll_fd(n, &n->lifeline, lifeline, on_lifeline);
    poll_fd(n, &n->signals, n->signal_fd, on_signal);
    node_open_status(n);
    return true;
}
