/* signals.c -- see node.h: signals in the agent. guardian.c has blocked the signals that ddprun handles. The agent
 * reads these signals from a descriptor, so that they cannot interrupt any other function. */
#include "base/clock.h"
#include "contain/descendants.h"
#include "contain/procfs.h"
#include "node/effects.h"
#include "node/node.h"
#include "node/guardian.h"
#include "report/user_messages.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- status for the user ---------------------------------------------------------------------------------- */

/* A request for the status (SIGQUIT, Ctrl-\) is answered with the states of the processes and the answer of the store.
 * STORE_PATIENCE_MS limits the wait for this answer. */

enum { STORE_PATIENCE_MS = 1000 };

/* Return the state as ps prints it, or 0 if the process is gone. */
static char state_of(pid_t pid)
{
    struct proc_stat stat;
    return procfs_stat(pid, &stat) ? stat.state : '\0';
}

/* Print the status, once for each request. `answer` is NULL if the store has not answered in time. If memory is
 * short, print nothing. */
static void status_print(struct node *n, const struct cJSON *answer)
{
    struct buf text = { 0 };
    char *states = calloc((size_t)n->plan->nproc, 1);
    const struct status_facts facts = { .plan = n->plan,
                                        .agent = n->agent,
                                        .started_ms = n->started_ms,
                                        .now_ms = clock_ms(),
                                        .states = states,
                                        .answer = answer };
    n->out.status_asked = false;
    uv_timer_stop(&n->out.status_timer);
    for (int i = 0; states != NULL && i < n->plan->nproc; i++)
        states[i] = n->run.pids[i] != 0 ? state_of(n->run.pids[i]) : '\0';
    for (int i = 0; states != NULL && status_line(&facts, i, &text); i++) {
        output_note(n->out.output, "%.*s", (int)text.len, (const char *)text.data);
        text.len = 0;
    }
    buf_free(&text);
    free(states);
}

/* Print the status without the answer from the store. */
static void on_no_answer(uv_timer_t *timer)
{
    status_print(timer->data, NULL);
}

void node_on_status(void *user, const struct cJSON *answer)
{
    struct node *n = user;
    if (n->meet.waiting_asked) {
        n->meet.waiting_asked = false;
        decode_unfinished(answer, n->plan->node_rank, n->meet.unfinished);
        announce_waiting_for_end(&n->out.announce, n->meet.unfinished, n->agent);
    }
    if (n->out.status_asked)
        status_print(n, answer);
}

/* Print the stacks of the workers. The stacks arrive after the status was printed. */
static void on_stacks(struct node *n, struct stacks *stacks, const struct stack_request *request)
{
    (void)request;
    announce_stacks(&n->out.announce, stacks->rows, stacks->is_cut);
}

/* Request the status from the store, and print the status when the answer arrives. The stacks follow later, because
 * reading stacks takes longer. If the user asks again before the answer arrives, do not read the stacks twice. */
static void status_begin(struct node *n, const struct received_signal *received)
{
    announce_status(&n->out.announce, received);
    if (!n->out.status_asked)
        (void)node_dump_stacks(n, &(struct stack_request){ .done = on_stacks });
    n->out.status_asked = true;
    if (store_link_ask_status(n->meet.link))
        uv_timer_start(&n->out.status_timer, on_no_answer, STORE_PATIENCE_MS, 0);
    else
        status_print(n, NULL);
}

static void status_open(struct node *n)
{
    uv_timer_init(&n->loop, &n->out.status_timer);
    n->out.status_timer.data = n;
}

/* --- the agent's own signals ------------------------------------------------------------------------------- */

/* The agent reads signals from the lifeline (messages of the guardian) and from a signalfd, because libuv hides the
 * sender. Every thread blocks all signals of tables/signals.h, which also defines their actions. */

/* --- effects of signals --------------------------------------------------------------------------------- */

/* Continue all processes of the job after a suspension (Ctrl-Z). */
static void go_on(struct node *n)
{
    n->run.resting = false;
    descendants_signal(SIGCONT);
}

/* Return true while workers or their leftover processes exist. */
static bool attempt_runs(const struct agent *agent)
{
    const enum agent_state state = agent_state(agent);
    return state >= AGENT_RUNNING && state <= AGENT_SWEEPING;
}

/* Inform the agent that a stop of the job was requested. The first request is graceful, the second request immediate.
 * After the end of the job, only unread output remains, and a request drops this output. Ignore a request while
 * EFFECT_FINISH, which sets the exit code, is still in the queue. */
static void stop_asked(struct node *n, const struct received_signal *received)
{
    /* agent_stop_signal() is not suitable here: it also returns the signal of a stop from the store */
    const bool first = n->stop_memory.at_ms == 0;
    node_read_news(n); /* read the reason, which a relay sends before the signal */
    if (n->ended)
        return;
    if (!signals_is_new_stop(&n->stop_memory, received, clock_ms()))
        return;
    if (agent_state(n->agent) == AGENT_DONE) {
        if (n->out.finishing)
            node_leave_output(n);
        return;
    }
    if (first)
        n->stop_received = *received;
    node_end_dumps(n);  /* a stop by the user does not wait for stacks */
    if (n->run.resting) /* suspended processes must continue in order to exit */
        go_on(n);
    if (!node_has_lost_host(n))
        announce_stop(&n->out.announce, received, first, attempt_runs(n->agent));
    node_handle_event(n, (struct agent_event){ .type = AGENT_STOP, .signal = received->signal });
}

/* Pass the signal on to the workers, but not to the processes that the workers started. Such a process, for example a
 * data loader, has no handler and would die. */
static void pass_on(struct node *n, const struct received_signal *received)
{
    int passed = 0;
    if (!signals_is_new_stop(&n->pass_memory, received, clock_ms()))
        return;
    for (int i = 0; i < n->plan->nproc; i++)
        passed += n->run.pids[i] != 0 && kill(n->run.pids[i], received->signal) == 0;
    announce_passed(&n->out.announce, received, passed);
}

/* Stop all processes of the job with SIGSTOP, because a worker may ignore SIGTSTP. Send the signal twice, because a
 * process may have been created while the first signals were sent. This process continues, because it hosts the store
 * and forwards the output. */
static void rest(struct node *n)
{
    n->run.resting = true;
    descendants_signal(SIGSTOP);
    descendants_signal(SIGSTOP);
}

/* Report each worker that another process has stopped, because one stopped worker blocks all other workers. WSTOPPED
 * without WNOWAIT consumes the report of the kernel, so each stop is reported once. */
static void report_stopped(struct node *n)
{
    siginfo_t info = { 0 };
    while (waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid != 0) {
        for (int i = 0; i < n->plan->nproc; i++)
            if (n->run.pids[i] == info.si_pid && !n->run.resting)
                announce_worker_stopped(&n->out.announce, i, agent_worker(n->agent, i)->pid, info.si_status);
        info.si_pid = 0;
    }
}

/* Carry out the action of a signal, which this process or the guardian has received. */
static void handle_signal(struct node *n, const struct received_signal *from)
{
    struct received_signal now = *from;
    const struct received_signal *received = &now;
    /* With --hosts, Ctrl-C and Ctrl-\ arrive through the relay. Treat them like keys of a local terminal, for which
     * the kernel is the sender. */
    now.sender.kernel = now.sender.kernel || (n->plan->cli->one_console && now.by_parent &&
                                              (now.signal == SIGINT || now.signal == SIGQUIT));
    switch (signals_act(n->plan->cli->stop_signals, received->signal)) {
    case SIGNAL_STOP:
        stop_asked(n, received);
        break;
    case SIGNAL_STATUS:
        status_begin(n, received);
        break;
    case SIGNAL_PASS:
        pass_on(n, received);
        break;
    case SIGNAL_REST:
        rest(n);
        break;
    case SIGNAL_RESUME:
        go_on(n);
        break;
    case SIGNAL_CHILD:
        n->run.reap = true; /* on_more() collects the children in the next pass of the loop */
        report_stopped(n);
        break;
    case SIGNAL_NONE:
        break;
    }
}

/* --- arrival of signals --------------------------------------------------------------------------------- */

/* Return true for the guardian's SIGCONT, which must not continue a suspended job. */
static bool is_wake(const struct node *n, const struct signalfd_siginfo *info)
{
    return info->ssi_signo == SIGCONT && (pid_t)info->ssi_pid == n->guardian;
}

/* Handle all signals that have arrived. If a signal was sent several times before this read, the kernel reports the
 * signal only once. */
static void on_signal(uv_poll_t *poll, int status, int events)
{
    struct node *n = poll->data;
    struct signalfd_siginfo info;
    (void)status, (void)events;
    while (!n->ended && read(n->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        const struct received_signal received = {
            .signal = (int)info.ssi_signo,
            .sender = procfs_sender(info.ssi_code, (int)info.ssi_pid, info.ssi_uid),
        };
        if (!is_wake(n, &info))
            handle_signal(n, &received);
    }
    node_run_effects(n);
}

/* End everything, because the guardian is dead. Stop the store before closing the connection to the store. Otherwise
 * the store would report the loss of this node to some nodes but not to others. */
static void finish_without_guardian(struct node *n)
{
    const int code = guardian_is_gone(n->run.contain);
    store_server_stop(n->meet.store);
    n->meet.store = NULL;
    node_finish(n, code);
}

/* Read messages of the guardian from the lifeline. End of file means that the guardian has died. In this case, no
 * user can get a report, but all processes must still be killed. */
static void on_lifeline(uv_poll_t *poll, int status, int events)
{
    struct node *n = poll->data;
    struct received_signal received;
    ssize_t got = 0;
    (void)status, (void)events;
    while (!n->ended &&
           (got = read(n->lifeline_fd, &received, sizeof(received))) == (ssize_t)sizeof(received))
        handle_signal(n, &received);
    if (!n->ended && (got == 0 || errno != EAGAIN))
        finish_without_guardian(n);
    node_run_effects(n);
}

static void poll_fd(struct node *n, uv_poll_t *poll, int fd, uv_poll_cb cb)
{
    uv_poll_init(&n->loop, poll, fd);
    poll->data = n;
    uv_poll_start(poll, UV_READABLE | UV_DISCONNECT, cb);
}

/* Watch the signals and the lifeline. The guardian has already blocked the signals before the fork. This function calls
 * signal_watch_block() again only to get the set of these signals. */
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
    status_open(n);
    return true;
}
